#include "simulator/report/bubble_causes.h"

namespace pw {

BubbleCause causeOf(Phase phase, bool message) {
  if (message) return BubbleCause::Message;
  switch (phase) {
    case Phase::Warmup: return BubbleCause::StartUp;
    case Phase::Steady: return BubbleCause::Imbalance;
    case Phase::Cooldown: break;
  }
  return BubbleCause::Drain;
}

std::vector<IdleByCause> idleByCause(const Explanation& explanation) {
  std::vector<IdleByCause> ranks(explanation.workReady.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].workReady = explanation.workReady[r];
  for (const BubbleGroup& group : explanation.groups) ranks.at(group.rank.index()).of(causeOf(group.phase, group.message)) += group.idle;
  return ranks;
}

}  // namespace pw
