#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/torch/program/arguments.h"
#include "backends/torch/program/program.h"

/// Internal to the programs of program.h: their prepared steps.
namespace pw {

using Stack = std::vector<c10::IValue>;

/// What a step does. `Arithmetic`: a function of Python on numbers. The others but `Operator` have bodies: `Call` and the two modes run
/// their one, `Cond` one of two, `While` its second as long as its first says true, `Checkpoint` its one again in the backward.
enum class Mode : std::uint8_t { Operator, Arithmetic, SetGradEnabled, Autocast, Call, Cond, While, Checkpoint };

/// Whether Pipewright can run nodes with sub-graphs of this target: `torch.ops.higher_order.cond`.
[[nodiscard]] bool isHigherOrder(const std::string& target);

/// Where the arguments of an operator hold a state: a position, and of a list there which of its tensors.
struct StateRead {
  std::size_t position = 0, member = 0;
};

struct ProgramStep;

/// A sub-graph as a separate program; it uses its own value ids.
struct StepBody {
  std::vector<ProgramStep> steps;
  std::vector<ValueId> inputs, outputs;
};

struct ProgramStep {
  NodeId id;                ///< of the graph's node, also in sub-graphs of it
  std::uint64_t inner = 0;  ///< number of the step within the node's sub-graphs, from 1; 0: the node itself
  const Node* node = nullptr;
  Mode mode = Mode::Operator;
  std::optional<c10::OperatorHandle> op;
  bool random = false;
  bool readsData = false;  ///< the host needs what the device computed: a size or number that depends on data, a predicate
  WeightRule rule;
  /// A recompute must not change buffers again: batch norm's running statistics are left out, other steps that write into a buffer are
  /// skipped.
  std::vector<std::size_t> statistics;
  bool writesBuffer = false;
  /// States that the forward changes and this step reads: in training it gets copies, since its backward may come after the next
  /// microbatch has changed them.
  std::vector<StateRead> changingStates;
  Stack constants;
  std::vector<Slot> slots;
  std::vector<ValueId> drop;         ///< values not needed after this step
  bool enabled = false;              ///< of a mode, and of a `Cond` whose predicate is a literal
  std::optional<ValueId> predicate;  ///< of a `Cond`
  c10::ScalarType autocastType = c10::ScalarType::Float;
  std::vector<StepBody> bodies;
  std::vector<ValueId> callInputs;    ///< what enters the bodies, in their order; of a `While` the first ones are carried
  std::vector<bool> outputGradients;  ///< of a checkpoint's outputs
  std::vector<bool> buffers;          ///< which of a checkpoint's `callInputs` are buffers
};

struct PreparedSteps {
  std::vector<ProgramStep> steps;
  std::vector<ValueId> addedByAutograd;  ///< see NodeProgram
};

/// Steps for `nodes`, which point into the graph and to `options.weights`. Throws as the constructor of NodeProgram does.
[[nodiscard]] PreparedSteps prepareSteps(const ModelGraph& graph, const std::vector<NodeId>& nodes, const ProgramOptions& options);

}  // namespace pw
