#include "simulator/job/recover.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schedules/check.h"
#include "schedules/error.h"
#include "simulator/job/between_steps.h"
#include "simulator/job/memory.h"
#include "simulator/job/operation_order.h"
#include "simulator/job/separate.h"
#include "simulator/text/median.h"
#include "simulator/trace/executed.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

constexpr std::size_t kMostNotes = 12;

/// Without slots, whose actions then follow each other.
Schedule plain(Schedule schedule) {
  for (auto& row : schedule.rows) {
    for (Action& action : row) action.overlapsNext = false;
  }
  return schedule;
}

/// As a trace of it would show it.
Schedule executed(const Schedule& known) {
  Schedule schedule;
  schedule.placement = known.placement;
  schedule.microbatches = known.microbatches;
  schedule.rows = known.rows;
  for (auto& row : schedule.rows) std::erase_if(row, [](const Action& action) { return !isCompute(action.kind); });
  schedule.name = familyOf(schedule);
  return plain(std::move(schedule));
}

/// The most frequent schedule of the first pipeline (ties: the first; where some train, of those, as others evaluate) that a pipeline can
/// do, as no part of a step is, else of all; and the names of steps that follow another.
std::pair<std::optional<Schedule>, std::vector<std::string>> scheduleOf(const MeasuredJob& measured, int ranks) {
  if (measured.schedule) return {executed(*measured.schedule), {}};
  std::vector<std::pair<Schedule, std::vector<std::string>>> seen;
  for (const MeasuredStep& step : measured.steps) {
    std::optional<Schedule> schedule = executedSchedule(pipelineOf(step.trace, 0, ranks));
    if (!schedule) continue;
    Schedule found = plain(*std::move(schedule));
    const auto same = std::ranges::find_if(seen, [&](const auto& other) { return other.first == found; });
    if (same != seen.end())
      same->second.push_back(step.name);
    else
      seen.emplace_back(std::move(found), std::vector{step.name});
  }
  if (seen.empty()) return {std::nullopt, {}};
  std::ranges::stable_sort(seen, std::ranges::greater(), [](const auto& s) { return std::pair(trains(s.first), s.second.size()); });
  const auto isPossible = [](const auto& s) {
    return std::ranges::none_of(check(s.first), [](const Problem& problem) { return problem.stops == Stops::Always; });
  };
  const auto possible = std::ranges::find_if(seen, isPossible);
  const auto most = possible == seen.end() ? seen.begin() : possible;
  std::vector<std::string> others;
  for (const auto& other : seen) {
    if (&other != &*most) others.insert(others.end(), other.second.begin(), other.second.end());
  }
  return {most->first, std::move(others)};
}

/// The operations of a step: those that are named, else the optimizer, reductions and gathered parameters of its trace.
std::vector<NamedSpan> operationsOf(const MeasuredStep& step) {
  if (!step.operations.empty()) return step.operations;
  std::vector<NamedSpan> named;
  std::map<std::pair<Rank, SpanKind>, int> seen;
  for (const Span& span : step.trace.spans) {
    if (!isOperation(span)) continue;
    const int count = ++seen[{span.rank, span.kind}];
    const std::string name(span.kind == SpanKind::Load ? "UNSHARD" : nameOf(span.kind));
    named.push_back(
        {JobRank(span.rank.value), count == 1 ? name : fmt::format("{} {}", name, count), span.start, span.end, isBeside(span)});
  }
  return named;
}

/// What an action of a kind takes beside others, where no action of its stage tells: backwards twice as long as the others.
Ns usualShare(ActionKind kind) { return Ns(kind == ActionKind::Backward ? std::int64_t{2} : std::int64_t{1}); }

/// What actions take by themselves, by stage and kind, ascending.
using TimesAlone = std::map<std::pair<Stage, ActionKind>, std::vector<Ns>>;

