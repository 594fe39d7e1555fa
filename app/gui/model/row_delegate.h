#pragma once

#include <QStyledItemDelegate>
#include <optional>
#include <set>

#include "app/gui/model/tree_model.h"

namespace pw::gui {

/// Paints a row's cells: the stage's colour, name, class and the mark of its findings; numbers over their bars.
class RowDelegate : public QStyledItemDelegate {
  Q_OBJECT
 public:
  explicit RowDelegate(const TreeModel& model, QObject* parent = nullptr) : QStyledItemDelegate(parent), model_(model) {}

  /// Rows to mark as found.
  void setFound(std::set<int> rows) { found_ = std::move(rows); }

  void paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const override;
  [[nodiscard]] QSize sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const override;

 private:
  [[nodiscard]] std::optional<FindingEffect> markOf(const QStyleOptionViewItem& option, int row) const;
  void paintName(QPainter& painter, const QStyleOptionViewItem& option, int row) const;
  void paintNumber(QPainter& painter, const QStyleOptionViewItem& option, const QModelIndex& index) const;
  const TreeModel& model_;
  std::set<int> found_;
};

}  // namespace pw::gui
