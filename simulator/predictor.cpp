#include "simulator/predictor.h"

#include <algorithm>
#include <limits>

#include "simulator/recost.h"

namespace pw {
namespace {

/// From the first action to the end of the last optimizer or reduction.
Ns stepOf(const Prediction& p) {
  Ns first = std::numeric_limits<Ns>::max(), last = 0;
  for (const Timeline::RankTracks& rank : p.timeline.ranks) {
    for (std::size_t i = 0; i < rank.compute.size() && first > rank.compute.start[i]; ++i) {
      if (isCompute(rank.compute.tags[i].kind)) first = rank.compute.start[i];
    }
    for (std::size_t i = rank.compute.size(); i > 0; --i) {
      const SpanKind kind = rank.compute.tags[i - 1].kind;
      if (kind == SpanKind::Load || kind == SpanKind::Store) continue;
      last = std::max(last, rank.compute.end[i - 1]);
      break;
    }
    if (p.program.reducers == 0) continue;
    for (std::size_t i = 0; i < rank.communication.size(); ++i) {
      if (rank.communication.tags[i].kind == SpanKind::ReduceGrad) last = std::max(last, rank.communication.end[i]);
    }
  }
  return std::max<Ns>(0, last - first);
}

/// Busy time of each rank, and from it what `measure` counts.
void summarize(Prediction& p) {
  p.ranks.assign(static_cast<std::size_t>(p.program.ranks), {});
  p.makespan = makespanOf(p.program, p.program.duration, p.times);
  p.window = windowOf(p.program, p.program.duration, p.times);
  Ns busy = 0, busiest = 0;
  p.step = 0;
  for (std::int32_t rank = 0; rank < p.program.ranks; ++rank) {
    RankMetrics& metrics = p.ranks[static_cast<std::size_t>(rank)];
    metrics.rank = Rank(rank);
    for (const std::int32_t step : p.program.stepsOf(rank)) {
      if (p.program.origin[static_cast<std::size_t>(step)].index >= 0) metrics.busy += p.program.duration[static_cast<std::size_t>(step)];
    }
    metrics.idle = p.makespan - metrics.busy;
    metrics.peakBytes = p.program.peakBytes[static_cast<std::size_t>(rank)];
    metrics.peakLiveMicrobatches = p.program.peakLive[static_cast<std::size_t>(rank)];
    busy += metrics.busy;
    busiest = std::max(busiest, metrics.busy);
  }
  p.step = stepOf(p);
  const double all = static_cast<double>(p.makespan) * static_cast<double>(p.program.ranks);
  p.bubbleFraction = all > 0 ? 1 - static_cast<double>(busy) / all : 0;
  p.bubbleFractionWindow = p.window > 0 ? 1 - static_cast<double>(busiest) / static_cast<double>(p.window) : 0;
}

}  // namespace

/// A prediction to fill: one of the kept that nobody else holds, of the same rows where there is one.
std::shared_ptr<Prediction> Predictor::spare(const std::shared_ptr<const Schedule>& rows) {
  std::shared_ptr<Prediction> found;
  for (const auto& p : kept_) {
    if (p.use_count() == 1 && p->rows == rows) found = p;
  }
  if (found) {
    std::erase(kept_, found);
    return found;
  }
  std::erase_if(kept_, [&](const auto& p) { return p.use_count() == 1 && p->rows != rows; });
  return std::make_shared<Prediction>();
}

std::shared_ptr<const Prediction> Predictor::simulate(std::shared_ptr<Prediction> p, const std::shared_ptr<const Schedule>& rows) {
  const bool same = p->rows == rows && recost(*rows, p->costs, Sending::Overlapped, p->program);
  if (!same) p->program = compile(*rows, p->costs, Sending::Overlapped);
  p->rows = rows;
  execute(p->program, p->times);
  fill(*rows, p->costs, p->program, p->times, p->timeline);
  summarize(*p);
  kept_.insert(kept_.begin(), p);
  if (kept_.size() > kKept) kept_.pop_back();
  return p;
}

std::shared_ptr<const Prediction> Predictor::predict(const PlanRequest& request, const ModelGraph& graph, const Profile& profile,
                                                     const std::shared_ptr<const Schedule>& rows) {
  auto p = spare(rows);
  p->priced = price(request, graph, profile, *rows);
  p->costs = p->priced.costs;
  addOptimizerState(p->costs, request.optimizerCopies, 1);
  return simulate(std::move(p), rows);
}

std::shared_ptr<const Prediction> Predictor::predict(const std::shared_ptr<const Schedule>& rows, const CostTable& costs) {
  auto p = spare(rows);
  p->priced = {};
  p->costs = costs;
  return simulate(std::move(p), rows);
}

}  // namespace pw