/// What an action usually takes by itself: the median of its stage and kind; of a B without, of an I and a W; nothing where none tells.
std::optional<Ns> usualAlone(const TimesAlone& alone, Stage stage, ActionKind kind) {
  if (const auto own = alone.find({stage, kind}); own != alone.end()) return own->second[own->second.size() / 2];
  if (kind != ActionKind::Backward) return std::nullopt;
  const auto input = usualAlone(alone, stage, ActionKind::BackwardInput), weight = usualAlone(alone, stage, ActionKind::BackwardWeight);
  return input && weight ? std::optional(*input + *weight) : std::nullopt;
}

/// Actions that a rank records as a pair are done at the same times. Here they follow each other: each has as much of the pair's time as
/// its kind takes of the same stage by itself, so that they take together what the pair took. A pair that takes over a tenth longer than
/// both by themselves waits for the input of its second.
void sharePairs(const JobShape& shape, StepSpans& spans) {
  const auto overlaps = [&](std::size_t base, std::size_t s) {  // with the next
    const bool hasNext = s + 1 < shape.begin[shape.copySlots[s].rank.index() + 1];
    return hasNext && spans.start[base + s + 1] == spans.start[base + s] && spans.end[base + s] > spans.start[base + s];
  };
  for (std::size_t copy = 0; copy < shape.copies; ++copy) {
    const std::size_t base = copy * shape.slotsOfCopy();
    TimesAlone alone;
    for (std::size_t s = 0; s < shape.slotsOfCopy(); ++s) {
      const bool isFirst = s == shape.begin[shape.copySlots[s].rank.index()];
      if (overlaps(base, s) || (!isFirst && overlaps(base, s - 1))) continue;
      alone[{shape.copySlots[s].action.stage, shape.copySlots[s].action.kind}].push_back(spans.end[base + s] - spans.start[base + s]);
    }
    for (auto& ofKind : alone) std::ranges::sort(ofKind.second);
    for (std::size_t s = 0; s < shape.slotsOfCopy(); ++s) {
      if (!overlaps(base, s)) continue;
      const Action &first = shape.copySlots[s].action, &second = shape.copySlots[s + 1].action;
      const auto one = usualAlone(alone, first.stage, first.kind), other = usualAlone(alone, second.stage, second.kind);
      const bool isKnown = one && other;
      const Ns a = isKnown ? *one : usualShare(first.kind), b = isKnown ? *other : usualShare(second.kind);
      const Ns begin = spans.start[base + s], end = std::max(spans.end[base + s], spans.end[base + s + 1]);
      const double share = static_cast<double>(a) / static_cast<double>(std::max<Ns>(1, a + b));
      const Ns middle = begin + Ns(std::llround(share * static_cast<double>(end - begin)));
      const bool waits = isKnown && end - begin > a + b + (a + b) / 10;
      spans.end[base + s] = waits ? begin + a : middle;
      spans.start[base + s + 1] = waits ? end - b : middle;
      spans.end[base + s + 1] = end;
    }
  }
}

/// Notes which actions a reduction of their whole rank follows at once.
void holdMessages(const Trace& trace, const JobShape& shape, StepSpans& spans) {
  std::map<std::pair<std::size_t, Ns>, Ns> reductions;  // by worker and start: the end
  for (const Span& span : trace.spans) {
    if (span.kind == SpanKind::ReduceGrad && !isBeside(span) && span.rank.index() < shape.workers)
      reductions.emplace(std::pair(span.rank.index(), span.start), span.end);
  }
  for (std::size_t copy = 0, i = 0; copy < shape.copies && !reductions.empty(); ++copy) {
    for (std::size_t s = 0; s < shape.slotsOfCopy(); ++s, ++i) {
      const auto next = reductions.find({copy * shape.ranks + shape.copySlots[s].rank.index(), spans.end[i]});
      if (next != reductions.end()) spans.held[i] = next->second;
    }
  }
}

