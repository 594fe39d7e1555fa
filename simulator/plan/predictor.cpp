#include "simulator/plan/predictor.h"

#include <algorithm>
#include <limits>

#include "simulator/partition/stage_costs.h"
#include "simulator/step/recost.h"

namespace pw {
namespace {

/// A time interval; empty if nothing happened.
struct Extent {
  Ns first = std::numeric_limits<Ns>::max(), last = std::numeric_limits<Ns>::min();

  void cover(const Extent& other) {
    first = std::min(first, other.first);
    last = std::max(last, other.last);
  }
  [[nodiscard]] Ns length() const { return std::max<Ns>(0, last - first); }
};

/// Of F, B, I and W on a compute track: only the spans before the first and after the last of them are visited.
Extent computeOf(const SpanTrack& track) {
  Extent extent;
  for (std::size_t i = 0; i < track.size() && extent.first > track.start[i]; ++i) {
    if (isCompute(track.tags[i].kind)) extent.first = track.start[i];
  }
  for (std::size_t i = track.size(); i > 0 && extent.last < track.start[i - 1]; --i) {
    if (isCompute(track.tags[i - 1].kind)) extent.last = track.end[i - 1];
  }
  return extent;
}

/// The end of the optimizer or of the sum of shared gradients, which come after all compute.
Ns updateEnd(const SpanTrack& track) {
  for (std::size_t i = track.size(); i > 0 && !isCompute(track.tags[i - 1].kind); --i) {
    if (track.tags[i - 1].kind == SpanKind::Optimizer || track.tags[i - 1].kind == SpanKind::ReduceGrad) return track.end[i - 1];
  }
  return 0;
}

Ns reductionEnd(const SpanTrack& communication) {
  Ns last = 0;
  for (std::size_t i = 0; i < communication.size(); ++i) {
    if (communication.tags[i].kind == SpanKind::ReduceGrad) last = std::max(last, communication.end[i]);
  }
  return last;
}

/// Fills the figures from the timeline's summaries, at almost no extra cost; defined as in `metricsOf`.
void summarize(Prediction& p) {
  p.ranks.assign(p.timeline.ranks.size(), {});
  p.window = 0;
  Extent whole, step;
  Ns busy = 0, busiest = 0;
  for (std::size_t r = 0; r < p.ranks.size(); ++r) {
    const Timeline::RankTracks& tracks = p.timeline.ranks[r];
    RankMetrics& metrics = p.ranks[r];
    const Extent own = computeOf(tracks.compute);
    whole.cover(own);
    step.cover(own);
    step.last = std::max(step.last, updateEnd(tracks.compute));
    if (p.program.reducers > 0) step.last = std::max(step.last, reductionEnd(tracks.communication));
    p.window = std::max(p.window, own.length());
    metrics.rank = Rank(r);
    const auto kinds = busyByKind(tracks.compute, 0, p.timeline.end + 1);
    for (const SpanKind kind : {SpanKind::Forward, SpanKind::Backward, SpanKind::BackwardInput, SpanKind::BackwardWeight})
      metrics.busy += kinds[static_cast<std::size_t>(kind)];
    metrics.peakBytes = p.program.peakBytes[r];
    metrics.peakLiveMicrobatches = p.program.peakLive[r];
    busy += metrics.busy;
    busiest = std::max(busiest, metrics.busy);
  }
  p.makespan = whole.length();
  p.step = step.length();
  for (RankMetrics& metrics : p.ranks) metrics.idle = p.makespan - metrics.busy;
  const double all = static_cast<double>(p.makespan) * static_cast<double>(p.ranks.size());
  p.bubbleFraction = all > 0 ? (all - static_cast<double>(busy)) / all : 0;
  p.bubbleFractionWindow = p.window > 0 ? 1 - static_cast<double>(busiest) / static_cast<double>(p.window) : 0;
}

}  // namespace

/// A prediction to fill: one of the kept of the same rows that nobody else holds; else a new one with the program of one that is held, as
/// copying it is faster than compiling; where none is of these rows, one of others of their shape that nobody holds, as while a block is
/// dragged.
std::shared_ptr<Prediction> Predictor::spare(const std::shared_ptr<const Schedule>& rows) {
  const auto isFree = [](const auto& p) { return p.use_count() == 1; };
  std::erase_if(kept_, [&](const auto& p) { return isFree(p) && shapeOf(*p->rows) != shapeOf(*rows); });
  const auto ofRows = [&](const auto& p) { return p->rows == rows; };
  const auto same = std::ranges::find_if(kept_, ofRows);
  const auto free = std::ranges::find_if(kept_, [&](const auto& p) { return isFree(p) && (same == kept_.end() || ofRows(p)); });
  if (free != kept_.end()) {
    auto found = *free;
    kept_.erase(free);
    return found;
  }
  auto fresh = std::make_shared<Prediction>();
  if (same != kept_.end()) {
    fresh->rows = rows;
    fresh->program = (*same)->program;
  }
  return fresh;
}

std::shared_ptr<const Prediction> Predictor::simulate(std::shared_ptr<Prediction> p, const std::shared_ptr<const Schedule>& rows) {
  const bool same = p->rows == rows && recost(*rows, p->costs, Sending::Overlapped, p->program);
  if (!same) p->program = compile(*rows, p->costs, Sending::Overlapped);
  p->rows = rows;
  setActionTimes(*rows, p->actionTimes, p->program);
  execute(p->program, p->times);
  fillTimeline(*rows, p->costs, p->program, p->times, p->timeline);
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
  p->actionTimes.clear();
  addOptimizerState(p->costs, stateCopies(request.optimizer), optimizerShards(request, rows->placement));
  return simulate(std::move(p), rows);
}

std::shared_ptr<const Prediction> Predictor::predict(const PlanRequest& request, const ModelGraph& graph, const Profile& profile,
                                                     const std::shared_ptr<const Schedule>& rows, const JobStepTimes& times) {
  auto p = spare(rows);
  p->priced = price(request, graph, profile, *rows);
  p->priced.costs = times.costs;
  p->costs = times.costs;
  p->actionTimes = times.actions;
  return simulate(std::move(p), rows);
}

std::shared_ptr<const Prediction> Predictor::predict(const std::shared_ptr<const Schedule>& rows, const CostTable& costs) {
  auto p = spare(rows);
  p->priced = {};
  p->costs = costs;
  p->actionTimes.clear();
  return simulate(std::move(p), rows);
}

}  // namespace pw
