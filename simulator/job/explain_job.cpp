#include "simulator/job/explain_job.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "schedules/units.h"
#include "simulator/job/job_costs.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "simulator/text/median.h"
#include "simulator/text/percent.h"

namespace pw {
namespace {

constexpr std::size_t kMostWorst = 5;
constexpr double kWorthSaying = 0.01;

/// Of which of them the share of the step grew most above what is usual in these steps.
std::optional<std::size_t> grewMost(const std::vector<Culprit>& culprits, std::size_t step, const std::vector<std::size_t>& usual) {
  std::optional<std::size_t> most;
  double grown = kWorthSaying;
  for (std::size_t i = 0; i < culprits.size(); ++i) {
    std::vector<double> shares;
    for (const std::size_t k : usual) shares.push_back(culprits[i].bySteps[k]);
    const double above = culprits[i].bySteps[step] - medianOf(std::move(shares)).value_or(0);
    if (above < grown) continue;
    grown = above;
    most = i;
  }
  return most;
}

std::vector<WorstStep> worstOf(const Job& job, const JobExplanation& explanation) {
  std::vector<std::size_t> order = usualSteps(job);
  const std::vector<std::size_t> usualOf = order;
  const std::size_t count = order.size();
  if (count < 3) return {};
  const Slowdowns& slow = explanation.slowdowns;
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t k) { return job.steps[k].step; });
  const std::vector<double> steps(slow.replayedSteps.begin(), slow.replayedSteps.end());
  const auto measured = [&](std::size_t k) { return static_cast<double>(job.steps[k].step); };
  std::vector<double> usualOnes;
  for (const std::size_t k : order) usualOnes.push_back(measured(k));
  const double usual = std::max(1.0, medianOf(usualOnes).value_or(0));
  std::vector<WorstStep> worst;
  for (std::size_t i = 0; i < std::min({kMostWorst, count / 3 + 1, count}); ++i) {
    const std::size_t k = order[i];
    WorstStep step{k, slow.ideal > 0 ? steps[k] / static_cast<double>(slow.ideal) : 1, measured(k) / usual - 1, {}, {}, {}, {}};
    step.kind = grewMost(slow.byKind, k, usualOf);
    step.rank = slow.byRank.size() > 1 ? grewMost(slow.byRank, k, usualOf) : std::nullopt;
    step.replica = slow.byReplica.size() > 1 ? grewMost(slow.byReplica, k, usualOf) : std::nullopt;
    for (const Stall& stall : explanation.stalls) {
      if (stall.step == k && isWorthSaying(job, stall)) step.stalls.push_back(stall);
    }
    std::ranges::stable_sort(step.stalls, std::ranges::greater(), &Stall::lost);
    worst.push_back(std::move(step));
  }
  return worst;
}

/// The value that more than half of the worst steps have, and how many.
template <class Member>
std::optional<std::pair<std::size_t, std::size_t>> shared(const std::vector<WorstStep>& worst, Member member) {
  std::map<std::size_t, std::size_t> counts;
  for (const WorstStep& step : worst) {
    if (step.*member) ++counts[*(step.*member)];
  }
  const auto most = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
  if (most == counts.end() || 2 * most->second <= worst.size()) return std::nullopt;
  return *most;
}

/// By group: the action of its rank that starts first after its longest cause began. Cost: n log n in spans.
std::vector<std::optional<Action>> nextActions(const Trace& trace, const std::vector<BubbleGroup>& groups) {
  std::vector<std::vector<const Span*>> rows(static_cast<std::size_t>(trace.ranks));
  for (const Span& span : trace.spans) {
    if (isCompute(span.kind)) rows[span.rank.index()].push_back(&span);
  }
  for (auto& row : rows) std::ranges::stable_sort(row, {}, &Span::start);
  std::vector<std::optional<Action>> next;
  for (const BubbleGroup& group : groups) {
    const auto& row = rows[group.rank.index()];
    const auto found = std::ranges::upper_bound(row, group.longestFrom, {}, &Span::start);
    next.push_back(found == row.end()
                       ? std::nullopt
                       : std::optional(Action{(*found)->stage, static_cast<ActionKind>((*found)->kind), (*found)->microbatch}));
  }
  return next;
}

/// A trace of a job has the waits for hosts within the actions before which they were.
void countAsIdle(const std::vector<Ns>& waits, Metrics& metrics) {
  Ns idle = 0;
  for (RankMetrics& rank : metrics.ranks) {
    rank.busy -= waits[rank.rank.index()];
    rank.idle += waits[rank.rank.index()];
    idle += rank.idle;
  }
  const Ns all = metrics.ranks.size() * metrics.makespan;
  metrics.bubbleFraction = all > 0 ? static_cast<double>(idle) / static_cast<double>(all) : 0;
}

std::string longer(double slowdown) { return percent(slowdown - 1); }

}  // namespace

bool isWorthSaying(const Job& job, const Stall& stall) {
  return static_cast<double>(stall.lost) >= kWorthSaying * static_cast<double>(job.steps[stall.step].step);
}

JobExplanation explainJob(const JobShape& shape, const Job& job) { return *explainJob(shape, job, {}); }

