#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedules/schedule.h"

namespace pw::test {

/// Where the W of a backward goes that is split.
enum class Weights : std::uint8_t {
  AtOnce,  ///< directly after its I
  Last,    ///< with all others to the end of the row
};

/// Splits every B into I and W; the B of a slot stays whole, because a slot is one overlapped action. With W at once
/// `mergeBackward(splitBackward(s)) == s` for every s of F and B without idle cells.
inline Schedule splitBackward(const Schedule& compute, Weights weights = Weights::AtOnce) {
  Schedule split = compute;
  for (std::size_t rank = 0; rank < split.rows.size(); ++rank) {
    std::vector<Action>& row = split.rows[rank];
    std::vector<Action> later;
    row.clear();
    bool inSlot = false;
    for (const Action& a : compute.rows[rank]) {
      const bool whole = inSlot || a.kind != ActionKind::Backward;
      inSlot = a.overlapsNext;
      if (whole) {
        row.push_back(a);
        continue;
      }
      row.push_back({a.stage, ActionKind::BackwardInput, a.microbatch});
      (weights == Weights::Last ? later : row).push_back({a.stage, ActionKind::BackwardWeight, a.microbatch});
    }
    row.insert(row.end(), later.begin(), later.end());
  }
  return split;
}

}  // namespace pw::test
