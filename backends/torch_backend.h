#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/torch_gloo.h"
#include "backends/torch_profiler.h"
#include "backends/torch_stage.h"

namespace pw {

/// What the LibTorch module offers. It is a shared library loaded on demand, because linking Torch costs each start 0.4 s.
struct TorchBackend {
  /// Threads per operator, no backtraces, counting allocator; call once before the others.
  void (*prepareProcess)(int threads);
  std::unique_ptr<StageModule> (*makeTracedStage)(const ModelGraph&, const Plan&, Stage, const StageOptions&);
  std::unique_ptr<Communicator> (*connectGloo)(const Rendezvous&);
  KeyValueStore (*connectStore)(const Rendezvous&);
  Profile (*measureProfile)(const ModelGraph&, const ProfileOptions&, Communicator*, const std::function<void(int, int)>&);
  /// Whether there is an operator of that target: `torch.ops.aten.linear.default`.
  bool (*hasOperator)(const std::string& target);
  /// Names of the arguments that such an operator writes into, by its schema; none for an operator that there is not.
  std::vector<std::string> (*writtenArguments)(const std::string& target);
};

/// Loads the module from `../lib` beside the executable, or from its own folder, once. Throws Error naming the file when it cannot be loaded.
[[nodiscard]] const TorchBackend& torchBackend();

}  // namespace pw
