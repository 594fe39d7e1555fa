#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "schedules/answer.h"
#include "simulator/partition/partition.h"

namespace pw {

/// A value that a stage needs from an earlier one.
struct Arrival {
  ValueId value;
  bool gradient = false;  ///< a gradient goes back
  Bytes bytes = 0;        ///< per microbatch
};

/// The part of a stage that does not depend on where the other stages begin.
struct StageCut {
  StageSpec spec;
  std::vector<Arrival> arrivals;  ///< by value, ascending
};

class Cutter;

/// Cuts one graph many times: facts about the whole graph are computed once, and stages can be cached by their range. Keeps references to
/// graph and costs. Its functions are const and may be called by several threads at once.
class StageCutter {
 public:
  /// Throws UsageError when costs are of another graph.
  StageCutter(const ModelGraph& graph, Bindings bindings, const Profile* costs);
  ~StageCutter();
  StageCutter(const StageCutter&) = delete;
  StageCutter& operator=(const StageCutter&) = delete;

  /// Why stages cannot begin there: one would be empty, or two would use memory that is changed in place. Nothing where they can. Cost:
  /// linear in stages.
  [[nodiscard]] std::optional<Impossible> obstacle(const std::vector<NodeId>& begins) const;
  /// The stage of these nodes, or why what it needs cannot be sent (`cutGraph`); `number` is used in that sentence only. Cost: linear in
  /// its nodes.
  Answer<StageCut> stage(NodeRange nodes, Stage number) const;
  /// The same where it is given which nodes it computes again: nodes of the graph, ascending; says so where it cannot.
  Answer<StageCut> stage(NodeRange nodes, const std::vector<NodeId>& recomputed, Stage number) const;
  /// Joins consecutive stages into what `cutGraph` returns. Cost: linear in what they hold.
  [[nodiscard]] Partition join(const std::vector<std::shared_ptr<const StageCut>>& stages) const;

 private:
  std::unique_ptr<const Cutter> cutter_;
};

/// The ranges of stages that begin at 0 and at `begins`, the last up to the graph's end.
[[nodiscard]] std::vector<NodeRange> rangesOf(const ModelGraph& graph, const std::vector<NodeId>& begins);

}  // namespace pw
