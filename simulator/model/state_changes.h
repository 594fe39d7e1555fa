#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// A parameter or buffer that the model's forward writes into, which therefore happens once per microbatch instead of once per batch.
struct StateChange {
  const Node* node = nullptr;  ///< that writes, in the graph or in one of its sub-graphs
  const StateTensor* state = nullptr;
  bool isParameter = false;
  /// Whether an output of the model depends on it, so that microbatches see other values than the whole batch would (power iteration); a
  /// running statistic of a norm in training is only kept.
  bool read = false;

  bool operator==(const StateChange&) const = default;
};

/// Names of the arguments that an operator writes into, by its schema.
using WrittenArguments = std::function<std::vector<std::string>(const std::string& target)>;

/// All of them in execution order, one per node and tensor. A node writes into the first argument of an operator in place, into arguments
/// named `out`, into the running statistics of a norm in training, and into the arguments that `written` lists (it may be empty); also
/// through views, and inside sub-graphs. Batch norms that keep statistics are included. Pointers live as long as the graph. Cost: linear in
/// the nodes times the number of changes.
[[nodiscard]] std::vector<StateChange> stateChanges(const ModelGraph& graph, const WrittenArguments& written = {});

/// The parameter or buffer of the first of them; null if there is none. Cost: linear in the nodes.
[[nodiscard]] const StateTensor* firstChangedState(const ModelGraph& graph);

/// The first parameter that an operator changes by what it computes of the inputs, as of `nn.Embedding(max_norm=…)`: each replica would
/// change its own copy by the samples that it sees. Null if there is none. Cost: nodes, and changes times parameters.
[[nodiscard]] const StateTensor* parameterChangedByInputs(const ModelGraph& graph);

/// The first trained parameter that an operator changes by what it computes of the inputs and that another one keeps for its backward, as
/// of `nn.Embedding(max_norm=…)` tied to a head: the head's backward would find what later microbatches made of it. A lookup keeps its
/// indices only. Null if there is none.
[[nodiscard]] const StateTensor* parameterReadWhileChanged(const ModelGraph& graph);

/// By value index: whether it shows memory of a buffer or an untrained parameter that the forward changes, as it is at that time: views
/// and results of operators in place, sub-graphs entered. Cost: linear in the nodes, times the number of changes.
[[nodiscard]] std::vector<bool> showsChangedState(const ModelGraph& graph);

/// The parameters and buffers of those changes. Cost: linear in the nodes.
[[nodiscard]] std::set<const StateTensor*> changedStates(const ModelGraph& graph);

}  // namespace pw
