#include "app/gui/runs/panel.h"

#include <QDir>
#include <QSplitter>
#include <QStandardPaths>
#include <QThread>
#include <QTimer>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "app/gui/common/body.h"
#include "app/gui/common/jobs.h"
#include "app/gui/document/document.h"
#include "app/gui/document/drawn.h"
#include "app/gui/document/loading.h"
#include "app/gui/document/same_splits.h"
#include "app/gui/document/times.h"
#include "app/gui/runs/comparer.h"
#include "app/gui/runs/comparison_notes.h"
#include "app/gui/runs/comparison_view.h"
#include "app/gui/runs/run_controls.h"
#include "app/gui/runs/run_history.h"
#include "app/gui/runs/run_loading.h"
#include "app/gui/runs/run_task.h"
#include "engine/planning/plan_settings.h"
#include "engine/run/host_inventory.h"
#include "schedules/error.h"

namespace pw::gui {
namespace {

constexpr int kMostStepsListed = 1000;  ///< of a run, in a box to choose from

}  // namespace

struct RunsPanel::Private {
  Private(RunsPanel& p, Document& doc) : panel(p), document(doc) {}

  RunsPanel& panel;
  Document& document;
  RunTask task;
  Comparer comparer;
  Job loading, planning, looking;
  QTimer settle;  ///< the prediction has not changed for a moment
  RunControls* controls = nullptr;
  RunHistory* history = nullptr;
  ComparisonView* comparison = nullptr;

  /// What we gave the document.
  struct Shown {
    std::string store;
    std::shared_ptr<const RunRecord> record;
    std::vector<int> steps;                 ///< that can be chosen
    int median = 0;                         ///< number of the step that stands for the run
    std::shared_ptr<const Measured> step;   ///< of the record
    std::shared_ptr<const Measured> other;  ///< the run it is compared with
  } shown;
  std::shared_ptr<const Measured> shownBefore;  ///< what was shown before a run began
  std::shared_ptr<const ModelGraph> profiled;
  std::shared_ptr<const Profile> followed;          ///< the costs that the controls follow
  std::optional<int> pendingSteps;                  ///< a run that waits for its prediction
  std::optional<std::pair<RunId, int>> wantedStep;  ///< of a run that is loaded as soon as it is listed; nothing: its median one
  bool isRun = false, follows = false, wasBusy = false;
  bool isRefused = false;  ///< and the line says so, until there is a plan

  void build();
  void connectAll();
  void updateControls();
  void followCosts();
  void begin();
  void endRun(bool ok, std::optional<RunId> id, const QString& error);
  void endProfile(const std::shared_ptr<const Profile>& result, const QString& error);
  void load(const std::vector<RunId>& ids);
  void showStep(std::optional<int> step);
  void loadPlan();
  void follow();
  void judge();
  void present();
  void showCrowding();

