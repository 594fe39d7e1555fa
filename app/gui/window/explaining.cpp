// What was measured: from its explanation to the timeline, from a trace to a plan, from past runs to their times.
#include <QTimer>
#include <algorithm>

#include "app/gui/common/format.h"
#include "app/gui/document/job_design.h"
#include "app/gui/runs/calibration.h"
#include "app/gui/runs/run_loading.h"
#include "app/gui/timeline/facts/find_query.h"
#include "app/gui/window/window_parts.h"
#include "backends/store/run_store.h"
#include "schedules/error.h"
#include "simulator/trace/span_kind.h"

namespace pw::gui {
namespace {

/// What a plan can be made from: what is shown as measured, else the job that the plan is of.
JobOptions replannable(const Document& document) {
  const auto measured = document.measured();
  if (measured && !measured->live && measured->from != JobOptions()) return measured->from;
  return document.design().job ? document.design().job->from : JobOptions();
}

}  // namespace

void MainWindow::Private::connectExplaining() {
  QObject::connect(explain, &ExplainPanel::placeChosen, &window, [this](const ExplainedPlace& at) { goTo(at); });
  QObject::connect(plan, &PlanPanel::replanRequested, &window, [this] { replanJob(); });
  explain->setReplanAction(replan);
  QObject::connect(&document, &Document::measuredChanged, &window, [this] { showReplan(); });
  QObject::connect(&document, &Document::designChanged, &window, [this] { showReplan(); });
  showReplan();
}

void MainWindow::Private::showReplan() {
  const JobOptions from = replannable(document);
  const auto& job = document.design().job;
  replan->setEnabled(from != JobOptions());
  replan->setText(job && job->from == from ? MainWindow::tr("Re-plan as the &job ran")
                  : from.store.empty()     ? MainWindow::tr("Re-plan from this &trace")
                                           : MainWindow::tr("Re-plan from this r&un"));
  replan->setToolTip(MainWindow::tr("Make a plan whose costs are the job's usual times, and try other schedules and numbers on it"));
}

/// The trace's steps stay, above the plan (`take`), and so do notes, unless the user discarded them.
void MainWindow::Private::replanJob() {
  const JobOptions from = replannable(document);
  if (from == JobOptions()) return;
  if (const auto job = document.design().job; job && job->from == from)
    return document.edit(MainWindow::tr("Plan as the job ran"), [&](Design& design) { setAsItRan(*job, design); });
  if (!maySave()) return;
  const bool keepsNotes = !recovers || !document.isModified();
  loading.start(MainWindow::tr("Re-planning"), [this, from, keepsNotes](JobControl& control) -> std::function<void()> {
    const auto basis = readJob(from, [&](std::int64_t done, std::int64_t all) {
      control.progress(done, all);
      return !control.isCancelled();
    });
    if (!basis) return {};
    return [this, keepsNotes, loaded = planOfJob(basis)] {
      const auto measured = document.measured();
      if (measured && measured->from == loaded->design.job->from) {
        loaded->measured = {measured};
        if (const auto found = std::ranges::find(steps, measured); found != steps.end()) {
          loaded->measured = steps;
          loaded->chosen = static_cast<std::size_t>(found - steps.begin());
        }
      }
      if (keepsNotes) keptNotes = {{}, document.design().notes};
      take(*loaded, {});
    };
  });
}

/// Times that past runs of this model bring closer to what is measured, with how far off predictions then are.
void MainWindow::Private::calibrate() {
  const auto graph = document.graph();
  if (!graph || document.design().job) return window.showNote(MainWindow::tr("Open a model first: its times are calibrated by its runs."));
  const std::string store = document.storePath().toStdString();
  loading.start(
      MainWindow::tr("Calibrating"),
      [this, graph, store, microbatch = document.design().request.microbatch](JobControl&) -> std::function<void()> {
        return [this, made = calibratedFor(store, *graph, microbatch)] {
          document.edit(MainWindow::tr("Calibrate by past runs"),
                        [&](Design& design) { design.profile = std::shared_ptr<const Profile>(made, &made->profile); });
          window.showNote(MainWindow::tr("Calibrated by %1: predictions were off by %2, and are now by %3.")
                              .arg(made->ids.size() == 1 ? MainWindow::tr("1 run") : MainWindow::tr("%1 runs").arg(made->ids.size()),
                                   percentText(made->report.errorBefore), percentText(made->report.errorAfter)));
        };
      });
}

/// Among the steps that the tool bar offers, so that one sees which it is, and goes back to the others: besides the usual one only the
/// last, as a job may have many.
void MainWindow::Private::showReplayed(const std::shared_ptr<const Measured>& replayed) {
  const bool isUsual = replayed->stepName.empty();
  const auto same = std::ranges::find_if(steps, [&](const auto& one) { return one->isReplayed && one->stepName.empty() == isUsual; });
  const auto at = static_cast<int>(same - steps.begin());
  if (same == steps.end()) {
    steps.push_back(replayed);
    step->addItem(stepTitle(*replayed));
  } else {
    *same = replayed;
    step->setItemText(at, stepTitle(*replayed));
  }
  step->setCurrentIndex(at);
  document.setMeasured(replayed);
}

/// What makes the step of a place, which may take a while; empty where the timeline has it by now.
std::function<std::shared_ptr<const Measured>()> MainWindow::Private::stepOf(const ExplainedPlace& at) {
  const auto& wanted = at.place.step;
  const std::string name = wanted ? at.job->job.steps.at(*wanted).name : std::string();
  const auto measured = document.measured();
  if (at.of == ExplainedOf::Job) {
    const bool isShown = measured && measured->isReplayed && measured->from == at.job->from && measured->stepName == name;
    const int copies = at.job->job.replicas * at.job->job.tensor;
    if (isShown && copies == 1) return {};
    return [job = at.job, wanted, worker = at.place.worker.value_or(JobRank(0))] { return replayedStep(*job, wanted, worker); };
  }
  if (!wanted || !measured || measured->stepName == name) return {};
  const auto found = std::ranges::find_if(steps, [&](const auto& one) { return !one->isReplayed && one->stepName == name; });
  if (found != steps.end()) {
    document.setMeasured(*found);
    step->setCurrentIndex(static_cast<int>(found - steps.begin()));
  } else if (measured->run && !measured->from.store.empty()) {
    const int number = QString::fromStdString(name).section(QLatin1Char(' '), -1).toInt();
    return [store = measured->from.store, run = *measured->run, number] {
      return measuredOf(RunStore(store, RunStore::Mode::ReadOnly), store, run, number);
    };
  }
  return {};
}

void MainWindow::Private::goTo(const ExplainedPlace& at) {
  replaying.cancel();  // the place that was chosen before
  const auto make = at.of == ExplainedOf::Plan ? std::function<std::shared_ptr<const Measured>()>() : stepOf(at);
  if (!make) return select(at);
  replaying.start(MainWindow::tr("Reading the step"), [this, at, make, before = document.measured()](JobControl&) -> std::function<void()> {
    return [this, at, before, made = make()] {
      if (!made || document.measured() != before) return;  // something else was opened meanwhile
      made->isReplayed ? showReplayed(made) : document.setMeasured(made);
      select(at);
    };
  });
}

void MainWindow::Private::select(const ExplainedPlace& at) {
  if (!at.place.worker) return;
  const Source source = at.of == ExplainedOf::Plan ? Source::Predicted : Source::Measured;
  const auto ranks = static_cast<int>(at.job->job.schedule.rows.size());
  const Rank rank = at.of == ExplainedOf::Job && ranks > 0 ? Replicas{ranks}.rank(*at.place.worker) : Rank(at.place.worker->value);
  // After the timeline has the step.
  QTimer::singleShot(0, &window, [this, source, place = at.place, rank] { select(source, place, rank); });
}

/// Selects the action, or the idle time before it, of this rank; where neither is there, the rank is found.
void MainWindow::Private::select(Source source, const StepPlace& place, Rank rank) {
  const Timeline* shown = timelineFrom(timeline->scene(), source);
  if (shown == nullptr || rank.value < 0 || rank.index() >= shown->ranks.size()) return;
  const std::optional<SpanKind> kind = place.action ? spanKind(place.action->kind) : std::nullopt;
  const auto span = kind ? findAction(*shown, rank, *kind, place.action->stage, place.action->microbatch) : std::nullopt;
  if (place.idle) {
    const Ns until = span ? spanOf(*shown, *span).start : shown->end;
    if (const auto bubble = bubbleUnder(*shown, source, rank, until - 1)) return timeline->selectBubble(*bubble);
  }
  if (span) return timeline->select({source, *span});
  static_cast<void>(timeline->findText(QStringLiteral("rank %1").arg(rank.value)));
}

}  // namespace pw::gui
