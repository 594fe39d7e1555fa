#include "app/gui/model/parts/row_geometry.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>

namespace pw::gui {

VisibleRows::VisibleRows(const CallTree& tree, const std::vector<bool>& open) : tree_(&tree) {
  for (int r = 0; r < tree.size();) {
    const CallRow& row = tree.row(r);
    const bool hasInside = row.end > r + 1, isOpen = open[static_cast<std::size_t>(r)];
    rows_.push_back(r);
    firsts_.push_back(row.firstNode);
    closed_.push_back(hasInside && !isOpen);
    r = isOpen ? r + 1 : row.end;
  }
}

double VisibleRows::boundary(NodeId node) const {
  const auto at = std::lower_bound(firsts_.begin(), firsts_.end(), node);
  const auto place = static_cast<double>(at - firsts_.begin());
  if (rows_.empty() || (at != firsts_.end() && *at == node)) return place;
  const CallRow& row = tree_->row(rows_[static_cast<std::size_t>(at - firsts_.begin()) - 1]);
  if (node >= row.endNode) return place;
  const double fraction =
      static_cast<double>(node.value - row.firstNode.value) / static_cast<double>(row.endNode.value - row.firstNode.value);
  return place - 1 + std::clamp(fraction, 0.2, 0.8);
}

bool VisibleRows::isBetweenRows(NodeId node) const { return std::binary_search(firsts_.begin(), firsts_.end(), node); }

int VisibleRows::showing(NodeId node) const {
  const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), node);
  return after == firsts_.begin() ? -1 : rows_[static_cast<std::size_t>(after - firsts_.begin()) - 1];
}

NodeId VisibleRows::nearest(double y) const {
  if (rows_.empty()) return NodeId(0);
  const double place = std::clamp(std::floor(y + 0.5), 0.0, static_cast<double>(rows_.size()));
  const auto index = static_cast<std::size_t>(place);
  return index < rows_.size() ? firsts_[index] : NodeId(tree_->rowOfNode.size());
}

int VisibleRows::closedUnder(double y) const {
  if (y < 0 || y >= count()) return -1;
  const auto index = static_cast<std::size_t>(y);
  const double within = y - std::floor(y);
  return closed_[index] && within >= 0.25 && within < 0.75 ? rows_[index] : -1;
}

std::vector<int> arcLanes(const std::vector<std::pair<double, double>>& spans, int lanes) {
  std::vector<std::size_t> order(spans.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return spans[a].second - spans[a].first < spans[b].second - spans[b].first; });
  std::vector<int> laneOf(spans.size(), 0);
  std::vector<std::map<double, double>> taken(static_cast<std::size_t>(lanes));  // of a lane but the last: disjoint, start and end
  for (const std::size_t s : order) {
    const auto [from, to] = spans[s];
    int lane = 0;
    const auto overlaps = [&, from = from, to = to](const std::map<double, double>& others) {
      const auto after = others.lower_bound(to);
      return after != others.begin() && std::prev(after)->second > from;
    };
    while (lane + 1 < lanes && overlaps(taken[static_cast<std::size_t>(lane)])) ++lane;
    double& end = taken[static_cast<std::size_t>(lane)].emplace(from, to).first->second;
    end = std::max(end, to);
    laneOf[s] = lane;
  }
  return laneOf;
}

Stage stageOf(const std::vector<NodeId>& begins, NodeId node) {
  return Stage(static_cast<std::int32_t>(std::upper_bound(begins.begin(), begins.end(), node) - begins.begin()));
}

}  // namespace pw::gui
