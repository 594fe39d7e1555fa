#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/torch/autograd/functions.h"
#include "backends/torch/autograd/stages.h"
#include "backends/torch/gloo.h"
#include "backends/torch/gloo_link.h"
#include "backends/torch/profiler.h"
#include "backends/torch/stage/stage.h"

namespace pw {

/// What the LibTorch module offers. It is a shared library loaded on demand, because linking Torch costs each start 0.4 s.
struct TorchBackend {
  /// Threads per operator, no backtraces, counting allocator; call once before the others.
  void (*prepareProcess)(int threads);
  std::unique_ptr<StageModule> (*makeTracedStage)(const ModelGraph&, const Plan&, Stage, const StageOptions&);
  std::unique_ptr<Communicator> (*connectGloo)(const Rendezvous&, const KeyValueStore&);
  KeyValueStore (*connectStore)(const Rendezvous&);
  Profile (*measureProfile)(const ModelGraph&, const ProfileOptions&, Communicator*, const std::function<void(int, int)>&);
  /// Whether this target can be run: an operator (`torch.ops.aten.linear.default`), or a node with sub-graphs
  /// (`torch.ops.higher_order.cond`).
  bool (*hasOperator)(const std::string& target);
  /// Loads a library that defines operators. Throws UsageError saying why it cannot be.
  void (*loadLibrary)(const std::string& path);
  /// Names of the arguments that such an operator writes into, by its schema; none for an unknown operator.
  std::vector<std::string> (*writtenArguments)(const std::string& target);
  MessageLink (*connectGlooLink)(const Rendezvous&, const KeyValueStore&, LinkEvents);
  /// What remote calls and distributed autograd do with tensors.
  const AutogradFunctions& (*autograd)();
  /// A digest of the feed's batch of a step: the same on ranks that have the same batch. Throws UsageError for one that does not fit.
  std::uint64_t (*checkBatch)(const ModelGraph&, const Plan&, const DataOptions&, int step);
  /// What training stages by distributed autograd does with them.
  const StageFunctions& (*stages)();
};

/// Loads the module once, and LibTorch for it (`loadTorchLibrary`). Throws Error naming the file when it cannot be loaded.
[[nodiscard]] const TorchBackend& torchBackend();

/// The absolute paths of libraries that define custom operators (`--load-library`), each once. Throws UsageError naming one that is not a
/// file.
[[nodiscard]] std::vector<std::string> libraryPaths(const std::vector<std::string>& given);
/// Loads LibTorch and then these into this process. Throws UsageError naming a library that is not a file or cannot be loaded, and why.
void loadLibraries(const std::vector<std::string>& paths);

}  // namespace pw
