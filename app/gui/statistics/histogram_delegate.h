#pragma once

#include <QStyledItemDelegate>

namespace pw::gui {

/// Draws a histogram instead of a text: a column for each number in a list.
class HistogramDelegate : public QStyledItemDelegate {
  Q_OBJECT
 public:
  static constexpr int kBinsRole = Qt::UserRole + 1;    ///< QVariantList of counts
  static constexpr int kColourRole = Qt::UserRole + 2;  ///< QColor of the columns
  using QStyledItemDelegate::QStyledItemDelegate;

  void paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const override;
  [[nodiscard]] QSize sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const override;
};

}  // namespace pw::gui
