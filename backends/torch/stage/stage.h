#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/stages/batch_feed.h"
#include "backends/stages/stage_module.h"
#include "simulator/plan/optimizer.h"
#include "simulator/plan/plan.h"

namespace pw {

/// What one loss is computed of.
enum class LossScope : std::uint8_t {
  PerMicrobatch,  ///< each microbatch's outputs
  WholeBatch,     ///< the outputs of all microbatches; the last stage runs all its forwards before its first backward
};
constexpr std::string_view nameOf(LossScope scope) {
  switch (scope) {
    case LossScope::PerMicrobatch: return "microbatch";
    case LossScope::WholeBatch: return "batch";
  }
  return {};
}

/// How a batch becomes microbatches and a loss.
struct DataOptions {
  std::string file;  ///< a torch.save of a dict of tensors; empty: synthetic
  LossScope lossOver = LossScope::PerMicrobatch;
  bool masked = false;    ///< each microbatch computes the whole batch, and only its own samples contribute to the loss
  std::string lossCount;  ///< how a microbatch's own loss (`output:NAME`) is weighted in the batch's; see parseLossCount. Empty: by samples
  bool ignoreSome = false;  ///< synthetic targets of a loss inside the model contain ignored ones, a different number per sample
  std::shared_ptr<const BatchFeed> feed = {};  ///< gives each step's batch, in place of a file; null: none
  std::int64_t evaluatedSteps = 0;             ///< of an evaluation, which starts at step 0; 0: a training

  bool operator==(const DataOptions&) const = default;
};

/// How a stage is trained.
struct StageOptions {
  std::uint64_t seed = 0;
  OptimizerSpec optimizer;
  bool initRandom = false;  ///< draw weights (normal, 0.02; norms one, biases zero) instead of reading them
  DataOptions data;
  std::string resume;              ///< checkpoint to load parameters, buffers and optimizer state from; empty: the model's own
  int updates = 0;                 ///< of the parameters, before that checkpoint
  bool resetOptimizer = false;     ///< do not load its optimizer state
  const Device* device = nullptr;  ///< the device it computes on; null: the host. A GPU's module must be loaded
  bool graphs = true;  ///< if the device supports it, each action is recorded once and launched as a whole (CUDA graphs); see Recorder
  /// Matrix products and similar operators compute in this type, parameters and gradient sums keep theirs (autocast); Unknown: as traced.
  /// Values are sent to other stages in the types they were traced with.
  DType precision = DType::Unknown;
  int replica = 0;  ///< which copy of the pipeline: it takes microbatches [replica · M, (replica + 1) · M) of the batch
  /// Called between operators, to progress messages while a stage computes. May be empty.
  std::function<void()> betweenOperators;
  /// Called with notes for the user about this stage: `runs operator by operator, without CUDA graphs, because …`. May be empty.
  std::function<void(const std::string& what)> tell;
  bool findNan = false;      ///< check the results of every operator, forward and backward, to name the first non-finite one; slow
  bool keepOutputs = true;   ///< an evaluation keeps the model's outputs, for `takeModelOutput`
  bool keepBuffers = false;  ///< copy them at the start of each step, for `undoBuffers`
  /// For `--verify`: called with every value that leaves a stage and with its gradient (`gradient of NAME`), as they become known; and with
  /// the `watched` values of this stage and their gradients. May be empty.
  std::function<void(const std::string& name, Microbatch microbatch, DType dtype, Buffer value)> observe;
  std::vector<ValueId> watched;
  /// Distributed autograd runs the backwards (backends/torch/autograd/stages.h): every operator keeps autograd's own. Not with a loss over
  /// the whole batch, 16-bit sums or recompute, nor on a GPU.
  bool distributed = false;
};

/// One stage of a plan's partition over the traced model, on the host or a GPU: its nodes run through the dispatcher with autograd;
/// operators with weights run by functions that can defer their weight gradient. Copies the weights of this stage alone out of the mapped
/// archive. The graph must outlive the stage. Throws UsageError for operators that cannot run, weights that are absent, and data that does
/// not fit.
[[nodiscard]] std::unique_ptr<StageModule> makeTracedStage(const ModelGraph& graph, const Plan& plan, Stage stage,
                                                           const StageOptions& options);

}  // namespace pw
