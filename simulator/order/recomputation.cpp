#include "simulator/order/recomputation.h"

#include <algorithm>

namespace pw {
namespace {

/// Keeps only `kept` until the backward, which then needs the rest.
void keepUntilBackward(StageCost& cost, Bytes kept) {
  const Bytes whole = cost.activationBytes, after = whole - cost.freedByInput + cost.addedByInput;
  const Bytes again = whole - kept;
  cost.activationBytes = kept;
  cost.backwardPeak += again;
  cost.inputPeak += again;
  cost.freedByInput = std::max<Bytes>(0, kept - after);
  cost.addedByInput = std::max<Bytes>(0, after - kept);
}

}  // namespace

CostTable withRecomputation(const OrderProblem& problem, const std::vector<bool>& recomputed) {
  CostTable costs = problem.costs;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    if (!recomputed[s]) continue;
    StageCost& cost = costs.stages[s];
    cost.backward += cost.forward;
    cost.backwardInput += cost.forward;
    keepUntilBackward(cost, std::min(problem.ifRecomputed[s], cost.activationBytes));
  }
  return costs;
}

std::vector<Recomputed> openChoice(const OrderProblem& problem) {
  std::vector<Recomputed> choice;
  for (std::size_t s = 0; s < problem.costs.stages.size(); ++s) {
    const bool saves = !problem.ifRecomputed.empty() && problem.ifRecomputed[s] < problem.costs.stages[s].activationBytes;
    choice.push_back(saves ? Recomputed::Open : Recomputed::No);
  }
  return choice;
}

CostTable relaxedCosts(const OrderProblem& problem, const std::vector<Recomputed>& choice) {
  std::vector<bool> recomputed;
  for (const Recomputed value : choice) recomputed.push_back(value == Recomputed::Yes);
  CostTable costs = withRecomputation(problem, recomputed);
  const bool rounds = std::ranges::any_of(costs.microbatchScale, [](double scale) { return scale != 1; });
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    StageCost& cost = costs.stages[s];
    cost.backwardInput = std::min(cost.backwardInput, cost.backward);
    cost.backwardWeight = std::min(cost.backwardWeight, cost.backward - cost.backwardInput);
    if (rounds) cost.backwardWeight = std::max<Ns>(0, cost.backwardWeight - 1);  // two scaled parts may round to more than the whole
    cost.backward = cost.backwardInput + cost.backwardWeight;
    const Bytes after = cost.activationBytes - cost.freedByInput + cost.addedByInput;
    const Bytes rest = std::min(after, problem.costs.stages[s].activationBytes);  // a whole backward adds nothing for W
    if (choice[s] == Recomputed::Open) cost.activationBytes = std::min(problem.ifRecomputed[s], cost.activationBytes);
    cost.freedByInput = std::max<Bytes>(0, cost.activationBytes - rest);
    cost.addedByInput = std::max<Bytes>(0, rest - cost.activationBytes);
    cost.inputPeak = std::min(cost.inputPeak, cost.backwardPeak);
    cost.weightPeak = std::min(cost.weightPeak, cost.backwardPeak);
  }
  return costs;
}

}  // namespace pw
