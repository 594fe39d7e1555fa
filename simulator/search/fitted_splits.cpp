#include "simulator/search/fitted_splits.h"

#include <algorithm>
#include <set>
#include <utility>

#include "schedules/generate.h"
#include "schedules/named_values.h"
#include "simulator/model/graph_facts.h"
#include "simulator/order/made.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/made_order.h"
#include "simulator/step/compile.h"

namespace pw {
namespace {

/// By stage: of how many microbatches it keeps activations at once, whatever its rank's other stages do.
std::vector<int> keptMicrobatches(const Schedule& rows) {
  const std::size_t stages = rows.placement.stages(), ranks = rows.rows.size();
  std::vector<int> kept(stages, 0);
  std::vector<bool> done(stages, false);
  for (std::size_t counted = 0; counted < stages;) {
    CostTable costs;  // a byte for one stage of each rank that is left
    costs.stages.resize(stages);
    std::vector<std::size_t> stageOf(ranks, stages);
    for (std::size_t s = 0; s < stages; ++s) {
      const std::size_t r = rows.placement.rankOfStage[s].index();
      if (done[s] || stageOf[r] < stages) continue;
      stageOf[r] = s;
      costs.stages[s].activationBytes = 1;
      done[s] = true;
      ++counted;
    }
    const Program program = compile(rows, costs);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (stageOf[r] < stages) kept[stageOf[r]] = static_cast<int>(program.peakBytes[r]);
    }
  }
  return kept;
}

/// With its begins moved: the most even cut that fits is often not the fastest, as a nanosecond of the longest stage decides where stages
/// have uneven room, and one that does not fit may have neighbours that do.
Candidate moved(const SearchShape& shape, Evaluator& evaluator, Candidate start) {
  constexpr std::int64_t kMostForwards = 4096;
  constexpr std::size_t kMostNodes = 20'000;
  constexpr int kRounds = 2;
  const ModelGraph& graph = shape.model->graph();
  if (std::int64_t{shape.stages} * shape.request.microbatches > kMostForwards || graph.nodes.size() > kMostNodes) return start;
  const std::vector<NodeId> places = placesFor(graph, bindBatch(graph, shape.request.microbatch), shape.stages);
  return evaluator.improve(start, places, kRounds, [](double) { return true; });
}

/// The best splits that are found from fitted ones, and where those do not fit, from `balanced` and all balances.
Candidate movedToFit(const SearchShape& shape, const Balancer& balancer, Evaluator& evaluator, const Recompute& recompute,
                     const Candidate& balanced) {
  std::optional<Candidate> best = fittedSplits(shape, balancer, evaluator, recompute);
  if (best) best = moved(shape, evaluator, *std::move(best));
  if (best && best->fits()) return *best;
  std::vector<std::vector<NodeId>> starts{balanced.request.begins};
  for (const Balance by : valuesOf<Balance>()) {
    const Answer<std::vector<NodeId>> begins = balancer.begins(shape.stages, by, shape.speeds);
    if (begins && std::ranges::find(starts, *begins) == starts.end()) starts.push_back(*begins);
  }
  for (const std::vector<NodeId>& begins : starts) {
    const Answer<Candidate> start = evaluator.evaluate({SplitSource::Fit, begins}, recompute);
    if (!start) continue;
    Candidate found = moved(shape, evaluator, *start);
    if (!best || Evaluator::isBetterCut(found, *best)) best = std::move(found);
  }
  return best.value_or(balanced);
}

}  // namespace

std::optional<Candidate> fittedSplits(const SearchShape& shape, const Balancer& balancer, Evaluator& evaluator,
                                      const Recompute& recompute) {
  constexpr int kAttempts = 3;
  const Schedule& rows = evaluator.rows();
  const PlanRequest& request = shape.request;
  const std::vector<Bytes> limits = memoryLimits(request, *shape.profile.profile, rows.rows.size());
  if (std::ranges::all_of(limits, [](Bytes limit) { return limit == 0; }) || rows.placement.bidirectional()) return std::nullopt;
  const std::vector<int> kept = keptMicrobatches(rows);
  std::vector<int> stagesOf(rows.rows.size(), 0);
  for (const Rank rank : rows.placement.rankOfStage) ++stagesOf[rank.index()];
  const bool layers = isLayerChain(shape.model->graph());
  const int parameters = (layers ? 1 : 2) + stateCopies(request.optimizer);  // with gradients; a layer table says all but the state
  std::vector<StageRoom> rooms;
  for (std::size_t s = 0; s < kept.size(); ++s) {
    const std::size_t r = rows.placement.rankOfStage[s].index();
    rooms.push_back({limits[r] / stagesOf[r], parameters, kept[s]});
  }
  std::optional<Candidate> best;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto begins = balancer.beginsWithin(rooms, shape.speeds);
    if (!begins) return best;
    const Answer<Candidate> candidate = evaluator.evaluate({SplitSource::Fit, *begins}, recompute);
    if (!candidate) return best;
    if (!best || Evaluator::isBetterCut(*candidate, *best)) best = *candidate;
    if (best->fits()) return best;
    for (StageRoom& room : rooms) room.bytes = std::max<Bytes>(room.bytes > 0 ? Bytes{1} : Bytes{0}, room.bytes - candidate->excess);
  }
  return best;
}

