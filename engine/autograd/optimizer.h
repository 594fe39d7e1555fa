#pragma once

#include <map>
#include <optional>
#include <vector>

#include "engine/remote/remote.h"
#include "simulator/plan/optimizer.h"

namespace pw {

class DistributedAutograd;

/// An optimizer of parameters that stay on their owners (torch.distributed.optim.DistributedOptimizer): one local optimizer on each, with
/// the engine's own arithmetic. Steps of all optimizers on one owner take turns.
class DistributedOptimizer {
 public:
  /// Makes the local optimizers; blocks until they are there. Each parameter counts once, however often it is given. Throws UsageError
  /// without parameters, and what goes wrong on an owner.
  DistributedOptimizer(Remote& remote, const OptimizerSpec& spec, const std::vector<Reference>& parameters, Remote::Deadline deadline = {});

  /// Applies the context's gradients on all owners at once and blocks until all are done. A parameter without a gradient stays as it is.
  void step(ContextId context, Remote::Deadline deadline = {});

 private:
  Remote& remote_;
  std::map<JobRank, Reference> local_;
};

/// Makes the functions known that optimizers call on owners. Part of making a DistributedAutograd.
void defineOptimizers(DistributedAutograd& autograd);

}  // namespace pw
