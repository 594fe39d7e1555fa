#pragma once

// Internal to the import of traces: several files on one clock.

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

/// How far each clock is to be put forward so that no action starts before its input exists. What one clock's ranks send to another's
/// bounds the difference of the two from one side, what comes back from the other side; where the bounds exclude that they agree, it is the
/// middle of them, or where they do so by less than they are wide, the nearer bound. Clocks are joined to that of the lowest rank over the
/// pairs whose bounds are closest. 0 where clocks agree. Spans are sorted; `marks`: by rank, begin and number of its steps. Cost: n log n
/// in the first 10,000 actions of each clock.
[[nodiscard]] std::vector<Ns> clockMoves(const std::vector<Span>& spans, const RankClocks& clocks, const RankPlaces& places,
                                         const RankMarks& marks, std::vector<std::string>& notes);

}  // namespace pw
