#include "simulator/job/between_steps.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "schedules/units.h"
#include "simulator/text/median.h"
#include "simulator/text/percent.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

/// From the first start to the last end of an action or operation, on the clock of all steps.
std::optional<std::pair<Ns, Ns>> extentOf(const MeasuredStep& step) {
  std::optional<std::pair<Ns, Ns>> extent;
  const auto add = [&](Ns start, Ns end) {
    if (!extent) extent = {start, end};
    extent->first = std::min(extent->first, start);
    extent->second = std::max(extent->second, end);
  };
  for (const Span& span : step.trace.spans) {
    if (isCompute(span.kind) || span.kind == SpanKind::Optimizer || span.kind == SpanKind::ReduceGrad) add(span.start, span.end);
  }
  for (const NamedSpan& operation : step.operations) add(operation.start, operation.end);
  if (!step.begin) extent.reset();
  if (extent) extent->first += *step.begin, extent->second += *step.begin;
  return extent;
}

/// Whether no step was between these two: their names count on from one to the next, or to another pass of the same.
bool followEachOther(const MeasuredStep& one, const MeasuredStep& next) {
  const auto from = stepNumberIn(one.name), to = stepNumberIn(next.name);
  return !from || !to || *to == *from || *to == *from + 1;
}

}  // namespace

std::vector<Ns> timesBefore(const MeasuredJob& measured) {
  std::vector<Ns> before;
  std::optional<std::pair<Ns, Ns>> last;
  for (std::size_t k = 0; k < measured.steps.size(); ++k) {
    const auto extent = extentOf(measured.steps[k]);
    const bool isKnown = last && extent && followEachOther(measured.steps[k - 1], measured.steps[k]);
    before.push_back(isKnown ? std::max<Ns>(0, extent->first - last->second) : kUnknownTime);
    last = extent;
  }
  return before;
}

std::optional<BetweenSteps> betweenSteps(const Job& job) {
  BetweenSteps between;
  std::vector<Ns> times;
  double steps = 0, all = 0;
  for (const std::size_t k : usualSteps(job)) {
    const Ns before = job.steps[k].before;
    if (before == kUnknownTime) continue;
    times.push_back(before);
    steps += static_cast<double>(job.steps[k].step);
    all += static_cast<double>(before);
    if (before <= between.longest && times.size() > 1) continue;
    between.longest = before;
    between.longestBefore = k;
  }
  if (times.empty()) return std::nullopt;
  between.count = times.size();
  between.usual = *medianOf(std::move(times));
  between.share = all > 0 ? all / (steps + all) : 0;
  return between;
}

std::string betweenText(const Job& job) {
  constexpr double kWorthSaying = 0.01;
  const std::optional<BetweenSteps> between = betweenSteps(job);
  if (!between || between->share < kWorthSaying) return {};
  const std::string most =
      between->count > 1 ? fmt::format(", at most {} (before {})", formatDuration(between->longest), job.steps[between->longestBefore].name)
                         : "";
  return fmt::format("Between steps {} pass{}, {} of all time: data loading, evaluation and checkpoints are there, in no step.",
                     formatDuration(between->usual), most, percent(between->share));
}

}  // namespace pw
