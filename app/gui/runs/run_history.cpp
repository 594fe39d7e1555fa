#include "app/gui/runs/run_history.h"

#include <QAction>
#include <QFileInfo>
#include <QHeaderView>
#include <QItemSelectionModel>
#include <QLabel>
#include <QTreeView>
#include <algorithm>
#include <utility>

#include "app/gui/document/run_name.h"
#include "app/gui/runs/run_list.h"
#include "app/gui/runs/run_loading.h"

namespace pw::gui {

RunHistory::RunHistory(QWidget* parent)
    : QStackedWidget(parent), runs_(new RunList(this)), nothing_(new QLabel(this)), view_(new QTreeView(this)) {
  view_->setObjectName(QStringLiteral("history"));
  view_->setModel(runs_);
  view_->setRootIsDecorated(false);
  view_->setUniformRowHeights(true);
  view_->setAlternatingRowColors(true);
  view_->setAllColumnsShowFocus(true);
  view_->setSelectionMode(QAbstractItemView::ExtendedSelection);
  view_->setAccessibleName(tr("Runs, newest first"));
  view_->setAccessibleDescription(tr("Select one run to overlay it on the timeline, or two to compare them"));
  view_->header()->setSectionResizeMode(QHeaderView::ResizeToContents);
  view_->header()->setStretchLastSection(true);
  for (int fact = RunList::ColumnCount; fact < runs_->columnCount(); ++fact)  // how it was computed stands before what came out
    view_->header()->moveSection(view_->header()->visualIndex(fact), view_->header()->visualIndex(RunList::Predicted));
  view_->setContextMenuPolicy(Qt::ActionsContextMenu);
  const auto add = [this](const QString& text, auto signal) {
    auto* action = new QAction(text, view_);
    connect(action, &QAction::triggered, this, signal);
    view_->addAction(action);
  };
  add(tr("Load its plan"), &RunHistory::planRequested);
  add(tr("Show nothing"), &RunHistory::nothingRequested);
  add(tr("Look for new runs"), &RunHistory::refreshRequested);
  nothing_->setAlignment(Qt::AlignCenter);
  nothing_->setWordWrap(true);
  nothing_->setMargin(16);
  nothing_->setForegroundRole(QPalette::PlaceholderText);
  addWidget(nothing_);
  addWidget(view_);
  connect(view_->selectionModel(), &QItemSelectionModel::selectionChanged, this, [this] {
    if (!isSilent_) emit selectionChanged();
  });
  connect(&listing_, &Job::failed, this, [this](const QString& sentence) {
    runs_->setRuns({});
    nothing_->setText(sentence);
    setCurrentWidget(nothing_);
    emit failed(sentence);
    emit listed();
  });
}

RunHistory::~RunHistory() { disconnect(view_->selectionModel(), nullptr, this, nullptr); }

void RunHistory::list(const QString& store) {
  listing_.start(tr("List runs"), [this, store](JobControl&) -> std::function<void()> {
    auto found = std::make_shared<RunsOfStore>(listRuns(store.toStdString()));
    return [this, found, store] {
      if (!found->note.empty()) emit noted(QString::fromStdString(found->note));
      show(std::move(found->runs), store);
    };
  });
}

void RunHistory::show(std::vector<RunSummary> runs, const QString& store) {
  const std::vector<RunId> ids = selected();
  isSilent_ = true;
  runs_->setRuns(std::move(runs));
  select(ids);
  isSilent_ = false;
  const QString file = QFileInfo(store).fileName();
  nothing_->setText(store.isEmpty()
                        ? tr("No runs yet.\nRun executes the plan on this machine and compares it with its prediction.")
                        : tr("No runs yet in %1.\nRun executes the plan on this machine and compares it with its prediction.").arg(file));
  setCurrentIndex(runs_->rowCount() > 0 ? 1 : 0);
  if (const auto wanted = std::exchange(wanted_, {}); !wanted.empty()) {
    if (const QString why = whyNotThere(wanted.front(), std::exchange(wantedStart_, {}), file); !why.isEmpty())
      emit failed(why);
    else
      select(wanted);
  }
  emit listed();
}

/// Empty where it is.
QString RunHistory::whyNotThere(RunId id, const std::string& startedAt, const QString& file) const {
  const int row = runs_->rowOf(id);
  if (row < 0) return tr("There is no run %1 in %2; choose one from the list.").arg(id.value).arg(file);
  const RunSummary& found = runs_->at(row);
  if (isRun({id, startedAt}, found.id, found.startedAt)) return {};
  return tr("Run %1 in %2 is another one, started %3; the one that was shown was started %4: choose one from the list.")
      .arg(id.value)
      .arg(file, whenOf(found.startedAt), whenOf(startedAt));
}

void RunHistory::choose(const std::vector<RunId>& ids, const std::string& startedAt) {
  wanted_ = ids;
  wantedStart_ = startedAt;
}

std::vector<RunId> RunHistory::selected() const {
  std::vector<RunId> ids;
  for (const QModelIndex& index : view_->selectionModel()->selectedRows()) ids.push_back(runs_->at(index.row()).id);
  std::ranges::sort(ids);
  return ids;
}

void RunHistory::select(const std::vector<RunId>& ids) {
  QItemSelection selection;
  for (const RunId id : ids) {
    const int row = runs_->rowOf(id);
    if (row >= 0) selection.select(runs_->index(row, 0), runs_->index(row, runs_->columnCount() - 1));
  }
  if (!selection.isEmpty())
    view_->selectionModel()->setCurrentIndex(selection.indexes().back().siblingAtColumn(RunList::Id), QItemSelectionModel::NoUpdate);
  view_->selectionModel()->select(selection, QItemSelectionModel::ClearAndSelect);
  if (!selection.isEmpty()) view_->scrollTo(view_->currentIndex());
}

void RunHistory::selectNone() {
  isSilent_ = true;
  view_->clearSelection();
  isSilent_ = false;
}

const std::vector<RunSummary>& RunHistory::runs() const { return runs_->runs(); }

}  // namespace pw::gui
