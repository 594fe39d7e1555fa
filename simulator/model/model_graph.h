#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "schedules/ids.h"
#include "simulator/model/tensor_meta.h"

namespace pw {

/// Where a value comes from.
enum class ValueOrigin : std::uint8_t { Node, Input, Parameter, Buffer, Constant };

/// Something that flows through the graph: a tensor, or a symbolic integer / boolean / float computed from sizes.
struct Value {
  std::string name;  ///< as in the trace: `linear_2`
  ValueOrigin origin = ValueOrigin::Node;
  NodeId producer;                      ///< for origin Node; inside a sub-graph: the node that carries the sub-graph
  std::optional<TensorMeta> tensor;     ///< set for tensors; dtype Unknown for an unused result that torch left out
  std::optional<SymbolicInt> symbolic;  ///< set for symbolic numbers; evaluated, never computed by nodes

  bool operator==(const Value&) const = default;
};

/// What an operator argument can be. Torch's enumerations are kept as the archive's numeric codes.
struct NoneArg {
  bool operator==(const NoneArg&) const = default;
};
struct ScalarTypeArg {
  DType dtype;
  bool operator==(const ScalarTypeArg&) const = default;
};
struct MemoryFormatArg {
  int code;
  bool operator==(const MemoryFormatArg&) const = default;
};
struct LayoutArg {
  int code;
  bool operator==(const LayoutArg&) const = default;
};
struct DeviceArg {
  std::string type;
  bool operator==(const DeviceArg&) const = default;
};
struct ComplexArg {
  double real;
  double imaginary;
  bool operator==(const ComplexArg&) const = default;
};
/// One element of a list of symbolic integers: a value of the graph, or a number.
using IntOrValue = std::variant<std::int64_t, ValueId>;
/// `as_graph`: index into ModelGraph::subgraphs.
struct GraphArg {
  std::size_t index;
  bool operator==(const GraphArg&) const = default;
};

using Argument =
    std::variant<NoneArg, ValueId, std::vector<ValueId>, std::vector<std::optional<ValueId>>, std::int64_t, std::vector<std::int64_t>,
                 std::vector<IntOrValue>, double, std::vector<double>, bool, std::vector<bool>, std::string, std::vector<std::string>,
                 ScalarTypeArg, MemoryFormatArg, LayoutArg, DeviceArg, ComplexArg, GraphArg>;

struct NamedArgument {
  std::string name;  ///< from the operator's schema; empty for higher-order nodes
  Argument value;

  bool operator==(const NamedArgument&) const = default;
};

/// A step of a module path: `{"blocks.0.mlp", "model.Mlp"}`.
struct ModuleFrame {
  std::string path;  ///< fully qualified name, empty for the root
  std::string className;

  bool operator==(const ModuleFrame&) const = default;
};

/// One operator call.
struct Node {
  std::string target;  ///< `torch.ops.aten.linear.default`
  std::vector<NamedArgument> inputs;
  std::vector<ValueId> outputs;  ///< one per result; a result that is None has a Value without name, tensor and symbol
  /// Outputs that form one list return (`split`, `unbind`): then `outputs` holds its elements.
  bool outputIsList = false;
  std::vector<ModuleFrame> modules;  ///< outermost first; the root is first
  std::string sourceLine;            ///< innermost source position: `model.py:21 in forward`

  bool operator==(const Node&) const = default;
};

/// A sub-graph of a higher-order node (`wrap_with_set_grad_enabled`, `wrap_with_autocast`). Its value ids index
/// ModelGraph::values like all others.
struct Subgraph {
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<Node> nodes;

  bool operator==(const Subgraph&) const = default;
};

/// Bytes of a tensor in a file: `offset` from the file's start. `file` indexes ModelGraph::files.
struct StoredTensor {
  std::size_t file = 0;
  std::int64_t offset = 0;
  Bytes bytes = 0;
  std::vector<std::int64_t> strides;  ///< in elements
  std::int64_t storageOffset = 0;     ///< in elements

  bool operator==(const StoredTensor&) const = default;
};

/// A parameter, buffer or constant the graph reads. Two parameters with one `storage` are tied.
struct StateTensor {
  std::string name;  ///< the model's own name: `blocks.0.mlp.up.weight`
  ValueId value;
  std::string storage;                 ///< identity of the bytes: `0:weights/weight_3`; equal for tied tensors; empty without weights
  std::optional<StoredTensor> stored;  ///< nothing in an archive without weights
  bool persistent = true;

  bool operator==(const StateTensor&) const = default;
};

/// Identity of a tensor's bytes: its storage, or its own name where the archive has no weights.
[[nodiscard]] inline const std::string& storageOf(const StateTensor& state) { return state.storage.empty() ? state.name : state.storage; }

/// A traced model: a straight list of nodes in execution order, with everything they read.
struct ModelGraph {
  std::string name;                ///< file stem
  std::vector<std::string> files;  ///< archive path(s); several when each stage was exported on its own
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Subgraph> subgraphs;
  std::vector<ValueId> inputs;   ///< user inputs, in order
  std::vector<ValueId> outputs;  ///< user outputs, in order
  /// One per output: its key where the model returns a dict or dataclass (`loss`, nested `hidden.0`), else the value's name in the trace.
  std::vector<std::string> outputNames;
  std::vector<StateTensor> parameters;
  std::vector<StateTensor> buffers;
  std::vector<StateTensor> constants;
  /// Positions where the model's author called `pipe_split()`, as node indices where a stage begins.
  std::vector<NodeId> splitMarkers;
  /// Tied names that the graph does not read by themselves: alias → name of the parameter that is read. An archive without weights does not
  /// record tying: there, an unread parameter counts as tied if exactly one read parameter has its type and size.
  std::map<std::string, std::string> tiedAliases;

  bool operator==(const ModelGraph&) const = default;

  [[nodiscard]] const Value& value(ValueId id) const { return values[id.index()]; }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes[id.index()]; }
};

/// Values a node reads, sub-graph inputs included, each once, in argument order (symbolic numbers included).
[[nodiscard]] std::vector<ValueId> readsOf(const Node& node);

/// The symbol of dimension 0 of the first input if that is symbolic, otherwise the symbol that most inputs have elsewhere ([T, B, D]);
/// empty for a fixed batch.
[[nodiscard]] std::string batchSymbol(const ModelGraph& graph);
/// Batch size at export.
[[nodiscard]] std::int64_t exportedBatch(const ModelGraph& graph);
/// Bindings of every symbol the inputs declare: the batch symbol takes `batch`, others keep their value at export.
/// Throws UsageError when the batch is fixed and `batch` differs from it.
[[nodiscard]] Bindings bindBatch(const ModelGraph& graph, std::int64_t batch);

}  // namespace pw
