#include "simulator/order/problem/judge.h"

#include <algorithm>

#include "simulator/step/compile.h"
#include "simulator/step/execute.h"

namespace pw {
namespace {

Ns timeOn(StepClock clock, const Program& program, const Times& times) {
  switch (clock) {
    case StepClock::Flush: return makespanOf(program, program.duration, times);
    case StepClock::Window: return windowOf(program, program.duration, times);
  }
  return 0;
}

}  // namespace

JudgedOrder judgeOrder(const OrderProblem& problem, const CostTable& costs, const Schedule& schedule) {
  const Program program = compile(schedule, costs);
  Times times;
  execute(program, times);
  JudgedOrder judged{timeOn(problem.clock, program, times), std::vector<Bytes>(static_cast<std::size_t>(problem.ranks), 0), true};
  for (std::size_t r = 0; r < static_cast<std::size_t>(problem.ranks); ++r) {
    if (!problem.limits.empty()) judged.excess[r] = std::max<Bytes>(0, program.peakBytes[r] - problem.limits[r]);
    if (judged.excess[r] > 0 || (!problem.liveLimits.empty() && program.peakLive[r] > problem.liveLimits[r])) judged.fits = false;
  }
  return judged;
}

}  // namespace pw
