#pragma once

// Internal to the import of traces: several files on one clock.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backends/traces/events/events.h"
#include "backends/traces/recovery/marks.h"
#include "backends/traces/recovery/ranks.h"
#include "backends/traces/recovery/timed_actions.h"

namespace pw {

/// Shifts all times of each file by its origin, so that they count from that of the first file with ranks of a job.
void countFromOneOrigin(std::vector<FileEvents>& files, const RankMap& map);

/// What a collective of several pipelines shows on a clock: none of its workers ends it before all have started.
struct CollectiveTime {
  std::size_t collective = 0;  ///< the same number: the same collective
  std::size_t clock = 0;
  Ns start = 0, end = 0;
};

/// How far each clock is to be put forward so that no action starts before its input exists. What one clock's ranks send to another's
/// bounds the difference of the two from one side, what comes back from the other side; where the bounds exclude that they agree, it is the
/// middle of them, or where they do so by less than they are wide, the nearer bound. Clocks are joined to that of the lowest rank over the
/// pairs whose bounds are closest. 0 where clocks agree. Spans are sorted; `marks`: by rank, begin and number of its steps. Cost: n log n
/// in the first 10,000 actions of each clock.
/// Pipelines that exchange no messages are put on one clock by the collectives that they do together, where any are known, and else by
/// their steps: none begins one before the others have ended the one before.
[[nodiscard]] std::vector<Ns> clockMoves(const std::vector<Span>& spans, const RankClocks& clocks, const RankPlaces& places,
                                         const RankMarks& marks, std::vector<std::string>& notes,
                                         const std::vector<CollectiveTime>& collectives = {});

}  // namespace pw