/// From when each message's transfer ended, as a prediction shows it, to how long it took from the end of the sender's action: with the
/// latency that comes after, which is what receivers still waited for then, since a prediction has no hosts. Where none of a link waited,
/// its latency made no difference and is not known.
void timePredictedMessages(const JobShape& shape, StepSpans& spans) {
  const auto slotOf = [&](std::size_t i) -> const JobShape::Slot& { return shape.copySlots[i % shape.slotsOfCopy()]; };
  const auto isTimed = [&](std::size_t i) { return spans.message[i] != kUnknownTime && slotOf(i).producer >= 0; };
  std::map<std::pair<Stage, ActionKind>, Ns> latency;
  for (std::size_t i = 0; i < spans.message.size(); ++i) {
    const JobShape::Slot& slot = slotOf(i);
    const bool isFirst = i % shape.slotsOfCopy() == shape.begin[slot.rank.index()];
    if (!isTimed(i) || (!isFirst && spans.start[i] == spans.end[i - 1])) continue;
    Ns& most = latency[{slot.action.stage, slot.action.kind}];
    most = std::max(most, spans.start[i] - spans.message[i]);
  }
  for (std::size_t i = 0; i < spans.message.size(); ++i) {
    if (!isTimed(i)) continue;
    const JobShape::Slot& slot = slotOf(i);
    const Ns made = spans.end[i - i % shape.slotsOfCopy() + static_cast<std::size_t>(slot.producer)];
    const Ns arrival = spans.message[i] + latency[{slot.action.stage, slot.action.kind}];
    spans.message[i] = std::max<Ns>(0, std::min(arrival, spans.start[i]) - made);
  }
}

class Recovery {
 public:
  explicit Recovery(const MeasuredJob& measured) : measured_(measured) {}
  Job run();

 private:
  void requireShape();
  void note(std::string sentence);
  [[nodiscard]] std::optional<StepSpans> spansOf(const MeasuredStep& step, const JobShape& shape);
  void addStep(const MeasuredStep& step, const StepSpans& spans, Ns before, const JobShape& shape);
  void noteSlowStart();
  /// A prediction's messages are known, too: from the end of the sender's action to the arrival, a wait for the channel included.
  [[nodiscard]] bool isPredicted() const { return measured_.times == TimesOf::Predicted; }
  [[nodiscard]] bool knowsMessages() const { return measured_.timedMessages || isPredicted(); }

  const MeasuredJob& measured_;
  int ranks_ = 0;
  Job job_;
  std::vector<Slack> slacks_;  ///< by step of the job
  std::size_t unsaid_ = 0;
};

void Recovery::note(std::string sentence) {
  if (job_.notes.size() >= kMostNotes + measured_.notes.size())
    ++unsaid_;
  else
    job_.notes.push_back(std::move(sentence));
}

void Recovery::requireShape() {
  if (measured_.steps.empty()) throw UsageError(fmt::format("{} holds no step; record at least one", measured_.name));
  int most = 0;
  for (const MeasuredStep& step : measured_.steps) most = std::max(most, step.trace.ranks);
  const int copies = std::max(1, measured_.replicas) * std::max(1, measured_.tensor);
  if (most % copies != 0 || most / copies == 0)
    throw UsageError(fmt::format("{} has {} workers, which {} copies of a pipeline do not share evenly; import the traces of all ranks",
                                 measured_.name, most, copies));
  ranks_ = most / copies;
}

