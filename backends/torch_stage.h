#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backends/stage_module.h"
#include "simulator/plan.h"

namespace pw {

/// How a stage is trained.
struct StageOptions {
  std::uint64_t seed = 0;
  double learningRate = 0.01;  ///< SGD
  bool initRandom = false;     ///< draw weights (normal, 0.02; norms one, biases zero) instead of reading them
  std::string dataFile;        ///< empty: synthetic data
};

/// One stage of a plan's partition over the traced model, on the CPU: its nodes run through the dispatcher with autograd. Copies the
/// weights of this stage alone out of the mapped archive. The graph must outlive the stage.
/// Throws UsageError for operators that cannot run, weights that are absent, and data that does not fit.
[[nodiscard]] std::unique_ptr<StageModule> makeTracedStage(const ModelGraph& graph, const Plan& plan, Stage stage,
                                                           const StageOptions& options);

}  // namespace pw
