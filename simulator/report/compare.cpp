#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <span>
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

bool isBackwardPart(SpanKind kind) { return kind == SpanKind::BackwardInput || kind == SpanKind::BackwardWeight; }

/// How a trace has a stage's backward of a microbatch.
struct Backwards {
  bool whole = false, input = false, weight = false;

  void add(SpanKind kind) {
    whole = whole || kind == SpanKind::Backward;
    input = input || kind == SpanKind::BackwardInput;
    weight = weight || kind == SpanKind::BackwardWeight;
  }
  [[nodiscard]] bool isWhole() const { return whole && !input && !weight; }
  [[nodiscard]] bool isSplit() const { return !whole && input && weight; }
};

bool isWholeInOne(const Backwards& a, const Backwards& b) { return (a.isWhole() && b.isSplit()) || (a.isSplit() && b.isWhole()); }

auto taskOf(const Span& span) { return std::tie(span.rank, span.stage, span.microbatch); }

/// Compute spans by (task, kind, start), with starts counted from the first of them.
std::vector<Span> actionsOf(const Trace& trace) {
  std::vector<Span> spans;
  std::copy_if(trace.spans.begin(), trace.spans.end(), std::back_inserter(spans), [](const Span& s) { return isCompute(s.kind); });
  Ns first = std::numeric_limits<Ns>::max();
  for (const Span& span : spans) first = std::min(first, span.start);
  for (Span& span : spans) span.start -= first;
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return std::tuple(taskOf(a), a.kind, a.start) < std::tuple(taskOf(b), b.kind, b.start); });
  return spans;
}

/// The actions of one task: a stage's of a microbatch on a rank.
using Actions = std::span<Span>;

/// Takes the actions of the first task from `rest`, if that is `task`.
Actions takeTask(Actions& rest, const Span& task) {
  std::size_t count = 0;
  while (count < rest.size() && taskOf(rest[count]) == taskOf(task)) ++count;
  const Actions taken = rest.first(count);
  rest = rest.subspan(count);
  return taken;
}

Backwards backwardsOf(Actions actions) {
  Backwards backwards;
  for (const Span& span : actions) backwards.add(span.kind);
  return backwards;
}

/// Makes the I of a split backward a B, which is matched with the other trace's, and leaves its W out.
Actions joined(Actions actions) {
  std::size_t kept = 0;
  for (const Span& span : actions) {
    if (span.kind == SpanKind::BackwardWeight) continue;
    actions[kept] = span;
    actions[kept++].kind = joinedKind(span.kind);
  }
  return actions.first(kept);
}

/// Matches actions of one task; returns the sum of the errors of their starts.
Ns matchTask(Actions left, Actions right, Comparison& result) {
  const bool differs = isWholeInOne(backwardsOf(left), backwardsOf(right));
  if (differs) left = joined(left), right = joined(right);
  Ns error = 0;
  auto a = left.begin();
  auto b = right.begin();
  int matched = 0;
  while (a != left.end() && b != right.end()) {
    if (a->kind < b->kind) {
      ++a;
    } else if (b->kind < a->kind) {
      ++b;
    } else {
      ++matched;
      if (differs && a->kind == SpanKind::Backward) ++result.matchedSplit;
      error += abs(b->start - a->start);
      ++a;
      ++b;
    }
  }
  result.matched += matched;
  result.unmatched += static_cast<int>(left.size() + right.size()) - 2 * matched;
  return error;
}

