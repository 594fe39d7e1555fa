#pragma once

#include <QString>

#include "schedules/ids.h"

namespace pw::gui {

/// For labels, in the format of the command line (`1.25 ms`, `3.2 MiB`).
[[nodiscard]] QString duration(Ns time);
[[nodiscard]] QString size(Bytes bytes);
[[nodiscard]] QString percent(double fraction, int decimals = 1);
[[nodiscard]] QString signedPercent(double fraction);  ///< `+3.1 %`
[[nodiscard]] QString count(double number);            ///< `1.2 M`, `350 k`, `12`

}  // namespace pw::gui
