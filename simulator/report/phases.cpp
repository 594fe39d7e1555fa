#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "schedules/wide.h"
#include "simulator/report/explain.h"
#include "simulator/report/metrics.h"
#include "simulator/report/phases.h"

namespace pw {
namespace {

constexpr Ns kNever = std::numeric_limits<Ns>::max();

/// Compute spans of each rank in order, and from the first start to the last end anywhere.
struct ComputeLanes {
  std::vector<std::vector<const Span*>> spans;
  Ns first = kNever, last = 0;
};

ComputeLanes computeLanesOf(const Trace& trace) {
  ComputeLanes lanes;
  lanes.spans.resize(static_cast<std::size_t>(std::max(0, trace.ranks)));
  for (const Span& span : trace.spans) {
    if (!isCompute(span.kind) || span.rank.value < 0 || span.rank.index() >= lanes.spans.size()) continue;
    lanes.spans[span.rank.index()].push_back(&span);
    lanes.first = std::min(lanes.first, span.start);
    lanes.last = std::max(lanes.last, span.end);
  }
  for (auto& lane : lanes.spans) {
    std::sort(lane.begin(), lane.end(),
              [](const Span* a, const Span* b) { return std::tie(a->start, a->end) < std::tie(b->start, b->end); });
  }
  return lanes;
}

RankPhases phasesOf(const std::vector<const Span*>& lane, Rank rank, const ComputeLanes& lanes) {
  RankPhases phases;
  phases.rank = rank;
  Ns firstBackward = kNever, lastForward = -1;
  for (const Span* span : lane) {
    if (span->kind == SpanKind::Forward)
      lastForward = std::max(lastForward, span->end);
    else
      firstBackward = std::min(firstBackward, span->start);
  }
  phases.steady = firstBackward != kNever ? firstBackward : lastForward >= 0 ? lastForward : lanes.last;
  phases.cooldown = std::max(phases.steady, lastForward);

  const std::array<Ns, kPhases + 1> bounds{lanes.first, phases.steady, phases.cooldown, lanes.last};
  const auto idle = [&](Ns from, Ns to) {
    for (std::size_t p = 0; p < kPhases; ++p) phases.idle[p] += std::max<Ns>(0, std::min(to, bounds[p + 1]) - std::max(from, bounds[p]));
  };
  Ns done = lanes.first;
  for (const Span* span : lane) {
    idle(done, span->start);
    done = std::max(done, span->end);
  }
  idle(done, lanes.last);
  phases.beforeFirst = (lane.empty() ? lanes.last : lane.front()->start) - lanes.first;
  phases.afterLast = lane.empty() ? 0 : lanes.last - done;
  return phases;
}

/// The starts from which a rank's period is measured, in order, and how many of them there are per microbatch.
struct Beats {
  std::vector<Ns> starts;
  std::size_t all = 0;  ///< in any phase
  std::size_t microbatches = 0;
};

Beats beatsOf(const std::vector<const Span*>& lane, const RankPhases& phases) {
  const bool trains = std::any_of(lane.begin(), lane.end(), [](const Span* s) { return s->kind != SpanKind::Forward; });
  Beats beats;
  std::set<Microbatch> microbatches;
  for (const Span* span : lane) {
    const bool beat = trains ? span->kind == SpanKind::Backward || span->kind == SpanKind::BackwardInput : true;
    if (!beat) continue;
    ++beats.all;
    microbatches.insert(span->microbatch);
    if (!trains || (span->start >= phases.steady && span->start <= phases.cooldown)) beats.starts.push_back(span->start);
  }
  beats.microbatches = microbatches.size();
  return beats;
}

}  // namespace

std::string_view nameOf(Phase phase) {
  switch (phase) {
    case Phase::Warmup: return "warmup";
    case Phase::Steady: return "steady";
    case Phase::Cooldown: return "cooldown";
  }
  return "?";
}

std::vector<RankPhases> phasesOf(const Trace& trace) {
  const ComputeLanes lanes = computeLanesOf(trace);
  std::vector<RankPhases> phases;
  for (std::size_t r = 0; r < lanes.spans.size(); ++r) {
    phases.push_back(lanes.first > lanes.last ? RankPhases{.rank = Rank(r)} : phasesOf(lanes.spans[r], Rank(r), lanes));
  }
  return phases;
}

Ns steadyPeriod(const Trace& trace) {
  constexpr std::size_t kLeast = 4;
  const ComputeLanes lanes = computeLanesOf(trace);
  const Metrics metrics = metricsOf(trace);
  Beats beats;
  Ns busiest = -1;
  for (std::size_t r = 0; r < lanes.spans.size(); ++r) {
    const Ns busy = metrics.ranks[r].busy;
    if (busy < busiest) continue;
    Beats own = beatsOf(lanes.spans[r], phasesOf(lanes.spans[r], Rank(r), lanes));
    if (busy > busiest || own.starts.size() > beats.starts.size()) beats = std::move(own);
    busiest = busy;
  }
  const std::size_t n = beats.starts.size();
  if (n < kLeast || beats.microbatches < kLeast) return 0;
  const std::size_t a = n / 4, b = n - 1 - a;
  const Wide time = Wide{(beats.starts[b] - beats.starts[a]).value} * static_cast<std::int64_t>(beats.all);
  const auto count = static_cast<std::int64_t>((b - a) * beats.microbatches);
  const Ns nearest(static_cast<std::int64_t>((2 * time + count) / (2 * count)));
  return std::max(dividedUp(busiest, beats.microbatches), nearest);
}

}  // namespace pw
