#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "simulator/report/compare.h"
#include "simulator/report/metrics.h"

namespace pw {
namespace {

double relative(Ns predicted, Ns measured) {
  return predicted == 0 ? 0.0 : static_cast<double>(measured - predicted) / static_cast<double>(predicted);
}

auto key(const Span& span) { return std::tie(span.rank, span.kind, span.stage, span.microbatch); }

/// Compute spans by (key, start), with starts counted from the first of them.
std::vector<Span> actionsOf(const Trace& trace) {
  std::vector<Span> spans;
  std::copy_if(trace.spans.begin(), trace.spans.end(), std::back_inserter(spans), [](const Span& s) { return isCompute(s.kind); });
  Ns first = std::numeric_limits<Ns>::max();
  for (const Span& span : spans) first = std::min(first, span.start);
  for (Span& span : spans) span.start -= first;
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return std::tuple(key(a), a.start) < std::tuple(key(b), b.start); });
  return spans;
}

void matchActions(const Trace& predicted, const Trace& measured, Comparison& result) {
  const std::vector<Span> left = actionsOf(predicted);
  const std::vector<Span> right = actionsOf(measured);
  double error = 0;
  auto a = left.begin();
  auto b = right.begin();
  while (a != left.end() && b != right.end()) {
    if (key(*a) < key(*b)) {
      ++a;
    } else if (key(*b) < key(*a)) {
      ++b;
    } else {
      ++result.matched;
      error += static_cast<double>(abs(b->start - a->start));
      ++a;
      ++b;
    }
  }
  result.unmatched = static_cast<int>(left.size() + right.size()) - 2 * result.matched;
  if (result.matched > 0 && result.measuredMakespan > 0) {
    result.actionError = error / result.matched / static_cast<double>(result.measuredMakespan);
  }
}

struct GroupSums {
  Ns predicted = 0;
  Ns measured = 0;
};

/// Summed durations by `groupOf` of each span, in the order of the groups; spans without a group are left out.
template <class GroupOf>
auto sumsBy(const Trace& predicted, const Trace& measured, GroupOf groupOf) {
  std::map<decltype(groupOf(Span{})), GroupSums> sums;
  for (const Span& span : predicted.spans) sums[groupOf(span)].predicted += span.end - span.start;
  for (const Span& span : measured.spans) sums[groupOf(span)].measured += span.end - span.start;
  return sums;
}

GroupError groupError(std::string group, const GroupSums& sums) {
  return {std::move(group), sums.predicted, sums.measured, relative(sums.predicted, sums.measured), abs(sums.measured - sums.predicted)};
}

/// Compute spans grouped by a number; others get `kOther`, which is left out.
constexpr std::int32_t kOther = std::numeric_limits<std::int32_t>::min();

template <class NumberOf>
std::vector<GroupError> computeBy(const Trace& predicted, const Trace& measured, std::string_view noun, NumberOf numberOf) {
  std::vector<GroupError> result;
  const auto group = [&](const Span& span) { return isCompute(span.kind) ? numberOf(span) : kOther; };
  for (const auto& [number, sums] : sumsBy(predicted, measured, group)) {
    if (number != kOther) result.push_back(groupError(fmt::format("{} {}", noun, number), sums));
  }
  return result;
}

}  // namespace

Comparison compare(const Trace& predicted, const Trace& measured) {
  Comparison result;
  const Metrics left = metricsOf(predicted);
  const Metrics right = metricsOf(measured);
  result.predictedMakespan = left.makespan;
  result.measuredMakespan = right.makespan;
  result.predictedStep = left.step;
  result.measuredStep = right.step;
  result.makespanError = relative(left.makespan, right.makespan);
  result.stepError = relative(left.step, right.step);
  matchActions(predicted, measured, result);
  for (const auto& [kind, sums] : sumsBy(predicted, measured, [](const Span& span) { return span.kind; })) {
    result.byKind.push_back(groupError(std::string(nameOf(kind)), sums));
    // A measured message ends when its receiver takes it, often long after it arrived; the delay that it causes shows as waiting.
    if (isMessage(kind)) result.byKind.back().contribution = 0;
  }
  result.byStage = computeBy(predicted, measured, "stage", [](const Span& span) { return span.stage.value; });
  result.byRank = computeBy(predicted, measured, "rank", [](const Span& span) { return span.rank.value; });
  return result;
}

}  // namespace pw
