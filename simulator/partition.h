#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/model_graph.h"
#include "simulator/profile.h"

namespace pw {

/// One value sent from the stage that produces it straight to one stage that uses it.
struct Transfer {
  ValueId value;
  Stage from;
  Stage to;
  bool gradient = false;  ///< a gradient comes back; decided here, from dtype and reachability, so that all ranks agree
  Bytes bytes = 0;        ///< per microbatch of the plan's size

  bool operator==(const Transfer&) const = default;
};

/// What one stage computes: nodes [begin, end) of the graph, and before them `recomputed`: cheap nodes of earlier stages
/// whose values depend on inputs and constants only and cost less to compute again than to receive.
struct StageSpec {
  NodeId begin;
  NodeId end;
  std::vector<NodeId> recomputed;
  std::vector<ValueId> modelInputs;        ///< user inputs the stage reads
  std::vector<std::size_t> parameters;     ///< indices into ModelGraph::parameters, tied ones once
  std::vector<std::size_t> buffers;        ///< indices into ModelGraph::buffers
  std::vector<std::size_t> constants;      ///< indices into ModelGraph::constants

  bool operator==(const StageSpec&) const = default;
};

/// A storage read by several stages: each keeps a copy, gradients are summed at the end of the step.
struct ReplicatedParameter {
  std::string name;
  std::string storage;
  std::vector<Stage> stages;
  Bytes bytes = 0;

  bool operator==(const ReplicatedParameter&) const = default;
};

/// A model cut into stages.
struct Partition {
  std::vector<StageSpec> stages;
  std::vector<Transfer> transfers;
  std::vector<ReplicatedParameter> replicated;

  bool operator==(const Partition&) const = default;
};

/// Whether a value's gradient is needed: floating point, and computed from a trained parameter by differentiable nodes.
/// One entry per value.
[[nodiscard]] std::vector<bool> needsGradient(const ModelGraph& graph);

/// Cuts the graph where stages 1, 2, … begin (ascending node ids, each in 1..nodes−1).
/// `lossOutput`: the output value the last stage must hold. `costs` and `link` decide recompute against send; without costs
/// nothing but symbolic numbers and index-like constants is recomputed. Throws UsageError naming the value when one that would
/// cross has a data-dependent size.
[[nodiscard]] Partition cut(const ModelGraph& graph, const std::vector<NodeId>& begins, const Bindings& bindings,
                            const Profile* costs);

/// A legal place to cut: the values that would cross right before `begin`, for a two-stage cut there.
struct SplitPoint {
  NodeId begin;
  std::string name;   ///< module that starts here, `blocks.2`, or that ended, `blocks.1:end`, or `pipe_split`; else `@<node name>`
  Bytes crossing = 0; ///< forward bytes per microbatch
  int values = 0;

  bool operator==(const SplitPoint&) const = default;
};

/// Every module boundary (and split marker) of the graph with what would cross there, in order.
[[nodiscard]] std::vector<SplitPoint> splitPoints(const ModelGraph& graph, const Bindings& bindings);

/// The node where a stage begins for the name a user gave: `blocks.2` (before the module), `blocks.1:end` (after it).
/// Throws UsageError with near names when no such module is in the graph, or when nothing would lie on one side.
[[nodiscard]] NodeId findSplit(const ModelGraph& graph, const std::string& name);

enum class Balance : std::uint8_t { Time, Memory, Parameters, Layers };

/// Stage begins that make the heaviest stage lightest over all contiguous cuts at module boundaries; within 1 % of that, fewer
/// crossing bytes, then earlier cuts. Time: forward + backward, the loss on the last stage. Exact dynamic program
/// O(stages · boundaries²). Throws UsageError when the model has fewer boundaries than stages need.
[[nodiscard]] std::vector<NodeId> balance(const ModelGraph& graph, const Profile& profile, int stages, Balance by);

}  // namespace pw
