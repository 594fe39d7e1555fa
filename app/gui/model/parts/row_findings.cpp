#include "app/gui/model/parts/row_findings.h"

#include <algorithm>

namespace pw::gui {
namespace {

int rowOf(const CallTree& tree, const Finding& finding) {
  if (finding.node && finding.node->index() < tree.rowOfNode.size()) return tree.rowOfNode[finding.node->index()];
  const auto row = std::ranges::find_if(tree.rows, [&](const CallRow& r) { return r.isModule && r.call == 0 && r.path == finding.module; });
  return row == tree.rows.end() ? 0 : static_cast<int>(row - tree.rows.begin());
}

}  // namespace

RowFindings::RowFindings(const CallTree& tree, std::vector<Finding> findings) : findings_(std::move(findings)) {
  for (std::size_t f = 0; f < findings_.size(); ++f) {
    rows_.push_back(gui::rowOf(tree, findings_[f]));
    byRow_.emplace_back(rows_.back(), f);
  }
  std::ranges::sort(byRow_);
}

std::vector<const Finding*> RowFindings::between(int firstRow, int endRow) const {
  std::vector<std::size_t> places;
  for (auto at = std::ranges::lower_bound(byRow_, std::pair(firstRow, std::size_t{0})); at != byRow_.end() && at->first < endRow; ++at)
    places.push_back(at->second);
  std::ranges::sort(places);
  std::vector<const Finding*> found;
  for (const std::size_t place : places) found.push_back(&findings_[place]);
  return found;
}

std::vector<const Finding*> RowFindings::inside(const CallTree& tree, int row) const { return between(row, tree.row(row).end); }

std::vector<const Finding*> RowFindings::of(int row) const { return between(row, row + 1); }

std::optional<FindingEffect> markOf(const std::vector<const Finding*>& findings) {
  FindingEffect strongest = FindingEffect::Note;
  for (const Finding* finding : findings) strongest = std::min(strongest, factsOf(finding->kind).effect);
  return strongest == FindingEffect::Note ? std::nullopt : std::optional(strongest);
}

}  // namespace pw::gui
