#include "app/gui/runs/panel.h"

#include <QScrollArea>
#include <QSplitter>
#include <QTimer>
#include <QVBoxLayout>
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
#include "app/gui/runs/run_starter.h"
#include "engine/planning/plan_settings.h"

namespace pw::gui {
namespace {

constexpr int kMostStepsListed = 1000;  ///< of a run, in a box to choose from

}  // namespace

struct RunsPanel::Private {
  Private(RunsPanel& p, Document& doc) : panel(p), document(doc) {}

  RunsPanel& panel;
  Document& document;
  Comparer comparer;
  Job loading, planning;
  QTimer settle;  ///< the prediction has not changed for a moment
  RunControls* controls = nullptr;
  RunHistory* history = nullptr;
  ComparisonView* comparison = nullptr;
  std::unique_ptr<RunStarter> starter;  ///< ends before what it reports to

  /// What we gave the document.
  struct Shown {
    std::string store;
    std::shared_ptr<const RunRecord> record;
    std::vector<int> steps;                 ///< that can be chosen
    int median = 0;                         ///< number of the step that stands for the run
    std::shared_ptr<const Measured> step;   ///< of the record
    std::shared_ptr<const Measured> other;  ///< the run it is compared with
  } shown;
  std::optional<std::pair<RunId, int>> wantedStep;  ///< of a run that is loaded as soon as it is listed; nothing: its median one

  void build();
  void connectAll();
  void load(const std::vector<RunId>& ids);
  void showStep(std::optional<int> step);
  void loadPlan();
  void follow();
  void judge();
  void present();
};

RunsPanel::RunsPanel(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(*this, document)) {
  d->build();
  d->connectAll();
  refresh();
  d->follow();
}

RunsPanel::~RunsPanel() { disconnect(&d->document, nullptr, this, nullptr); }

// ---- Widgets ----

void RunsPanel::Private::build() {
  auto* splitter = new QSplitter(Qt::Horizontal, &panel);
  controls = new RunControls(&panel);
  starter = std::make_unique<RunStarter>(document, *controls);
  history = new RunHistory(&panel);
  comparison = new ComparisonView(&panel);
  auto* layout = new QVBoxLayout(&panel);
  layout->setContentsMargins(6, 4, 6, 6);
  layout->addWidget(controls);
  layout->addWidget(splitter, 1);
  splitter->addWidget(history);
  auto* beside = new QScrollArea;  // in a low panel the sentence alone may take all the height
  beside->setWidget(comparison);
  beside->setWidgetResizable(true);
  beside->setFrameShape(QFrame::NoFrame);
  beside->setFocusPolicy(Qt::NoFocus);
  splitter->addWidget(beside);
  splitter->setStretchFactor(0, 1);
  splitter->setStretchFactor(1, 1);
  splitter->setSizes({1000, 900});  // in proportion
  splitter->setChildrenCollapsible(false);
  takeHeightLeft(*splitter, 2);
  settle.setSingleShot(true);
  settle.setInterval(150);
}

void RunsPanel::Private::connectAll() {
  RunsPanel* p = &panel;
  RunStarter* s = starter.get();
  connect(s, &RunStarter::recorded, p, [this](RunId run) { history->choose({run}); });
  connect(s, &RunStarter::runFinished, p, &RunsPanel::runFinished);
  connect(s, &RunStarter::profileFinished, p, &RunsPanel::profileFinished);
  connect(s, &RunStarter::failed, p, &RunsPanel::failed);
  connect(s, &RunStarter::busyChanged, p, &RunsPanel::busyChanged);
  connect(&document, &Document::storeChanged, p, &RunsPanel::refresh);
  connect(&document, &Document::measuredChanged, p, [this] { follow(); });
  connect(&document, &Document::predictionChanged, p, [this] { settle.start(); });
  connect(&settle, &QTimer::timeout, p, [this] {
    if (panel.isVisible()) document.isDragging() ? settle.start() : judge();
  });
  connect(history, &RunHistory::selectionChanged, p, [this] {
    starter->stopFollowing();  // a user who looks at another run is not interrupted
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
}

void RunsPanel::startRun(int steps) { d->starter->startRun(steps); }
void RunsPanel::startProfile() { d->starter->startProfile(); }
void RunsPanel::cancel() { d->starter->cancel(); }
bool RunsPanel::isBusy() const { return d->starter->isBusy(); }
void RunsPanel::setProgram(const QString& program) { d->starter->setProgram(program); }

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
  d->starter->stopFollowing();
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
    const QString pinned = tr("plan %1").arg(measured->pinnedAs);
    const SizedStep now{tr("this plan"), prediction->step, samplesOf(document.predicted())};
    comparison->show(result.verdict, now.name, pinned, Happened::No, perSampleVerdict(now, sizedStep(pinned, *measured), Happened::No),
                     notes);
  } else if (with) {
    const QString before = nameOf(*with), after = nameOf(*measured);
    comparison->show(result.verdict, before, after, Happened::Yes,
                     perSampleVerdict(sizedStep(before, *with), sizedStep(after, *measured), Happened::Yes), notes);
  } else {
    notes << notesOn(*measured, document.prediction().get(), result.verdict);
    comparison->show(result.verdict, timesOf(*measured), notes);
  }
  emit panel.compared();
}

void RunsPanel::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  d->judge();
}

QString RunsPanel::summary() const { return d->comparison->sentence(); }

}  // namespace pw::gui