  int cores = 0;  ///< of this machine; 0: not known yet
};

RunsPanel::RunsPanel(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(*this, document)) {
  d->build();
  d->connectAll();
  d->updateControls();
  d->followCosts();
  refresh();
  d->follow();
  d->looking.start(tr("Look for GPUs"), [this](JobControl&) -> std::function<void()> {
    const HostInventory here = hostInventory();
    return [this, transports = here.transports, cores = here.host.machine.cores] {
      d->controls->setTransports(transports);
      d->cores = cores;
      d->showCrowding();
    };
  });
}

RunsPanel::~RunsPanel() { disconnect(&d->document, nullptr, this, nullptr); }

// ---- Widgets ----

void RunsPanel::Private::build() {
  auto* splitter = new QSplitter(Qt::Horizontal, &panel);
  controls = new RunControls(&panel);
  history = new RunHistory(&panel);
  comparison = new ComparisonView(&panel);
  auto* layout = new QVBoxLayout(&panel);
  layout->addWidget(controls);
  layout->addWidget(splitter, 1);
  splitter->addWidget(history);
  splitter->addWidget(comparison);
  splitter->setStretchFactor(0, 1);
  splitter->setStretchFactor(1, 1);
  splitter->setSizes({1000, 900});  // in proportion
  splitter->setChildrenCollapsible(false);
  takeHeightLeft(*splitter);
  settle.setSingleShot(true);
  settle.setInterval(150);
}

void RunsPanel::Private::connectAll() {
  RunsPanel* p = &panel;
  connect(controls, &RunControls::runRequested, p, &RunsPanel::startRun);
  connect(controls, &RunControls::profileRequested, p, &RunsPanel::startProfile);
  connect(controls, &RunControls::cancelRequested, p, &RunsPanel::cancel);
  connect(&document, &Document::storeChanged, p, &RunsPanel::refresh);
  connect(&document, &Document::modelChanged, p, [this] { updateControls(); });
  connect(&document, &Document::designChanged, p, [this] {
    followCosts();
    const QString before = controls->hint();
    showCrowding();
    if (controls->hint() != before && !panel.isBusy()) controls->say({});  // a result of another plan
  });
  connect(&document, &Document::measuredChanged, p, [this] { follow(); });
  connect(&document, &Document::predictionChanged, p, [this] {
    settle.start();
    updateControls();
    if (document.problem().isEmpty() && std::exchange(isRefused, false)) controls->say({});
    if (pendingSteps && !document.isPredicting()) begin();
  });
  connect(&settle, &QTimer::timeout, p, [this] { document.isDragging() ? settle.start() : judge(); });
  connect(history, &RunHistory::selectionChanged, p, [this] {
    follows = false;  // a user who looks at another run is not interrupted
    load(history->selected());
  });
  connect(history, &RunHistory::listed, p, [this] {
    wantedStep.reset();  // of a run that is not there
    emit panel.listed();
  });
  connect(history, &RunHistory::noted, p, [this](const QString& sentence) { controls->say(sentence); });
  connect(history, &RunHistory::failed, p, &RunsPanel::failed);
  connect(history, &RunHistory::planRequested, p, [this] { loadPlan(); });
  connect(history, &RunHistory::nothingRequested, p, &RunsPanel::showNothing);
  connect(history, &RunHistory::refreshRequested, p, &RunsPanel::refresh);
  connect(&comparer, &Comparer::compared, p, [this] { present(); });
  connect(&comparer, &Comparer::failed, p, &RunsPanel::failed);
  connect(comparison, &ComparisonView::stepChosen, p, [this](std::optional<int> step) { showStep(step); });
  for (Job* job : {&loading, &planning}) connect(job, &Job::failed, p, &RunsPanel::failed);
  connect(&task, &RunTask::progressed, p, [this](qint64 done, qint64 all, const QString& note) {
    controls->setProgress(
        done, all, isRun ? tr("Step %1 of %2, %3").arg(done).arg(all).arg(note) : tr("%1 of %2 %3 measured").arg(done).arg(all).arg(note));
  });
  connect(&task, &RunTask::arrived, p, [this](const std::shared_ptr<const Measured>& measured) {
    if (follows) document.setMeasured(measured);
  });
  connect(&task, &RunTask::runEnded, p, [this](bool ok, std::optional<RunId> id, const QString& error) { endRun(ok, id, error); });
  connect(&task, &RunTask::profileEnded, p,
          [this](const std::shared_ptr<const Profile>& result, const QString& error) { endProfile(result, error); });
}

void RunsPanel::Private::updateControls() {
  const bool busy = panel.isBusy();
  controls->setState(busy, document.graph() != nullptr, document.problem());
  if (busy == wasBusy) return;
  wasBusy = busy;
  emit panel.busyChanged(busy);
}

/// New measured costs are best compared with a run that computes as they were measured.
void RunsPanel::Private::followCosts() {
  const auto profile = document.design().profile;
  if (profile == followed) return;
  followed = profile;
  if (profile && !profile->estimated) controls->follow(profile->computing);
}

void RunsPanel::Private::showCrowding() {
  const PlanRequest& r = document.design().request;
  const bool onCores = document.graph() && !factsOf(controls->transport()).onGpu;
  const QString note = onCores ? QString::fromStdString(crowdingNote(r.ranks * r.replicas, cores)) : QString();
  controls->setHint(note);
}

// ---- Runs and profiles ----

void RunsPanel::startRun(int steps) {
  if (isBusy()) return;
  if (const QString problem = d->document.problem(); !problem.isEmpty() && !d->document.isPredicting()) {
    d->isRefused = true;
    d->controls->say(tr("There is no plan to run: %1").arg(problem));  // the plan and the timeline show it as well
    return emit runFinished(false);
  }
  d->controls->setSteps(steps);
  d->isRun = true;
  d->pendingSteps = steps;
  d->controls->setProgress(0, 0, tr("Starting the ranks …"));
  d->updateControls();
  if (!d->document.isPredicting()) d->begin();
}

/// Starts what `startRun` requested.
void RunsPanel::Private::begin() {
  const int count = *std::exchange(pendingSteps, std::nullopt);
  try {
    RunRequest request;
    request.plan = std::make_shared<const Plan>(document.plan());
    request.steps = count;
    request.transport = controls->transport();
    request.precision = controls->computing().precision;
    request.optimizer = document.design().request.optimizer;
    if (document.storePath().isEmpty()) {
      const QDir folder(QStandardPaths::writableLocation(QStandardPaths::AppDataLocation));
      if (!folder.mkpath(QStringLiteral(".")))
        throw Error(tr("Cannot create the folder %1 for runs; choose a run store.").arg(folder.path()).toStdString());
      document.setStorePath(folder.filePath(QStringLiteral("runs.db")));
    }
    request.store = document.storePath();
    shownBefore = document.measured();
    follows = true;
    task.run(request);
    updateControls();
  } catch (const Error& e) {
    endRun(false, {}, QString::fromUtf8(e.what()));
  }
}

void RunsPanel::Private::endRun(bool ok, std::optional<RunId> id, const QString& error) {
  const auto last = std::exchange(shownBefore, nullptr);
  if (ok)
    controls->say(id ? tr("Run %1 is recorded.").arg(id->value) : QString());
  else
    controls->say(error.isEmpty() ? tr("The run was cancelled.") : tr("The run failed: %1").arg(error));
  updateControls();
  const auto now = document.measured();
  if (!ok && now && now->live) document.setMeasured(last);
  if (ok && id) history->choose({*id});
  emit document.storeChanged();  // lists it, also one that failed
  if (!error.isEmpty()) emit panel.failed(error);
  emit panel.runFinished(ok);
}

void RunsPanel::startProfile() {
  if (isBusy()) return;
  if (!d->document.graph()) {
    emit failed(tr("No model is open to profile; open one first."));
    emit profileFinished(false);
    return;
  }
  d->isRun = false;
  d->profiled = d->document.graph();
  const PlanRequest& r = d->document.design().request;
  d->controls->setProgress(0, 0, tr("Starting to measure …"));
  d->task.profile({d->document.design().models, r.microbatch, std::clamp(r.ranks * r.replicas, 1, std::max(1, QThread::idealThreadCount())),
                   r.loss, d->controls->computing()});
  d->updateControls();
}

void RunsPanel::Private::endProfile(const std::shared_ptr<const Profile>& result, const QString& error) {
  const bool same = profiled == document.graph();
  profiled.reset();
  QString sentence = error;
  if (result && (!same || result->nodes.size() != document.graph()->nodes.size()))
    sentence = tr("The profile belongs to a model that is no longer open; profile again.");
  const bool ok = result && sentence.isEmpty();
  if (ok) document.edit(tr("Use measured profile"), [&](Design& design) { design.profile = result; });
  controls->say(ok                   ? tr("Costs are now measured on this machine.")
                : sentence.isEmpty() ? tr("The profile was cancelled.")
                                     : tr("The profile failed: %1").arg(sentence));
  updateControls();
  if (!sentence.isEmpty()) emit panel.failed(sentence);
  emit panel.profileFinished(ok);
}

void RunsPanel::cancel() {
  if (d->pendingSteps) {
    d->pendingSteps.reset();
    d->endRun(false, {}, {});
    return;
  }
  d->controls->setProgress(0, 0, tr("Cancelling …"));
  d->task.cancel();
}

bool RunsPanel::isBusy() const { return d->pendingSteps.has_value() || d->task.isRunning(); }

void RunsPanel::setProgram(const QString& program) { d->task.setProgram(program); }

// ---- History ----

void RunsPanel::refresh() { d->history->list(d->document.storePath()); }

void RunsPanel::chooseRun(RunId id, std::optional<int> step, const std::string& startedAt) {
  d->wantedStep = step ? std::optional(std::pair(id, *step)) : std::nullopt;
  d->history->choose({id}, startedAt);
  refresh();
}

void RunsPanel::compareRuns(RunId id, RunId with) {
  d->wantedStep.reset();
  d->history->choose({id, with});
  refresh();
}

void RunsPanel::showNothing() {
  d->loading.cancel();
  d->follows = false;
  d->history->selectNone();
  d->shown = {};
  d->document.setMeasured(nullptr);
}

const std::vector<RunSummary>& RunsPanel::runs() const { return d->history->runs(); }

/// Shows the newest of these runs, compared with the one before it.
void RunsPanel::Private::load(const std::vector<RunId>& ids) {
  const auto wanted = std::exchange(wantedStep, std::nullopt);
  if (ids.empty()) return;
  const std::string store = document.storePath().toStdString();
  const bool isWanted = wanted && ids == std::vector{wanted->first};
  const std::optional<int> step = isWanted ? std::optional(wanted->second) : std::nullopt;
  loading.start(tr("Load run %1").arg(ids.back().value), [this, store, ids, step](JobControl&) -> std::function<void()> {
    const RunStore file(store, RunStore::Mode::ReadOnly);
    const auto main = std::make_shared<const RunRecord>(file.load(ids.back()));
    const auto median = measuredOf(file, store, *main, {});
    const auto measured = step && median && *step != median->step ? measuredOf(file, store, *main, step) : median;
    const auto with = ids.size() > 1 ? measuredOf(file, store, file.load(ids[ids.size() - 2]), {}) : nullptr;
    const std::vector<int> steps = file.stepNumbers(main->id, kMostStepsListed);
    return [this, store, main, median, measured, with, steps] {
      shown = {store, main, steps, median ? median->step : 0, measured, with};
      document.setMeasured(measured);
    };
  });
}

void RunsPanel::Private::showStep(std::optional<int> step) {
  if (!shown.record) return;
  loading.start(tr("Show a step"), [this, store = shown.store, run = shown.record, step](JobControl&) -> std::function<void()> {
    const auto measured = measuredOf(RunStore(store, RunStore::Mode::ReadOnly), store, *run, step);
    return [this, measured] {
      shown.step = measured;
      document.setMeasured(measured);
    };
  });
}

/// Of the model that is open: an edit, which can be undone; of another: to be opened as a file.
void RunsPanel::Private::loadPlan() {
  const std::vector<RunId> ids = history->selected();
  if (ids.empty()) return;
  const std::string store = document.storePath().toStdString();
  planning.start(tr("Load the plan of run %1").arg(ids.back().value),
                 [this, store, id = ids.back(), models = document.design().models](JobControl&) -> std::function<void()> {
                   const RunRecord run = RunStore(store, RunStore::Mode::ReadOnly).load(id);
                   const std::string path = keepPlan(run);
                   const auto loaded = run.plan.modelFiles == models ? loadFiles({path}, {}) : nullptr;
                   const bool hasCluster = loaded && loaded->graph && costSettingsOf(run.plan, *loaded->graph);
                   return [this, loaded, hasCluster, path, id] {
                     if (!loaded || !loaded->graph || loaded->design.models != document.design().models) {
                       emit panel.openRequested({QString::fromStdString(path)});
                       return;
                     }
                     document.edit(tr("Load the plan of run %1").arg(id.value), [&](Design& design) {
                       const Design before = std::exchange(design, loaded->design);
                       if (!hasCluster) design.cluster = before.cluster;
                       keepOwn(design, before);
                     });
                   };
                 });
}

// ---- Comparison ----

/// Follows what the document shows: which step of which run, and what there is to compare it with.
void RunsPanel::Private::follow() {
  const auto measured = document.measured();
  const bool live = measured && measured->live;
  if (!live && measured != shown.step) {  // shown by another part of the app
    shown = {};
    history->selectNone();
  }
  if (!shown.record || live) {
    comparison->setSteps({}, 0, {});
  } else {
    const bool isOther = measured && measured->step != shown.median;
    comparison->setSteps(shown.steps, shown.median, isOther ? std::optional<int>(measured->step) : std::nullopt);
  }
  judge();
}

void RunsPanel::Private::judge() {
  const auto measured = document.measured();
  const auto prediction = measured && !measured->run ? document.prediction() : nullptr;  // a run has its own
  if (!measured || measured->live || (!measured->run && !prediction)) {
    comparer.forget();
    comparison->clear(whyNotCompared(measured.get(), shown.record.get()));
    emit panel.compared();
    return;
  }
  const Splits splits = shown.other  ? splitsOf(*shown.other, *measured)
                        : prediction ? splitsOf(*prediction, *measured, document.design())
                                     : Splits::Same;
  comparer.compare({measured, shown.other, prediction, splits});
}

/// Shows the last result.
void RunsPanel::Private::present() {
  const auto nameOf = [](const Measured& m) { return m.run ? tr("run %1").arg(m.run->id.value) : m.title; };
  const auto& [measured, with, prediction, splits] = comparer.subject();  // the verdict says where splits differ
  const StepVerdict& result = comparer.result();
  QStringList notes;
  const auto noteWaits = [&](const QString& name, Ns waits) { notes << QString::fromStdString(waitsText(name.toStdString(), waits)); };
  if (with) noteWaits(nameOf(*with), result.beforeWaits);
  noteWaits(with || !measured->run ? nameOf(*measured) : tr("the run"), result.afterWaits);
  notes.removeAll(QString());
  if (!measured->pinnedAs.isEmpty()) {
    comparison->show(result.verdict, tr("this plan"), tr("plan %1").arg(measured->pinnedAs), Happened::No, notes);
  } else if (with) {
    comparison->show(result.verdict, nameOf(*with), nameOf(*measured), Happened::Yes, notes);
  } else {
    notes << notesOn(*measured, document.prediction().get(), result.verdict);
    comparison->show(result.verdict, timesOf(*measured), notes);
  }
  emit panel.compared();
}

QString RunsPanel::summary() const { return d->comparison->sentence(); }

}  // namespace pw::gui
