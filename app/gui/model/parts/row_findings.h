#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "app/gui/model/parts/call_tree.h"
#include "simulator/report/split_report.h"

namespace pw::gui {

/// A report's findings by the rows of the tree. A finding belongs to the innermost row of its node; without one, to its module's first
/// call; otherwise to the model.
class RowFindings {
 public:
  RowFindings() = default;
  RowFindings(const CallTree& tree, std::vector<Finding> findings);

  [[nodiscard]] const std::vector<Finding>& all() const { return findings_; }
  [[nodiscard]] int rowOf(std::size_t finding) const { return rows_[finding]; }
  /// Those of a row and of all rows inside it, in the report's order.
  [[nodiscard]] std::vector<const Finding*> inside(const CallTree& tree, int row) const;
  /// Those of the row alone.
  [[nodiscard]] std::vector<const Finding*> of(int row) const;

 private:
  [[nodiscard]] std::vector<const Finding*> between(int firstRow, int endRow) const;

  std::vector<Finding> findings_;
  std::vector<int> rows_;                           // by finding
  std::vector<std::pair<int, std::size_t>> byRow_;  // row and finding, ascending
};

/// The effect that a mark shows: the strongest; nothing where there is nothing but notes.
[[nodiscard]] std::optional<FindingEffect> markOf(const std::vector<const Finding*>& findings);

}  // namespace pw::gui
