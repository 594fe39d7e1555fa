#include "simulator/job/explain_tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "schedules/units.h"
#include "simulator/report/bubble_causes.h"
#include "simulator/text/percent.h"

namespace pw {
namespace {

double shareOf(Ns part, Ns whole) { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0; }

std::string messageKind(const Action& carried) {
  return std::string(letters(carried.kind == ActionKind::Forward ? ActionKind::SendForward : ActionKind::SendBackward));
}

/// The place of something that takes a time, of which the one furthest above what is usual stays.
struct Slowest {
  Ns above = std::numeric_limits<Ns>::min(), time = 0;
  StepPlace place;

  template <class Where>
  void take(Ns own, Ns usual, const Where& where) {
    const Ns more = own - usual;
    if (more < above || (more == above && own <= time)) return;
    above = more;
    time = own;
    place = where();
  }
};

/// Where things of a job are.
class Places {
 public:
  Places(const JobShape& shape, const Job& job, const JobExplanation& explanation);
  [[nodiscard]] StepPlace ofKind(const std::string& kind) const;
  [[nodiscard]] StepPlace ofStage(std::size_t stage) const { return stages_[stage].place; }
  [[nodiscard]] StepPlace ofRank(std::size_t rank) const { return ranks_[rank].place; }
  [[nodiscard]] StepPlace ofReplica(std::size_t replica) const { return replicas_[replica].place; }
  [[nodiscard]] StepPlace ofWorker(std::size_t worker) const { return workers_[worker].place; }
  [[nodiscard]] StepPlace ofPath(const std::string& kind) const;
  [[nodiscard]] StepPlace ofStall(const Stall& stall) const;
  [[nodiscard]] StepPlace ofStep(const WorstStep& worst) const;

 private:
  [[nodiscard]] std::size_t workerOf(std::size_t slot) const;
  [[nodiscard]] std::size_t replicaOf(std::size_t worker) const;
  [[nodiscard]] const JobShape::Slot& slotOf(std::size_t slot) const { return shape_.copySlots[slot % shape_.slotsOfCopy()]; }
  [[nodiscard]] StepPlace placeOf(std::optional<std::size_t> step, std::size_t slot) const;
  [[nodiscard]] StepPlace besideOperation(std::optional<std::size_t> step, std::size_t worker, std::size_t operation) const;
  void addActions(std::size_t step);
  void addOperations(std::size_t step);

