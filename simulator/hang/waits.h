#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/hang/recording.h"
#include "simulator/hang/rows.h"

namespace pw::hang {

/// Why an operation is not done, as seen at the rank that it needs.
enum class Reason : std::uint8_t {
  NoDump,       ///< that rank left no dump
  NotPosted,    ///< it has not posted its end
  SizesDiffer,  ///< it posted another size
  Unalike,      ///< it posted another collective in that place
  Unfinished,   ///< it posted its end, which is not done either
  TheyAreDone,  ///< its end is done (of a receive: a send whose receiver is done is no wait)
};

/// An operation that is not done, and a rank that it needs.
struct Wait {
  JobRank rank;
  std::size_t op = 0;  ///< of the rank's dump
  JobRank on;
  Reason reason = Reason::NotPosted;
  std::optional<std::size_t> other{};  ///< their operation, where they posted one
};

inline constexpr std::size_t kMostWaits = 4'000'000;  ///< of a job, until of a collective only one member is kept

/// What a job's operations wait for.
struct Waits {
  /// For each dump, what its operations that are not done wait for, oldest first, at most the first 256 operations; what the recorder says
  /// the rank waited for comes first. Of a collective all members that it waits for are there only for the first of these operations and
  /// those started together with it, until the job has 4,000,000 waits; for others the first such member.
  std::vector<std::vector<Wait>> open;
  /// Messages whose ends disagree about the size, done or not: the first of each pair, as waits of the receiver.
  std::vector<Wait> mismatched;
};

/// A message's ends are found by their actions where both recorders name them, else by their order, for neither NCCL nor Gloo knows an
/// action; messages of a runtime's set-up count on their own. Where a dump lost its beginning, ends are
/// counted from the first that is not done. Collectives are found by their order in their group, or where a dump lost its beginning by the
/// recorder's numbers: torch 2.4 counts coalesced messages among them, so that ranks number one collective differently. `rows`: null
/// without a schedule. Cost: n log n in operations, and for each open collective its group.
[[nodiscard]] Waits waitsOf(const Dumps& dumps, const Rows* rows);

}  // namespace pw::hang
