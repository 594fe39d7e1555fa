#include "app/gui/window/keys_dialog.h"

#include <QHeaderView>
#include <QList>
#include <QPushButton>
#include <QScrollBar>
#include <QTableWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

namespace pw::gui {
namespace {

/// Keys, or what is done with the mouse, and what they do.
QList<std::pair<QString, QString>> keys() {
  return {{KeysDialog::tr("W, S or Ctrl+wheel"), KeysDialog::tr("zoom in, out at the cursor")},
          {KeysDialog::tr("A, D, Shift+wheel or drag"), KeysDialog::tr("move earlier, later")},
          {KeysDialog::tr("Ctrl+Shift+wheel, Ctrl+Up, Ctrl+Down"), KeysDialog::tr("taller, lower rows")},
          {KeysDialog::tr("H, Shift+H"), KeysDialog::tr("all ranks in the window's height, normal height")},
          {KeysDialog::tr("F"), KeysDialog::tr("fit the selection")},
          {KeysDialog::tr("Shift+F, Home"), KeysDialog::tr("fit all")},
          {KeysDialog::tr("double click"), KeysDialog::tr("zoom to a block")},
          {KeysDialog::tr("click"), KeysDialog::tr("select and show details; on a bubble: the chain of causes")},
          {KeysDialog::tr(". and ,"), KeysDialog::tr("next and previous on the track")},
          {KeysDialog::tr("] and ["), KeysDialog::tr("follow dependencies forward and backward")},
          {KeysDialog::tr("drag on the ruler"), KeysDialog::tr("select a range and see its totals")},
          {KeysDialog::tr("Ctrl+F or /"), KeysDialog::tr("find: 2F5, B, rank 3, stage 1, bubble; Enter for the next")},
          {KeysDialog::tr("P, C, Alt+Up, Alt+Down"), KeysDialog::tr("pin, collapse, move the rank")},
          {KeysDialog::tr("Shift+C, Shift+E"), KeysDialog::tr("collapse all, expand all ranks")},
          {KeysDialog::tr("G"), KeysDialog::tr("collapse or expand a node or replica")},
          {KeysDialog::tr("Shift+D, Shift+U"), KeysDialog::tr("ranks whose busy time differs most; unpin all")},
          {KeysDialog::tr("Shift+V"), KeysDialog::tr("overview: click or drag in it to go there; arrow keys move what it shows")},
          {KeysDialog::tr("Alt+Left, Alt+Right"), KeysDialog::tr("previous and next view")},
          {KeysDialog::tr("Ctrl+click, Shift+click"),
           KeysDialog::tr("choose several blocks, all up to a block; Statistics has them by kind and stage")},
          {KeysDialog::tr("Shift+M"), KeysDialog::tr("arrows of the messages of the selected block")},
          {KeysDialog::tr("N, Ctrl+F2"),
           KeysDialog::tr("write a note, set or delete a bookmark at the selection or the mouse; Delete deletes it")},
          {KeysDialog::tr("F2, Shift+F2"), KeysDialog::tr("next and previous note")},
          {KeysDialog::tr("Ctrl+Shift+L"), KeysDialog::tr("copy a command line that opens this view")},
          {KeysDialog::tr("E"), KeysDialog::tr("edit the schedule by hand: drag blocks; Shift and arrows move, Shift+S splits B")},
          {KeysDialog::tr("Esc"), KeysDialog::tr("clear the selection, leave a drag")},
          {KeysDialog::tr("arrow keys on a split handle"), KeysDialog::tr("move the split; S splits here, Del removes")},
          {KeysDialog::tr("Ctrl+Z, Ctrl+Shift+Z"), KeysDialog::tr("undo and redo; a whole drag is one step")},
          {KeysDialog::tr("Ctrl+R, Ctrl+E"), KeysDialog::tr("run the plan, search for plans")},
          {KeysDialog::tr("Ctrl+Shift+R"), KeysDialog::tr("re-plan from the trace, job or run that is open")},
          {KeysDialog::tr("Ctrl+P, Ctrl+D"), KeysDialog::tr("critical path, differences")},
          {KeysDialog::tr("Ctrl+Shift+E"), KeysDialog::tr("a figure for a paper")},
          {KeysDialog::tr("Ctrl+K"), KeysDialog::tr("command palette")},
          {KeysDialog::tr("?"), KeysDialog::tr("these keys")}};
}

QTableWidget* tableOf(const QList<std::pair<QString, QString>>& keys) {
  auto* table = new QTableWidget(static_cast<int>(keys.size()), 2);
  table->setAccessibleName(KeysDialog::tr("Keyboard shortcuts"));
  table->horizontalHeader()->hide();
  table->verticalHeader()->hide();
  table->setShowGrid(false);
  table->setEditTriggers(QAbstractItemView::NoEditTriggers);
  table->setSelectionBehavior(QAbstractItemView::SelectRows);
  for (int i = 0; i < table->rowCount(); ++i) {
    auto* key = new QTableWidgetItem(keys[i].first);
    QFont bold = key->font();
    bold.setBold(true);
    key->setFont(bold);
    table->setItem(i, 0, key);
    table->setItem(i, 1, new QTableWidgetItem(keys[i].second));
  }
  table->resizeColumnsToContents();
  return table;
}

/// As wide as its texts if there is so much room, else in several lines.
int fitColumns(QTableWidget& table, int room) {
  const int wanted = table.columnWidth(0) + table.columnWidth(1) + table.verticalScrollBar()->sizeHint().width() + 2 * table.frameWidth();
  table.horizontalHeader()->setSectionResizeMode(1, QHeaderView::Stretch);
  table.verticalHeader()->setSectionResizeMode(QHeaderView::ResizeToContents);
  return std::min(wanted, room);
}

}  // namespace

KeysDialog::KeysDialog(QWidget* parent) : QDialog(parent) {
  setWindowTitle(tr("Keys"));
  setAccessibleName(tr("Keys"));
  auto* column = new QVBoxLayout(this);
  QTableWidget* const table = tableOf(keys());
  column->addWidget(table);
  auto* close = new QPushButton(tr("&Close"));
  connect(close, &QAbstractButton::clicked, this, &QDialog::accept);
  column->addWidget(close, 0, Qt::AlignRight);
  const QSize room = (parent != nullptr ? parent->size() : QSize(1400, 900)) - QSize(60, 60);
  const int height = std::min(room.height(), (table->rowCount() + 4) * table->rowHeight(0));
  const QMargins margins = column->contentsMargins();
  resize(fitColumns(*table, room.width() - margins.left() - margins.right()) + margins.left() + margins.right(), height);
}

}  // namespace pw::gui
