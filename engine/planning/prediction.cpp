#include "engine/planning/prediction.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "engine/planning/inputs/limits.h"
#include "schedules/error.h"
#include "schedules/lower.h"
#include "schedules/units.h"
#include "simulator/report/lower_bound.h"
#include "simulator/report/metrics.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "simulator/step/jitter.h"
#include "simulator/step/program.h"

namespace pw {
namespace {

/// Whether a problem stops this schedule under that way of sending.
bool stopsWith(Sending sending, const Problem& problem) {
  switch (problem.stops) {
    case Stops::Always: return true;
    case Stops::OneChannel: return sending == Sending::OneChannel || sending == Sending::Blocking;
    case Stops::Blocking: return sending == Sending::Blocking;
    case Stops::Nothing: return false;
  }
  return true;
}

/// The subject with backwards as torch's stages do them (torch/distributed/pipelining/stage.py and _backward.py): the first does nothing
/// for its inputs, and the whole backward where the schedule has the part for the weights. Of other stages the two parts, where only whole
/// backwards are known, are more than halves: they walk the graph once for each and repeat what is between inputs and weights. Measured of
/// seven stacks of transformer blocks with 256 to 1024 features on a CPU: 0.53 to 0.61 and 0.49 to 0.63 of a whole one, these in the
/// middle.
Subject withTorchsBackwards(Subject subject) {
  constexpr double kInputs = 0.57, kWeights = 0.51;
  const auto partOf = [](Ns whole, double part) { return Ns(std::llround(part * static_cast<double>(whole))); };
  StageCost& first = subject.costs.stages.front();
  first.backwardWeight += std::exchange(first.backwardInput, Ns{0});
  if (subject.halvedBackwards) {
    for (StageCost& stage : std::span(subject.costs.stages).subspan(1)) {
      stage.backwardInput = partOf(stage.backward, kInputs);
      stage.backwardWeight = partOf(stage.backward, kWeights);
    }
  }
  const auto isOfFirst = [](const ActionTime& time, ActionKind kind) { return time.first.stage == Stage(0) && time.first.kind == kind; };
  std::map<Microbatch, Ns> inputs;
  for (ActionTime& time : subject.actionTimes) {
    if (isOfFirst(time, ActionKind::BackwardInput)) inputs[time.first.microbatch] += std::exchange(time.second, Ns{0});
  }
  for (ActionTime& time : subject.actionTimes) {
    if (isOfFirst(time, ActionKind::BackwardWeight)) time.second += inputs[time.first.microbatch];
  }
  return subject;
}

/// The sentence about the first rank that exceeds a limit; nothing where all fit.
std::optional<std::string> excess(const Subject& subject, const Metrics& metrics) {
  for (std::size_t r = 0; r < metrics.ranks.size(); ++r) {
    const RankMetrics& rank = metrics.ranks[r];
    if (!subject.limits.empty() && rank.peakBytes > subject.limits[r]) {
      const std::pair sizes = subject.limitsInBytes
                                  ? formatSizes(rank.peakBytes, subject.limits[r])
                                  : std::pair(fmt::format("{}", rank.peakBytes.value), fmt::format("{}", subject.limits[r].value));
      return fmt::format("rank {} needs {} of memory, more than its limit of {}", r, sizes.first, sizes.second);
    }
    if (!subject.liveLimits.empty() && rank.peakLiveMicrobatches > subject.liveLimits[r]) {
      return fmt::format("rank {} has {} live (stage, microbatch) pairs, more than its limit of {}", r, rank.peakLiveMicrobatches,
                         subject.liveLimits[r]);
    }
  }
  return std::nullopt;
}

/// All of a prediction but its rows.
void fill(SubjectPrediction& result, const Subject& subject, const Program& program, bool everyCause, const JitterOptions& jitter) {
  Times times;
  execute(program, times);
  result.trace = traceOf(result.rows, subject.costs, program, times);
  result.report = predict(result.rows, subject.costs, program, times, result.trace, everyCause);
  if (jitter.sigma > 0) result.report.jitter = drawJitter(program, jitter.sigma, jitter.seed, jitter.draws, jitter.tell);
  result.excess = excess(subject, result.report.metrics);
  result.report.fits = !result.excess;
  result.report.processBytes = subject.processBytes;
  result.report.uncertainty = subject.uncertainty;
  result.report.work = subject.work;
  if (const Ns step = result.report.metrics.step; step > 0) result.report.utilisation = subject.usefulTime / static_cast<double>(step);
  LowerBounds& bounds = result.report.lowerBound;
  if (result.report.fits)
    bounds =
        lowerBoundsOf(result.rows, subject.costs, subject.actionTimes, result.report.metrics.ranks, subject.liveLimits, subject.limits);
  if (const auto& certificate = subject.certificate) {
    const bool flush = certificate->clock == StepClock::Flush;
    const bool isOfThis = certificate->time == (flush ? result.report.metrics.makespan : result.report.metrics.window);
    if (isOfThis) result.report.certificate = certificate;  // other ways of sending take longer
    if (isOfThis) (flush ? bounds.flush : bounds.window) = certificate->lowerBound;
  }
}

}  // namespace

SubjectPrediction predictSubject(const Subject& subject, Sending sending, bool everyCause, const JitterOptions& jitter) {
  if (subject.schedule.lockstep && sending != Sending::Overlapped)
    throw UsageError("a lockstep schedule exchanges its messages after every cycle; omit --sends");
  requireNumber("--jitter", jitter.sigma, 0, kMostJitter);
  requireWhole("--draws", jitter.draws, 1, kMostDraws);
  SubjectPrediction result;
  result.problems = check(subject.schedule);
  std::erase_if(result.problems, [&](const Problem& p) { return !stopsWith(sending, p); });
  if (!result.problems.empty()) return result;

  result.rows = rowsOf(subject.schedule, sending);
  Program program = compile(result.rows, subject.costs, sending);
  setActionTimes(result.rows, subject.actionTimes, program);
  fill(result, subject, program, everyCause, jitter);
  return result;
}

RuntimePrediction predictRuntime(const Subject& given, const RuntimeChoice& choice, bool everyCause, const JitterOptions& jitter) {
  requireNumber("--jitter", jitter.sigma, 0, kMostJitter);
  requireWhole("--draws", jitter.draws, 1, kMostDraws);
  RuntimePrediction result;
  const Subject subject = choice.runtime == Runtime::Torch ? withTorchsBackwards(given) : given;
  result.of.problems = check(subject.schedule);
  std::erase_if(result.of.problems, [](const Problem& p) { return p.stops != Stops::Always; });
  if (!result.of.problems.empty()) return result;
  const auto rowsOf = [&](PendingReceives receives) {
    if (choice.runtime == Runtime::Megatron) return megatronRows(subject.schedule, choice.messages);
    const bool asGiven = choice.single || (choice.asGiven && isLowered(subject.schedule));
    return torchRows(asGiven ? subject.schedule : lower(subject.schedule, Lowering::Torch), receives, choice.single);
  };
  const RuntimeRows runtime = rowsOf(choice.receives);
  result.how = runtime.how;
  PostedProgram posted = compile(runtime.rows, subject.costs, runtime.posting);
  if (!posted.stuck.empty()) {
    result.of.problems = std::move(posted.stuck);
    return result;
  }
  result.of.rows = runtime.rows;
  setActionTimes(runtime.rows, subject.actionTimes, posted.program);
  fill(result.of, subject, posted.program, everyCause, jitter);
  Times times;
  execute(posted.program, times);
  result.blocked = blockedReceives(runtime.rows, posted.program, times);
  if (choice.runtime != Runtime::Torch || choice.single || choice.receives == PendingReceives::Overlap) return result;
  const RuntimeRows other = rowsOf(PendingReceives::Overlap);
  PostedProgram overlapping = compile(other.rows, subject.costs, other.posting);
  if (!overlapping.stuck.empty()) return result;
  setActionTimes(other.rows, subject.actionTimes, overlapping.program);
  execute(overlapping.program, times);
  result.overlapped = makespanOf(overlapping.program, overlapping.program.duration, times);
  return result;
}

}  // namespace pw
