#include "app/gui/explain/row_tree.h"

#include <QHeaderView>
#include <QPainter>
#include <QStyledItemDelegate>
#include <algorithm>

#include "app/gui/common/theme.h"

namespace pw::gui {
namespace {

enum Role : int { ShareRole = Qt::UserRole, PlaceRole };

constexpr int kBarWidth = 120;  ///< at most
constexpr int kMargin = 6;

/// Rows with room between them, and the bars of the last column.
class BarDelegate : public QStyledItemDelegate {
 public:
  using QStyledItemDelegate::QStyledItemDelegate;
  [[nodiscard]] QSize sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const override {
    return QStyledItemDelegate::sizeHint(option, index) + QSize(2 * kMargin, 6);
  }
  void paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const override {
    QStyledItemDelegate::paint(painter, option, index);
    const double share = index.data(ShareRole).toDouble();
    if (share <= 0) return;
    const QRectF all = QRectF(option.rect).adjusted(kMargin, option.rect.height() / 4.0, -kMargin, -option.rect.height() / 4.0);
    const bool isChosen = (option.state & QStyle::State_Selected) != 0;
    painter->fillRect(QRectF(all.left(), all.top(), std::max(1.0, std::min<double>(all.width(), kBarWidth) * share), all.height()),
                      isChosen ? option.palette.color(QPalette::HighlightedText) : currentTheme().accent);
  }
};

QString capitalized(const std::string& text) {
  QString result = QString::fromStdString(text);
  if (!result.isEmpty()) result[0] = result[0].toUpper();
  return result;
}

}  // namespace

RowTree::RowTree(const QString& name, QWidget* parent) : QTreeWidget(parent) {
  setAccessibleName(name);
  setUniformRowHeights(true);
  setAlternatingRowColors(true);
  setSelectionBehavior(QAbstractItemView::SelectRows);
  setTabKeyNavigation(false);
  setFrameShape(QFrame::NoFrame);
  viewport()->setCursor(Qt::PointingHandCursor);
  setItemDelegate(new BarDelegate(this));
  connect(this, &QTreeWidget::itemClicked, this, [this](const QTreeWidgetItem* item) { choose(item); });
  connect(this, &QTreeWidget::itemActivated, this, [this](const QTreeWidgetItem* item) { choose(item); });
}

void RowTree::show(const std::vector<const ExplainedTable*>& tables) {
  clear();
  places_.clear();
  std::size_t cells = 1;
  for (const ExplainedTable* table : tables) cells = std::max(cells, table->columns.size());
  const int bar = static_cast<int>(cells);
  setColumnCount(bar + 1);
  QStringList titles;
  const bool isOne = tables.size() == 1;
  for (std::size_t i = 0; i < cells; ++i)
    titles << (!tables.empty() && i < tables.front()->columns.size() ? capitalized(tables.front()->columns[i].title) : QString());
  if (tables.empty() || !isOne || tables.front()->topic == ExplainTopic::Path) titles.front() = tr("What");
  setHeaderLabels(titles << QString());
  setRootIsDecorated(!isOne);
  double most = 0;  // of all tables, which are side by side and of one unit
  for (const ExplainedTable* table : tables) {
    for (const ExplainedRow& row : table->rows) most = std::max(most, row.share);
  }
  for (const ExplainedTable* table : tables) {
    QTreeWidgetItem* parent = invisibleRootItem();
    if (!isOne) {
      parent = new QTreeWidgetItem(this, {tr("By %1").arg(QString::fromStdString(table->columns.front().title))});
      parent->setFirstColumnSpanned(true);
      QFont bold = parent->font(0);
      bold.setBold(true);
      parent->setFont(0, bold);
    }
    addRows(*table, parent, bar, most);
    parent->setExpanded(true);
  }
  for (int column = 0; column < bar; ++column) resizeColumnToContents(column);
  if (topLevelItemCount() > 0) setCurrentItem(isOne ? topLevelItem(0) : topLevelItem(0)->child(0));
}

void RowTree::addRows(const ExplainedTable& table, QTreeWidgetItem* parent, int bar, double most) {
  for (const ExplainedRow& row : table.rows) {
    QStringList cells;
    for (const std::string& cell : row.cells) cells << QString::fromStdString(cell);
    auto* item = new QTreeWidgetItem(parent, cells);
    item->setData(0, PlaceRole, static_cast<int>(places_.size()));
    item->setData(0, Qt::AccessibleTextRole, cells.join(QStringLiteral(", ")));
    item->setData(bar, ShareRole, most > 0 ? row.share / most : 0.0);
    const QString tip = cells.join(QStringLiteral(", ")) + QLatin1Char('\n') + tr("Click to see where it is in the timeline");
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      if (table.columns[c].isNumber) item->setTextAlignment(static_cast<int>(c), Qt::AlignRight | Qt::AlignVCenter);
    }
    for (int column = 0; column <= bar; ++column) item->setToolTip(column, tip);
    places_.push_back(row.place);
  }
}

void RowTree::choose(const QTreeWidgetItem* item) {
  const QVariant place = item->data(0, PlaceRole);
  if (place.isValid()) emit chosen(places_[static_cast<std::size_t>(place.toInt())]);
}

}  // namespace pw::gui