/// When each slot of the step starts and ends; nothing, with a note, where one is missing, or where it does more.
std::optional<StepSpans> Recovery::spansOf(const MeasuredStep& step, const JobShape& shape) {
  std::map<std::tuple<Rank, SpanKind, Stage, Microbatch>, std::size_t> slots;
  for (std::size_t s = 0; s < shape.copySlots.size(); ++s) {
    const JobShape::Slot& slot = shape.copySlots[s];
    slots[{slot.rank, *spanKind(slot.action.kind), slot.action.stage, slot.action.microbatch}] = s;
  }
  StepSpans spans;
  spans.start.assign(shape.allSlots(), kUnknownTime);
  spans.end.assign(shape.allSlots(), kUnknownTime);
  spans.message.assign(shape.allSlots(), kUnknownTime);
  spans.held.assign(shape.allSlots(), kUnknownTime);
  for (const Span& span : step.trace.spans) {
    const bool message = isMessage(span.kind);
    if (!isCompute(span.kind) && !(message && knowsMessages())) continue;
    const JobRank worker((message ? span.peer : span.rank).value);
    if (worker.value < 0 || worker.index() >= shape.workers) continue;
    const std::size_t base = shape.copyOf(worker) * shape.slotsOfCopy();
    const Rank rank = shape.rankOf(worker);
    const auto at = [&](SpanKind kind, Stage stage) { return slots.find({rank, kind, stage, span.microbatch}); };
    if (message) {
      const bool forward = span.kind == SpanKind::SendForward;
      auto found = at(forward ? SpanKind::Forward : SpanKind::Backward, Stage(span.stage.value + (forward ? 1 : -1)));
      if (found == slots.end() && !forward) found = at(SpanKind::BackwardInput, Stage(span.stage.value - 1));
      if (found != slots.end()) spans.message[base + found->second] = isPredicted() ? span.end : span.end - span.start;
      continue;
    }
    const auto found = at(span.kind, span.stage);
    if (found == slots.end()) {
      if (span.stage.value < 0 || span.microbatch.value < 0) continue;
      note(fmt::format("{} was left out: worker {} does {} of stage {} for microbatch {}, which most steps do not have.", step.name,
                       worker.value, nameOf(span.kind), span.stage.value, span.microbatch.value));
      return std::nullopt;
    }
    const std::size_t i = base + found->second;
    const bool again = spans.end[i] >= 0;  // pieces of one action count together, from the first on
    spans.end[i] = again ? spans.end[i] + (span.end - span.start) : span.end;
    if (!again) spans.start[i] = span.start;
  }
  const auto missing = std::ranges::find(spans.end, kUnknownTime);
  if (missing == spans.end.end()) {
    holdMessages(step.trace, shape, spans);
    sharePairs(shape, spans);
    if (isPredicted()) timePredictedMessages(shape, spans);
    return spans;
  }
  const auto i = static_cast<std::size_t>(missing - spans.end.begin());
  const JobShape::Slot& slot = shape.copySlots[i % shape.slotsOfCopy()];
  note(fmt::format("{} was left out: worker {} does not do {}.", step.name, i / shape.slotsOfCopy() * shape.ranks + slot.rank.index(),
                   toString(slot.action)));
  return std::nullopt;
}

void Recovery::addStep(const MeasuredStep& step, const StepSpans& spans, Ns before, const JobShape& shape) {
  JobStep& added = job_.steps.emplace_back();
  added.name = step.name;
  const std::vector<NamedSpan> operations = operationsOf(step);
  const Ns firstAction = *std::ranges::min_element(spans.start), lastAction = *std::ranges::max_element(spans.end);
  Ns first = firstAction, last = lastAction;
  for (const NamedSpan& span : operations) {
    first = std::min(first, span.start);
    last = std::max(last, span.end);
  }
  if (last - first > longestTime(shape)) {
    note(fmt::format("{} was left out: its times are too far apart to add up.", step.name));
    job_.steps.pop_back();
    return;
  }
  added.makespan = lastAction - firstAction;
  added.step = last - first;
  added.before = before;
  slacks_.push_back(separate(shape, job_, spans, operations, first, added));
}

/// A first step that is far from the others is most often one that warms up, which no name says here.
void Recovery::noteSlowStart() {
  constexpr std::size_t kFewest = 4;
  constexpr double kFar = 1.5;
  if (job_.steps.size() < kFewest || usualSteps(job_).size() < job_.steps.size()) return;
  std::vector<double> others;
  for (std::size_t k = 1; k < job_.steps.size(); ++k) others.push_back(static_cast<double>(job_.steps[k].step));
  const double usual = std::max(1.0, medianOf(others).value_or(0)), times = static_cast<double>(job_.steps.front().step) / usual;
  if (times < kFar) return;
  job_.notes.push_back(
      fmt::format("{} takes {:.1f} times as long as the median of the others, and counts in all means: if it warms up, "
                  "leave it out with --steps.",
                  slowStartWords(job_), times));
}

