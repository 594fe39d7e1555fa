#include "simulator/order/improve.h"

#include <algorithm>
#include <array>

#include "schedules/error.h"
#include "schedules/lower.h"
#include "simulator/order/anneal.h"
#include "simulator/order/problem/judge.h"
#include "simulator/order/problem/work.h"

namespace pw {

Schedule improveOrder(const OrderProblem& problem, const Schedule& schedule, const OrderEffort& effort) {
  if (problem.placement.bidirectional())
    throw UsageError("An order of two mirrored copies of each stage cannot be improved; choose another placement.");
  const OrderModel model(problem);
  OrderRows best = rowsOf(model, problem, schedule);
  if (best.empty()) throw UsageError("Only the order of a training step, with forwards and backwards, can be improved.");
  // From near to far: a low temperature keeps most of the order.
  constexpr std::array temperatures{0.05, 0.2, 0.5, 1.0};
  const OrderWork cost = workOfMove(model);
  const auto trials = workOf(effort.seconds) / cost / static_cast<std::int64_t>(temperatures.size());
  const JudgedOrder judgedStart = judgeOrder(problem, problem.costs, schedule);
  Schedule result = schedule;
  JudgedOrder judgedBest = judgedStart;
  const auto excess = [](const JudgedOrder& judged) {
    Bytes sum = 0;
    for (const Bytes bytes : judged.excess) sum += bytes;
    return sum;
  };
  const auto consider = [&](Schedule made) {
    const JudgedOrder judged = judgeOrder(problem, problem.costs, made);
    const bool isBetter =
        judged.fits == judgedBest.fits ? (judged.time < judgedBest.time && excess(judged) <= excess(judgedBest)) : judged.fits;
    if (!isBetter) return;
    made.name = schedule.name;
    result = std::move(made);
    judgedBest = judged;
  };
  double done = 0;
  bool stopped = false;
  for (std::size_t i = 0; i < temperatures.size() && !stopped; ++i) {
    std::int64_t asked = 0;
    const auto shouldContinue = [&] {
      const double share = (done + std::min(1.0, static_cast<double>(++asked * AnnealOptions::kAskEvery) /
                                                     static_cast<double>(std::max<std::int64_t>(1, trials)))) /
                           temperatures.size();
      stopped = effort.shouldContinue && !effort.shouldContinue(share);
      return !stopped;
    };
    best = annealOrder(model, best, {effort.seed + i, std::max<std::int64_t>(1, trials), 0, temperatures[i], shouldContinue});
    ++done;
    Schedule made = scheduleOf(model, problem, best);
    consider(mergeBackward(made));
    consider(std::move(made));
  }
  return result;
}

}  // namespace pw
