#include "app/gui/notes/panel.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QKeyEvent>
#include <QLabel>
#include <QPushButton>
#include <QShortcut>
#include <QSignalBlocker>
#include <QStyledItemDelegate>
#include <QTreeWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <tuple>
#include <vector>

#include "app/gui/common/body.h"
#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"
#include "app/gui/timeline/facts/details.h"
#include "app/gui/timeline/facts/explanations.h"
#include "app/gui/timeline/widget.h"

namespace pw::gui {
namespace {

enum Column : int { Time, Where, Text };
constexpr int kNoteRole = Qt::UserRole;  ///< number of the note

/// Only the text can be written.
class TextDelegate : public QStyledItemDelegate {
 public:
  using QStyledItemDelegate::QStyledItemDelegate;
  QWidget* createEditor(QWidget* parent, const QStyleOptionViewItem& option, const QModelIndex& index) const override {
    QWidget* editor = index.column() == Text ? QStyledItemDelegate::createEditor(parent, option, index) : nullptr;
    isWriting_ = editor != nullptr;
    return editor;
  }
  void destroyEditor(QWidget* editor, const QModelIndex& index) const override {
    isWriting_ = false;
    QStyledItemDelegate::destroyEditor(editor, index);
  }
  [[nodiscard]] bool isWriting() const { return isWriting_; }

 private:
  mutable bool isWriting_ = false;
};

}  // namespace

struct NotesPanel::Private {
  Private(NotesPanel& panel, Document& owner, TimelineWidget& of) : w(panel), document(owner), timeline(of) { build(); }
  void build();
  void show();
  [[nodiscard]] std::size_t chosen() const;
  void write();
  void enable();
  [[nodiscard]] bool hasNewest() const;

