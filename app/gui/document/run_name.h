#pragma once

#include <QString>
#include <string>

#include "schedules/ids.h"

namespace pw {
struct RunRecord;
}

namespace pw::gui {

/// Which run of a store something is of. A number alone does not say it: another store at the same path may have another run of that
/// number.
struct RunName {
  RunId id;
  std::string startedAt = {};  ///< as `RunRecord::startedAt`; empty: not known, as projects of version 0.1 do not say it

  bool operator==(const RunName&) const = default;
};

[[nodiscard]] RunName runNameOf(const RunRecord& run);
/// Whether a run with this number and start is the one that is named.
[[nodiscard]] bool isRun(const RunName& name, RunId id, const std::string& startedAt);

/// `run 7 · 22 Nov 14:03`.
[[nodiscard]] QString titleOf(const RunName& run);
/// `22 Nov 14:03` of an ISO 8601 time in UTC, in local time (with the year where it is not this one); the text itself where it is none.
[[nodiscard]] QString whenOf(const std::string& startedAt);

}  // namespace pw::gui