std::vector<NodeId> splitsForMadeOrder(const SearchShape& shape, const Balancer& balancer, const Recompute& recompute,
                                       const std::vector<NodeId>& balanced, const OrderEffort& effort) {
  constexpr double kShare = 0.25, kShortestSearch = 0.005;
  constexpr std::size_t kManyNodes = 20'000, kFewSplits = 2;
  const PlanRequest& request = shape.request;
  const std::vector<Bytes> limits = memoryLimits(request, *shape.profile.profile, static_cast<std::size_t>(request.ranks));
  if (std::ranges::all_of(limits, [](Bytes limit) { return limit == 0; })) return balanced;
  const Shape size{request.ranks, shape.stages, request.microbatches};
  const std::vector<Placement> placements = orderPlacements(size);
  std::vector<Schedule> schedules;
  for (const Placement& placement : placements) schedules.push_back(serialSchedule(placement, request.ranks, request.microbatches));
  for (const Generator& family : generators()) {
    if (!family.trains || family.refusal(size)) continue;
    Schedule schedule = family.generate(size);
    if (!schedule.lockstep && std::ranges::find(placements, schedule.placement) != placements.end())
      schedules.push_back(std::move(schedule));
  }
  std::vector<SearchShape> ways{shape};
  if (const Answer<Partition> cut = shape.model->cut(balanced); cut && !cut->shared.empty() && !request.sharing) {
    ways.push_back(shape);  // leaves more room, which an order may need
    ways.back().request.sharing = Sharing::Transmit;
  }
  std::vector<std::vector<NodeId>> splits{balanced};
  std::set<std::pair<std::vector<Rank>, std::vector<int>>> known;  // where stages are, and what they keep
  for (const Schedule& schedule : schedules) {
    if (shape.model->graph().nodes.size() > kManyNodes && splits.size() > kFewSplits) break;
    if (effort.shouldContinue && !effort.shouldContinue(0)) return balanced;
    const Schedule rows = planRows(schedule, request.replicas, request.rankOrder);
    if (!known.emplace(schedule.placement.rankOfStage, keptMicrobatches(rows)).second) continue;
    for (const SearchShape& way : ways) {
      Evaluator evaluator(way, rows);
      const Answer<Candidate> start = evaluator.evaluate({SplitSource::Time, balanced}, recompute);
      if (!start) continue;
      const Candidate fitted = movedToFit(way, balancer, evaluator, recompute, *start);
      if (std::ranges::find(splits, fitted.request.begins) == splits.end()) splits.push_back(fitted.request.begins);
    }
  }
  if (splits.size() == 1) return balanced;
  OrderEffort part = effort;
  part.seconds = std::max(kShortestSearch, kShare * effort.seconds / static_cast<double>(splits.size()));
  if (effort.shouldContinue) part.shouldContinue = [&](double) { return effort.shouldContinue(0); };
  std::optional<std::pair<std::pair<Ns, Ns>, std::size_t>> best;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    PlanRequest with = request;
    with.begins = splits[i];
    with.recompute = recompute;
    if (obstacleToOrder(with, *shape.model, shape.stages)) continue;
    const MadeOrder made = makeOrder(with, *shape.model, shape.stages, part);
    if (!made.certificate) continue;
    const std::pair time(made.step, made.certificate->time);
    if (!best || time < best->first) best = {time, i};
  }
  return splits[best ? best->second : 0];
}

std::vector<NodeId> splitsToFit(const SearchShape& shape, const Balancer& balancer, Evaluator& evaluator, const Recompute& recompute,
                                const std::vector<NodeId>& balanced) {
  const Candidate start = evaluator.evaluate({SplitSource::Time, balanced}, recompute).orThrow();
  if (start.fits()) return balanced;
  const Candidate fitted = movedToFit(shape, balancer, evaluator, recompute, start);
  return fitted.fits() ? fitted.request.begins : balanced;
}

std::vector<NodeId> splitsWithinLimits(const PlanRequest& request, const ModelGraph& graph, const std::shared_ptr<const Profile>& profile,
                                       const Schedule& rows, const std::vector<NodeId>& balanced, const OrderEffort& effort) {
  const std::vector<Bytes> limits = memoryLimits(request, *profile, rows.rows.size());
  if (balanced.empty() || std::ranges::all_of(limits, [](Bytes limit) { return limit == 0; })) return balanced;
  SearchShape shape;
  shape.request = request;
  shape.stages = static_cast<int>(rows.placement.stages());
  shape.profile = {profile, false};
  shape.model = std::make_shared<ModelCosts>(graph, *profile, request.microbatch);
  shape.speeds = stageSpeeds(*profile, rows.placement, request.replicas);
  const Balancer balancer(graph, *profile);
  if (madeSchedule(request.schedule) != nullptr) return splitsForMadeOrder(shape, balancer, request.recompute, balanced, effort);
  Evaluator evaluator(shape, rows);
  return splitsToFit(shape, balancer, evaluator, request.recompute, balanced);
}

}  // namespace pw
