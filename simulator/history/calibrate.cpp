#include "simulator/history/calibrate.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "schedules/schedule.h"
#include "simulator/report/metrics.h"
#include "simulator/step/simulate.h"
#include "simulator/text/median.h"

namespace pw {
namespace {

constexpr double kLeastFactor = 0.01, kMostFactor = 100;  ///< beyond, the profile is of something else

using ActionKey = std::tuple<Rank, SpanKind, Stage, Microbatch>;
ActionKey keyOf(const Span& span) { return {span.rank, span.kind, span.stage, span.microbatch}; }

/// Measured and predicted time of the same actions.
struct Sums {
  double measured = 0, predicted = 0;

  void operator+=(const Sums& other) {
    measured += other.measured;
    predicted += other.predicted;
  }
  [[nodiscard]] double ratio() const {
    return measured > 0 && predicted > 0 ? std::clamp(measured / predicted, kLeastFactor, kMostFactor) : 1;
  }
};

struct Mean {
  double sum = 0;
  double count = 0;

  void add(Ns number) {
    sum += static_cast<double>(number);
    ++count;
  }
  void operator+=(const Mean& other) {
    sum += other.sum;
    count += other.count;
  }
  [[nodiscard]] double value() const { return count > 0 ? sum / count : 0; }
};

/// What one run shows.
struct Evidence {
  Sums forward, backward, optimizer;
  Mean pause, pauseAfterSend;  ///< between actions that waited for nothing [ns], where the first sends nothing and where it does
  Mean delay;                  ///< from the predicted arrival of a message to the action that waited for it [ns]
};

/// A compute span and the one before it on its rank. `waits`: something else is between the two.
struct Pair {
  const Span* before;
  const Span* after;
  bool waits;
};

std::vector<Pair> neighbours(const Trace& trace) {
  std::vector<Pair> pairs;
  std::map<Rank, std::pair<const Span*, bool>> last;
  for (const Span& span : trace.spans) {  // in the order of their starts
    if (isMessage(span.kind) || isBeside(span)) continue;
    auto& [before, waits] = last[span.rank];
    if (!isCompute(span.kind)) {
      waits = true;
      continue;
    }
    if (before != nullptr && span.start >= before->end) pairs.push_back({before, &span, waits});
    before = &span;
    waits = false;
  }
  return pairs;
}

/// When the messages that an action needs should have arrived, by the ends of the actions that sent them; nothing where it needs none or
/// one is missing.
std::optional<Ns> predictedArrival(const PastRun& run, const Span& span, const std::map<ActionKey, const Span*>& actions) {
  const bool isForward = span.kind == SpanKind::Forward;
  if (span.kind == SpanKind::BackwardWeight) return std::nullopt;
  std::optional<Ns> arrival;
  for (const MessageCost& message : run.costs->messages) {
    if (message.to != span.stage || message.backward == isForward) continue;
    const Rank sender = run.schedule->placement.rankOf(message.from, span.microbatch);
    if (sender == span.rank) continue;
    const Span* producer = nullptr;
    for (const SpanKind kind : {SpanKind::Forward, SpanKind::Backward, SpanKind::BackwardInput}) {
      if ((kind == SpanKind::Forward) != isForward) continue;
      if (const auto found = actions.find({sender, kind, message.from, span.microbatch}); found != actions.end()) producer = found->second;
    }
    if (producer == nullptr) return std::nullopt;
    arrival = std::max(arrival.value_or(Ns{0}), producer->end + message.latency + message.transfer);
  }
  return arrival;
}

/// Whether the action sends something to another rank.
bool sends(const PastRun& run, const Span& span) {
  if (span.kind == SpanKind::BackwardWeight) return false;
  const auto ofSpan = [&](const MessageCost& message) {
    return message.from == span.stage && message.backward != (span.kind == SpanKind::Forward) &&
           run.schedule->placement.rankOf(message.from, span.microbatch) != run.schedule->placement.rankOf(message.to, span.microbatch);
  };
  return std::ranges::any_of(run.costs->messages, ofSpan);
}

void addPauses(Evidence& evidence, const PastRun& run, const Trace& step) {
  std::map<ActionKey, const Span*> actions;
  for (const Span& span : step.spans) {
    if (isCompute(span.kind)) actions.emplace(keyOf(span), &span);
  }
  for (const auto& [before, after, waits] : neighbours(step)) {
    if (!waits) {
      (sends(run, *before) ? evidence.pauseAfterSend : evidence.pause).add(after->start - before->end);
    } else if (after->rank.index() < run.schedule->rows.size()) {  // of the first replica: the others' placement is not in the schedule
      const auto arrival = predictedArrival(run, *after, actions);
      if (arrival && *arrival > before->end) evidence.delay.add(after->start - *arrival);
    }
  }
}

void addDurations(Evidence& evidence, const PastRun& run, const Trace& step, Ns actionOverhead) {
  const auto durationsOf = [](const Trace& trace) {
    std::map<ActionKey, Ns> durations;  // a backward may come in pieces
    for (const Span& span : trace.spans) {
      if (isCompute(span.kind) || span.kind == SpanKind::Optimizer) durations[keyOf(span)] += span.end - span.start;
    }
    return durations;
  };
  const std::map<ActionKey, Ns> predicted = durationsOf(*run.predicted);
  for (const auto& [key, measured] : durationsOf(step)) {
    const auto found = predicted.find(key);
    if (found == predicted.end()) continue;
    const SpanKind kind = std::get<SpanKind>(key);
    const bool isUpdate = kind == SpanKind::Optimizer;
    const Ns overhead = isUpdate ? 0 : actionOverhead;
    Sums& sums = isUpdate ? evidence.optimizer : kind == SpanKind::Forward ? evidence.forward : evidence.backward;
    sums += {static_cast<double>(measured - overhead), static_cast<double>(found->second - overhead)};
  }
}

/// The steps between the quartiles by length, at least one: those that something else disturbed are left out, while what always varies is
/// kept, so that means of parts add up to the usual step.
std::vector<const Trace*> usualSteps(const PastRun& run) {
  std::vector<std::pair<Ns, const Trace*>> steps;
  for (const Trace& step : run.steps) steps.emplace_back(metricsOf(step).step, &step);
  std::ranges::sort(steps, {}, &std::pair<Ns, const Trace*>::first);
  const std::size_t first = steps.size() / 4;
  std::vector<const Trace*> usual;
  for (std::size_t i = first; i < steps.size() - first; ++i) usual.push_back(steps[i].second);
  return usual;
}

Evidence evidenceOf(const PastRun& run, Ns actionOverhead) {
  Evidence evidence;
  for (const Trace* step : usualSteps(run)) {
    addDurations(evidence, run, *step, actionOverhead);
    addPauses(evidence, run, *step);
  }
  return evidence;
}

/// Of all runs but one (nothing: of all).
Calibration fit(const std::vector<Evidence>& runs, std::optional<std::size_t> without) {
  Evidence all;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i == without) continue;
    all.forward += runs[i].forward;
    all.backward += runs[i].backward;
    all.optimizer += runs[i].optimizer;
    all.pause += runs[i].pause;
    all.pauseAfterSend += runs[i].pauseAfterSend;
    all.delay += runs[i].delay;
  }
  const bool tellsApart = all.pause.count > 0 && all.pauseAfterSend.count > 0;
  if (!tellsApart) all.pause += all.pauseAfterSend;
  const Ns pause(std::llround(all.pause.value()));
  const Ns send = tellsApart ? std::max<Ns>(0, Ns(std::llround(all.pauseAfterSend.value())) - pause) : 0;
  // What passes after the action that sends is before the message leaves.
  const Ns delay = all.delay.count > 0 ? Ns(std::llround(all.delay.value())) - pause - send : 0;
  return {all.forward.ratio(), all.backward.ratio(), all.optimizer.ratio(), pause, send, delay};
}

