#pragma once

#include <QString>
#include <QStringList>

#include "app/gui/document/document.h"
#include "simulator/report/verdict.h"

namespace pw::gui {

/// Why there is nothing to compare: no run is selected, or this one (null: none) has no step; else what is measured (null: nothing) is not
/// finished, or has no prediction.
[[nodiscard]] QString whyNotCompared(const Measured* measured, const RunRecord* run);

/// What to know of a measured step that is compared with its prediction, in sentences: the run failed, was of another plan than the
/// one that is predicted now (null: none), shared cores, or took much longer or shorter than predicted; then which times that was from.
[[nodiscard]] QStringList notesOn(const Measured& measured, const Prediction* prediction, const Verdict& verdict);

/// A step that is compared with another.
struct SizedStep {
  QString name;  ///< `plan A`, `run 7`
  Ns time = 0;
  std::int64_t samples = 0;  ///< 0: not known
};
[[nodiscard]] SizedStep sizedStep(const QString& name, const Measured& measured);
/// Of steps that do not train as many samples: which is faster per sample. Empty where they do, or where that is not known.
[[nodiscard]] QString perSampleVerdict(const SizedStep& before, const SizedStep& after, Happened happened);

}  // namespace pw::gui
