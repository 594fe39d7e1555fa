#include "simulator/job/between_steps.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "schedules/units.h"
#include "simulator/job/operation_order.h"
#include "simulator/text/median.h"
#include "simulator/text/percent.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

/// From the first start to the last end of an action or operation, on the clock of all steps.
struct Extent {
  Ns start = 0, end = -1;
  [[nodiscard]] bool isKnown() const { return start <= end; }
};

Extent extentOf(const MeasuredStep& step) {
  Extent extent;
  const auto add = [&](Ns start, Ns end) {
    extent.start = extent.isKnown() ? std::min(extent.start, start) : start;
    extent.end = std::max(extent.end, end);
  };
  for (const Span& span : step.trace.spans) {
    if (isCompute(span.kind) || isOperation(span)) add(span.start, span.end);
  }
  for (const NamedSpan& operation : step.operations) add(operation.start, operation.end);
  if (!step.begin || !extent.isKnown()) return {};
  return {extent.start + *step.begin, extent.end + *step.begin};
}

bool hasBackwards(const MeasuredStep& step) {
  return std::ranges::any_of(step.trace.spans, [](const Span& span) { return isCompute(span.kind) && span.kind != SpanKind::Forward; });
}

/// Whether no step was between these two: their names count on from one to the next, or to another pass of the same.
bool followEachOther(const MeasuredStep& one, const MeasuredStep& next) {
  const auto from = stepNumberIn(one.name), to = stepNumberIn(next.name);
  return !from || !to || *to == *from || *to == *from + 1;
}

}  // namespace

std::vector<Ns> timesBefore(const MeasuredJob& measured) {
  std::vector<Ns> before;
  const bool isTraining = std::ranges::any_of(measured.steps, hasBackwards);
  Extent last;  // of the training step before
  const MeasuredStep* stepBefore = nullptr;
  bool isUnbroken = false;  // since the last training step no other was between those of the recording
  for (const MeasuredStep& step : measured.steps) {
    isUnbroken = isUnbroken && followEachOther(*stepBefore, step);
    stepBefore = &step;
    if (isTraining && !hasBackwards(step)) {
      before.push_back(kUnknownTime);
      continue;
    }
    const Extent extent = extentOf(step);
    const bool isKnown = isUnbroken && last.isKnown() && extent.isKnown();
    const Ns time = isKnown ? std::max<Ns>(0, extent.start - last.end) : kUnknownTime;
    before.push_back(time <= Ns(kMostSum) ? time : kUnknownTime);
    last = extent;
    isUnbroken = true;
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