Ns predictedStep(const PastRun& run, const Calibration& calibration, Ns actionOverhead) {
  return metricsOf(simulate(*run.schedule, calibrated(*run.costs, calibration, actionOverhead, run.schedule->placement))).step;
}

struct MeasuredSteps {
  Ns median = 0;
  double deviation = 0;  ///< of the logarithms, from their quartiles
};

MeasuredSteps measuredSteps(const PastRun& run) {
  std::vector<Ns> steps;
  for (const Trace& step : run.steps) steps.push_back(metricsOf(step).step);
  std::ranges::sort(steps);
  const auto at = [&](double part) {
    return std::log(std::max(1.0, static_cast<double>(steps[static_cast<std::size_t>(part * static_cast<double>(steps.size() - 1))])));
  };
  constexpr double kNormalQuartiles = 1.349;  ///< distance of a normal distribution's quartiles, in deviations
  return {*lowerMedianOf(steps), (at(0.75) - at(0.25)) / kNormalQuartiles};
}

double relativeError(Ns measured, Ns predicted) {
  return predicted > 0 ? std::abs(static_cast<double>(measured - predicted)) / static_cast<double>(predicted) : 0;
}

}  // namespace

CalibrationReport calibrate(std::span<const PastRun> runs, Ns actionOverhead) {
  assert(!runs.empty());
  std::vector<Evidence> evidence;
  for (const PastRun& run : runs) evidence.push_back(evidenceOf(run, actionOverhead));
  CalibrationReport report;
  report.calibration = fit(evidence, {});
  std::vector<double> before, after;
  double squares = kPriorRuns * kPriorDeviation * kPriorDeviation;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const MeasuredSteps measured = measuredSteps(runs[i]);
    const Calibration others = runs.size() > 1 ? fit(evidence, i) : report.calibration;
    before.push_back(relativeError(measured.median, metricsOf(*runs[i].predicted).step));
    after.push_back(relativeError(measured.median, predictedStep(runs[i], others, actionOverhead)));
    squares += after.back() * after.back() + measured.deviation * measured.deviation;
  }
  report.uncertainty = {std::sqrt(squares / (kPriorRuns + static_cast<double>(runs.size()))), static_cast<int>(runs.size())};
  report.errorBefore = *lowerMedianOf(before);
  report.errorAfter = *lowerMedianOf(after);
  return report;
}

}  // namespace pw
