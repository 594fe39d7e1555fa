#include "simulator/plan/made_order.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "schedules/generate.h"
#include "simulator/order/improve.h"
#include "simulator/order/made.h"
#include "simulator/order/problem/recomputation.h"
#include "simulator/partition/recomputed_ranges.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/possible.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/execute.h"

namespace pw {
namespace {

CostTable withState(const PlanRequest& request, CostTable costs, const Placement& placement) {
  addOptimizerState(costs, stateCopies(request.optimizer), optimizerShards(request, placement));
  return costs;
}

/// `limits`: by rank of the placement.
OrderProblem problemOf(const PlanRequest& request, const Placement& placement, const CostTable& costs, const std::vector<Bytes>& limits) {
  constexpr Bytes kNoLimit = std::numeric_limits<Bytes>::max() / 4;
  OrderProblem problem{request.microbatches, request.ranks, placement, costs, {}, {}, {}, StepClock::Flush};
  if (std::ranges::any_of(limits, [](Bytes limit) { return limit > 0; })) {
    for (const Bytes limit : limits) problem.limits.push_back(limit > 0 ? limit : kNoLimit);
  }
  if (const MadeSchedule* made = madeSchedule(request.schedule)) limitRoom(problem, *made);
  return problem;
}

std::vector<Bytes> limitsOf(const PlanRequest& request, const ModelCosts& model) {
  return memoryLimits(request, model.profile(), static_cast<std::size_t>(request.ranks));
}

/// The rank that does what a schedule gives to rank `i`.
Rank rankAt(const PlanRequest& request, std::size_t i) { return request.rankOrder.empty() ? Rank(i) : request.rankOrder.at(i); }

/// Of each rank's figures those of the rank that does what a schedule gives to rank i, for each i.
std::vector<Bytes> inOrder(const PlanRequest& request, const std::vector<Bytes>& byRank) {
  std::vector<Bytes> ordered;
  for (std::size_t i = 0; i < byRank.size(); ++i) ordered.push_back(byRank[rankAt(request, i).index()]);
  return ordered;
}

/// A schedule as a plan has it.
struct Tried {
  Schedule rows;
  Priced priced;
  Ns makespan = 0, step = 0;
  std::vector<Bytes> excess;  ///< by rank: bytes above the limit

