#include "app/gui/model/tree_area.h"

#include <QAction>
#include <QEvent>
#include <QHeaderView>
#include <QMenu>
#include <QPainter>
#include <QScrollBar>
#include <QStyleOptionHeader>
#include <algorithm>

#include "app/gui/common/theme.h"
#include "app/gui/model/margin.h"
#include "app/gui/model/tree_view.h"

namespace pw::gui {

TreeArea::TreeArea(TreeView& view, QWidget* parent) : QWidget(parent), view_(view), margin_(new Margin(view, this)) {
  view_.setParent(this);
  view_.viewport()->installEventFilter(this);
  connect(&view_, &TreeView::rowsChanged, margin_, &Margin::place);
  connect(&view_, &TreeView::scrolled, margin_, &Margin::scroll);
  QHeaderView& header = *view_.header();
  for (int column = 0; column < TreeModel::ColumnCount; ++column) header.setSectionResizeMode(column, QHeaderView::Interactive);
  header.setContextMenuPolicy(Qt::CustomContextMenu);
  connect(&header, &QHeaderView::customContextMenuRequested, this, &TreeArea::showHeaderMenu);
  fitColumns();
}

void TreeArea::layOut() {
  const int width = margin_->sizeHint().width();
  view_.setGeometry(width, 0, std::max(0, this->width() - width), height());
  alignMargin();
}

void TreeArea::alignMargin() {
  const QPoint top = view_.viewport()->mapTo(this, QPoint(0, 0));
  margin_->setGeometry(0, top.y(), margin_->sizeHint().width(), view_.viewport()->height());
}

/// Numbers get what they need, the name the rest, but enough to be read.
void TreeArea::fitColumns() {
  const QFontMetrics metrics(view_.font());
  QHeaderView& header = *view_.header();
  int used = 0;
  for (int column = TreeModel::Forward; column < TreeModel::ColumnCount; ++column) {
    const int width =
        std::max(metrics.horizontalAdvance(QStringLiteral("00.0 MiB")), header.sectionSizeHint(column)) + metrics.averageCharWidth();
    header.resizeSection(column, width);
    if (!header.isSectionHidden(column)) used += width;
  }
  header.resizeSection(TreeModel::Name, std::max(metrics.averageCharWidth() * 25, view_.viewport()->width() - used));
}

void TreeArea::showHeaderMenu(const QPoint& position) {
  QMenu menu(this);
  for (int column = TreeModel::Forward; column < TreeModel::ColumnCount; ++column) {
    QAction* action = menu.addAction(view_.model()->headerData(column, Qt::Horizontal).toString());
    action->setCheckable(true);
    action->setChecked(!view_.isColumnHidden(column));
    connect(action, &QAction::toggled, this, [this, column](bool shown) {
      view_.setColumnHidden(column, !shown);
      fitColumns();
    });
  }
  menu.exec(view_.header()->mapToGlobal(position));
}

bool TreeArea::eventFilter(QObject* watched, QEvent* event) {
  if (event->type() == QEvent::Resize || event->type() == QEvent::Move) {
    alignMargin();
    if (event->type() == QEvent::Resize) fitColumns();
  }
  return QWidget::eventFilter(watched, event);
}

void TreeArea::resizeEvent(QResizeEvent*) { layOut(); }

void TreeArea::changeEvent(QEvent* event) {
  QWidget::changeEvent(event);
  if (event->type() != QEvent::FontChange && event->type() != QEvent::StyleChange) return;
  fitColumns();
  layOut();
}

void TreeArea::paintEvent(QPaintEvent*) {
  QPainter painter(this);
  painter.fillRect(rect(), currentTheme().background);
  QStyleOptionHeader option;
  option.initFrom(this);
  option.rect = QRect(0, 0, margin_->width(), margin_->y());
  option.text = tr("Stages");
  option.textAlignment = Qt::AlignLeft | Qt::AlignVCenter;
  option.orientation = Qt::Horizontal;
  option.position = QStyleOptionHeader::Beginning;
  option.state |= QStyle::State_Raised | QStyle::State_Horizontal;
  style()->drawControl(QStyle::CE_Header, &option, &painter, this);
}

}  // namespace pw::gui