  NotesPanel& w;
  Document& document;
  TimelineWidget& timeline;
  QTreeWidget* list = nullptr;
  TextDelegate* delegate = nullptr;
  std::vector<Note> listed;
  QLabel* empty = nullptr;
  QPushButton *edit = nullptr, *remove = nullptr;
};

void NotesPanel::Private::build() {
  empty =
      new QLabel(tr("No notes yet. Press N on the timeline to write one at the selected block or at the mouse, Ctrl+F2 for a bookmark. "
                    "They are saved with the project."));
  empty->setWordWrap(true);
  list = new QTreeWidget;
  list->setHeaderLabels({tr("Time"), tr("Place"), tr("Note")});
  list->setRootIsDecorated(false);
  list->setUniformRowHeights(true);
  list->setAlternatingRowColors(true);
  list->setAllColumnsShowFocus(true);
  list->setAccessibleName(tr("Notes and bookmarks"));
  list->setEditTriggers(QAbstractItemView::NoEditTriggers);
  delegate = new TextDelegate(list);
  list->setItemDelegate(delegate);
  list->header()->setSectionsMovable(false);
  auto* add = new QPushButton(tr("Add at selectio&n"));
  add->setToolTip(tr("Write a note at the selected block, or in the middle of what the timeline shows (N there)"));
  edit = new QPushButton(tr("Ed&it"));
  edit->setToolTip(tr("Write the chosen note (F2)"));
  remove = new QPushButton(tr("De&lete"));
  remove->setToolTip(tr("Delete the chosen note (Delete)"));
  auto* line = new QHBoxLayout;
  line->addWidget(empty, 1);
  line->addStretch();
  for (QPushButton* button : {add, edit, remove}) line->addWidget(button);
  auto* column = new QVBoxLayout(&w);
  column->setContentsMargins(6, 4, 6, 6);
  column->addLayout(line);
  column->addWidget(list, 1);
  takeHeightLeft(*list, 3);
  connect(add, &QPushButton::clicked, &w, [this] { timeline.writeNote(); });
  connect(edit, &QPushButton::clicked, &w, [this] { write(); });
  connect(remove, &QPushButton::clicked, &w, [this] { removeNote(document, chosen()); });
  const auto key = [&](int code, const std::function<void()>& act) {
    auto* shortcut = new QShortcut(QKeySequence(code), list);
    shortcut->setContext(Qt::WidgetShortcut);
    connect(shortcut, &QShortcut::activated, &w, act);
  };
  key(Qt::Key_F2, [this] { write(); });
  key(Qt::Key_Delete, [this] { removeNote(document, chosen()); });
  connect(list, &QTreeWidget::currentItemChanged, &w, [this] { enable(); });
  // Later: it is not gone yet.
  connect(
      delegate, &QAbstractItemDelegate::closeEditor, &w, [this] { show(); }, Qt::QueuedConnection);
  connect(list, &QTreeWidget::itemClicked, &w, [this] { timeline.goToNote(chosen()); });
  connect(list, &QTreeWidget::itemActivated, &w, [this] { timeline.goToNote(chosen()); });
  connect(list, &QTreeWidget::itemChanged, &w, [this](const QTreeWidgetItem* item, int changed) {
    if (changed == Text) changeNote(document, static_cast<std::size_t>(item->data(Time, kNoteRole).toInt()), item->text(Text));
  });
  connect(&document, &Document::designChanged, &w, [this] { show(); });
  connect(&document, &Document::predictionChanged, &w, [this] { show(); });
  connect(&document, &Document::measuredChanged, &w, [this] { show(); });
  show();
}

std::size_t NotesPanel::Private::chosen() const {
  const QTreeWidgetItem* item = list->currentItem();
  return item == nullptr ? kMostNotes : static_cast<std::size_t>(item->data(Time, kNoteRole).toInt());
}

void NotesPanel::Private::write() {
  if (QTreeWidgetItem* item = list->currentItem()) list->editItem(item, Text);
}

void NotesPanel::Private::enable() {
  for (QPushButton* button : {edit, remove}) button->setEnabled(list->currentItem() != nullptr);
}

/// Whether the last note was added to those that are listed.
bool NotesPanel::Private::hasNewest() const {
  const std::vector<Note>& notes = document.design().notes;
  return notes.size() == listed.size() + 1 && std::equal(listed.begin(), listed.end(), notes.begin());
}

/// Other times alone wait until the note that is being written is done.
void NotesPanel::Private::show() {
  const std::vector<Note>& notes = document.design().notes;
  if (!w.isVisible() || (delegate->isWriting() && notes == listed)) return;
  const std::vector<NoteFlag>& flags = timeline.scene().notes;
  empty->setVisible(notes.empty());
  const QSignalBlocker quiet(list);
  const std::size_t current = hasNewest() ? listed.size() : chosen();
  listed = notes;
  list->clear();
  std::vector<std::tuple<Ns, std::size_t>> order;
  for (std::size_t i = 0; i < notes.size(); ++i) {
    const auto flag = std::ranges::find(flags, i, &NoteFlag::note);
    order.emplace_back(flag == flags.end() ? notes[i].time : flag->time, i);
  }
  std::ranges::sort(order);
  const auto measured = document.measured();
  for (const auto& [time, i] : order) {
    const Note& note = notes[i];
    auto* item = new QTreeWidgetItem(list);
    item->setData(Time, kNoteRole, static_cast<int>(i));
    item->setText(Time, timeText(time, static_cast<double>(std::max<Ns>(1, time)) / 1000));
    QStringList where;
    if (note.block) {
      const QString at = note.place == Note::Place::Block          ? tr("%1, rank %2")
                         : note.place == Note::Place::BubbleBefore ? tr("bubble before %1, rank %2")
                                                                   : tr("bubble after %1, rank %2");
      where << at.arg(nameOf(note.block->tag)).arg(note.block->rank.value);
    }
    if (const QString subject = subjectOf(note); !subject.isEmpty())
      where << subject;
    else if (note.block && note.block->isMeasured)
      where << timeline.scene().measuredName;
    if (note.text.empty()) where << tr("bookmark");
    item->setText(Where, where.join(QStringLiteral(", ")));
    item->setText(Text, QString::fromStdString(note.text));
    item->setFlags(item->flags() | Qt::ItemIsEditable);
    if (!isAbout(note, measured.get())) {
      for (const int column : {Time, Where, Text}) {
        item->setForeground(column, currentTheme().faintText);
        item->setToolTip(column, tr("About %1, which is not shown; %2").arg(subjectOf(note), howToShow(note)));
      }
    }
    if (i == current) list->setCurrentItem(item);
  }
  enable();
  for (const int column : {Time, Where}) list->resizeColumnToContents(column);
}

NotesPanel::NotesPanel(Document& document, TimelineWidget& timeline, QWidget* parent)
    : QWidget(parent), d(std::make_unique<Private>(*this, document, timeline)) {
  setAccessibleName(tr("Notes"));
}
NotesPanel::~NotesPanel() = default;

void NotesPanel::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  d->show();
}

}  // namespace pw::gui
