#include "engine/training_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "backends/checkpoints/tensor_file.h"
#include "backends/checkpoints/writer.h"
#include "engine/loss_scale.h"
#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::string_view kStep = "{step}";

/// The optimizer whose state the file has; nothing in a file of weights alone. Files without the number were written before it was kept.
std::optional<OptimizerState> stateIn(const TensorFile& file, const OptimizerSpec& update) {
  const auto& numbers = file.numbers();
  if (const auto kind = numbers.find("optimizer"); kind != numbers.end()) {
    if (const auto state = optimizerState(kind->second)) return state;
    throw UsageError(fmt::format(
        "{} was trained with an optimizer that this version does not know; use a newer Pipewright, or --reset-optimizer", file.path()));
  }
  const auto state = optimizerState(file.names(), update.kind);
  const bool hasNone = state == OptimizerState{};
  return hasNone && !numbers.contains("step") ? std::nullopt : state;
}

}  // namespace

bool isHistory(const std::string& pattern) { return pattern.find(kStep) != std::string::npos; }

std::string checkpointPath(const std::string& pattern, int steps) {
  std::string path = pattern;
  const std::string number = std::to_string(steps);
  for (std::size_t at = path.find(kStep); at != std::string::npos; at = path.find(kStep, at + number.size()))
    path.replace(at, kStep.size(), number);
  return path;
}

void CheckpointHistory::add(const std::string& path) {
  std::erase(written_, path);
  written_.push_back(path);
  while (keep_ > 0 && written_.size() > static_cast<std::size_t>(keep_)) {
    removeCheckpoint(written_.front());
    written_.pop_front();
  }
}

void addSeed(std::map<std::string, double>& numbers, std::uint64_t seed) {
  constexpr std::uint64_t kLow = 0x7ff;  // a double holds the other 53 bits
  numbers["seed"] = static_cast<double>(seed & ~kLow);
  if (seed < std::uint64_t{1} << 53U) {
    numbers["seed"] = static_cast<double>(seed);
  } else if ((seed & kLow) != 0) {
    numbers["seed_rest"] = static_cast<double>(seed & kLow);
  }
}

std::optional<std::uint64_t> seedIn(const std::string& path) {
  const TensorFile file(path);
  const auto numberIn = [&](const std::string& name) -> std::optional<std::uint64_t> {
    const auto found = file.numbers().find(name);
    if (found == file.numbers().end() || !(found->second >= 0 && found->second < 0x1p64)) return std::nullopt;
    return static_cast<std::uint64_t>(found->second);
  };
  const auto seed = numberIn("seed");
  return seed ? std::optional(*seed + numberIn("seed_rest").value_or(0)) : std::nullopt;
}

Resumption resumptionOf(const std::string& path, const OptimizerSpec& update, bool resetOptimizer) {
  const TensorFile file(path);
  if (resetOptimizer) return {};
  const auto state = stateIn(file, update);
  if (!state)
    return {0, 0, std::nullopt, 0,
            fmt::format("takes weights from {}, which has no optimizer state: the optimizer starts fresh, at step 0", path)};
  if (*state != stateOf(update)) {
    throw UsageError(
        fmt::format("{} was trained with {}, and this run uses {}; use the same optimizer, or --reset-optimizer to load only the weights",
                    path, nameOf(*state), nameOf(stateOf(update))));
  }
  Resumption resumption;
  const auto numberIn = [&](const std::string& name) -> std::optional<double> {
    const auto found = file.numbers().find(name);
    if (found == file.numbers().end()) return std::nullopt;
    if (!std::isfinite(found->second))
      throw UsageError(fmt::format("{} holds a {} that is no number; load only its weights with --reset-optimizer", path, name));
    return found->second;
  };
  if (const auto step = numberIn("step")) resumption.firstStep = static_cast<int>(std::clamp(*step, 0.0, 2e9));
  resumption.updates = static_cast<int>(std::clamp(numberIn("updates").value_or(resumption.firstStep), 0.0, 2e9));
  if (const auto scale = numberIn("loss_scale"); scale && *scale >= 1) resumption.lossScale = scale;
  resumption.goodSteps = static_cast<int>(std::clamp(numberIn("loss_scale_good_steps").value_or(0), 0.0, LossScale::kGrowthInterval - 1.0));
  return resumption;
}

}  // namespace pw
