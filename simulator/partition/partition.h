#pragma once

#include <string>
#include <vector>

#include "schedules/named_values.h"
#include "simulator/costs/profile.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// One value sent from the stage that produces it straight to one stage that uses it.
struct Transfer {
  ValueId value;
  Stage from;
  Stage to;
  bool gradient = false;  ///< whether a gradient comes back; decided here, from dtype and reachability, so that all ranks agree
  Bytes bytes = 0;        ///< per microbatch of the plan's size

  bool operator==(const Transfer&) const = default;
};

/// Nodes [begin, end).
struct NodeRange {
  NodeId begin;
  NodeId end;

  bool operator==(const NodeRange&) const = default;
};

/// What one stage computes: nodes [begin, end) of the graph, and before them `recomputed`, in this order: cheap nodes of earlier stages
/// whose values depend on inputs, buffers and constants only and cost less to compute again than to receive. Lists ascend.
struct StageSpec {
  NodeId begin;
  NodeId end;
  std::vector<NodeId> recomputed;
  std::vector<ValueId> modelInputs;     ///< user inputs the stage reads; symbolic numbers are evaluated instead
  std::vector<std::size_t> parameters;  ///< indices into ModelGraph::parameters; of tied ones the first
  std::vector<std::size_t> buffers;     ///< indices into ModelGraph::buffers
  std::vector<std::size_t> constants;   ///< indices into ModelGraph::constants
  /// Activation checkpointing: only the inputs of these ranges are kept; their forward runs again in the backward. Ascending, disjoint,
  /// within [begin, end).
  std::vector<NodeRange> checkpoints;

  bool operator==(const StageSpec&) const = default;
};

/// How the copies of a parameter that several stages read are kept equal. In both cases the gradients are summed once per step.
enum class Sharing : std::uint8_t {
  Replicate,  ///< every holder keeps optimizer state and updates its copy
  Transmit,   ///< the first stage owns it: it alone updates, and sends the new values to the others
};
constexpr std::string_view nameOf(Sharing sharing) {
  switch (sharing) {
    case Sharing::Replicate: return "replicate";
    case Sharing::Transmit: return "transmit";
  }
  return {};
}

/// A storage read by several stages.
struct SharedParameter {
  std::string name;
  std::string storage;
  std::vector<Stage> stages;
  Bytes bytes = 0;
  Sharing sharing = Sharing::Replicate;

  bool operator==(const SharedParameter&) const = default;
};

/// A model cut into stages.
struct Partition {
  std::vector<StageSpec> stages;
  std::vector<Transfer> transfers;
  std::vector<SharedParameter> shared;

  bool operator==(const Partition&) const = default;
};

/// Where stages 1, 2, … begin.
[[nodiscard]] std::vector<NodeId> beginsOf(const Partition& partition);
/// Whether several stages hold the parameter.
[[nodiscard]] bool isShared(const Partition& partition, const StateTensor& parameter);

/// Cuts the graph where stages 1, 2, … begin (ascending node ids, each in 1..nodes−1). The last stage gets all outputs of the model.
/// A value that can be computed anywhere is computed again instead of sent when `costs` say that its nodes take no longer than its
/// message, and always where there are no costs or no measured link. Symbolic numbers are not sent: stages
/// evaluate them, or compute those that depend on data.
/// Throws UsageError when a stage would be empty, when costs are of another graph, naming the value when one that would cross has a
/// data-dependent size or is such a number, and naming the operator when it changes memory in place that several stages use.
[[nodiscard]] Partition cutGraph(const ModelGraph& graph, const std::vector<NodeId>& begins, const Bindings& bindings,
                                 const Profile* costs);

}  // namespace pw
