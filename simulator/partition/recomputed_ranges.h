#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedules/answer.h"
#include "simulator/partition/partition.h"
#include "simulator/partition/recompute.h"

namespace pw {

/// The node ranges of modules by name, as `inspect` shows them: each call of `blocks.2`; for a name that is not a module itself, like
/// `blocks`, each call of each of its numbered children separately. Adjacent calls are merged. Ascending and disjoint; of nested ranges the
/// outer is kept. Throws UsageError for any other name. Cost: linear in nodes times names.
[[nodiscard]] std::vector<NodeRange> moduleRanges(const ModelGraph& graph, const std::vector<std::string>& names);

/// Why a range's forward cannot run again: an operator in it, or later, changes in place what enters the range, or any operator a state
/// that enters it, as it does for other microbatches in between; statistics and counters that a norm in the range only moves are left alone
/// by a second run. Returns a sentence that names the operator; nothing when it can. Sub-graphs with an operator in place count as changing
/// all values they read. Cost: linear in nodes times the depth of views.
[[nodiscard]] std::optional<std::string> obstacleToRecompute(const ModelGraph& graph, const NodeRange& range);

/// A node that writes in place, and the values it changes (none of them views).
struct InPlaceChange {
  NodeId node;
  std::vector<ValueId> bases;
};
/// All of a graph, in order. Cost: linear in nodes times the depth of views.
[[nodiscard]] std::vector<InPlaceChange> changesInPlace(const ModelGraph& graph);
/// The same answer with the changes of the graph at hand. Cost: linear in the range and the changes, or nothing without any.
[[nodiscard]] std::optional<std::string> obstacleToRecompute(const ModelGraph& graph, const NodeRange& range,
                                                             const std::vector<InPlaceChange>& changes);

/// Sets what every stage recomputes, cut at stage borders; of RecomputeAuto nothing yet (`recomputeToFit`). Throws UsageError for unknown
/// names and where there is an obstacle.
void setRecompute(const ModelGraph& graph, Partition& partition, const Recompute& recompute);
/// The same with the changes of the graph at hand, and the obstacle or unknown name as an answer; nothing where it is set.
[[nodiscard]] std::optional<Impossible> trySetRecompute(const ModelGraph& graph, Partition& partition, const Recompute& recompute,
                                                        const std::vector<InPlaceChange>& changes);

}  // namespace pw
