#include "engine/planning/subject.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "backends/host/files.h"
#include "backends/resources/file_kind.h"
#include "backends/resources/resources.h"
#include "backends/traces/formats.h"
#include "engine/planning/inputs/job_source.h"
#include "engine/planning/inputs/limits.h"
#include "engine/planning/inputs/step_work.h"
#include "engine/planning/job_subject.h"
#include "engine/planning/layer_subject.h"
#include "engine/planning/slow_down.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/costs/problem_file.h"
#include "simulator/order/made.h"
#include "simulator/order/problem/recomputation.h"
#include "simulator/plan/plan.h"
#include "simulator/step/cost_table.h"
#include "simulator/text/number_text.h"

namespace pw {
namespace {

std::vector<Ns> durations(const std::string& text) {
  std::vector<Ns> list;
  for (std::size_t at = 0; !text.empty() && at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view one = std::string_view(text).substr(at, comma - at);
    list.push_back(parseDuration(one));
    if (list.back() > kLongestTime) throw UsageError(fmt::format("\"{}\" is too long to add up; use less than a year", one));
    at = comma + 1;
  }
  return list;
}

Ns durationOr0(const std::string& text) { return text.empty() ? 0 : durations(text).front(); }

/// `1.00 ms`, or `1.00 ms to 4.00 ms` where stages differ.
std::string spread(const CostTable& costs, Ns StageCost::*part) {
  Ns least = costs.stages.front().*part, most = least;
  for (const StageCost& stage : costs.stages) {
    least = std::min(least, stage.*part);
    most = std::max(most, stage.*part);
  }
  return least == most ? formatDuration(least) : formatDuration(least) + " to " + formatDuration(most);
}

bool holds(const Schedule& schedule, auto kind) {
  return std::ranges::any_of(schedule.rows,
                             [&](const auto& row) { return std::ranges::any_of(row, [&](const Action& a) { return kind(a); }); });
}

/// The times of the kinds of action that the schedule has.
std::string describe(const Schedule& schedule, const CostTable& costs) {
  std::string text = "forward " + spread(costs, &StageCost::forward);
  if (holds(schedule, [](const Action& a) { return a.kind == ActionKind::Backward; }))
    text += ", backward " + spread(costs, &StageCost::backward);
  if (holds(schedule, [](const Action& a) { return a.kind == ActionKind::BackwardInput; })) {
    text +=
        ", backward for inputs " + spread(costs, &StageCost::backwardInput) + ", for weights " + spread(costs, &StageCost::backwardWeight);
  }
  if (holds(schedule, [](const Action& a) { return a.overlapsNext; })) {
    text += costs.overlap.empty() ? ", an overlapped pair their sum" : ", an overlapped pair " + formatDuration(costs.overlap.front());
  }
  return text + " per stage and microbatch";
}

/// Where one part of the backward is given beside the whole, the other is what it leaves.
void requireWithinBackward(const SyntheticCosts& costs) {
  if (costs.backward.empty() || costs.backwardInput.empty() == costs.backwardWeight.empty()) return;
  const std::vector<Ns>& part = costs.backwardInput.empty() ? costs.backwardWeight : costs.backwardInput;
  for (std::size_t s = 0; s < std::max(part.size(), costs.backward.size()); ++s) {
    const Ns whole = costs.backward[std::min(s, costs.backward.size() - 1)], taken = part[std::min(s, part.size() - 1)];
    if (taken > whole)
      throw UsageError(
          fmt::format("a part of the backward takes {}, longer than the whole of {}", formatDuration(taken), formatDuration(whole)));
  }
}

Schedule scheduleOf(const SubjectOptions& o, const ShapeOptions& shape) {
  return o.csv.empty() ? generateFrom(o.schedule, shape) : readSchedule(o.csv, o.letters.value_or(Letters::Torch));
}

/// Throws UsageError for times of what the schedule does not have.
void refuseTimesWithoutUse(const Schedule& schedule, const SubjectOptions& o) {
  const std::string& name = o.schedule.empty() ? schedule.name : o.schedule;
  if (!o.overlap.empty() && !holds(schedule, [](const Action& a) { return a.overlapsNext; }))
    throw UsageError(fmt::format("the schedule {} has no slots; omit --overlap", name));
  if ((!o.load.empty() || !o.store.empty()) && !schedule.lockstep)
    throw UsageError(fmt::format("--load and --store are for lockstep schedules, and {} is none; omit them", name));
}

Subject withTimes(Schedule schedule, const SubjectOptions& o) {
  refuseTimesWithoutUse(schedule, o);
  Subject subject;
  subject.schedule = std::move(schedule);
  SyntheticCosts costs{durations(o.forward),   durations(o.backward),   durations(o.input),  durations(o.weight),
                       durationOr0(o.latency), durationOr0(o.transfer), durations(o.overlap)};
  const bool given = !costs.forward.empty() || !costs.backward.empty() || !costs.backwardInput.empty() || !costs.backwardWeight.empty();
  if (costs.backward.empty() && costs.backwardInput.empty() != costs.backwardWeight.empty()) {
    throw UsageError("one part of the backward is given and the other is not; give both --input and --weight, or --backward beside it");
  }
  requireWithinBackward(costs);
  if (!given) costs.forward = {kDefaultForward};
  if (costs.forward.empty()) {
    for (const Ns backward : costs.backward) costs.forward.push_back(backward / kDefaultBackwardRatio);
  }
  if (costs.backward.empty() && costs.backwardInput.empty()) {
    for (const Ns forward : costs.forward) costs.backward.push_back(kDefaultBackwardRatio * forward);
  }
  subject.costs = syntheticTable(costs, static_cast<int>(subject.schedule.placement.stages()));
  subject.costs.load = durationOr0(o.load);
  subject.costs.store = durationOr0(o.store);
  subject.costSource = describe(subject.schedule, subject.costs) + (given ? "" : "; change them with --forward and --backward");
  return subject;
}

/// Throws UsageError where the options name another shape than the problem.
void requireShapeOf(const ProblemFile& problem, const SubjectOptions& o) {
  const auto differs = [&](std::string_view what, int given, int there) {
    if (given > 0 && given != there) throw UsageError(fmt::format("{} is for {} {}, not {}; omit the option", o.costs, there, what, given));
  };
  differs("ranks", o.shape.ranks, problem.shape.ranks);
  differs("microbatches", o.shape.microbatches, problem.shape.microbatches);
}

/// The schedule of the options, in the shape of the problem.
Schedule scheduleFor(const ProblemFile& problem, const SubjectOptions& o) {
  requireShapeOf(problem, o);
  ShapeOptions shape = o.shape;
  shape.ranks = problem.shape.ranks;
  shape.microbatches = problem.shape.microbatches;
  if (shape.chunks == 0 && problem.shape.stages % problem.shape.ranks == 0) shape.chunks = problem.shape.stages / problem.shape.ranks;
  return scheduleOf(o, shape);
}

Subject withProblem(Schedule given, const ProblemFile& problem, const SubjectOptions& o) {
  Subject subject;
  subject.schedule = std::move(given);
  const Schedule& schedule = subject.schedule;
  if (shapeOf(schedule) != problem.shape) {
    throw UsageError(fmt::format("{} is for {} ranks, {} stages and {} microbatches, schedule {} has {}, {} and {}", o.costs,
                                 problem.shape.ranks, problem.shape.stages, problem.shape.microbatches, schedule.name,
                                 shapeOf(schedule).ranks, shapeOf(schedule).stages, schedule.microbatches));
  }
  for (std::size_t s = 0; s < problem.placement.stages(); ++s) {
    if (schedule.placement.rankOfStage[s] == problem.placement.rankOfStage[s]) continue;
    throw UsageError(fmt::format("{} places stage {} on rank {}, schedule {} on rank {}; use a schedule with that placement", o.costs, s,
                                 problem.placement.rankOfStage[s].value, schedule.name, schedule.placement.rankOfStage[s].value));
  }
  subject.costs = problem.costs;
  subject.limits = problem.limits;
  subject.limitsInBytes = false;
  subject.costSource = "costs of " + o.costs + ": " + describe(schedule, subject.costs);
  return subject;
}

void setLiveLimits(Subject& subject, const std::vector<int>& limits) {
  const std::size_t ranks = subject.schedule.rows.size();
  if (limits.empty()) return;
  for (const int limit : limits) requireWhole("--live-limit", limit, 1, kMaxMicrobatches);
  if (limits.size() != 1 && limits.size() != ranks) {
    throw UsageError(fmt::format("--live-limit has {} numbers for {} ranks; give one, or one per rank", limits.size(), ranks));
  }
  subject.liveLimits = limits.size() == ranks ? limits : std::vector<int>(ranks, limits.front());
}

/// Whether the times are those of a job.
bool isFromJob(const SubjectOptions& o) { return o.job != nullptr || !o.costsFrom.empty(); }

void refuseTimesBesideCosts(const SubjectOptions& o) {
  if (!isFromJob(o) && !o.costsFromSteps.empty()) throw UsageError("--steps are of a job; add --costs-from, or omit them");
  if (isFromJob(o) && (hasTimes(o) || !o.costs.empty() || !o.layers.empty() || !o.plan.empty())) {
    throw UsageError(
        "--costs-from has all times; omit a plan, --layers, --costs, --forward, --backward, --input, --weight, --overlap, --latency and "
        "--transfer");
  }
  if (!o.layers.empty() && (hasTimes(o) || !o.costs.empty())) {
    throw UsageError("--layers has all times; omit --costs, --forward, --backward, --input, --weight, --overlap, --latency and --transfer");
  }
  if (o.layers.empty() && (!o.splits.empty() || !o.cluster.empty() || o.optimizer))
    throw UsageError("--split, --cluster and --optimizer are for a layer table; add --layers, or omit them");
  if (!o.costs.empty() && hasTimes(o))
    throw UsageError("--costs has all times; omit --forward, --backward, --input, --weight, --overlap, --latency and --transfer");
}

/// The subject with --slow and limits.
Subject limited(Subject subject, const SubjectOptions& o) {
  if (!o.slow.empty()) subject.uncertainty.reset();  // no run or job shows how far off that is
  for (const std::string& slow : o.slow) slowDown(subject, slow);
  requireSummable(subject.costs, shapeOf(subject.schedule));
  setLiveLimits(subject, o.liveLimit);
  if (!o.memoryLimit.empty()) {
    if (!o.costs.empty()) throw UsageError("--costs has limits of its own, in its own unit; omit --memory-limit");
    const Bytes limit = parseSize(o.memoryLimit);
    const auto hasNoMemory = [](const StageCost& c) {
      return c.parameterBytes + c.gradientBytes + c.optimizerBytes + c.fixedBytes + c.activationBytes == 0;
    };
    if (std::ranges::all_of(subject.costs.stages, hasNoMemory))
      throw UsageError("--memory-limit needs the memory of stages, and these have times only; give a plan, --layers or --costs");
    subject.limits.assign(subject.schedule.rows.size(), limit);
  }
  return subject;
}

/// Likewise, where the schedule is not made for the costs.
Subject asGiven(Subject subject, const SubjectOptions& o) {
  if (o.seconds) {
    const std::string& name = subject.schedule.name;
    throw UsageError(
        fmt::format("--seconds is how long an order is searched, and {} has its own; omit it, or use the schedule auto", name));
  }
  return limited(std::move(subject), o);
}

// ---- Schedules made for costs----------------------------------------------------------------------------------------

Schedule serialFor(const ProblemFile& problem, const SubjectOptions& o) {
  requireShapeOf(problem, o);
  const int chunks = o.shape.chunks, stages = problem.shape.stages;
  if (chunks > 0 && chunks * problem.shape.ranks != stages)
    throw UsageError(fmt::format("{} has {} stages on {} ranks; omit --chunks", o.costs, stages, problem.shape.ranks));
  return serialSchedule(problem.placement, problem.shape.ranks, problem.shape.microbatches);
}

void refuseOptionsOfFamilies(const SubjectOptions& o) {
  if (o.shape.strict || o.shape.group > 0)
    throw UsageError(fmt::format("{} is not one of torch's or Megatron's schedules; omit --strict and --group", o.schedule));
  if (o.seconds) requireNumber("--seconds", *o.seconds, kShortestOrderSearch, kLongestOrderSearch);
}

OrderEffort effortOf(const SubjectOptions& o) {
  return {.seconds = o.seconds.value_or(OrderEffort().seconds), .threads = kOrderThreads, .shouldContinue = o.shouldContinue};
}

/// What an order is sought for in place of the subject's. `ifRecomputed`: of a problem file.
OrderProblem orderProblemOf(const Subject& subject, std::vector<StageCost> ifRecomputed, StepClock clock) {
  const Shape shape = shapeOf(subject.schedule);
  return {.microbatches = shape.microbatches,
          .ranks = shape.ranks,
          .placement = subject.schedule.placement,
          .costs = subject.costs,
          .limits = subject.limits,
          .liveLimits = subject.liveLimits,
          .recomputed = std::move(ifRecomputed),
          .clock = clock};
}

/// In the order found, where there is one.
Subject ordered(Subject subject, SoughtOrder sought) {
  subject.limits = sought.problem.limits;
  subject.liveLimits = sought.problem.liveLimits;
  if (!sought.found) return subject;
  subject.schedule = std::move(sought.found->schedule);
  subject.costs = std::move(sought.found->costs);
  subject.certificate = std::move(sought.found->certificate);
  subject.sought = std::make_shared<const OrderProblem>(std::move(sought.problem));
  return subject;
}

/// With the times of a problem file.
Subject orderedFor(const ProblemFile& problem, const SubjectOptions& o) {
  Subject subject = limited(withProblem(serialFor(problem, o), problem, o), o);
  refuseOptionsOfFamilies(o);
  std::vector<StageCost> recomputed;
  for (std::size_t s = 0; s < problem.ifRecomputed.size(); ++s)
    recomputed.push_back(recomputedCost(subject.costs.stages[s], problem.ifRecomputed[s]));
  OrderProblem sought = orderProblemOf(subject, std::move(recomputed), problem.objective);
  return ordered(std::move(subject), seekOrder(*madeSchedule(o.schedule), std::move(sought), effortOf(o)));
}

/// With the times of the options, of a layer table or of a job.
Subject orderedWithoutProblem(const SubjectOptions& o) {
  requireWhole("--ranks", o.shape.ranks, 1, kMaxRanks);
  requireWhole("--microbatches", o.shape.microbatches, 1, kMaxMicrobatches);
  const int chunks = std::max(1, o.shape.chunks);
  requireWhole("--chunks", chunks, 1, kMaxStages / o.shape.ranks);
  refuseOptionsOfFamilies(o);
  const Shape shape{o.shape.ranks, o.shape.ranks * chunks, o.shape.microbatches};
  std::vector<Subject> subjects;
  const auto problemOn = [&](const Placement& placement) {
    Schedule serial = serialSchedule(placement, shape.ranks, shape.microbatches);
    Subject subject = isFromJob(o)       ? jobSubject(std::move(serial), o)
                      : o.layers.empty() ? withTimes(std::move(serial), o)
                                         : layerSubject(std::move(serial), o);
    subject.actionTimes.clear();  // an order is made for costs that are the same for all microbatches
    return orderProblemOf(subjects.emplace_back(limited(std::move(subject), o)), {}, StepClock::Flush);
  };
  SoughtOrder sought = seekOrder(*madeSchedule(o.schedule), shape, problemOn, effortOf(o));
  const auto subject =
      std::ranges::find(subjects, sought.problem.placement, [](const Subject& s) -> const Placement& { return s.schedule.placement; });
  return ordered(std::move(*subject), std::move(sought));
}

}  // namespace

bool hasTimes(const SubjectOptions& o) {
  const std::vector<const std::string*> times{&o.forward, &o.backward, &o.input, &o.weight, &o.overlap,
                                              &o.latency, &o.transfer, &o.load,  &o.store};
  return std::any_of(times.begin(), times.end(), [](const std::string* t) { return !t->empty(); });
}

Subject subjectOf(const Plan& plan, const SubjectOptions& o) {
  constexpr Ns kSecond = 1'000'000'000;
  if (hasTimes(o) || !o.costs.empty() || !o.layers.empty() || isFromJob(o) || !o.costsFromSteps.empty()) {
    throw UsageError(
        "a plan has its own costs; omit --costs-from, --steps, --layers, --costs, --forward, --backward, --input, --weight, --overlap, "
        "--latency and --transfer");
  }
  const bool asPlanned = o.slow.empty() && o.liveLimit.empty() && o.memoryLimit.empty();
  Subject subject;
  subject.schedule = plan.schedule;
  subject.costs = costsWithOptimizer(plan);
  if (!plan.profile.nodes.empty()) subject.costSource = "costs " + sourceOf(plan.profile);
  subject.processBytes = processBytes(plan);
  subject.uncertainty = plan.profile.uncertainty;
  subject.usefulTime = flopUtilisation(plan, kSecond) * static_cast<double>(kSecond);
  subject.work = workOf(plan);
  if (asPlanned) subject.certificate = plan.certificate;
  return asGiven(std::move(subject), o);
}

Subject subjectOf(Schedule schedule, const SubjectOptions& o) {
  refuseTimesBesideCosts(o);
  if (isFromJob(o)) return asGiven(jobSubject(std::move(schedule), o), o);
  if (!o.layers.empty()) return asGiven(layerSubject(std::move(schedule), o), o);
  if (o.costs.empty()) return asGiven(withTimes(std::move(schedule), o), o);
  return asGiven(withProblem(std::move(schedule), parseProblem(readAs(FileKind::Problem, o.costs), o.costs), o), o);
}

Subject subjectOf(const SubjectOptions& o) {
  const int sources = static_cast<int>(!o.plan.empty()) + static_cast<int>(!o.schedule.empty()) + static_cast<int>(!o.csv.empty());
  if (sources != 1 && (sources != 0 || !isFromJob(o)))
    throw UsageError(
        "simulate takes one of a plan file, --schedule NAME and --csv F.csv (the last two also with --costs F.json); see pipewright "
        "simulate --help");
  if (o.schedule.empty() && !isFromJob(o) && o.shape.given()) {
    throw UsageError("a plan or CSV has its own ranks, chunks and microbatches; omit those options, or use --schedule NAME");
  }
  if (o.letters && o.csv.empty()) throw UsageError("--letters says how to read a CSV; add --csv F.csv, or omit it");
  refuseTimesBesideCosts(o);
  if (!o.plan.empty()) return subjectOf(loadPlan(o.plan), o);
  if (o.costs.empty() && madeSchedule(o.schedule) != nullptr) {
    SubjectOptions shaped = o;
    if (isFromJob(o)) shaped.shape = jobShape(o);
    return orderedWithoutProblem(shaped);
  }
  if (isFromJob(o)) return asGiven(jobSubject(o), o);
  if (!o.layers.empty()) return asGiven(layerSubject(scheduleOf(o, o.shape), o), o);
  if (o.costs.empty()) return asGiven(withTimes(scheduleOf(o, o.shape), o), o);
  const ProblemFile problem = parseProblem(readAs(FileKind::Problem, o.costs), o.costs);
  if (madeSchedule(o.schedule) != nullptr) return orderedFor(problem, o);
  Schedule schedule = scheduleFor(problem, o);
  return asGiven(withProblem(std::move(schedule), problem, o), o);
}

}  // namespace pw