Job Recovery::run() {
  requireShape();
  job_.name = measured_.name;
  job_.replicas = std::max(1, measured_.replicas);
  job_.tensor = std::max(1, measured_.tensor);
  job_.timedMessages = knowsMessages();
  job_.times = measured_.times;
  job_.notes = measured_.notes;
  auto [schedule, others] = scheduleOf(measured_, ranks_);
  if (!schedule) {
    throw UsageError(
        fmt::format("{} holds no whole step of a pipeline: actions are missing, have no stage or microbatch, or come twice; "
                    "record all ranks for a whole step",
                    measured_.name));
  }
  job_.schedule = *std::move(schedule);
  for (const Problem& problem : check(job_.schedule)) {
    if (problem.stops != Stops::Always) continue;
    throw UsageError(fmt::format("{} holds steps that no pipeline can have done (rank {}: {}); record whole steps of all ranks",
                                 measured_.name, problem.rank.value, problem.message));
  }
  if (measured_.lacksLastStages) {  // without them a pipeline looks like a shorter one
    throw UsageError(fmt::format(
        "{} lacks the last part of its pipeline: its last stage, {}, has messages for or from a later one; add the traces of all ranks",
        measured_.name, job_.schedule.placement.stages() - 1));
  }
  const JobShape withoutOperations(job_);
  std::vector<std::pair<const MeasuredStep*, StepSpans>> whole;
  for (const MeasuredStep& step : measured_.steps) {
    if (auto spans = spansOf(step, withoutOperations)) whole.emplace_back(&step, *std::move(spans));
  }
  if (whole.empty())
    throw UsageError(fmt::format("{} holds no step that is whole in all {} copies of its pipeline; record all ranks", measured_.name,
                                 withoutOperations.copies));
  std::erase_if(others, [&](const std::string& name) {  // of parts of steps it is said already that they are left out
    return std::ranges::none_of(whole, [&](const auto& step) { return step.first->name == name; });
  });
  if (!others.empty()) {
    constexpr std::size_t kNamed = 4;
    const std::vector<std::string> named(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(std::min(kNamed, others.size())));
    note(
        fmt::format("In {} of {} steps ({}{}) a rank does its actions in another order than in most; they are replayed in the order of "
                    "most, so that only their durations mean something.",
                    others.size(), measured_.steps.size(), fmt::join(named, ", "), others.size() > kNamed ? ", …" : ""));
  }
  std::vector<std::vector<NamedSpan>> operations;
  std::vector<const StepSpans*> spans;
  for (const auto& [step, times] : whole) {
    operations.push_back(operationsOf(*step));
    spans.push_back(&times);
  }
  job_.operations = operationOrder(withoutOperations, operations, spans);
  const JobShape shape(job_);
  const std::vector<Ns> before = timesBefore(measured_);
  for (const auto& [step, times] : whole) addStep(*step, times, before[static_cast<std::size_t>(step - measured_.steps.data())], shape);
  if (job_.steps.empty()) throw UsageError(fmt::format("the times of {} are too far apart to add up; record it again", measured_.name));
  separateMessages(shape, slacks_, job_);
  job_.memory = memoryOf(measured_, shape.ranks);
  if (const std::size_t usual = usualSteps(job_).size(); usual < job_.steps.size())
    job_.notes.push_back(warmUpNote(job_.steps.size() - usual));
  noteSlowStart();
  if (unsaid_ > 0) job_.notes.push_back(fmt::format("{} more notes of this kind.", unsaid_));
  if (!job_.timedMessages && job_.schedule.rows.size() > 1)
    job_.notes.emplace_back("Messages were not timed: their time is from the end of the sender's action, where the receiver waited.");
  return job_;
}

}  // namespace

Job jobOf(const MeasuredJob& measured) { return Recovery(measured).run(); }

}  // namespace pw
