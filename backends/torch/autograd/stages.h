#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "backends/stages/stage_module.h"
#include "backends/torch/autograd/functions.h"

namespace pw {

/// A value that leaves a stage.
struct StageOutput {
  std::size_t transfer = 0;
  TensorHandle value;  ///< with history where a gradient comes back
  Bytes bytes = 0;     ///< its elements
};

struct StageForward {
  std::vector<StageOutput> outputs;
  TensorHandle loss;  ///< of the last stage; null where it needs no gradient
};

/// What trains traced stages by distributed autograd: stages that were made with `StageOptions::distributed`, whose `backward` is not
/// called. One thread uses a stage at a time.
struct StageFunctions {
  /// Runs a microbatch's forward on the values that came for it, by transfer, and records it. Throws as StageModule::forward.
  StageForward (*forward)(StageModule& stage, Microbatch microbatch, const std::map<std::size_t, TensorHandle>& received);
  /// Adds a pass's gradients of the stage's parameters to those of the step; null: none.
  void (*addGradients)(StageModule& stage, Microbatch microbatch, const std::function<TensorHandle(const TensorHandle&)>& gradientOf);
};

/// The table of this module.
[[nodiscard]] const StageFunctions& stageFunctions();

}  // namespace pw
