#pragma once

#include <vector>

#include "app/gui/model/graph/flow.h"
#include "app/gui/model/parts/call_tree.h"

namespace pw::gui {

/// A node of the graph: a folded or innermost row of the tree, or where the model's inputs come from and its outputs go.
struct GraphBox {
  static constexpr int kInputs = -1, kOutputs = -2;
  int row = kInputs;     ///< of the tree, or one of these
  int depth = 0;         ///< frames around it
  bool canOpen = false;  ///< something is folded inside
  double top = 0, height = 0;

  [[nodiscard]] double middle() const { return top + height / 2; }
  [[nodiscard]] double bottom() const { return top + height; }
};

/// An unfolded row, around the boxes inside it.
struct GraphFrame {
  int row = 0, depth = 0;
  double top = 0, bottom = 0;
};

/// Edges from one box to others than the next, drawn beside the boxes as one line that branches.
struct GraphBranch {
  int from = 0, last = 0;          ///< boxes
  std::vector<std::size_t> edges;  ///< ascending by target
  int lane = 0;                    ///< from the boxes outwards
};

/// Heights in pixels.
struct GraphMetrics {
  double box = 40, title = 22, gap = 34, padding = 8;
  int lanes = 64;  ///< at most; what does not fit takes the last
};

/// The graph from top to bottom in order of execution.
struct GraphLayout {
  std::vector<GraphBox> boxes;  ///< the first is the inputs, the last the outputs; empty without a model
  std::vector<GraphFrame> frames;
  std::vector<int> boxOfNode;
  std::vector<FlowEdge> edges;
  std::vector<int> next;  ///< by box: the edge to the box below; −1: none
  std::vector<GraphBranch> branches;
  int lanes = 0;
  double height = 0;

  struct Place {
    NodeId node;
    double y = 0;
  };
  std::vector<Place> places;  ///< between boxes, where a cut would stand, ascending; the first is before node 0, the last after all

  [[nodiscard]] const GraphBox& box(int index) const { return boxes[static_cast<std::size_t>(index)]; }
  /// Where the cut before a node stands: between boxes, or inside a folded one in proportion to its nodes. O(log boxes).
  [[nodiscard]] double yOf(NodeId node) const;
  /// The place nearest to y.
  [[nodiscard]] NodeId nearest(double y) const;
  /// The box at y; −1: none. The frame whose title is there; −1: none.
  [[nodiscard]] int boxAt(double y) const;
  [[nodiscard]] int titleAt(double y, const GraphMetrics& metrics) const;
  /// The box of a row, or that is in its place: the folded one around it, the first of an unfolded one. −1: none.
  [[nodiscard]] int showing(const CallTree& tree, int row) const;
};

/// `open`: by row of the tree, whether what is inside is shown; the model itself always is. Cost: n log n in nodes and uses.
[[nodiscard]] GraphLayout layOut(const CallTree& tree, const ModelFlow& flow, const std::vector<bool>& open, const GraphMetrics& metrics);

}  // namespace pw::gui
