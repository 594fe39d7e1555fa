#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "schedules/ids.h"

namespace pw {

struct Plan;

/// A tensor of LibTorch: points to an `at::Tensor`, which Python's bindings can put in and take out. Null: no tensor.
using TensorHandle = std::shared_ptr<void>;

/// Tensors by name.
using NamedTensors = std::map<std::string, TensorHandle>;

/// Batches that come from outside the engine, one for each step.
struct BatchFeed {
  std::string name;  ///< of where they come from, for sentences: `my_data:batches`; empty: the caller gives them
  /// The whole batch of a step: tensors by the names of the model's inputs, and `target`. A process calls it for each of its stages that
  /// needs data, so for one step several times; the step never falls.
  std::function<NamedTensors(int step)> batch;
};

/// Whether the stage takes inputs of the model, or computes its loss.
[[nodiscard]] bool needsBatch(const Plan& plan, Stage stage);

}  // namespace pw
