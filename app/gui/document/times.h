#pragma once

#include <QString>

#include "app/gui/document/document.h"
#include "simulator/job/times_of.h"

namespace pw::gui {

/// What the times of a step that is shown are: of a pinned plan predicted, of a run with --synthetic rehearsed, else measured.
[[nodiscard]] TimesOf timesOf(const Measured& step);

/// What a step is called beside a prediction, in lower case: `plan A`, `replayed`, `rehearsed`, `measured`.
[[nodiscard]] QString nameOfTimes(const Measured& step);

/// What has such times, by what they are called: `the prediction` of `predicted`, `the measurement` of `measured`; `plan A` is one itself.
[[nodiscard]] QString whatHasTimes(const QString& name);

}  // namespace pw::gui
