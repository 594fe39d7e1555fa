#pragma once

#include <QString>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "app/gui/document/document.h"

namespace pw::gui {

/// Where stages of one model may begin, and why not elsewhere.
class SplitRules {
 public:
  SplitRules() = default;
  /// `microbatch`: what values that cross are sized for.
  SplitRules(std::shared_ptr<const ModelGraph> graph, std::vector<SplitPoint> points, std::int64_t microbatch);

  [[nodiscard]] const std::vector<SplitPoint>& points() const { return points_; }
  [[nodiscard]] const SplitPoint* point(NodeId node) const;  ///< null: no stage may begin there
  /// The nearest legal place above (`direction` < 0) or below.
  [[nodiscard]] std::optional<NodeId> next(NodeId from, int direction) const;
  /// The split point's name, else `node 12`.
  [[nodiscard]] QString name(NodeId node) const;
  /// Why no stage may begin at a node, one sentence; empty if one may. Cached; the first call for a model costs as much as `cutGraph`.
  [[nodiscard]] QString obstacle(NodeId node) const;
  /// Why the split before stage `split` + 1 cannot move there: an obstacle, or a stage would be empty; empty when it can.
  [[nodiscard]] QString refusalToMove(const std::vector<NodeId>& begins, std::size_t split, NodeId node) const;

 private:
  [[nodiscard]] QString findObstacle(NodeId node) const;

  std::shared_ptr<const ModelGraph> graph_;
  std::vector<SplitPoint> points_;
  std::int64_t microbatch_ = 1;
  mutable std::map<NodeId, QString> obstacles_;
};

/// A design with other stages, or why there is none.
struct StageChange {
  QString refusal;  ///< one sentence; empty: `begins` and `ranks` are good
  std::vector<NodeId> begins;
  int ranks = 0;
};

/// Adds a stage that begins at `node`, or removes the `split`-th beginning. Chunks per rank are kept, so the number of ranks changes;
/// refused if the stages are not divisible by the chunks, if the schedule does not support the combination, or if its rows come from a
/// file.
[[nodiscard]] StageChange withSplit(const Design& design, const SplitRules& rules, NodeId node);
[[nodiscard]] StageChange withoutSplit(const Design& design, std::size_t split);

}  // namespace pw::gui
