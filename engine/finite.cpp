// How the executor handles numbers that are not finite.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "backends/messages/numbers.h"
#include "engine/executor.h"

namespace pw {
namespace {

constexpr std::uint64_t kFinite = StepNumbers{}.first;

/// Increases over a step: forwards, then backwards, then the gradients of parameters, whose microbatch is unknown; each by microbatch, and
/// within one in the order of the data flow.
enum class Phase : std::uint64_t { Forward, Loss, Backward, Gradient };

std::uint64_t positionOf(Phase phase, std::uint64_t microbatch, std::uint64_t place) {
  return static_cast<std::uint64_t>(phase) << 56U | microbatch << 24U | place;
}

Phase phaseOf(std::uint64_t position) { return static_cast<Phase>(position >> 56U); }

}  // namespace

/// Where this rank first had a non-finite number, as far as it knows. `gradients`: a stage whose gradients are not finite; `loss`: this
/// rank's part of the step's loss.
std::uint64_t Executor::firstNonFinite(std::optional<Stage> gradients, double loss) const {
  std::uint64_t first = kFinite;
  const auto replica = static_cast<std::uint64_t>(communicator_.rank().value - rank_.value) / plan_.schedule.rows.size();
  for (const auto& [stage, module] : stages_) {
    const auto seen = module->firstNonFinite();
    if (!seen) continue;
    const bool forward = seen->kind == ActionKind::Forward;
    const std::uint64_t microbatch = replica * static_cast<std::uint64_t>(plan_.schedule.microbatches) + seen->microbatch.index();
    const std::size_t place = forward ? stage.index() : plan_.partition.stages.size() - stage.index();
    first = std::min(first, positionOf(forward ? Phase::Forward : Phase::Backward, microbatch, place));
  }
  if (first == kFinite && !std::isfinite(loss)) first = positionOf(Phase::Loss, 0, 0);
  if (first == kFinite && gradients) first = positionOf(Phase::Gradient, 0, gradients->index());
  return first;
}

/// Exchanges the loss, the norm and what is not finite between all ranks, in one message each; returns the norm, if it is requested.
double Executor::exchangeNumbers() {
  StepNumbers own{.loss = log_.loss.value_or(0)};
  if (wantsNorm()) own.squares = reducer_.squares();
  if (options_.checkFinite) {
    // A sum of squares that is finite is one of finite numbers.
    const auto gradients = wantsNorm() && std::isfinite(own.squares) ? std::nullopt : reducer_.firstNotFinite();
    own.finite = !gradients && std::isfinite(own.loss);
    own.first = firstNonFinite(gradients, own.loss);
  }
  if (!options_.checkFinite && !options_.sumLoss && !wantsNorm()) return 0;
  const std::vector<StepNumbers> all = reducer_.exchange(own);
  double loss = 0, squares = 0;
  for (const StepNumbers& one : all) {
    loss += one.loss;
    squares += one.squares;
  }
  if (options_.sumLoss) log_.loss = loss;
  noteNonFinite(all, loss);
  if (options_.scaleLoss && !std::isfinite(squares)) log_.skipped = true;
  return std::sqrt(squares);
}

void Executor::noteNonFinite(const std::vector<StepNumbers>& all, double loss) {
  unlocated_ = false;
  if (std::ranges::all_of(all, &StepNumbers::finite)) return;
  if (options_.scaleLoss && std::isfinite(loss) && lossScale_.value() > 1) return;  // an overflow, which a smaller scale avoids
  const auto first = std::ranges::min_element(all, {}, &StepNumbers::first);
  log_.notFinite = JobRank(static_cast<std::int32_t>(first - all.begin()));
  log_.skipped = options_.skipNonFinite;
  // Calls in place of the actions show no microbatch at which to look.
  unlocated_ = phaseOf(first->first) == Phase::Gradient && !options_.skipNonFinite && !options_.instead && isHost();
  if (*log_.notFinite == communicator_.rank()) log_.whatNotFinite = whatIsNotFinite();
}

/// Called on the rank that had the first one.
std::string Executor::whatIsNotFinite() const {
  std::optional<NonFiniteValue> first;
  Stage of(0);
  const auto order = [&](const NonFiniteValue& value, Stage stage) {
    const bool forward = value.kind == ActionKind::Forward;
    return std::tuple(!forward, value.microbatch, forward ? stage.value : -stage.value);
  };
  for (const auto& [stage, module] : stages_) {
    const auto seen = module->firstNonFinite();
    if (!seen || (first && order(*first, of) <= order(*seen, stage))) continue;
    first = seen;
    of = stage;
  }
  if (first) {
    return sentenceOf(first->what, {of, first->kind, first->microbatch});
  }
  for (const auto& [stage, module] : stages_) {
    for (const ParameterView& view : module->parameters()) {
      if (!allFinite(view.dtype, view.gradient))
        return fmt::format("the gradient of parameter {} is not finite (stage {}, rank {})", view.name, stage.value,
                           communicator_.rank().value);
    }
  }
  return fmt::format("{} not finite (rank {})", std::isfinite(log_.loss.value_or(0)) ? "a gradient is" : "the loss is",
                     communicator_.rank().value);
}

/// Repeats the step's actions to find the microbatch that makes a parameter's gradient infinite or NaN. Parameters are unchanged; buffers
/// may not be, so it may find nothing.
void Executor::locateGradient(int number, StepLog& log) {
  LiveWriter* const live = std::exchange(live_, nullptr);
  located_.clear();
  locatedAt_ = kFinite;
  locating_ = true;
  std::vector<StepNumbers> all;
  static_cast<void>(guarded(number, StepMode::Train, [&] {
    runTraining();
    finish();
    reducer_.sum(log_, false);
    all = reducer_.exchange({.first = locatedAt_});
  }));
  locating_ = false;
  live_ = live;
  const auto first = std::ranges::min_element(all, {}, &StepNumbers::first);
  if (first->first == kFinite) return;
  log.notFinite = JobRank(static_cast<std::int32_t>(first - all.begin()));
  log.whatNotFinite = located_;
}

/// After an action of the repeated step.
void Executor::lookAtGradients(const Action& action) {
  if (action.kind == ActionKind::Forward || !located_.empty()) return;
  StageModule& stage = *stages_.at(action.stage);
  if (std::ranges::all_of(stage.groups(), [](const ParameterGroup& group) { return allFinite(group.dtype, group.gradients); })) return;
  const auto views = stage.parameters();
  const auto found = std::ranges::find_if(views, [](const ParameterView& view) { return !allFinite(view.dtype, view.gradient); });
  located_ = sentenceOf(found == views.end() ? "a parameter's gradient is not finite"
                                             : fmt::format("the gradient of parameter {} is not finite", found->name),
                        action);
  const int first = replicasOf(plan_.schedule).replica(communicator_.rank()) * plan_.schedule.microbatches;
  locatedAt_ = positionOf(Phase::Backward, static_cast<std::uint64_t>(first + action.microbatch.value),
                          plan_.partition.stages.size() - action.stage.index());
}

std::string Executor::sentenceOf(const std::string& what, const Action& action) const {
  return fmt::format("{} (action {}: stage {}, microbatch {}, rank {})", what, toString(action), action.stage.value,
                     action.microbatch.value, communicator_.rank().value);
}

}  // namespace pw
