#include "app/gui/window/main_window.h"

#include <QApplication>
#include <QCloseEvent>
#include <QDir>
#include <QDragEnterEvent>
#include <QFileInfo>
#include <QLabel>
#include <QMessageBox>
#include <QMimeData>
#include <QProgressBar>
#include <QScreen>
#include <QSettings>
#include <QStandardPaths>
#include <QStatusBar>
#include <QStyle>
#include <QUrl>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/document/loading.h"
#include "app/gui/document/project.h"
#include "app/gui/plan/results.h"
#include "app/gui/timeline/hand_edit.h"
#include "app/gui/window/autosave.h"
#include "app/gui/window/exporting.h"
#include "app/gui/window/field_keys.h"
#include "app/gui/window/field_wheel.h"
#include "app/gui/window/window_parts.h"
#include "backends/host/files.h"
#include "schedules/error.h"

namespace pw::gui {
namespace {

constexpr int kAutosaveMs = 3000;
constexpr QSize kLeast(680, 400);
constexpr int kMostStops = 1000;  ///< of the Tab key, in panels that are not in front

QString defaultStore() {
  const QDir folder(QStandardPaths::writableLocation(QStandardPaths::AppDataLocation));
  folder.mkpath(QStringLiteral("."));
  return folder.filePath(QStringLiteral("runs.db"));
}

}  // namespace

MainWindow::MainWindow(bool recovers, QWidget* parent) : QMainWindow(parent), d(std::make_unique<Private>(*this, recovers)) {
  setObjectName(QStringLiteral("main window"));
  setAcceptDrops(true);
  setDockNestingEnabled(true);
  setMinimumSize(kLeast);
  d->build();
  d->buildMenus();
  new FieldKeys(*this);
  new FieldWheel(*this);
  d->connectAll();
  d->document.setStorePath(defaultStore());
  d->restoreLayout();
  d->showTitle();
  if (recovers) QTimer::singleShot(0, this, [this] { d->recover(); });
}

MainWindow::~MainWindow() {
  d->loading.cancel();
  d->exporting.cancel();
  d->replaying.cancel();
  // The panels hold references to the document, which goes before a window's children would.
  delete takeCentralWidget();
  for (QDockWidget* dock : d->docks()) delete dock;
}

Document& MainWindow::document() { return d->document; }
TimelineWidget& MainWindow::timeline() { return *d->timeline; }
RunsPanel& MainWindow::runs() { return *d->runs; }
CandidatesPanel& MainWindow::candidates() { return *d->candidates; }
const std::vector<QAction*>& MainWindow::commands() const { return d->commands; }
bool MainWindow::isIdle() const {
  return !d->loading.isRunning() && !d->exporting.isRunning() && !d->replaying.isRunning() && !d->document.isPredicting() &&
         !d->document.isOrdering() && d->model->isIdle() && d->plan->isIdle() && d->analysis->isIdle() && d->explain->isIdle() &&
         d->statistics->isIdle();
}
QString MainWindow::message() const { return d->message->isVisibleTo(this) ? d->message->text() : QString(); }

void MainWindow::Private::build() {
  constexpr QSize kFrame(16, 48);  // of the window manager, which is not known before the window is shown
  window.resize(QSize(1400, 900).boundedTo(window.screen()->availableSize() - kFrame));
  start = new StartPage;
  timeline = new TimelineWidget(document);
  stack = new QStackedWidget;
  stack->addWidget(start);
  stack->addWidget(timeline);

  message = new MessageBar;

  auto* centre = new QWidget;
  auto* column = new QVBoxLayout(centre);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(0);
  column->addWidget(message);
  column->addWidget(stack, 1);
  window.setCentralWidget(centre);

  model = new ModelPanel(document);
  plan = new PlanPanel(document);
  candidates = new CandidatesPanel(document);
  runs = new RunsPanel(document);
  analysis = new AnalysisPanel(document);
  explain = new ExplainPanel(document);
  schedule = new CsvPanel(document);
  schedule->follow(*timeline);
  statistics = new StatisticsPanel(document, *timeline);
  notes = new NotesPanel(document, *timeline);
  modelDock = addDock(MainWindow::tr("Model"), QStringLiteral("model"), model, Qt::LeftDockWidgetArea);
  planDock = addDock(MainWindow::tr("Plan"), QStringLiteral("plan"), plan, Qt::RightDockWidgetArea);
  candidatesDock = addDock(MainWindow::tr("Candidates"), QStringLiteral("candidates"), candidates, Qt::BottomDockWidgetArea);
  runsDock = addDock(MainWindow::tr("Runs"), QStringLiteral("runs"), runs, Qt::BottomDockWidgetArea);
  analysisDock = addDock(MainWindow::tr("Analysis"), QStringLiteral("analysis"), analysis, Qt::BottomDockWidgetArea);
  explainDock = addDock(MainWindow::tr("Explain"), QStringLiteral("explain"), explain, Qt::BottomDockWidgetArea);
  scheduleDock = addDock(MainWindow::tr("Schedule"), QStringLiteral("schedule"), schedule, Qt::BottomDockWidgetArea);
  statisticsDock = addDock(MainWindow::tr("Statistics"), QStringLiteral("statistics"), statistics, Qt::BottomDockWidgetArea);
  notesDock = addDock(MainWindow::tr("Notes"), QStringLiteral("notes"), notes, Qt::BottomDockWidgetArea);
  window.setCorner(Qt::BottomLeftCorner, Qt::BottomDockWidgetArea);  // tables are wide, trees scroll
  window.setCorner(Qt::BottomRightCorner, Qt::RightDockWidgetArea);
  arrangeDocks();

  figures = new QLabel;
  figures->setAccessibleName(MainWindow::tr("Figures of the plan"));
  window.statusBar()->addPermanentWidget(figures);
  busyText = new QLabel;
  busyBar = new QProgressBar;
  busyBar->setMaximumWidth(220);
  busyBar->setAccessibleName(MainWindow::tr("Progress"));
  busyCancel = new QPushButton(MainWindow::tr("&Cancel"));
  for (QWidget* w : {static_cast<QWidget*>(busyText), static_cast<QWidget*>(busyBar), static_cast<QWidget*>(busyCancel)}) {
    w->setVisible(false);
    window.statusBar()->addPermanentWidget(w);
  }
  autosave.setSingleShot(true);
  autosave.setInterval(kAutosaveMs);
  showDocks(false);
}

void MainWindow::Private::connectAll() {
  QObject::connect(&document, &Document::predictionChanged, &window, [this] { explainHang(true); });
  QObject::connect(&document, &Document::measuredChanged, &window, [this] { restoreWithRun(); });  // the timeline shows it already
  QObject::connect(start, &StartPage::openRequested, &window, [this] { chooseAndOpen(); });
  QObject::connect(start, &StartPage::chosen, &window, [this](const QStringList& paths) { window.open(paths); });
  QObject::connect(plan, &PlanPanel::runRequested, &window, [this] {
    window.showPanel(Panel::Runs);
    runs->startRun();
  });
  QObject::connect(plan, &PlanPanel::profileRequested, &window, [this] {
    window.showPanel(Panel::Runs);
    runs->startProfile();
  });
  QObject::connect(timeline, &TimelineWidget::memoryClicked, &window, [this](Rank rank) {
    window.showPanel(Panel::Analysis);
    analysis->showMemory(rank);
  });
  QObject::connect(analysis, &AnalysisPanel::bubbleChosen, &window, [this](Rank rank, Ns time) {
    const auto prediction = document.prediction();
    if (!prediction) return;
    if (const auto bubble = bubbleUnder(prediction->timeline, Source::Predicted, rank, time)) timeline->selectBubble(*bubble);
  });
  connectExplaining();
  QObject::connect(candidates, &CandidatesPanel::resultsShown, &window, [this] { makeRoom(*candidatesDock); });
  QObject::connect(runs, &RunsPanel::compared, &window, [this] {
    const bool isCompared = document.measured() && !document.measured()->live;
    if (!std::exchange(wasCompared, isCompared) && isCompared) makeRoom(*runsDock);
  });
  QObject::connect(&document, &Document::predictionChanged, &window, [this] {
    figures->setText(figuresInBrief(document));
    figures->setEnabled(document.problem().isEmpty());
  });
  QObject::connect(timeline, &TimelineWidget::editRefused, &window, [this](const QString& sentence) {
    if (!timeline->hand().isOn()) window.showMessage(sentence);  // else the timeline's own bar says it
  });
  QObject::connect(runs, &RunsPanel::busyChanged, &window, [this](bool busy) {
    if (busy) message->hide();  // of an earlier run that failed
    plan->setBusy(busy);
  });
  QObject::connect(runs, &RunsPanel::failed, &window, &MainWindow::showMessage);
  QObject::connect(runs, &RunsPanel::openRequested, &window, [this](const QStringList& paths) { openPlanOfRun(paths); });
  QObject::connect(&document, &Document::designChanged, &window, [this] {
    showTitle();
    if (recovers) autosave.start();
  });
  QObject::connect(&document, &Document::undoChanged, &window, [this] {
    showTitle();
    if (recovers) autosave.start();  // what is pinned has changed, or all is saved
  });
  QObject::connect(&autosave, &QTimer::timeout, &window, [this] { keep(); });
  for (Job* job : {&loading, &exporting, &replaying}) {
    QObject::connect(job, &Job::started, &window, [this, job](const QString& title) { showBusy(title, job); });
    QObject::connect(job, &Job::progressed, &window, [this](qint64 done, qint64 all, const QString&) {
      busyBar->setRange(0, all > 0 ? 1000 : 0);
      if (all > 0) busyBar->setValue(static_cast<int>(1000.0 * static_cast<double>(done) / static_cast<double>(all)));
    });
    QObject::connect(job, &Job::failed, &window, &MainWindow::showMessage);
    QObject::connect(job, &Job::finished, &window, [this] { showBusy({}, nullptr); });
  }
  QObject::connect(busyCancel, &QAbstractButton::clicked, &window, [this] {
    loading.cancel();
    exporting.cancel();
    replaying.cancel();
  });
}

void MainWindow::Private::showBusy(const QString& title, Job* job) {
  busyText->setText(title);
  busyBar->setRange(0, 0);
  for (QWidget* w : {static_cast<QWidget*>(busyText), static_cast<QWidget*>(busyBar), static_cast<QWidget*>(busyCancel)})
    w->setVisible(job != nullptr);
}

void MainWindow::Private::showTitle() {
  const QString title = document.title();
  window.setWindowTitle(title.isEmpty() ? MainWindow::tr("Pipewright") : MainWindow::tr("%1[*] – Pipewright").arg(title));
  window.setWindowModified(document.isModified());
}

void MainWindow::showMessage(const QString& sentence) { d->message->show(sentence, QStyle::SP_MessageBoxWarning); }
void MainWindow::showNote(const QString& sentence) { d->message->show(sentence, QStyle::SP_MessageBoxInformation); }

void MainWindow::showPanel(Panel panel) {
  if (panel == Panel::Start) return d->stack->setCurrentWidget(d->start);
  for (QDockWidget* dock : d->docks()) {
    if (dock->objectName() != textOf(nameOf(panel))) continue;
    dock->show();
    dock->raise();
  }
}

// ---- Projects ----

Project MainWindow::Private::project() const {
  Project shown{document.design(), document.storePath(), timeline->saveView(), pins.plans()};
  nameTrace(shown, document.measured().get());
  return shown;
}

bool MainWindow::saveProject(const QString& path) {
  try {
    writeFile(path.toStdString(), toJson(d->project()));
  } catch (const Error& e) {
    showMessage(QString::fromUtf8(e.what()));
    return false;
  }
  d->document.setProjectPath(path);
  d->document.markSaved();
  QFile::remove(autosavePath());
  d->remember({path});
  QStringList lost;
  for (const PinnedPlan& plan : d->pins.plans()) {
    if (!isKept(plan)) lost << plan.name;
  }
  if (!lost.isEmpty())
    showNote(tr("Pinned plans with more than 100,000 actions, or in a job's own order, are not kept in a project: %1")
                 .arg(lost.join(QLatin1String(", "))));
  statusBar()->showMessage(tr("Saved %1").arg(QFileInfo(path).fileName()), 4000);
  return true;
}

/// Asks what to do with unsaved work; false: the user cancelled.
bool MainWindow::Private::maySave() {
  if (!document.isModified() || !recovers) return true;
  const QString title = document.title();
  QString sentence = MainWindow::tr("The plan of %1 has unsaved changes. Save it as a project?").arg(title);
  if (!hasPlan())
    sentence = title.isEmpty() ? MainWindow::tr("There are unsaved notes. Save them as a project?")
                               : MainWindow::tr("There are unsaved notes on %1. Save them as a project?").arg(title);
  const auto answer = QMessageBox::question(&window, hasPlan() ? MainWindow::tr("Unsaved plan") : MainWindow::tr("Unsaved notes"), sentence,
                                            QMessageBox::Save | QMessageBox::Discard | QMessageBox::Cancel, QMessageBox::Save);
  if (answer == QMessageBox::Cancel) return false;
  return answer == QMessageBox::Discard || save();
}

/// Autosaves unsaved work, so that it survives a crash. Returns whether it is as kept as it can be.
bool MainWindow::Private::keep() {
  if (!document.isModified()) {
    QFile::remove(autosavePath());
    return true;
  }
  Project kept = project();
  kept.unsaved = UnsavedProject{document.title(), document.projectPath()};
  try {
    writeFile(autosavePath().toStdString(), toJson(kept));
    return true;
  } catch (const Error&) {
    return false;  // unsaved work is lost only in a crash; saving reports what is wrong
  }
}

/// Asks about each plan that was left behind until one is restored; the next window asks about those after it.
void MainWindow::Private::recover() {
  for (const QString& path : leftBehind()) {
    const Recovery answer = askRecovery(path, window);
    if (answer == Recovery::Restore && QFile::exists(path)) return restore(path);  // unless another window was faster
    if (answer == Recovery::Discard) forget(path);
  }
}

void MainWindow::Private::restore(const QString& path) {
  loading.start(MainWindow::tr("Recovering"), [this, path](JobControl&) -> std::function<void()> {
    const auto loaded = loadFiles({path.toStdString()}, {});
    return [this, loaded, path] {
      if (loaded->project == path) loaded->project.clear();  // kept by a version that did not write whose it is
      take(*loaded, {});
      document.markUnsaved();
      if (keep()) forget(path);  // a crash right now loses nothing
    };
  });
}

void MainWindow::closeEvent(QCloseEvent* event) {
  // Before the document is saved: what is edited in a dialog may still become part of it.
  for (auto* dialog : findChildren<QDialog*>()) {
    if (dialog->isVisible() && !dialog->close()) return event->ignore();
  }
  if (!d->maySave()) return event->ignore();
  d->runs->cancel();
  d->saveLayout();
  d->autosave.stop();  // what is discarded is not kept
  if (d->recovers) QFile::remove(autosavePath());
  event->accept();
}

// ---- Drag and drop, theme ----

void MainWindow::dragEnterEvent(QDragEnterEvent* event) {
  if (event->mimeData()->hasUrls()) event->acceptProposedAction();
}

void MainWindow::dropEvent(QDropEvent* event) {
  QStringList paths;
  for (const QUrl& url : event->mimeData()->urls()) {
    if (url.isLocalFile()) paths << url.toLocalFile();
  }
  if (paths.isEmpty()) return showMessage(tr("Only local files can be dropped here."));
  event->acceptProposedAction();
  open(paths);
}

void MainWindow::resizeEvent(QResizeEvent* event) {
  QMainWindow::resizeEvent(event);
  d->fitDocks();
}

/// Qt lays panels behind another tab outside of the window, and would go on to their fields.
bool MainWindow::focusNextPrevChild(bool next) {
  for (int tries = 0; tries < kMostStops; ++tries) {
    if (!QMainWindow::focusNextPrevChild(next)) return false;
    const QDockWidget* inside = d->dockOf(focusWidget());
    if (inside == nullptr || d->isInFront(*inside)) return true;
  }
  return true;
}

void MainWindow::changeEvent(QEvent* event) {
  QMainWindow::changeEvent(event);
  if (event->type() == QEvent::ApplicationPaletteChange || event->type() == QEvent::PaletteChange) update();
}

bool MainWindow::exportTo(const QString& path) {
  try {
    const Document& document = d->document;
    const ExportSource source{document.prediction(), document.measured()};
    if (isPicture(path)) {
      requireTimeline(source);
      exportPicture(*d->timeline, d->timeline->pictureSize(), path);
    } else if (QFileInfo(path).suffix().isEmpty()) {
      showNote(exportTorch(document, path).join(QLatin1Char(' ')));
    } else {
      exportData(source, path);
    }
  } catch (const Error& e) {
    showMessage(QString::fromUtf8(e.what()));
    return false;
  }
  statusBar()->showMessage(tr("Wrote %1").arg(path), 4000);
  return true;
}

}  // namespace pw::gui
