#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simulator/plan/optimizer.h"
#include "backends/stages/stage_module.h"
#include "simulator/plan/plan.h"

namespace pw {

/// How a batch becomes microbatches and a loss.
struct DataOptions {
  std::string file;            ///< a torch.save of a dict of tensors; empty: synthetic
  bool lossOverBatch = false;  ///< one loss over all microbatches' outputs; the last stage does all its forwards before its first backward
  bool masked = false;         ///< each microbatch computes the whole batch and only its own samples count in the loss
  std::string lossCount;    ///< what weighs a microbatch's own loss (`output:NAME`) in the batch's; see parseLossCount. Empty: its samples
  bool ignoreSome = false;  ///< synthetic targets of a loss inside the model hold ignored ones, unequally many per sample

  bool operator==(const DataOptions&) const = default;
};

/// How a stage is trained.
struct StageOptions {
  std::uint64_t seed = 0;
  OptimizerSpec optimizer;
  bool initRandom = false;  ///< draw weights (normal, 0.02; norms one, biases zero) instead of reading them
  DataOptions data;
  std::string resume;              ///< checkpoint to take parameters, buffers and optimizer state from; empty: the model's own
  bool resetOptimizer = false;     ///< take no optimizer state from it
  const Device* device = nullptr;  ///< where it computes; null: the host. A GPU's module must be loaded
  bool graphs = true;  ///< on a device that can, each action is recorded once and launched as a whole (CUDA graphs); see Recorder
  /// Matrix products and the like compute in this type, parameters and the sums of gradients stay as they are (autocast); Unknown: as
  /// traced. Values cross to other stages in the types they were traced with.
  DType precision = DType::Unknown;
  int replica = 0;  ///< which copy of the pipeline: it takes microbatches [replica · M, (replica + 1) · M) of the batch
  /// Called between operators, so that messages move on while a stage computes. May be empty.
  std::function<void()> betweenOperators;
  /// Hears what a user may want to know of this stage: `goes on operator by operator, not by CUDA graphs, as …`. May be empty.
  std::function<void(const std::string& what)> tell;
  bool findNan = false;      ///< look at what every operator computes, forward and backward, to name the first that is not finite; slow
  bool keepBuffers = false;  ///< each step begins with a copy of them, for `undoBuffers`
  /// For `--verify`: called with every value that leaves a stage and with its gradient (`gradient of NAME`), as they become known; and with
  /// the `watched` values of this stage and their gradients. May be empty.
  std::function<void(const std::string& name, Microbatch microbatch, DType dtype, Buffer value)> observe;
  std::vector<ValueId> watched;
};

/// One stage of a plan's partition over the traced model, on the host or a GPU: its nodes run through the dispatcher with autograd;
/// operators with weights by functions that can leave their weight gradient for later. Copies the weights of this stage alone out of the
/// mapped archive. The graph must outlive the stage. Throws UsageError for operators that cannot run, weights that are absent, and data
/// that does not fit.
[[nodiscard]] std::unique_ptr<StageModule> makeTracedStage(const ModelGraph& graph, const Plan& plan, Stage stage,
                                                           const StageOptions& options);

}  // namespace pw
