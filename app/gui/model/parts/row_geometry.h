#pragma once

#include <utility>
#include <vector>

#include "app/gui/model/parts/call_tree.h"

namespace pw::gui {

/// The visible rows, top to bottom, and the positions between nodes among them. All y are in row heights from the first row's top.
class VisibleRows {
 public:
  VisibleRows() = default;
  /// `open`: by row of the tree, whether its children are shown. The tree must outlive this. Cost: linear in rows.
  VisibleRows(const CallTree& tree, const std::vector<bool>& open);

  [[nodiscard]] const std::vector<int>& rows() const { return rows_; }
  [[nodiscard]] int count() const { return static_cast<int>(rows_.size()); }

  /// The y of the position before this node: the top of the outermost visible row that begins there; inside a collapsed row in proportion
  /// to its nodes, but not at its edges. `end` of the model: below the last row. O(log rows).
  [[nodiscard]] double boundary(NodeId node) const;
  /// Whether a visible row begins there.
  [[nodiscard]] bool isBetweenRows(NodeId node) const;
  /// The innermost visible row that contains this node. O(log rows).
  [[nodiscard]] int showing(NodeId node) const;
  /// The place between rows nearest to y (ties: the lower one): the node below it, the number of nodes under the last row.
  [[nodiscard]] NodeId nearest(double y) const;
  /// The collapsed row (with children) whose middle half contains y; −1: none.
  [[nodiscard]] int closedUnder(double y) const;

 private:
  const CallTree* tree_ = nullptr;
  std::vector<int> rows_;
  std::vector<NodeId> firsts_;  // of the rows; ascending
  std::vector<bool> closed_;    // of the rows: has children that are not shown
};

/// Lanes for arcs so that those in one lane do not overlap: shorter ones first, each in the lowest free lane, of at most `lanes` ≥ 1 (what
/// does not fit takes the last). One lane for each span; spans are (from, to) with from ≤ to. Cost: n log n in spans, for each lane.
[[nodiscard]] std::vector<int> arcLanes(const std::vector<std::pair<double, double>>& spans, int lanes);

/// The stage a node is in, for stages that begin at `begins` (ascending).
[[nodiscard]] Stage stageOf(const std::vector<NodeId>& begins, NodeId node);

}  // namespace pw::gui