  [[nodiscard]] bool fits() const {
    return std::ranges::all_of(excess, [](Bytes bytes) { return bytes == 0; });
  }
  /// What people wait for is the step; orders are searched by makespan.
  [[nodiscard]] bool endsBefore(const Tried& other) const { return std::pair(step, makespan) < std::pair(other.step, other.makespan); }
};

/// `rows`: of `planRows`.
Tried tryPlanned(const PlanRequest& request, ModelCosts& model, Schedule rows) {
  Tried tried{std::move(rows), {}, 0, 0, {}};
  CompiledRows compiled(tried.rows);
  tried.priced = price(request, model, compiled);
  const CostTable costs = withState(request, tried.priced.costs, tried.rows.placement);
  const std::vector<Bytes> peaks = compiled.peaks(costs), limits = limitsOf(request, model);
  for (std::size_t r = 0; r < peaks.size(); ++r) tried.excess.push_back(excessOf(peaks[r], limits[r]));
  const Program& program = compiled.timed(costs);
  Times times;
  execute(program, times);
  tried.makespan = makespanOf(program, program.duration, times);
  tried.step = stepOf(tried.rows, costs, program, times);
  return tried;
}

Tried tryRows(const PlanRequest& request, ModelCosts& model, const Schedule& schedule) {
  return tryPlanned(request, model, planRows(schedule, request.replicas, request.rankOrder));
}

/// The costs that an order is searched for, first without recomputation where it is to be found: with as little recomputed as these need.
std::vector<CostTable> costsToTry(const PlanRequest& request, ModelCosts& model, const Schedule& serial) {
  const auto of = [&](const PlanRequest& with, const Schedule& schedule) {
    const Schedule rows = planRows(schedule, request.replicas, request.rankOrder);
    CompiledRows compiled(rows);
    return withState(request, price(with, model, compiled).costs, rows.placement);
  };
  if (!std::holds_alternative<RecomputeAuto>(request.recompute)) return {of(request, serial)};
  PlanRequest none = request;
  none.recompute = RecomputeNone();
  std::vector<CostTable> all{of(none, serial)};
  const auto add = [&](CostTable costs) {
    if (std::ranges::find(all, costs) == all.end()) all.push_back(std::move(costs));
  };
  add(of(request, serial));
  const Shape shape = shapeOf(serial);
  for (const Generator& family : generators()) {
    if (family.name != "1f1b" && family.name != "interleaved-1f1b" && family.name != "zbv") continue;
    if (family.refusal(shape)) continue;
    const Schedule schedule = family.generate(shape);
    if (schedule.placement == serial.placement) add(of(request, schedule));
  }
  return all;
}

/// The order found, as a plan has it; with less room where the plan's rows need more than the order alone.
std::optional<Tried> ordered(const PlanRequest& request, ModelCosts& model, OrderProblem problem, const OrderEffort& effort,
                             std::string& by) {
  constexpr int kAttempts = 8, kFull = 3;
  OrderEffort share = effort;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt == kFull) share.seconds /= 4;  // rarely needed
    std::optional<FoundOrder> found = findOrder(problem, share);
    if (!found) return std::nullopt;
    if (madeSchedule(request.schedule) != nullptr) found->schedule.name = request.schedule;
    Tried tried = tryRows(request, model, found->schedule);
    by = found->certificate.foundBy;
    if (tried.fits()) return tried;
    const std::vector<Bytes> excess = inOrder(request, tried.excess);
    for (std::size_t i = 0; i < problem.limits.size(); ++i) problem.limits[i] -= excess[i];
  }
  return std::nullopt;
}

/// By stage: what it costs recomputed as a whole; as it is where it cannot be. `compiled`: of the request's rows.
std::vector<StageCost> recomputedStages(const PlanRequest& request, ModelCosts& model, CompiledRows& compiled) {
  const Placement& placement = compiled.rows().placement;
  PlanRequest with = request;
  with.recompute = RecomputeFull();
  if (const Answer<Priced> full = tryPrice(with, model, compiled)) return withState(with, full->costs, placement).stages;
  with.recompute = RecomputeNone();
  Partition partition = price(with, model, compiled).partition;
  for (StageSpec& stage : partition.stages) {
    const NodeRange whole{stage.begin, stage.end};
    if (!obstacleToRecompute(model.graph(), whole, model.changes())) stage.checkpoints = {whole};
  }
  return withState(with, model.costTable(partition, placement, request.replicas), placement).stages;
}

/// A placement's problem, with the choice of what is recomputed where the request leaves it open.
OrderProblem problemOn(const PlanRequest& request, ModelCosts& model, const Placement& placement) {
  const Schedule rows = planRows(serialSchedule(placement, request.ranks, request.microbatches), request.replicas, request.rankOrder);
  CompiledRows compiled(rows);
  const bool automatic = std::holds_alternative<RecomputeAuto>(request.recompute);
  PlanRequest with = request;
  if (automatic) with.recompute = RecomputeNone();
  OrderProblem problem = problemOf(request, placement, withState(with, price(with, model, compiled).costs, rows.placement),
                                   inOrder(request, limitsOf(request, model)));
  if (automatic) problem.recomputed = recomputedStages(request, model, compiled);
  return problem;
}

/// The same with no more time and memory than whatever is recomputed needs: a request may also name some modules of a stage. And where it
/// leaves open how shared parameters are kept equal, with an optimizer for one copy alone: that needs the least, and changes the step only
/// after its rows.
OrderProblem relaxedProblemOn(const PlanRequest& request, ModelCosts& model, const Placement& placement) {
  PlanRequest least = request;
  if (!request.sharing) least.sharing = Sharing::Transmit;
  OrderProblem problem = problemOn(least, model, placement);
  if (problem.recomputed.empty()) return problem;
  problem.costs = relaxedCosts(problem, std::vector(problem.costs.stages.size(), Recomputed::Open));
  problem.recomputed.clear();
  return problem;
}

