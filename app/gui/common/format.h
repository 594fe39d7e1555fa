#pragma once

#include <QString>
#include <string_view>

#include "schedules/ids.h"
#include "schedules/schedule.h"

namespace pw::gui {

/// What `tr` is elsewhere, for functions that belong to no QObject. `count` stands for %n, and decides about the plural.
[[nodiscard]] QString translated(const char* text, const char* comment = nullptr, int count = -1);
/// Of UTF-8.
[[nodiscard]] QString textOf(std::string_view text);
/// With a capital: errors that follow a command's name begin in lower case, and stand alone in the window.
[[nodiscard]] QString capitalised(QString sentence);

[[nodiscard]] QString actionText(const Action& action);  ///< `1F3`

/// For labels, in the format of the command line (`1.25 ms`, `3.2 MiB`).
[[nodiscard]] QString durationText(Ns time);
[[nodiscard]] QString sizeText(Bytes bytes);
[[nodiscard]] QString percentText(double fraction, int decimals = 1);  ///< `3.1 %`; of a share that would be shown as 0: `< 0.1 %`
[[nodiscard]] QString signedPercentText(double fraction);              ///< `+3.1 %`
[[nodiscard]] QString countText(double number);                        ///< `1.2 M`, `350 k`, `12`

}  // namespace pw::gui