void matchActions(const Trace& predicted, const Trace& measured, Comparison& result) {
  std::vector<Span> all = actionsOf(predicted), allMeasured = actionsOf(measured);
  Actions left(all), right(allMeasured);
  double error = 0;
  while (!left.empty() || !right.empty()) {
    const bool isLeft = right.empty() || (!left.empty() && taskOf(left.front()) <= taskOf(right.front()));
    const Span task = isLeft ? left.front() : right.front();
    const Actions ofLeft = takeTask(left, task);
    error += static_cast<double>(matchTask(ofLeft, takeTask(right, task), result));
  }
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

/// Whether a kind is a cause of differences, not a consequence.
bool isCause(SpanKind kind) {
  switch (kind) {
    case SpanKind::Forward:
    case SpanKind::Backward:
    case SpanKind::BackwardInput:
    case SpanKind::BackwardWeight:
    case SpanKind::ReduceGrad:
    case SpanKind::Optimizer:
    case SpanKind::Load:
    case SpanKind::Store: return true;
    case SpanKind::SendForward:
    case SpanKind::SendBackward:
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward: return false;
  }
  return false;
}

std::set<Stage> stagesIn(const Trace& trace) {
  std::set<Stage> stages;
  for (const Span& span : trace.spans) {
    if (isCompute(span.kind)) stages.insert(span.stage);
  }
  return stages;
}

/// `joins`: the traces `differInSplit`.
std::vector<GroupError> causesOf(const Trace& predicted, const Trace& measured, Splits splits, bool joins) {
  const bool sameStages = splits == Splits::Same && stagesIn(predicted) == stagesIn(measured);
  const auto groupOf = [&](const Span& span) {
    return std::pair(joins ? joinedKind(span.kind) : span.kind, sameStages && isCompute(span.kind) ? span.stage : Stage(-1));
  };
  std::vector<GroupError> result;
  for (const auto& [key, sums] : sumsBy(predicted, measured, groupOf)) {
    const auto& [kind, stage] = key;
    if (!isCause(kind)) continue;
    std::string name(joins && kind == SpanKind::Backward ? kBackwards : nameOf(kind));
    if (stage.value >= 0) name += fmt::format(" of stage {}", stage.value);
    result.push_back(groupError(std::move(name), sums));
  }
  return result;
}

}  // namespace

SpanKind joinedKind(SpanKind kind) { return isBackwardPart(kind) ? SpanKind::Backward : kind; }

bool differInSplit(const Trace& a, const Trace& b) {
  const auto has = [&](SpanKind kind) {
    const auto isOfKind = [kind](const Span& span) { return span.kind == kind; };
    return std::any_of(a.spans.begin(), a.spans.end(), isOfKind) || std::any_of(b.spans.begin(), b.spans.end(), isOfKind);
  };
  if (!has(SpanKind::Backward) || !has(SpanKind::BackwardInput) || !has(SpanKind::BackwardWeight)) return false;
  std::map<std::pair<Stage, Microbatch>, std::pair<Backwards, Backwards>> tasks;
  for (const Span& span : a.spans) tasks[{span.stage, span.microbatch}].first.add(span.kind);
  for (const Span& span : b.spans) tasks[{span.stage, span.microbatch}].second.add(span.kind);
  return std::any_of(tasks.begin(), tasks.end(), [](const auto& task) { return isWholeInOne(task.second.first, task.second.second); });
}

Comparison compare(const Trace& predicted, const Trace& measured, Splits splits) {
  Comparison result;
  result.splits = splits;
  const Metrics left = metricsOf(predicted);
  const Metrics right = metricsOf(measured);
  result.predictedMakespan = left.makespan;
  result.measuredMakespan = right.makespan;
  result.predictedStep = left.step;
  result.measuredStep = right.step;
  result.makespanError = relative(left.makespan, right.makespan);
  result.stepError = relative(left.step, right.step);
  matchActions(predicted, measured, result);
  const bool joins = differInSplit(predicted, measured);
  for (const auto& [kind, sums] :
       sumsBy(predicted, measured, [joins](const Span& span) { return joins ? joinedKind(span.kind) : span.kind; })) {
    result.byKind.push_back(groupError(std::string(joins && kind == SpanKind::Backward ? kBackwards : nameOf(kind)), sums));
    // A measured message ends when its receiver takes it, often long after it arrived; the delay that it causes shows as waiting.
    if (isMessage(kind)) result.byKind.back().contribution = 0;
  }
  if (splits == Splits::Same) result.byStage = computeBy(predicted, measured, "stage", [](const Span& span) { return span.stage.value; });
  result.byRank = computeBy(predicted, measured, "rank", [](const Span& span) { return span.rank.value; });
  result.byCause = causesOf(predicted, measured, splits, joins);
  return result;
}

}  // namespace pw
