#include "app/gui/candidates/delegate.h"

#include <QHeaderView>
#include <QPainter>
#include <QPolygonF>
#include <QTableView>
#include <algorithm>

#include "app/gui/candidates/model.h"
#include "app/gui/common/theme.h"

namespace pw::gui {
namespace {

constexpr int kPadding = 4;  ///< so that numbers do not touch the words of the next column

int markWidth(const QStyleOptionViewItem& option) { return option.fontMetrics.height(); }

int barWidth(const QStyleOptionViewItem& option) { return option.fontMetrics.averageCharWidth() * 10; }

}  // namespace

void CandidatesDelegate::paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const {
  const Theme& t = currentTheme();
  const bool chosen = option.state.testFlag(QStyle::State_Selected);
  QStyleOptionViewItem text = option;
  text.state.setFlag(QStyle::State_HasFocus, false);  // the whole row is selected, not a cell
  text.rect.adjust(kPadding, 0, -kPadding, 0);
  painter->save();
  if (index.row() == hovered_ && !chosen) painter->fillRect(option.rect, faded(t.accent, 0.16));
  if (chosen)
    painter->fillRect(option.rect, option.palette.brush(option.state.testFlag(QStyle::State_Active) ? QPalette::Active : QPalette::Inactive,
                                                        QPalette::Highlight));
  if (index.column() == CandidatesModel::Schedule) {
    text.rect.setLeft(option.rect.left() + markWidth(option));
    QStyledItemDelegate::paint(painter, text, index);
    if (index.data(CandidatesModel::FrontRole).toBool()) {
      painter->setRenderHint(QPainter::Antialiasing);
      const QPointF at = QPointF(option.rect.left() + markWidth(option) * 0.6, option.rect.center().y() + 0.5);
      const double r = option.fontMetrics.height() * 0.3;
      painter->setPen(Qt::NoPen);
      painter->setBrush(chosen ? option.palette.color(QPalette::HighlightedText) : t.accent);
      painter->drawPolygon(QPolygonF({at + QPointF(0, -r), at + QPointF(r, 0), at + QPointF(0, r), at + QPointF(-r, 0)}));
    }
  } else {
    QStyledItemDelegate::paint(painter, text, index);
  }
  if (index.column() == CandidatesModel::Peak) {
    const double share = std::clamp(index.data(CandidatesModel::ShareRole).toDouble(), 0.0, 1.0);
    const QRectF all(option.rect.left() + 4, option.rect.top() + option.rect.height() * 0.28, barWidth(option),
                     option.rect.height() * 0.44);
    const bool over = limit_ > 0 && share > limit_;
    painter->fillRect(all, chosen ? faded(option.palette.color(QPalette::HighlightedText), 0.25) : t.bubble);
    painter->fillRect(QRectF(all.topLeft(), QSizeF(all.width() * share, all.height())),
                      chosen ? option.palette.color(QPalette::HighlightedText)
                      : over ? faded(t.error, 0.75)
                             : t.accent);
    if (limit_ > 0 && limit_ <= 1) {
      const double x = all.left() + all.width() * limit_;
      painter->setPen(QPen(chosen ? option.palette.color(QPalette::HighlightedText) : t.error, 1.5));
      painter->drawLine(QPointF(x, all.top() - 2), QPointF(x, all.bottom() + 2));
    }
  }
  painter->restore();
}

QSize CandidatesDelegate::sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const {
  QSize size = QStyledItemDelegate::sizeHint(option, index);
  if (index.column() == CandidatesModel::Schedule) size.rwidth() += markWidth(option);
  if (index.column() == CandidatesModel::Peak) size.rwidth() += barWidth(option) + 12;
  return size + QSize(2 * kPadding, 2);
}

QTableView* makeCandidatesTable(CandidatesFilter& model, CandidatesDelegate& delegate) {
  auto* table = new QTableView;
  table->setAccessibleName(CandidatesModel::tr("Candidates"));
  table->setModel(&model);
  table->setItemDelegate(&delegate);
  table->setSelectionBehavior(QAbstractItemView::SelectRows);
  table->setSelectionMode(QAbstractItemView::SingleSelection);
  table->setAlternatingRowColors(true);
  table->setShowGrid(false);
  table->setMouseTracking(true);
  table->setTabKeyNavigation(false);
  table->setWordWrap(false);
  table->setHorizontalScrollMode(QAbstractItemView::ScrollPerPixel);
  table->verticalHeader()->hide();
  table->verticalHeader()->setSectionResizeMode(QHeaderView::Fixed);
  table->verticalHeader()->setDefaultSectionSize(table->fontMetrics().height() + 8);
  table->horizontalHeader()->setHighlightSections(false);
  table->horizontalHeader()->setStretchLastSection(true);
  table->setSortingEnabled(true);
  table->sortByColumn(CandidatesModel::Samples, Qt::DescendingOrder);
  return table;
}

}  // namespace pw::gui
