#include "engine/non_finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "backends/messages/buffer_math.h"

namespace pw {
namespace {

enum class Phase : std::uint64_t { Forward, Loss, Backward, Gradient };  ///< in the order of positions

NumberPosition positionOf(Phase phase, std::uint64_t microbatch, std::uint64_t place) {
  return static_cast<std::uint64_t>(phase) << 56U | microbatch << 24U | place;
}

NumberPosition positionOf(const CheckedStages& stages, bool forward, Stage stage, Microbatch microbatch) {
  const int first = replicasOf(stages.plan.schedule).replica(stages.process) * stages.plan.schedule.microbatches;
  return positionOf(forward ? Phase::Forward : Phase::Backward, static_cast<std::uint64_t>(first + microbatch.value),
                    forward ? stage.index() : stages.plan.partition.stages.size() - stage.index());
}

std::string sentenceOf(const std::string& what, const Action& action, JobRank process) {
  return fmt::format("{} (action {}: stage {}, microbatch {}, rank {})", what, toString(action), action.stage.value,
                     action.microbatch.value, process.value);
}

}  // namespace

bool lacksMicrobatch(NumberPosition position) { return position != kAllFinite && static_cast<Phase>(position >> 56U) == Phase::Gradient; }

NumberPosition firstNonFinite(const CheckedStages& stages, std::optional<Stage> gradients, double loss) {
  NumberPosition first = kAllFinite;
  for (const auto& [stage, module] : stages.modules) {
    if (const auto seen = module->firstNonFinite())
      first = std::min(first, positionOf(stages, seen->kind == ActionKind::Forward, stage, seen->microbatch));
  }
  if (first == kAllFinite && !std::isfinite(loss)) first = positionOf(Phase::Loss, 0, 0);
  if (first == kAllFinite && gradients) first = positionOf(Phase::Gradient, 0, gradients->index());
  return first;
}

std::string whatIsNotFinite(const CheckedStages& stages, double loss) {
  std::optional<NonFiniteValue> first;
  Stage of(0);
  const auto order = [&](const NonFiniteValue& value, Stage stage) {
    const bool forward = value.kind == ActionKind::Forward;
    return std::tuple(!forward, value.microbatch, forward ? stage.value : -stage.value);
  };
  for (const auto& [stage, module] : stages.modules) {
    const auto seen = module->firstNonFinite();
    if (!seen || (first && order(*first, of) <= order(*seen, stage))) continue;
    first = seen;
    of = stage;
  }
  if (first) return sentenceOf(first->what, {of, first->kind, first->microbatch}, stages.process);
  for (const auto& [stage, module] : stages.modules) {
    for (const ParameterView& view : module->parameters()) {
      if (!allFinite(view.dtype, view.gradient))
        return fmt::format("the gradient of parameter {} is not finite (stage {}, rank {})", view.name, stage.value, stages.process.value);
    }
  }
  return fmt::format("{} not finite (rank {})", std::isfinite(loss) ? "a gradient is" : "the loss is", stages.process.value);
}

void GradientWatch::look(const Action& action) {
  if (action.kind == ActionKind::Forward || !what_.empty()) return;
  StageModule& stage = *stages_.modules.at(action.stage);
  if (std::ranges::all_of(stage.groups(), [](const ParameterGroup& group) { return allFinite(group.dtype, group.gradients); })) return;
  const auto views = stage.parameters();
  const auto found = std::ranges::find_if(views, [](const ParameterView& view) { return !allFinite(view.dtype, view.gradient); });
  what_ = sentenceOf(found == views.end() ? "a parameter's gradient is not finite"
                                          : fmt::format("the gradient of parameter {} is not finite", found->name),
                     action, stages_.process);
  position_ = positionOf(stages_, false, action.stage, action.microbatch);
}

}  // namespace pw