/// What an order is searched for, in several ways where it is open what is recomputed: each stage by itself, none, and as few stages as
/// one microbatch after the other or a family needs.
std::vector<OrderProblem> problemsAsShared(const PlanRequest& request, ModelCosts& model, const Placement& placement) {
  std::vector<OrderProblem> problems{problemOn(request, model, placement)};
  if (problems.front().recomputed.empty()) return problems;
  const std::vector<CostTable> tables = costsToTry(request, model, serialSchedule(placement, request.ranks, request.microbatches));
  for (const CostTable& costs : tables)
    problems.push_back(problemOf(request, placement, costs, inOrder(request, limitsOf(request, model))));
  if (problems.front().limits.empty()) problems.erase(problems.begin());
  return problems;
}

/// These, and where it is open how shared parameters are kept equal, with the room that one update of each alone leaves: an order that
/// needs it is then planned so.
std::vector<OrderProblem> problemsToTry(const PlanRequest& request, ModelCosts& model, const Placement& placement) {
  std::vector<OrderProblem> problems = problemsAsShared(request, model, placement);
  if (request.sharing || problems.front().limits.empty()) return problems;
  PlanRequest least = request;
  least.sharing = Sharing::Transmit;
  const auto isKnown = [&](const OrderProblem& other) {
    const auto isSame = [&](const OrderProblem& one) { return one.costs == other.costs && one.recomputed == other.recomputed; };
    return std::ranges::any_of(problems, isSame);
  };
  for (OrderProblem& problem : problemsAsShared(least, model, placement)) {
    if (!isKnown(problem)) problems.push_back(std::move(problem));
  }
  return problems;
}

}  // namespace

std::optional<Impossible> obstacleToOrder(const PlanRequest& request, ModelCosts& model, int stages) {
  if (auto no = tooManyForOrder(static_cast<std::size_t>(stages), request.microbatches)) return no;
  std::vector<Recompute> ways{request.recompute};
  if (std::holds_alternative<RecomputeAuto>(request.recompute)) ways.emplace_back(RecomputeNone());
  for (const Placement& placement : orderPlacements({request.ranks, stages, request.microbatches})) {
    const Schedule rows = planRows(serialSchedule(placement, request.ranks, request.microbatches), request.replicas, request.rankOrder);
    CompiledRows compiled(rows);
    for (const Recompute& recompute : ways) {
      PlanRequest with = request;
      with.recompute = recompute;
      if (const Answer<Priced> priced = tryPrice(with, model, compiled); !priced) return priced.refusal();
    }
  }
  return std::nullopt;
}

MadeOrder makeOrder(const PlanRequest& request, ModelCosts& model, int stages, const OrderEffort& effort) {
  const Shape shape{request.ranks, stages, request.microbatches};
  const std::vector<Placement> placements = orderPlacements(shape);
  std::optional<Tried> best;
  std::string by;
  const auto keep = [&](std::optional<Tried> tried, std::string_view foundBy) {
    if (!tried || !tried->fits() || (best && !tried->endsBefore(*best))) return;
    best = std::move(tried);
    by = foundBy;
  };
  const MadeSchedule* const made = madeSchedule(request.schedule);
  const bool ownRoom = made != nullptr && made->room > 0;
  const auto keepFamilies = [&] {
    for (const Generator& family : generators()) {
      if (!family.trains || family.refusal(shape)) continue;
      Schedule schedule = family.generate(shape);
      if (made != nullptr) schedule.name = request.schedule;
      if (std::ranges::find(placements, schedule.placement) != placements.end()) keep(tryRows(request, model, schedule), family.name);
    }
  };
  const bool automatic = std::holds_alternative<RecomputeAuto>(request.recompute);
  // A family may need less recomputed than an order.
  if (automatic && !ownRoom) keepFamilies();
  std::vector<OrderProblem> problems;
  for (const Placement& placement : placements) {
    for (OrderProblem& problem : problemsToTry(request, model, placement)) problems.push_back(std::move(problem));
  }
  OrderEffort share = effort;
  share.seconds = effort.seconds / static_cast<double>(problems.size());
  for (const OrderProblem& problem : problems) {
    std::string foundBy;
    std::optional<Tried> tried = ordered(request, model, problem, share, foundBy);
    keep(std::move(tried), foundBy);
  }
  // What follows the makespan may take a rank longer whose last action comes last; then a family may end the step earlier. And where no
  // order was found that fits with all that a plan's rows need, one may.
  if ((!best || best->step > best->makespan) && !automatic && !ownRoom) keepFamilies();
  if (!best) {
    const Schedule serial = serialSchedule(placements.front(), shape.ranks, shape.microbatches);
    const CostTable costs = costsToTry(request, model, serial).back();
    Tried least = tryRows(request, model, smallestSchedule(placements.front(), shape.ranks, shape.microbatches, costs));
    return {std::move(least.rows), std::move(least.priced), std::nullopt, least.step};
  }
  Ns bound = best->makespan;
  for (const Placement& placement : placements)
    bound = std::min(bound, orderBound(relaxedProblemOn(request, model, placement), best->makespan, effort.seconds));
  const Certificate certificate{StepClock::Flush, best->makespan, bound, std::move(by), {}};
  return {std::move(best->rows), std::move(best->priced), certificate, best->step};
}

