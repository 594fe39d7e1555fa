#include "simulator/order/problem/made_schedules.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "simulator/step/lanes.h"
#include "simulator/step/recost.h"

namespace pw {
namespace {

/// More than is kept of a microbatch, while one of the stage's actions runs.
Bytes whileRunning(const StageCost& cost) {
  return std::max({Bytes{0}, cost.forwardPeak - cost.activationBytes, cost.backwardPeak, cost.inputPeak, cost.weightPeak});
}

/// The largest buffers of messages beside what an action holds, by rank: of what the next one receives, and of a gradient on its way.
std::vector<Bytes> buffersOf(const OrderProblem& problem) {
  const CrossingBytes crossing(problem.placement, problem.costs);
  std::vector<Bytes> received(static_cast<std::size_t>(problem.ranks), 0), sent(received);
  for (std::size_t s = 0; s < problem.costs.stages.size(); ++s) {
    const std::size_t r = problem.placement.rankOfStage[s].index();
    for (const bool backward : {false, true}) received[r] = std::max(received[r], crossing.in[endOf(Stage(s), backward)]);
    sent[r] = std::max(sent[r], crossing.out[s]);
  }
  for (std::size_t r = 0; r < sent.size(); ++r) received[r] += sent[r];
  return received;
}

}  // namespace

const Generator& familyOf(std::string_view name) {
  std::array<std::string_view, kMadeSchedules.size()> made;
  std::ranges::transform(kMadeSchedules, made.begin(), &MadeSchedule::name);
  return generatorOf(name, made);
}

void limitRoom(OrderProblem& problem, const MadeSchedule& made) {
  if (made.room == 0) return;
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  const int microbatches = std::min(made.room * problem.ranks, problem.microbatches);  // there are no more to hold
  std::vector<Bytes> held(ranks, 0), running(ranks, 0);
  std::vector<int> stages(ranks, 0);
  for (std::size_t s = 0; s < problem.costs.stages.size(); ++s) {
    const StageCost& cost = problem.costs.stages[s];
    const std::size_t r = problem.placement.rankOfStage[s].index();
    held[r] += cost.activationBytes;
    running[r] = std::max(running[r], whileRunning(cost));
    ++stages[r];
  }
  const bool inBytes = std::ranges::any_of(held, [](Bytes bytes) { return bytes > 0; });
  if (inBytes) {
    const std::vector<Bytes> buffers = buffersOf(problem);
    problem.limits.resize(ranks, std::numeric_limits<Bytes>::max() / 4);
    for (std::size_t r = 0; r < ranks; ++r) {
      const Bytes always = heldThroughout(problem.placement, problem.microbatches, problem.costs, Rank(r));
      problem.limits[r] = std::min(problem.limits[r], always + held[r] * microbatches + running[r] + buffers[r]);
    }
  } else {
    problem.liveLimits.resize(ranks, std::numeric_limits<int>::max());
    for (std::size_t r = 0; r < ranks; ++r) problem.liveLimits[r] = std::min(problem.liveLimits[r], microbatches * stages[r]);
  }
}

}  // namespace pw
