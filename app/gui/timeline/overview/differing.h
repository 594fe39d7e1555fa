#pragma once

#include <QString>
#include <cstddef>
#include <vector>

#include "simulator/timeline/timeline.h"

namespace pw::gui {

/// How long a rank's compute track was busy.
struct BusyRank {
  Rank rank;
  Ns busy = 0;

  bool operator==(const BusyRank&) const = default;
};

/// Ranks whose busy time is not the usual one; their idle time differs as much.
struct Differing {
  Ns end = 0;                   ///< of the timeline: what is not busy is idle
  Ns median = 0;                ///< of all ranks' busy times; of two in the middle their mean
  std::vector<BusyRank> ranks;  ///< the largest differences, in the order of ranks
  std::size_t more = 0;         ///< that differ too, but less

  bool operator==(const Differing&) const = default;
};
/// At most `most` of the ranks whose busy time differs from the median by a hundredth of it or more. Ties go to the lower rank. Cost: ranks
/// · log ranks.
[[nodiscard]] Differing ranksThatDiffer(const Timeline& timeline, std::size_t most);
[[nodiscard]] std::vector<Rank> ranksOf(const Differing& differing);
/// As a table with a headline, columns set apart by tabulators; that there are none, in a sentence.
[[nodiscard]] QString textOf(const Differing& differing);

}  // namespace pw::gui