Schedule improvedSchedule(const PlanRequest& request, ModelCosts& model, const Schedule& schedule, const OrderEffort& effort) {
  const Schedule rows = planRows(schedule, request.replicas);
  CompiledRows compiled(rows);
  const CostTable costs = withState(request, price(request, model, compiled).costs, rows.placement);
  PlanRequest drawn = request;  // names no schedule whose room would count
  drawn.schedule = schedule.name;
  drawn.rankOrder.clear();
  return improveOrder(problemOf(drawn, rows.placement, costs, limitsOf(request, model)), schedule, effort);
}

Ns orderBound(const PlanRequest& request, ModelCosts& model, int stages) {
  Ns bound = std::numeric_limits<Ns>::max();
  for (const Placement& placement : orderPlacements({request.ranks, stages, request.microbatches}))
    bound = std::min(bound, orderBound(relaxedProblemOn(request, model, placement)));
  return bound;
}

std::optional<LimitSensitivity> limitSensitivity(const PlanRequest& request, ModelCosts& model, const Schedule& rows, double change,
                                                 const OrderEffort& effort) {
  requireChange(change);
  if (request.memoryLimit == 0) return std::nullopt;
  double done = 0;
  OrderEffort part = effort;
  if (effort.shouldContinue) part.shouldContinue = [&](double share) { return effort.shouldContinue((done + share) / 2); };
  const auto timeWith = [&](double factor) -> std::optional<Ns> {
    PlanRequest other = request;
    other.memoryLimit = std::max<Bytes>(1, static_cast<Bytes>(static_cast<double>(request.memoryLimit) * factor));
    if (madeSchedule(request.schedule) != nullptr) {
      const MadeOrder made = makeOrder(other, model, static_cast<int>(rows.placement.stages()), part);
      ++done;
      return made.certificate ? std::optional(made.certificate->time) : std::nullopt;
    }
    const Tried tried = tryPlanned(other, model, rows);
    return tried.fits() ? std::optional(tried.makespan) : std::nullopt;
  };
  LimitSensitivity limit{std::nullopt, tryPlanned(request, model, rows).makespan, 0, std::nullopt};
  limit.more = std::min(limit.now, timeWith(1 + change).value_or(limit.now));
  if (const std::optional<Ns> less = timeWith(1 - change)) limit.less = std::max(limit.now, *less);
  return limit;
}

Schedule rowsFor(const PlanRequest& request, ModelCosts& model, int stages, const OrderEffort& effort) {
  if (madeSchedule(request.schedule) != nullptr) return makeOrder(request, model, stages, effort).rows;
  return planRows(generate(request.schedule, {request.ranks, stages, request.microbatches}), request.replicas, request.rankOrder);
}

}  // namespace pw
