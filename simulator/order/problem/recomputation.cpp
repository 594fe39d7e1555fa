#include "simulator/order/problem/recomputation.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pw {
namespace {

/// Bytes that a pair holds after its I, what the stage before holds included.
Bytes afterInput(const StageCost& cost) { return heldForWeight(cost) + cost.sharedForWeight; }

void holdAfterInput(StageCost& cost, Bytes bytes) {
  cost.freedByInput = std::max<Bytes>(0, cost.activationBytes - bytes);
  cost.addedByInput = std::max<Bytes>(0, bytes - cost.activationBytes);
  cost.sharedForWeight = std::min(cost.sharedForWeight, bytes);
}

/// How much less a part must take so that it and another, each rounded after scaling, take no more than their sum rounded: two roundings
/// add up to at most 1 ns more, which at a scale f is 1/f before it.
Ns roundingOf(const std::vector<double>& scales) {
  double least = 1;
  bool rounds = false;
  for (const double scale : scales) {
    rounds = rounds || scale != 1;
    if (scale > 0) least = std::min(least, scale);
  }
  constexpr double kMost = 1e15;  // longer than any part
  return rounds ? static_cast<Ns>(std::min(std::ceil(1 / least), kMost)) : 0;
}

/// With parts that take and hold no more than the whole backward. `rounding`: of scaled parts.
StageCost relaxedParts(StageCost cost, Ns rounding) {
  cost.backwardInput = std::min(cost.backwardInput, cost.backward);
  cost.backwardWeight = std::min(cost.backwardWeight, cost.backward - cost.backwardInput);
  cost.backwardWeight = std::max<Ns>(0, cost.backwardWeight - rounding);
  cost.backward = cost.backwardInput + cost.backwardWeight;
  const Bytes whole = cost.activationBytes + cost.backwardPeak, after = std::min(afterInput(cost), whole);
  holdAfterInput(cost, after);
  cost.inputPeak = std::min(cost.inputPeak, cost.backwardPeak);
  cost.weightPeak = std::min(cost.weightPeak, whole - after);
  return cost;
}

StageCost lesser(const StageCost& a, const StageCost& b) {
  StageCost least = a;
  least.sharedForWeight = std::max(a.sharedForWeight, b.sharedForWeight);
  for (const auto time : {&StageCost::forward, &StageCost::backwardInput, &StageCost::backwardWeight})
    least.*time = std::min(a.*time, b.*time);
  least.backward = least.backwardInput + least.backwardWeight;
  for (const auto bytes :
       {&StageCost::activationBytes, &StageCost::forwardPeak, &StageCost::backwardPeak, &StageCost::inputPeak, &StageCost::weightPeak})
    least.*bytes = std::min(a.*bytes, b.*bytes);
  holdAfterInput(least, std::min(afterInput(a), afterInput(b)));
  return least;
}

}  // namespace

StageCost recomputedCost(const StageCost& cost, Bytes kept) {
  StageCost with = cost;
  with.backward += cost.forward;
  with.backwardInput += cost.forward;
  with.activationBytes = std::min(kept, cost.activationBytes);
  const Bytes again = cost.activationBytes - with.activationBytes;
  with.backwardPeak += again;
  with.inputPeak += again;
  holdAfterInput(with, afterInput(cost));
  return with;
}

CostTable withRecomputation(const OrderProblem& problem, const std::vector<bool>& recomputed) {
  CostTable costs = problem.costs;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    if (recomputed[s]) costs.stages[s] = problem.recomputed[s];
  }
  return costs;
}

std::vector<Recomputed> openChoice(const OrderProblem& problem) {
  std::vector<Recomputed> choice;
  for (std::size_t s = 0; s < problem.costs.stages.size(); ++s) {
    const bool saves = !problem.recomputed.empty() && problem.recomputed[s].activationBytes < problem.costs.stages[s].activationBytes;
    choice.push_back(saves ? Recomputed::Open : Recomputed::No);
  }
  return choice;
}

CostTable relaxedCosts(const OrderProblem& problem, const std::vector<Recomputed>& choice) {
  CostTable costs = problem.costs;
  const Ns rounding = roundingOf(costs.microbatchScale);
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCost without = relaxedParts(problem.costs.stages[s], rounding);
    if (choice[s] == Recomputed::No) {
      costs.stages[s] = without;
      continue;
    }
    const StageCost with = relaxedParts(problem.recomputed[s], rounding);
    costs.stages[s] = choice[s] == Recomputed::Yes ? with : lesser(without, with);
  }
  return costs;
}

}  // namespace pw
