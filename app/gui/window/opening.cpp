// What becomes of files that are opened.
#include <QAction>
#include <QFileInfo>
#include <QMessageBox>
#include <QSettings>
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/gui/document/balanced.h"
#include "app/gui/document/cluster_title.h"
#include "app/gui/document/drawn.h"
#include "app/gui/document/dumps.h"
#include "app/gui/document/loading.h"
#include "app/gui/runs/run_loading.h"
#include "app/gui/window/message_bar.h"
#include "app/gui/window/view_link.h"
#include "app/gui/window/window_parts.h"
#include "backends/dumps/read.h"
#include "schedules/error.h"

namespace pw::gui {
namespace {

constexpr int kMostRecent = 8;

std::vector<std::string> toPaths(const QStringList& paths) {
  std::vector<std::string> result;
  for (const QString& path : paths) result.push_back(QFileInfo(path).absoluteFilePath().toStdString());
  return result;
}

}  // namespace

void MainWindow::open(const QStringList& paths) {
  const bool dumps = paths.size() == 1 && holdDumps(paths.front().toStdString());
  if (!dumps && !d->mayBeForModel(paths) && !d->maySave()) return;  // else when it is known what becomes of the schedule
  message().isEmpty() ? void() : d->message->hide();
  const auto names = toPaths(paths);
  const std::string cluster = d->recovers ? QSettings().value(QStringLiteral("cluster")).toString().toStdString() : std::string();
  d->loading.start(tr("Opening %1").arg(paths.isEmpty() ? QString() : QFileInfo(paths.front()).fileName()),
                   [this, names, paths, cluster](JobControl& control) -> std::function<void()> {
                     const auto shouldContinue = [&](std::int64_t done, std::int64_t all) {
                       control.progress(done, all);
                       return !control.isCancelled();
                     };
                     const auto loaded = loadFiles(names, shouldContinue, cluster);
                     if (!loaded) return {};
                     return [this, loaded, paths] { d->take(*loaded, paths); };
                   });
}

bool MainWindow::Private::mayBeForModel(const QStringList& paths) const {
  return recovers && document.graph() && paths.size() == 1 && paths.front().endsWith(QStringLiteral(".csv"), Qt::CaseInsensitive);
}

/// A schedule may be for the open model; without anyone to ask, it is opened on its own.
MainWindow::Private::ScheduleUse MainWindow::Private::useOf(const Loaded& loaded, const QStringList& paths) {
  if (!mayBeForModel(paths)) return ScheduleUse::Alone;
  if (!loaded.schedule) return maySave() ? ScheduleUse::Alone : ScheduleUse::None;  // a table of layers
  QMessageBox box(QMessageBox::Question, MainWindow::tr("Open schedule"),
                  MainWindow::tr("Use the schedule %1 for the open model %2, or open it on its own?").arg(loaded.title, document.title()),
                  QMessageBox::Cancel, &window);
  const auto* forModel = box.addButton(MainWindow::tr("Use for the open &model"), QMessageBox::AcceptRole);
  const auto* alone = box.addButton(MainWindow::tr("Open on its &own"), QMessageBox::DestructiveRole);
  box.exec();
  if (box.clickedButton() == forModel) return ScheduleUse::Model;
  return box.clickedButton() == alone && maySave() ? ScheduleUse::Alone : ScheduleUse::None;
}

void MainWindow::useSchedule(Schedule schedule) {
  const QString what = tr("Use schedule %1").arg(QString::fromStdString(schedule.name));
  try {
    addDrawn(d->document, what, std::move(schedule));
  } catch (const Error& e) {
    showMessage(QString::fromUtf8(e.what()));
  }
}

void MainWindow::Private::take(const Loaded& loaded, const QStringList& paths) {
  if (loaded.dumps) {
    if (loaded.hasDesign && document.isModified() && !maySave()) return;
    dumps = loaded.dumps;
    ran = loaded.ran;
    if (!loaded.hasDesign) return explainHang(!loaded.ran);  // with what is open
  }
  const ScheduleUse use = useOf(loaded, paths);
  if (use == ScheduleUse::None) return;
  if (use == ScheduleUse::Model) return window.useSchedule(*loaded.schedule);
  document.adopt(loaded);
  opened.clear();
  for (const QString& path : paths) opened << QFileInfo(path).absoluteFilePath();
  if (!loaded.pins.empty()) pins.restore(loaded.pins);
  steps = loaded.measured;
  showSteps(loaded.chosen);
  const bool something = loaded.hasDesign || !loaded.measured.empty() || docksShown;
  if (something) {
    stack->setCurrentWidget(timeline);
    showDocks(true);
    if (loaded.hasDesign || !loaded.measured.empty()) raiseWhatSaysMore();
  }
  arrangeFor(loaded);
  if (!loaded.view.isEmpty()) timeline->restoreView(loaded.view);
  viewOfRun.reset();
  if (loaded.run) {
    if (!loaded.view.isEmpty()) viewOfRun = {loaded.view, *loaded.run};
    runs->chooseRun(loaded.run->id, loaded.runStep, loaded.run->startedAt);
    if (document.design().models.empty() && document.design().source.empty()) window.showPanel(Panel::Runs);  // there is nothing else
  }
  if (const auto own = std::exchange(keptNotes, {}); loaded.hasDesign && paths == own.paths && !own.notes.empty())
    document.edit(MainWindow::tr("Keep the notes"), [&](Design& design) { design.notes = own.notes; });
  if (!loaded.hasDesign && !loaded.store.isEmpty()) {
    if (!docksShown) {
      stack->setCurrentWidget(timeline);
      showDocks(true);
    }
    window.showPanel(Panel::Runs);
  }
  if (!loaded.study.isEmpty()) {
    stack->setCurrentWidget(timeline);
    showDocks(true);
    window.showPanel(Panel::Candidates);
    candidates->showStudy(loaded.study);
  }
  if (!loaded.cluster.isEmpty()) takeCluster(loaded.cluster);
  if (!loaded.notes.isEmpty()) window.showNote(loaded.notes.join(QLatin1Char(' ')));
  if (!loaded.otherClusters.empty()) offerClusters(loaded.otherClusters);
  remember(paths);
  showTitle();
}

void MainWindow::showView(const QByteArray& view) {
  d->timeline->restoreView(view);
  if (d->viewOfRun) d->viewOfRun->view = view;
}

/// Of what is shown beside the plan first, when it is the run.
void MainWindow::Private::restoreWithRun() {
  const auto wanted = std::exchange(viewOfRun, std::nullopt);
  const auto measured = document.measured();
  if (wanted && measured && measured->run && isRun(wanted->run, measured->run->id, measured->run->startedAt))
    timeline->restoreView(wanted->view);
}

/// The plan of a run, as a file. Without a plan, notes beside that run are on it, and stay.
void MainWindow::Private::openPlanOfRun(const QStringList& paths) {
  const auto shown = document.measured();
  const bool isShown = shown && shown->run && !shown->live && paths.size() == 1 && isPlanOf(*shown->run, paths.front().toStdString());
  keptNotes = {paths, isShown && !hasPlan() ? document.design().notes : std::vector<Note>()};
  window.open(paths);
  if (recovers && document.isModified()) keptNotes = {};  // the user discarded them, or stays
}

/// Beside the note that says which one was chosen.
void MainWindow::Private::offerClusters(const std::vector<std::string>& clusters) {
  QList<QAction*> choices;
  for (const std::string& cluster : clusters) {
    choices << new QAction(clusterTitle(cluster));
    connect(choices.back(), &QAction::triggered, plan, [this, cluster] { plan->useCluster(cluster); });
  }
  message->offer(tr("&Other clusters"), choices);
}

/// What a job did stands above what is made of it. The next that is opened gets back what was there before, unless another was chosen.
void MainWindow::Private::arrangeFor(const Loaded& loaded) {
  const bool isJob = loaded.hasDesign && loaded.design.job && !loaded.measured.empty();
  const Arrangement now = timeline->scene().arrangement;
  if (isJob && now != Arrangement::Above) {
    beforeJob = now;
    timeline->setArrangement(Arrangement::Above);
  } else if (!isJob && (loaded.hasDesign || !loaded.measured.empty())) {
    const std::optional<Arrangement> before = std::exchange(beforeJob, std::nullopt);
    if (before && now == Arrangement::Above) timeline->setArrangement(*before);
  }
}

/// Says what stopped the job and marks it in the timeline, once that is the schedule's.
void MainWindow::Private::explainHang(bool marks) {
  if (!dumps || document.isPredicting()) return;
  const std::shared_ptr<const hang::Dumps> all = std::exchange(dumps, nullptr);
  const std::shared_ptr<const Schedule> own = std::exchange(ran, nullptr);
  const std::optional<Schedule> known = own ? std::optional(*own) : scheduleOf(document);
  const hang::Diagnosis diagnosis = hang::diagnose(*all, known ? &*known : nullptr);
  window.showMessage(hangText(diagnosis));
  const auto prediction = document.prediction();
  if (!prediction || !marks) return;
  std::vector<SourcedSpan> spans;
  for (const SpanRef& span : stuckSpans(diagnosis, prediction->timeline)) spans.push_back({Source::Predicted, span});
  // After the timeline has the same prediction.
  QTimer::singleShot(0, &window, [this, spans] { timeline->markStuck(spans); });
}

void MainWindow::Private::takeCluster(const QString& path) {
  if (!document.graph()) return window.showNote(tr("This is a cluster: open a model, then this file again, to estimate times for it"));
  if (document.design().job) return window.showNote(tr("This is a cluster: the plan of a job has the job's own times"));
  document.edit(tr("Choose cluster %1").arg(QFileInfo(path).fileName()), [&](Design& design) {
    balanceAnew(document, design);
    design.cluster = path.toStdString();
    design.profile.reset();
  });
}

bool MainWindow::showStep(int step) {
  if (step < 1 || step > static_cast<int>(d->steps.size())) {
    showMessage(d->steps.empty() ? tr("There is no step %1: what is open has no measured steps.").arg(step)
                                 : tr("There is no step %1: the trace has %2, numbered from 1.").arg(step).arg(d->steps.size()));
    return false;
  }
  d->step->setCurrentIndex(step - 1);
  d->document.setMeasured(d->steps[static_cast<std::size_t>(step - 1)]);
  return true;
}

QString MainWindow::viewLink() const {
  const Document& document = d->document;
  if (d->opened.isEmpty()) return {};
  ViewTarget target;
  target.view = d->timeline->shortView();
  const auto measured = document.measured();
  if (const auto step = std::ranges::find(d->steps, measured); step != d->steps.end() && d->steps.size() > 1 && !measured->isReplayed)
    target.step = 1 + static_cast<int>(step - d->steps.begin());
  if (measured && measured->run) {
    target.run = measured->run->id;
    target.store = document.storePath();
  }
  return commandLineOf(document.projectPath().isEmpty() ? d->opened : QStringList{document.projectPath()}, target);
}

void MainWindow::Private::remember(const QStringList& paths) {
  if (!recovers || paths.size() != 1) return;
  QSettings settings;
  QStringList recent = settings.value(QStringLiteral("recent")).toStringList();
  const QString path = QFileInfo(paths.front()).absoluteFilePath();
  recent.removeAll(path);
  recent.prepend(path);
  settings.setValue(QStringLiteral("recent"), QStringList(recent.mid(0, kMostRecent)));
  showRecent();
}

}  // namespace pw::gui