  const JobShape& shape_;
  const Job& job_;
  const JobExplanation& explanation_;
  std::map<std::string, Slowest> kinds_;
  std::vector<Slowest> stages_, ranks_, replicas_, workers_;
};

Places::Places(const JobShape& shape, const Job& job, const JobExplanation& explanation)
    : shape_(shape),
      job_(job),
      explanation_(explanation),
      stages_(job.schedule.placement.stages()),
      ranks_(shape.ranks),
      replicas_(static_cast<std::size_t>(job.replicas)),
      workers_(shape.workers) {
  for (const std::size_t k : usualSteps(job)) {
    addActions(k);
    addOperations(k);
  }
}

std::size_t Places::workerOf(std::size_t slot) const { return slot / shape_.slotsOfCopy() * shape_.ranks + slotOf(slot).rank.index(); }

std::size_t Places::replicaOf(std::size_t worker) const { return worker / shape_.ranks / static_cast<std::size_t>(job_.tensor); }

StepPlace Places::placeOf(std::optional<std::size_t> step, std::size_t slot) const {
  return {step, JobRank(workerOf(slot)), slotOf(slot).action, false};
}

/// At the action before it, or the first one.
StepPlace Places::besideOperation(std::optional<std::size_t> step, std::size_t worker, std::size_t operation) const {
  const std::size_t rank = worker % shape_.ranks;
  StepPlace place{step, JobRank(worker), std::nullopt, false};
  if (shape_.begin[rank] == shape_.begin[rank + 1]) return place;
  const auto after = static_cast<std::size_t>(std::max(1, job_.operations[operation].after[rank]));
  const std::size_t last = shape_.begin[rank + 1] - 1;
  place.action = shape_.copySlots[std::min(last, shape_.begin[rank] + after - 1)].action;
  return place;
}

void Places::addActions(std::size_t step) {
  const JobTimes& usual = explanation_.typical.times;
  const JobStep& own = job_.steps[step];
  std::array<Slowest*, 4> kinds{};
  for (std::size_t k = 0; k < kinds.size(); ++k) kinds[k] = &kinds_[std::string(letters(static_cast<ActionKind>(k)))];
  Slowest &forward = kinds_["SEND_F"], &backward = kinds_["SEND_B"];
  for (std::size_t i = 0; i < own.actions.size(); ++i) {
    const JobShape::Slot& slot = slotOf(i);
    const std::size_t worker = workerOf(i);
    const auto where = [&] { return placeOf(step, i); };
    for (Slowest* one : {kinds[static_cast<std::size_t>(slot.action.kind)], &stages_[slot.action.stage.index()],
                         &ranks_[worker % shape_.ranks], &replicas_[replicaOf(worker)], &workers_[worker]})
      one->take(own.actions[i], usual.actions[i], where);
    if (!slot.crosses || own.messages[i] == kUnknownTime) continue;
    (slot.action.kind == ActionKind::Forward ? forward : backward).take(own.messages[i], usual.messages[i], where);
  }
}

void Places::addOperations(std::size_t step) {
  const JobStep& own = job_.steps[step];
  for (std::size_t at = 0; at < own.operations.size(); ++at) {
    if (own.operations[at] < 0) continue;
    const std::size_t operation = at % shape_.operations, worker = at / shape_.operations;
    kinds_[kindOf(job_.operations[operation])].take(own.operations[at], std::max<Ns>(0, explanation_.typical.times.operations[at]),
                                                    [&] { return besideOperation(step, worker, operation); });
  }
}

StepPlace Places::ofKind(const std::string& kind) const {
  const auto found = kinds_.find(kind);
  return found == kinds_.end() ? StepPlace() : found->second.place;
}

/// The longest part of that kind on the path, in the usual step.
StepPlace Places::ofPath(const std::string& kind) const {
  const Segment* longest = nullptr;
  for (const Segment& segment : explanation_.causes.path.segments) {
    const bool computes = segment.doing == Doing::Compute;
    if (!computes && !isMessage(segment.doing)) continue;
    if ((computes ? std::string(letters(segment.action.kind)) : messageKind(segment.action)) != kind) continue;
    if (longest == nullptr || segment.to - segment.from > longest->to - longest->from) longest = &segment;
  }
  if (longest != nullptr) return {std::nullopt, JobRank(longest->rank.index()), longest->action, false};
  const std::vector<Ns>& waits = explanation_.typical.times.waits;
  if (kind == kWaitKind && shape_.slotsOfCopy() > 0) {
    const auto end = waits.begin() + static_cast<std::ptrdiff_t>(shape_.slotsOfCopy());
    return placeOf(std::nullopt, static_cast<std::size_t>(std::max_element(waits.begin(), end) - waits.begin()));
  }
  StepPlace place = ofKind(kind);
  place.step.reset();
  return place;
}

StepPlace Places::ofStall(const Stall& stall) const {
  if (stall.operation >= 0) return besideOperation(stall.step, stall.worker.index(), static_cast<std::size_t>(stall.operation));
  StepPlace place = placeOf(stall.step, static_cast<std::size_t>(stall.slot));
  place.idle = true;
  return place;
}

/// Its longest stall; else what is furthest above what is usual, of the kind, rank and replica that took longer in it.
StepPlace Places::ofStep(const WorstStep& worst) const {
  if (!worst.stalls.empty()) return ofStall(worst.stalls.front());
  Slowest slowest;
  const JobStep& own = job_.steps[worst.step];
  const JobTimes& usual = explanation_.typical.times;
  const std::string kind = worst.kind ? explanation_.slowdowns.byKind[*worst.kind].name : std::string();
  const auto isOfThem = [&](std::size_t worker) {
    return (!worst.rank || worker % shape_.ranks == *worst.rank) && (!worst.replica || replicaOf(worker) == *worst.replica);
  };
  for (std::size_t at = 0; at < own.operations.size(); ++at) {
    const std::size_t operation = at % shape_.operations, worker = at / shape_.operations;
    if (own.operations[at] < 0 || kindOf(job_.operations[operation]) != kind || !isOfThem(worker)) continue;
    slowest.take(own.operations[at], std::max<Ns>(0, usual.operations[at]), [&] { return besideOperation(worst.step, worker, operation); });
  }
  const bool isOperation = slowest.place.worker.has_value();
  for (std::size_t i = 0; i < own.actions.size() && !isOperation; ++i) {
    const Action& action = slotOf(i).action;
    if (!isOfThem(workerOf(i))) continue;
    const auto where = [&] { return placeOf(worst.step, i); };
    if (slotOf(i).crosses && own.messages[i] != kUnknownTime && messageKind(action) == kind)
      slowest.take(own.messages[i], usual.messages[i], where);
    if (kind.empty() || letters(action.kind) == kind) slowest.take(own.actions[i], usual.actions[i], where);
  }
  slowest.place.step = worst.step;
  return slowest.place;
}

// ---- Tables ----

ExplainedTable pathTable(const JobExplanation& explanation, const Places& places) {
  std::vector<std::pair<std::string, Ns>> kinds(explanation.path.byKind.begin(), explanation.path.byKind.end());
  std::ranges::stable_sort(kinds, std::ranges::greater(), [](const auto& kind) { return kind.second; });
  ExplainedTable table{ExplainTopic::Path, {{"critical path"}, {"time", true}, {"share", true}}, {}};
  for (const auto& [kind, time] : kinds) {
    const double share = shareOf(time, explanation.usual.step);
    table.rows.push_back({{kind, formatDuration(time), percent(share)}, share, places.ofPath(kind)});
  }
  return table;
}

ExplainedTable bubbleTable(const JobExplanation& explanation) {
  ExplainedTable table{ExplainTopic::Bubble, {{"idle"}, {"phase"}, {"cause"}, {"waits for"}, {"time", true}, {"share", true}}, {}};
  const Ns all = explanation.metrics.ranks.size() * explanation.metrics.makespan;
  for (std::size_t g = 0; g < explanation.causes.groups.size(); ++g) {
    const BubbleGroup& group = explanation.causes.groups[g];
    const double share = shareOf(group.idle, all);
    const std::string awaited = fmt::format("{}rank {}", group.message ? "a message of " : "", group.cause.value);
    table.rows.push_back({{fmt::format("rank {}", group.rank.value), std::string(nameOf(group.phase)),
                           std::string(nameOf(causeOf(group.phase, group.message))), awaited, formatDuration(group.idle), percent(share)},
                          share,
                          {std::nullopt, JobRank(group.rank.index()), explanation.idleBefore[g], true}});
  }
  for (std::size_t r = 0; r < explanation.hostWaits.size(); ++r) {
    const Ns wait = explanation.hostWaits[r];
    if (wait <= 0) continue;
    const double share = shareOf(wait, all);
    table.rows.push_back({{fmt::format("rank {}", r), "any", "host", "its host", formatDuration(wait), percent(share)},
                          share,
                          {std::nullopt, JobRank(r), std::nullopt, true}});
  }
  std::ranges::stable_sort(table.rows, std::ranges::greater(), [](const ExplainedRow& row) { return row.share; });
  return table;
}

ExplainedTable slowTable(ExplainTopic topic, const char* title, const std::vector<Culprit>& culprits,
                         const std::function<StepPlace(const Culprit&)>& placeOf) {
  std::vector<const Culprit*> sorted;
  for (const Culprit& one : culprits) sorted.push_back(&one);
  std::ranges::stable_sort(sorted, std::ranges::greater(), [](const Culprit* one) { return one->slowdown; });
  ExplainedTable table{topic, {{title}, {"slows the step by", true}}, {}};
  for (const Culprit* one : sorted) {
    const std::string name = one->number < 0 ? one->name : fmt::format("{} {}", title, one->number);
    table.rows.push_back({{name, signedPercent(one->slowdown - 1)}, std::max(0.0, one->slowdown - 1), placeOf(*one)});
  }
  return table;
}

ExplainedTable worstTable(const JobShape& shape, const Job& job, const JobExplanation& explanation, const Places& places) {
  ExplainedTable table{ExplainTopic::WorstSteps, {{"worst steps"}, {"time", true}, {"above usual", true}, {"because of"}}, {}};
  for (const WorstStep& step : explanation.worst) {
    std::string why;
    const auto add = [&](const std::string& part) { why += (why.empty() ? "" : ", ") + part; };
    if (step.kind) add(explanation.slowdowns.byKind[*step.kind].name);
    if (step.rank) add(fmt::format("rank {}", *step.rank));
    if (step.replica) add(fmt::format("replica {}", *step.replica));
    if (!step.stalls.empty()) add(toString(shape, job, step.stalls.front()));
    table.rows.push_back({{job.steps[step.step].name, formatDuration(job.steps[step.step].step), signedPercent(step.aboveUsual),
                           why.empty() ? "nothing in particular" : why},
                          std::max(0.0, step.aboveUsual),
                          places.ofStep(step)});
  }
  return table;
}

ExplainedTable stallTable(const JobShape& shape, const Job& job, const JobExplanation& explanation, const Places& places) {
  std::vector<Stall> stalls = explanation.stalls;
  std::erase_if(stalls, [&](const Stall& stall) { return !isWorthSaying(job, stall); });
  std::ranges::stable_sort(stalls, std::ranges::greater(), &Stall::lost);
  ExplainedTable table{ExplainTopic::Stalls, {{"stalls"}}, {}};
  for (const Stall& stall : stalls)
    table.rows.push_back({{toString(shape, job, stall)}, shareOf(stall.lost, explanation.usual.step), places.ofStall(stall)});
  return table;
}

}  // namespace

std::vector<ExplainedTable> explainedTables(const JobShape& shape, const Job& job, const JobExplanation& explanation) {
  const Places places(shape, job, explanation);
  const Slowdowns& slow = explanation.slowdowns;
  const auto numbered = [&](StepPlace (Places::*of)(std::size_t) const) {
    return [&places, of](const Culprit& one) { return (places.*of)(static_cast<std::size_t>(one.number)); };
  };
  std::vector<ExplainedTable> tables{pathTable(explanation, places), bubbleTable(explanation)};
  tables.push_back(slowTable(ExplainTopic::Kinds, "kind", slow.byKind, [&](const Culprit& one) { return places.ofKind(one.name); }));
  if (slow.byStage.size() > 1) tables.push_back(slowTable(ExplainTopic::Stages, "stage", slow.byStage, numbered(&Places::ofStage)));
  if (slow.byStage.size() != slow.byRank.size())
    tables.push_back(slowTable(ExplainTopic::Ranks, "rank", slow.byRank, numbered(&Places::ofRank)));
  if (slow.byReplica.size() > 1) {
    tables.push_back(slowTable(ExplainTopic::Replicas, "replica", slow.byReplica, numbered(&Places::ofReplica)));
    tables.push_back(slowTable(ExplainTopic::Workers, "worker", slow.byWorker, numbered(&Places::ofWorker)));
  }
  tables.push_back(worstTable(shape, job, explanation, places));
  tables.push_back(stallTable(shape, job, explanation, places));
  std::erase_if(tables, [](const ExplainedTable& table) { return table.rows.empty() && table.topic != ExplainTopic::Bubble; });
  return tables;
}

std::string stepText(const JobExplanation& explanation) {
  const Slowdowns& slow = explanation.slowdowns;
  std::string text =
      fmt::format("step {} on average = {} if all operations of a kind took equally long + {} by stragglers + {} of waits for hosts",
                  formatDuration(slow.measured), formatDuration(slow.ideal), formatDuration(std::max<Ns>(0, slow.replayed - slow.ideal)),
                  formatDuration(std::max<Ns>(0, slow.measured - slow.replayed)));
  constexpr std::int64_t kShown = 1000;  // of the step: a thousandth is rounding, and pauses that the trace does not have
  if (const Ns excess = slow.replayed - slow.measured; excess > slow.measured / kShown)
    text += fmt::format(" − {} that its replay takes too long", formatDuration(excess));
  return text;
}

std::string replayText(const JobExplanation& explanation) {
  double makespan = 0, start = 0;
  for (const ReplayError& error : explanation.replay) {
    makespan = std::max(makespan, std::abs(error.makespan));
    start = std::max(start, error.start);
  }
  return fmt::format("A replay of each step with its own durations is at most {} off its pipeline's time, and {} off its starts.",
                     percent(makespan), percent(start));
}

}  // namespace pw
