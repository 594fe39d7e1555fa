#pragma once

#include <QStyledItemDelegate>

class QTableView;

namespace pw::gui {

class CandidatesFilter;

/// Draws the rows of candidates: a mark for the Pareto front, a bar for peak memory with the limit, the hovered row (of the table or the
/// plot).
class CandidatesDelegate : public QStyledItemDelegate {
  Q_OBJECT
 public:
  using QStyledItemDelegate::QStyledItemDelegate;

  /// `row`: in the view's model; −1: none.
  void setHoveredRow(int row) { hovered_ = row; }
  void setLimitShare(double share) { limit_ = share; }  ///< the memory limit as a share of the longest bar; 0: none
  void paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const override;
  [[nodiscard]] QSize sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const override;

 private:
  int hovered_ = -1;
  double limit_ = 0;
};

/// A table of whole rows, fastest first.
[[nodiscard]] QTableView* makeCandidatesTable(CandidatesFilter& model, CandidatesDelegate& delegate);

}  // namespace pw::gui
