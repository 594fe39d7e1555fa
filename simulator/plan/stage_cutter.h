#pragma once

#include <memory>
#include <vector>

#include "simulator/plan/partition.h"

namespace pw {

/// A value that a stage needs from an earlier one.
struct Arrival {
  ValueId value;
  bool gradient = false;  ///< a gradient goes back
  Bytes bytes = 0;        ///< per microbatch
};

/// One stage of a cut, as far as it does not depend on where the others begin.
struct StageCut {
  StageSpec spec;
  std::vector<Arrival> arrivals;  ///< by value, ascending
};

class Cutter;

/// Cuts one graph again and again: what `cut` works out about the whole graph is worked out once, and stages can be kept by their range.
/// Keeps references to graph and costs. Its functions are const and may be called by several threads at once.
class StageCutter {
 public:
  /// Throws UsageError when costs are of another graph.
  StageCutter(const ModelGraph& graph, Bindings bindings, const Profile* costs);
  ~StageCutter();
  StageCutter(const StageCutter&) = delete;
  StageCutter& operator=(const StageCutter&) = delete;

  /// Throws UsageError when stages beginning there cannot be: an empty one, or memory changed in place that two would use. Cost: linear in
  /// stages.
  void require(const std::vector<NodeId>& begins) const;
  /// The stage of these nodes; its number is for sentences only. Throws UsageError as `cut` does. Cost: linear in its nodes.
  [[nodiscard]] StageCut stage(NodeRange nodes, Stage number) const;
  /// Consecutive stages put together: what `cut` returns. Cost: linear in what they hold.
  [[nodiscard]] Partition join(const std::vector<std::shared_ptr<const StageCut>>& stages) const;

 private:
  std::unique_ptr<const Cutter> cutter_;
};

/// The ranges of stages that begin at 0 and at `begins`, the last up to the graph's end.
[[nodiscard]] std::vector<NodeRange> rangesOf(const ModelGraph& graph, const std::vector<NodeId>& begins);

}  // namespace pw
