#include "simulator/history/gate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/history/student.h"
#include "simulator/text/counted.h"

namespace pw {
namespace {

constexpr double kAllHold = 0.98;       ///< probability that all intervals hold
constexpr std::size_t kFewRuns = 4;     ///< of both sides together; with three the interval rests on one difference, and excludes little
constexpr std::size_t kPartSteps = 3;   ///< a median of three ignores one disturbed step
constexpr std::size_t kMostParts = 10;  ///< longer parts are less alike their neighbours, which independence needs
constexpr std::size_t kFewestSteps = 2 * kPartSteps;

using Durations = std::vector<Ns>;

/// Logarithm of the median; of an even number, the mean of the two in the middle.
double logMedian(std::span<const Ns> durations) {
  Durations sorted(durations.begin(), durations.end());
  std::ranges::sort(sorted);
  const std::size_t middle = sorted.size() / 2;
  const double median = sorted.size() % 2 == 1 ? static_cast<double>(sorted[middle])
                                               : (static_cast<double>(sorted[middle - 1]) + static_cast<double>(sorted[middle])) / 2;
  return std::log(std::max(median, 1.0));
}

/// One number for each unit of a side: a run, or a part of a run.
std::vector<double> units(const std::vector<Durations>& runs, bool runsAreUnits) {
  std::vector<double> result;
  for (const Durations& run : runs) {
    const std::size_t parts = runsAreUnits ? 1 : std::clamp(run.size() / kPartSteps, std::size_t{1}, kMostParts);
    for (std::size_t part = 0; part < parts; ++part) {
      const std::size_t first = run.size() * part / parts, last = run.size() * (part + 1) / parts;
      result.push_back(logMedian(std::span(run).subspan(first, last - first)));
    }
  }
  return result;
}

Ns geometricMean(const std::vector<double>& logs) {
  return Ns(std::llround(std::exp(std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(logs.size()))));
}

Change changeOf(const std::vector<Durations>& before, const std::vector<Durations>& after, bool runsAreUnits, double probability) {
  const std::vector<double> x = units(before, runsAreUnits), y = units(after, runsAreUnits);
  const MeanDifference logs = meanDifference(x, y, probability);
  return {std::expm1(logs.value), std::expm1(logs.low), std::expm1(logs.high), geometricMean(x), geometricMean(y)};
}

/// The durations of a step (nothing) or of a stage, of each run.
std::vector<Durations> durationsOf(std::span<const RunTimes> runs, std::optional<std::size_t> stage) {
  std::vector<Durations> result;
  for (const RunTimes& run : runs) {
    Durations& durations = result.emplace_back();
    for (const GatedStep& step : run) durations.push_back(stage ? step.stages[*stage] : step.step);
  }
  return result;
}

bool isSlower(const Change& change, double limit) { return change.low > 0 && change.high >= limit; }
bool isUnclear(const Change& change, double limit) { return change.low <= 0 && change.high >= limit; }

void requireEnough(std::span<const RunTimes> runs, bool runsAreUnits, std::string_view side) {
  std::size_t steps = 0;
  for (const RunTimes& run : runs) steps = std::max(steps, run.size());
  if (runs.empty() || steps == 0)
    throw UsageError(fmt::format("{} has no run with a step after its first, which warms up; record runs of more steps", side));
  if (!runsAreUnits && steps < kFewestSteps) {
    throw UsageError(fmt::format("{} has too little to compare: {} and at most {} after the first; record at least {} steps, or more runs",
                                 side, counted(static_cast<std::int64_t>(runs.size()), "run"),
                                 counted(static_cast<std::int64_t>(steps), "step"), kFewestSteps + 1));
  }
}

std::string rangeText(const Change& change) {
  return fmt::format("{:.1f} % {} ({:+.1f} to {:+.1f} %)", 100 * std::abs(change.slower), change.slower < 0 ? "less" : "longer",
                     100 * change.low, 100 * change.high);
}

/// Which stages are slower, and the step. `answer`: how the sentence begins.
std::string slowerText(const GateReport& report, std::string_view answer) {
  std::string stages;
  for (const Stage stage : report.slower) {
    stages += fmt::format("{}stage {} computes {}", stages.empty() ? "" : ", ", stage.value, rangeText(report.stages[stage.index()]));
  }
  const std::string step = fmt::format("the step takes {}", rangeText(report.step));
  if (stages.empty()) {
    const auto most = std::ranges::max_element(report.stages, {}, &Change::high);
    const std::size_t stage = static_cast<std::size_t>(most - report.stages.begin());
    if (std::ranges::any_of(report.stages, [](const Change& change) { return change.low > 0; }))
      return fmt::format("{}: {}, but no stage alone by the limit.", answer, step);
    if (most != report.stages.end() && isUnclear(*most, report.limit))
      return fmt::format("{}: {}, but no stage is shown to compute longer, nor that none does: stage {} takes {}.", answer, step, stage,
                         rangeText(*most));
    return fmt::format("{}: {}, but no stage computes longer: it is messages, waiting or the optimizer.", answer, step);
  }
  return fmt::format("{}: {}; {}.", answer, stages, step);
}

}  // namespace

GatedStep stepTimes(const Trace& trace, int stages) {
  GatedStep times;
  times.stages.resize(static_cast<std::size_t>(stages));
  if (trace.spans.empty()) return times;
  Ns first = trace.spans.front().start, last = first;
  for (const Span& span : trace.spans) {
    first = std::min(first, span.start);
    last = std::max(last, span.end);
    if (isCompute(span.kind) && span.stage.index() < times.stages.size()) times.stages[span.stage.index()] += span.end - span.start;
  }
  times.step = last - first;
  return times;
}

GateReport gate(std::span<const RunTimes> before, std::span<const RunTimes> after, double limit) {
  GateReport report;
  report.limit = limit;
  report.runsBefore = static_cast<int>(before.size());
  report.runsAfter = static_cast<int>(after.size());
  report.runsAreUnits = before.size() + after.size() >= kFewRuns;
  requireEnough(before, report.runsAreUnits, "the base");
  requireEnough(after, report.runsAreUnits, "the store");
  const std::size_t stages = before.front().front().stages.size();
  const double probability = 1 - (1 - kAllHold) / static_cast<double>(stages + 1);
  const auto change = [&](std::optional<std::size_t> stage) {
    return changeOf(durationsOf(before, stage), durationsOf(after, stage), report.runsAreUnits, probability);
  };
  report.step = change({});
  for (std::size_t stage = 0; stage < stages; ++stage) {
    report.stages.push_back(change(stage));
    if (isSlower(report.stages.back(), limit)) report.slower.push_back(Stage(static_cast<int>(stage)));
  }
  std::ranges::stable_sort(report.slower, std::ranges::greater{}, [&](Stage stage) { return report.stages[stage.index()].slower; });
  const auto unclear = [limit](const Change& c) { return isUnclear(c, limit); };
  const bool slower = !report.slower.empty() || isSlower(report.step, limit);
  if (slower && report.runsAreUnits) {
    report.verdict = GateVerdict::Slower;
  } else if (slower || unclear(report.step) || std::ranges::any_of(report.stages, unclear)) {
    report.verdict = GateVerdict::Unclear;
  }
  return report;
}

std::string gateText(const GateReport& report) {
  const std::string step = fmt::format("the step takes {}", rangeText(report.step));
  switch (report.verdict) {
    case GateVerdict::Slower: return slowerText(report, "Slower");
    case GateVerdict::NotSlower: return fmt::format("Not slower by {:.3g} % or more: {}.", 100 * report.limit, step);
    case GateVerdict::Unclear:
      if (!report.slower.empty() || isSlower(report.step, report.limit)) {
        return slowerText(report, "Unclear") +
               " So few runs cannot tell that from what differs from run to run; record four or more on each side, taking turns.";
      }
      return fmt::format("Unclear: the times vary too much to exclude a slow-down of {:.3g} %; {}. Record more runs or steps.",
                         100 * report.limit, step);
  }
  return {};
}

}  // namespace pw
