#include "app/gui/statistics/histogram_delegate.h"

#include <QApplication>
#include <QPainter>
#include <algorithm>
#include <cmath>

#include "app/gui/common/theme.h"

namespace pw::gui {
namespace {

constexpr int kColumn = 5;  ///< pixels of a column with its gap

}  // namespace

void HistogramDelegate::paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const {
  QStyleOptionViewItem item = option;
  initStyleOption(&item, index);
  item.text.clear();
  const QStyle* style = item.widget != nullptr ? item.widget->style() : QApplication::style();
  style->drawControl(QStyle::CE_ItemViewItem, &item, painter, item.widget);
  const QVariantList bins = index.data(kBinsRole).toList();
  double most = 0;
  for (const QVariant& bin : bins) most = std::max(most, bin.toDouble());
  if (most <= 0) return;
  const bool isSelected = (item.state & QStyle::State_Selected) != 0;
  const QColor colour = isSelected ? item.palette.color(QPalette::HighlightedText) : index.data(kColourRole).value<QColor>();
  const QRect room = item.rect.adjusted(4, 3, -4, -3);
  const int column = std::clamp(room.width() / static_cast<int>(bins.size()), 2, kColumn);
  painter->save();
  painter->setPen(isSelected ? colour : currentTheme().grid);
  painter->drawLine(room.left(), room.bottom(), room.left() + column * static_cast<int>(bins.size()) - 1, room.bottom());
  for (qsizetype i = 0; i < bins.size(); ++i) {
    const double share = bins[i].toDouble() / most;
    if (share <= 0) continue;
    const int height = std::max(2, static_cast<int>(std::lround(share * (room.height() - 1))));  // few are seen, too
    painter->fillRect(QRect(room.left() + column * static_cast<int>(i), room.bottom() - height, column - 1, height), colour);
  }
  painter->restore();
}

QSize HistogramDelegate::sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const {
  const auto columns = static_cast<int>(index.data(kBinsRole).toList().size());
  return {columns * kColumn + 8, option.fontMetrics.height() + 10};
}

}  // namespace pw::gui