std::optional<JobExplanation> explainJob(const JobShape& shape, const Job& job, const std::function<bool()>& shouldContinue) {
  const auto stops = [&] { return shouldContinue && !shouldContinue(); };
  JobExplanation result;
  std::optional<Slowdowns> slowdowns = slowdownsOf(shape, job, shouldContinue);
  if (!slowdowns) return std::nullopt;
  result.slowdowns = *std::move(slowdowns);
  result.typical = typicalTimes(shape, job);
  if (stops()) return std::nullopt;
  replayJob(shape, job, result.typical.times, result.usual);
  result.path = pathOf(shape, job, result.typical.times, result.usual);
  const CostTable costs = costsOf(job);
  Program program = compile(job.schedule, costs);
  setActionTimes(job.schedule, actionTimes(job), program);
  Times times;
  execute(program, times);
  const Trace trace = traceOf(job.schedule, costs, program, times);
  result.metrics = metricsOf(trace);
  result.hostWaits = hostWaits(job);
  countAsIdle(result.hostWaits, result.metrics);
  result.causes = explain(job.schedule, costs, program, times, false);
  result.idleBefore = nextActions(trace, result.causes.groups);
  if (stops()) return std::nullopt;
  result.replay = replayErrors(shape, job, result.typical);
  result.stalls = stallsOf(shape, job, result.typical);
  const std::vector<std::size_t> usual = usualSteps(job);
  std::erase_if(result.stalls, [&](const Stall& stall) { return !std::ranges::binary_search(usual, stall.step); });
  result.worst = worstOf(job, result);
  return result;
}

std::string toString(const JobShape& shape, const Job& job, const Stall& stall) {
  std::string text = fmt::format("worker {} lost {} in {} ", stall.worker.value, formatDuration(stall.lost), job.steps[stall.step].name);
  if (stall.operation >= 0) return text + "before " + job.operations[static_cast<std::size_t>(stall.operation)].name;
  const JobShape::Slot& slot = shape.copySlots[static_cast<std::size_t>(stall.slot) % shape.slotsOfCopy()];
  return text + fmt::format("before {}{}", toString(slot.action), stall.message ? ", waiting for its message" : "");
}

std::string commonText(const JobExplanation& explanation) {
  const std::vector<WorstStep>& worst = explanation.worst;
  if (worst.size() < 2) return {};
  std::vector<std::string> parts;
  const auto kind = shared(worst, &WorstStep::kind), rank = shared(worst, &WorstStep::rank), replica = shared(worst, &WorstStep::replica);
  if (kind) parts.push_back(fmt::format("{} takes longer than usual in {}", explanation.slowdowns.byKind[kind->first].name, kind->second));
  if (rank) parts.push_back(fmt::format("rank {} is slower than usual in {}", rank->first, rank->second));
  if (replica) parts.push_back(fmt::format("replica {} is slower than usual in {}", replica->first, replica->second));
  std::map<std::pair<JobRank, std::int32_t>, std::size_t> stalls;
  for (const WorstStep& step : worst) {
    if (!step.stalls.empty()) ++stalls[{step.stalls.front().worker, step.stalls.front().operation}];
  }
  for (const auto& [where, count] : stalls) {
    if (2 * count > worst.size()) parts.push_back(fmt::format("worker {} stalls in {}", where.first.value, count));
  }
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text.empty() ? text : fmt::format("Of the {} worst steps: {}.", worst.size(), text);
}

std::string stragglerText(const JobExplanation& explanation) {
  const Slowdowns& slow = explanation.slowdowns;
  if (slow.slowdown < 1 + kWorthSaying) {
    std::string made;  // kinds that others make up for, as where what I takes longer W takes less
    for (const Culprit& kind : slow.byKind) {
      if (kind.slowdown >= 1 + kWorthSaying) made += fmt::format("{}{} ({})", made.empty() ? "" : ", ", kind.name, longer(kind.slowdown));
    }
    constexpr double kAsLong = 1e-3;
    return (slow.slowdown > 1 + kAsLong
                ? fmt::format("No straggler: with all operations of a kind equally long the step would be less than {} shorter.",
                              percent(kWorthSaying))
                : "No straggler: with all operations of a kind equally long the step would take as long.") +
           (made.empty() ? "" : fmt::format(" What would make it longer alone, others make up for: {}.", made));
  }
  std::string text =
      fmt::format("Stragglers make the step {} longer than if all operations of a kind took equally long.", longer(slow.slowdown));
  const auto most = [](const std::vector<Culprit>& culprits) { return *std::ranges::max_element(culprits, {}, &Culprit::slowdown); };
  const double half = 1 + (slow.slowdown - 1) / 2;
  std::vector<std::string> parts;
  if (slow.byKind.front().slowdown >= half)
    parts.push_back(fmt::format("{} ({})", slow.byKind.front().name, longer(slow.byKind.front().slowdown)));
  if (slow.byRank.size() > 1 && most(slow.byRank).slowdown >= half)
    parts.push_back(fmt::format("rank {} ({})", most(slow.byRank).number, longer(most(slow.byRank).slowdown)));
  // Replicas that all do the same are as slow as the job is.
  const bool differ = slow.byReplica.size() > 1 && std::ranges::count_if(slow.byReplica, [&](const Culprit& c) {
                                                     return c.slowdown >= half;
                                                   }) <= static_cast<std::ptrdiff_t>(slow.byReplica.size() / 2);
  if (differ && most(slow.byReplica).slowdown >= half)
    parts.push_back(fmt::format("replica {} ({})", most(slow.byReplica).number, longer(most(slow.byReplica).slowdown)));
  if (parts.empty()) return text + " No single kind, rank or replica explains half of it.";
  std::string list;
  for (const std::string& part : parts) list += (list.empty() ? "" : ", ") + part;
  return text + " With only that as it was, all else ideal: " + list + ".";
}

}  // namespace pw
