#include <QApplication>
#include <QPainter>
#include <algorithm>

#include "app/gui/common/theme.h"
#include "app/gui/model/parts/finding_mark.h"
#include "app/gui/model/row_delegate.h"
#include "app/gui/model/tree_view.h"

namespace pw::gui {
namespace {

constexpr int kPadding = 4, kSwatch = 6, kRowPadding = 3;

QColor withAlpha(QColor colour, int alpha) {
  colour.setAlpha(alpha);
  return colour;
}

bool isSelected(const QStyleOptionViewItem& option) { return option.state.testFlag(QStyle::State_Selected); }

QColor textColour(const QStyleOptionViewItem& option, bool faint) {
  if (isSelected(option)) return option.palette.color(QPalette::Active, QPalette::HighlightedText);
  return faint ? currentTheme().faintText : currentTheme().text;
}

/// The stages a row is in, each as high as its share of the row's operators.
void paintSwatch(QPainter& painter, const QRectF& where, const CallRow& row, const std::vector<NodeId>& begins, const Theme& theme) {
  const double nodes = std::max(1, row.endNode.value - row.firstNode.value);
  NodeId from = row.firstNode;
  for (std::size_t s = stageOf(begins, from).index(); from < row.endNode; ++s) {
    const NodeId to = s < begins.size() ? std::min(begins[s], row.endNode) : row.endNode;
    const double top = where.top() + where.height() * (from.value - row.firstNode.value) / nodes;
    const double bottom = where.top() + where.height() * (to.value - row.firstNode.value) / nodes;
    painter.fillRect(QRectF(where.left(), top, where.width(), bottom - top), stageColour(Stage(s), theme));
    from = to;
  }
}

}  // namespace

QSize RowDelegate::sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const {
  return {QStyledItemDelegate::sizeHint(option, index).width(), option.fontMetrics.height() + 2 * kRowPadding};
}

void RowDelegate::paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const {
  QStyleOptionViewItem cell = option;
  cell.state &= ~QStyle::State_HasFocus;  // the whole row shows where the cursor is
  QApplication::style()->drawPrimitive(QStyle::PE_PanelItemViewItem, &cell, painter, cell.widget);
  painter->save();
  painter->setClipRect(option.rect);
  index.column() == TreeModel::Name ? paintName(*painter, option, model_.rowOf(index)) : paintNumber(*painter, option, index);
  painter->restore();
}

/// Of the row's own findings, and where it is collapsed of those inside it.
std::optional<FindingEffect> RowDelegate::markOf(const QStyleOptionViewItem& option, int row) const {
  const auto* view = qobject_cast<const QTreeView*>(option.widget);
  const bool isOpen = view != nullptr && view->isExpanded(model_.indexOf(row));
  const RowFindings& findings = model_.findings();
  return gui::markOf(isOpen ? findings.of(row) : findings.inside(model_.tree(), row));
}

void RowDelegate::paintName(QPainter& painter, const QStyleOptionViewItem& option, int row) const {
  const Theme& theme = currentTheme();
  const CallRow& r = model_.tree().row(row);
  QRectF rect = option.rect;
  paintSwatch(painter, {rect.left(), rect.top() + 1, kSwatch, rect.height() - 2}, r, model_.begins(), theme);
  rect.setLeft(rect.left() + kSwatch + kPadding);
  rect.setRight(rect.right() - kPadding);
  if (const auto effect = markOf(option, row)) {
    const double side = rect.height() - 2 * kRowPadding;
    paintFindingMark(painter, {rect.right() - side, rect.top() + kRowPadding, side, side}, *effect);
    rect.setRight(rect.right() - side - kPadding);
  }
  QFont font = option.font;
  font.setItalic(!r.isModule);
  const QFontMetricsF metrics(font);
  const QString name = metrics.elidedText(QString::fromStdString(r.label), Qt::ElideMiddle, rect.width());
  const double width = metrics.horizontalAdvance(name);
  if (found_.contains(row))
    painter.fillRect(QRectF(rect.left() - 1, rect.top() + 2, width + 2, rect.height() - 4), withAlpha(theme.focus, 90));
  painter.setFont(font);
  painter.setPen(textColour(option, !r.isModule));
  painter.drawText(rect, Qt::AlignLeft | Qt::AlignVCenter | Qt::TextSingleLine, name);
  QString note = QString::fromStdString(r.className.substr(r.className.rfind('.') + 1));
  if (r.call > 0) note += tr(" call %1").arg(r.call + 1);
  rect.setLeft(rect.left() + width + 2 * kPadding);
  if (note.isEmpty() || rect.width() < metrics.averageCharWidth() * 4) return;
  painter.setPen(textColour(option, true));
  painter.drawText(rect, Qt::AlignLeft | Qt::AlignVCenter | Qt::TextSingleLine, metrics.elidedText(note, Qt::ElideRight, rect.width()));
}

void RowDelegate::paintNumber(QPainter& painter, const QStyleOptionViewItem& option, const QModelIndex& index) const {
  const Theme& theme = currentTheme();
  const QRectF rect = QRectF(option.rect).adjusted(kPadding, 0, -kPadding, 0);
  const double fraction = std::min(1.0, index.data(TreeModel::FractionRole).toDouble());
  if (fraction > 0) {
    const bool neutral = index.column() == TreeModel::Parameters || index.column() == TreeModel::Activations;
    QColor colour = theme.faintText;
    if (!neutral) colour = kindColour(index.column() == TreeModel::Forward ? SpanKind::Forward : SpanKind::Backward, theme);
    if (isSelected(option)) colour = textColour(option, false);
    const QRectF bar(rect.left(), rect.top() + kRowPadding - 1, std::max(1.0, rect.width() * fraction),
                     rect.height() - 2 * (kRowPadding - 1));
    painter.fillRect(bar, withAlpha(colour, theme.dark ? 110 : neutral ? 60 : 85));
    painter.fillRect(QRectF(bar.left(), bar.bottom() - 2, bar.width(), 2), withAlpha(colour, neutral ? 170 : 255));
  }
  const bool isAround = fraction < 0;
  QFont font = option.font;
  font.setBold(isAround);
  painter.setFont(font);
  const QString text = index.data().toString();
  painter.setPen(textColour(option, text.size() == 1 && !text.front().isDigit()));
  painter.drawText(rect, Qt::AlignRight | Qt::AlignVCenter | Qt::TextSingleLine, text);
}

}  // namespace pw::gui
