#pragma once

#include <string>
#include <vector>

#include "schedules/named_values.h"
#include "simulator/costs/topology.h"
#include "simulator/partition/partition.h"

namespace pw {

/// A legal place to split: the values that would cross right before `begin`, for a two-stage cut there without costs.
struct SplitPoint {
  NodeId begin;
  /// The outermost module that starts here, `blocks.2`, or that ended, `blocks.1:end`; if that name means another place, or at a split
  /// marker inside a module, the node: `@relu_1`. Of a layer table always the layer that starts here. A marker shows as `pipe_split
  /// (NAME)`. `findSplit` takes every name as it is.
  std::string name;
  Bytes crossing = 0;  ///< forward bytes per microbatch
  int values = 0;

  bool operator==(const SplitPoint&) const = default;
};

/// Every module boundary and split marker of the graph where `cutGraph` can cut, with what would cross there, in order. Boundaries before
/// which everything could be recomputed elsewhere are left out, as that stage would have no work. Cost: linear, times the depth of modules.
[[nodiscard]] std::vector<SplitPoint> splitPoints(const ModelGraph& graph, const Bindings& bindings);

/// The same places without their names.
struct SplitPlaces {
  std::vector<std::size_t> points;  ///< nodes of the split points, ascending
  std::vector<std::size_t> apart;   ///< of these, those not between a value and an operator that changes it in place: a stage that receives
                                    ///< such a value copies it first, and cannot compute that operator again
  std::vector<std::size_t> free;    ///< all nodes where a stage may begin
  std::vector<Bytes> crossing;      ///< by node: bytes that would be sent if a stage began there
};
[[nodiscard]] SplitPlaces splitPlaces(const ModelGraph& graph, const Bindings& bindings);

/// Where the begins of so many stages move: the split points, or where those are too few, any node where a stage may begin. Ascending.
/// Cost: as `splitPlaces`.
[[nodiscard]] std::vector<NodeId> placesFor(const ModelGraph& graph, const Bindings& bindings, int stages);

/// The node where a stage begins for the name a user gave: `blocks.2` (before the first call of the module), `blocks.1:end` (after its
/// last), `@relu_1` (before the node with this output), `@12` (before node 12), or any of these as `pipe_split (NAME)`. Throws UsageError
/// with near names when no such module or node is in the graph, or when one side would be empty.
[[nodiscard]] NodeId findSplit(const ModelGraph& graph, const std::string& name);

/// What is as even as possible over the stages.
enum class Balance : std::uint8_t { Time, Memory, Parameters, Layers };
constexpr std::string_view nameOf(Balance balance) {
  switch (balance) {
    case Balance::Time: return "time";
    case Balance::Memory: return "memory";
    case Balance::Parameters: return "parameters";
    case Balance::Layers: return "layers";
  }
  return {};
}
/// Throws UsageError for another name.
[[nodiscard]] Balance parseBalance(std::string_view name);

/// The stage begins that minimise the heaviest stage over all contiguous cuts at split points, or at operators when the model has too few
/// split points; within 1 % of that, fewer crossing bytes, then the earlier last cut. Weights: Time: forward + backward, the loss on the
/// last stage. Memory: saved activations of one microbatch, parameters and their gradients. Parameters: their bytes. Layers: outermost
/// numbered modules (`blocks.3`) of the most frequent class, which stay whole where there are enough of them, or operators where there are
/// none. Tied parameters weigh where they are first read. Exact dynamic program, O(stages · split points). Throws UsageError when the
/// profile is of another graph, or the model has too few places to split at.
/// `speeds`: of Time, how each stage is computed where it is; empty: as the profile says.
[[nodiscard]] std::vector<NodeId> balancedSplits(const ModelGraph& graph, const Profile& profile, int stages, Balance by,
                                                 const StageSpeeds& speeds = {});

}  // namespace pw
