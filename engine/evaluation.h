#pragma once

#include <memory>
#include <vector>

#include "backends/checkpoints/outputs.h"
#include "backends/messages/communicator.h"
#include "backends/torch/backend.h"
#include "engine/train_options.h"
#include "simulator/plan/plan.h"

namespace pw {

/// An evaluation step's loss, on all ranks, and on rank 0 the outputs of all microbatches, which `kept` keeps.
struct Evaluation {
  double loss = 0;
  std::vector<ModelOutput> outputs;
  std::vector<HeldBuffer> kept;
};

/// Steps of forwards only, by weights that are read once. Collective: every rank of the job makes one and calls it alike.
class EvaluationRun {
 public:
  /// Keeps references.
  EvaluationRun(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator,
                const TorchBackend& torch);
  ~EvaluationRun();

  /// The batch of this number; its outputs stay where they are computed unless `withOutputs`. Throws as the executor and the transport do,
  /// and UsageError where a model has more outputs times microbatches than there are tags.
  [[nodiscard]] Evaluation step(int number, bool withOutputs);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace pw
