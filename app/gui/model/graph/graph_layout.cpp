#include "app/gui/model/graph/graph_layout.h"

#include <algorithm>
#include <utility>

#include "app/gui/model/parts/row_geometry.h"

namespace pw::gui {
namespace {

/// Stacks boxes and frames; y grows as rows come.
class BoxStack {
 public:
  BoxStack(const CallTree& tree, const std::vector<bool>& open, const GraphMetrics& metrics, GraphLayout& layout)
      : tree_(tree), open_(open), metrics_(metrics), layout_(layout) {}

  void build() {
    addBox(GraphBox::kInputs, false);
    for (int r = 0; r < tree_.size();) {
      closeFrames(r);
      const bool hasInside = tree_.row(r).end > r + 1;
      const bool isOpen = hasInside && (r == 0 || open_[static_cast<std::size_t>(r)]);
      if (r > 0 || !isOpen) addPlace(tree_.row(r).firstNode);
      if (isOpen && r > 0) openFrame(r);
      if (!isOpen) {
        addBox(r, hasInside);
        for (std::size_t n = tree_.row(r).firstNode.index(); n < tree_.row(r).endNode.index(); ++n)
          layout_.boxOfNode[n] = static_cast<int>(layout_.boxes.size()) - 1;
      }
      r = isOpen ? r + 1 : tree_.row(r).end;
    }
    closeFrames(tree_.size());
    addPlace(NodeId(tree_.rowOfNode.size()));
    addBox(GraphBox::kOutputs, false);
    layout_.height = y_ - metrics_.gap / 2;
  }

 private:
  void addPlace(NodeId node) {
    if (layout_.places.empty() || layout_.places.back().node != node) layout_.places.push_back({node, y_ - metrics_.gap / 2});
  }

  void addBox(int row, bool canOpen) {
    layout_.boxes.push_back({row, static_cast<int>(around_.size()), canOpen, y_, metrics_.box});
    y_ += metrics_.box + metrics_.gap;
  }

  void openFrame(int row) {
    layout_.frames.push_back({row, static_cast<int>(around_.size()), y_, y_});
    around_.push_back(layout_.frames.size() - 1);
    y_ += metrics_.title + metrics_.padding;
  }

  void closeFrames(int row) {
    while (!around_.empty() && tree_.row(layout_.frames[around_.back()].row).end <= row) {
      y_ += metrics_.padding;
      layout_.frames[around_.back()].bottom = y_ - metrics_.gap;
      around_.pop_back();
    }
  }

  const CallTree& tree_;
  const std::vector<bool>& open_;
  const GraphMetrics& metrics_;
  GraphLayout& layout_;
  std::vector<std::size_t> around_;  // frames that are open
  double y_ = metrics_.gap;
};

void addEdges(GraphLayout& layout, const ModelFlow& flow, int lanes) {
  layout.edges = edgesBetween(flow, layout.boxOfNode, static_cast<int>(layout.boxes.size()) - 1);
  layout.next.assign(layout.boxes.size(), -1);
  for (std::size_t e = 0; e < layout.edges.size(); ++e) {
    const FlowEdge& edge = layout.edges[e];
    if (edge.to == edge.from + 1) {
      layout.next[static_cast<std::size_t>(edge.from)] = static_cast<int>(e);
      continue;
    }
    if (layout.branches.empty() || layout.branches.back().from != edge.from) layout.branches.push_back({edge.from, edge.to, {}, 0});
    layout.branches.back().edges.push_back(e);
    layout.branches.back().last = edge.to;
  }
  std::vector<std::pair<double, double>> spans;
  for (const GraphBranch& branch : layout.branches) spans.emplace_back(branch.from + 0.1, branch.last - 0.1);  // one ends where one begins
  const std::vector<int> laneOf = arcLanes(spans, lanes);
  for (std::size_t b = 0; b < laneOf.size(); ++b) {
    layout.branches[b].lane = laneOf[b];
    layout.lanes = std::max(layout.lanes, laneOf[b] + 1);
  }
}

}  // namespace

GraphLayout layOut(const CallTree& tree, const ModelFlow& flow, const std::vector<bool>& open, const GraphMetrics& metrics) {
  GraphLayout layout;
  if (tree.rows.empty()) return layout;
  layout.boxOfNode.assign(tree.rowOfNode.size(), 0);
  BoxStack(tree, open, metrics, layout).build();
  addEdges(layout, flow, metrics.lanes);
  return layout;
}

double GraphLayout::yOf(NodeId node) const {
  if (places.empty()) return 0;
  const auto at = std::lower_bound(places.begin(), places.end(), node, [](const Place& p, NodeId n) { return p.node < n; });
  if (at == places.end()) return places.back().y;
  if (at->node == node || at == places.begin()) return at->y;
  const GraphBox& inside = box(boxOfNode[node.index()]);
  const NodeId first = std::prev(at)->node;
  const double fraction = static_cast<double>(node.value - first.value) / static_cast<double>(at->node.value - first.value);
  return inside.top + inside.height * std::clamp(fraction, 0.2, 0.8);
}

NodeId GraphLayout::nearest(double y) const {
  if (places.empty()) return NodeId(0);
  const auto below = std::lower_bound(places.begin(), places.end(), y, [](const Place& p, double at) { return p.y < at; });
  if (below == places.begin()) return below->node;
  if (below == places.end()) return places.back().node;
  return y - std::prev(below)->y < below->y - y ? std::prev(below)->node : below->node;
}

int GraphLayout::boxAt(double y) const {
  const auto after = std::upper_bound(boxes.begin(), boxes.end(), y, [](double at, const GraphBox& b) { return at < b.top; });
  if (after == boxes.begin() || y > std::prev(after)->bottom()) return -1;
  return static_cast<int>(after - boxes.begin()) - 1;
}

int GraphLayout::titleAt(double y, const GraphMetrics& metrics) const {
  const auto after = std::upper_bound(frames.begin(), frames.end(), y, [](double at, const GraphFrame& f) { return at < f.top; });
  if (after == frames.begin() || y > std::prev(after)->top + metrics.title) return -1;
  return static_cast<int>(after - frames.begin()) - 1;
}

int GraphLayout::showing(const CallTree& tree, int row) const {
  if (row < 0 || row >= tree.size()) return -1;
  const NodeId first = tree.row(row).firstNode;
  return first.index() < boxOfNode.size() ? boxOfNode[first.index()] : -1;
}

}  // namespace pw::gui
