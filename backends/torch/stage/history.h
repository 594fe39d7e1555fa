#pragma once

// Internal to the module: a traced stage whose backward is distributed autograd's. Includes LibTorch.

#include <cstddef>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "backends/torch/stage/stage.h"

namespace pw {

/// What a forward leaves, with autograd's history.
struct HistoryForward {
  std::vector<std::pair<std::size_t, at::Tensor>> outputs;  ///< by transfer; without history where no gradient comes back
  at::Tensor loss;                                          ///< of the last stage, scaled as in a step's sum; undefined on others
};

/// Runs a microbatch's forward on values that may already have history, and keeps none itself. Throws UsageError for a stage that was not
/// made with `StageOptions::distributed`.
[[nodiscard]] HistoryForward forwardWithHistory(StageModule& stage, Microbatch microbatch, std::map<std::size_t, at::Tensor> received);

/// Adds the gradients of the stage's parameters that a pass found (undefined: none) to those of the step, and reports those of watched
/// values.
void addGradients(StageModule& stage, Microbatch microbatch, const std::function<at::Tensor(const at::Tensor& parameter)>& gradientOf);

}  // namespace pw
