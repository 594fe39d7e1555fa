#include "app/gui/runs/run_starter.h"

#include <QDir>
#include <QStandardPaths>
#include <QThread>
#include <algorithm>

#include "app/gui/document/execution.h"
#include "app/gui/runs/run_controls.h"
#include "engine/run/host_inventory.h"
#include "schedules/error.h"

namespace pw::gui {

RunStarter::RunStarter(Document& document, RunControls& controls, QObject* parent)
    : QObject(parent), document_(document), controls_(controls) {
  connectAll();
  updateControls();
  followCosts();
  lookForGpus();
}

void RunStarter::connectAll() {
  connect(&controls_, &RunControls::runRequested, this, &RunStarter::startRun);
  connect(&controls_, &RunControls::profileRequested, this, &RunStarter::startProfile);
  connect(&controls_, &RunControls::cancelRequested, this, &RunStarter::cancel);
  connect(&document_, &Document::modelChanged, this, &RunStarter::updateControls);
  connect(&document_, &Document::designChanged, this, [this] {
    followCosts();
    const QString before = controls_.hint();
    showCrowding();
    if (controls_.hint() != before && !isBusy()) controls_.say({});  // a result of another plan
  });
  connect(&document_, &Document::predictionChanged, this, [this] {
    updateControls();
    if (document_.problem().isEmpty() && std::exchange(isRefused_, false)) controls_.say({});
    if (pendingSteps_ && !document_.isPredicting()) begin();
  });
  connect(&task_, &RunTask::progressed, this, [this](qint64 done, qint64 all, const QString& note) {
    controls_.setProgress(
        done, all, isRun_ ? tr("Step %1 of %2, %3").arg(done).arg(all).arg(note) : tr("%1 of %2 %3 measured").arg(done).arg(all).arg(note));
  });
  connect(&task_, &RunTask::arrived, this, [this](const std::shared_ptr<const Measured>& measured) {
    if (follows_) document_.setMeasured(measured);
  });
  connect(&task_, &RunTask::runEnded, this, &RunStarter::endRun);
  connect(&task_, &RunTask::profileEnded, this, &RunStarter::endProfile);
}

void RunStarter::lookForGpus() {
  looking_.start(tr("Look for GPUs"), [this](JobControl&) -> std::function<void()> {
    const HostInventory here = hostInventory();
    return [this, transports = here.transports, cores = here.host.machine.cores] {
      controls_.setTransports(transports);
      cores_ = cores;
      showCrowding();
    };
  });
}

// ---- The controls ----

void RunStarter::updateControls() {
  const bool busy = isBusy();
  controls_.setState(busy, {obstacleToRun(document_), obstacleToProfile(document_), rehearses(document_)});
  if (busy == wasBusy_) return;
  wasBusy_ = busy;
  emit busyChanged(busy);
}

/// New measured costs are best compared with a run that computes as they were measured.
void RunStarter::followCosts() {
  const auto profile = document_.design().profile;
  if (profile == followed_) return;
  followed_ = profile;
  if (profile && !profile->estimated) controls_.follow(profile->computing);
}

void RunStarter::showCrowding() {
  const PlanRequest& r = document_.design().request;
  const bool onCores = document_.graph() && !factsOf(controls_.transport()).onGpu;
  const QString note = onCores ? QString::fromStdString(crowdingNote(r.ranks * r.replicas, cores_)) : QString();
  controls_.setHint(note);
}

// ---- Runs ----

void RunStarter::startRun(int steps) {
  if (isBusy()) return;
  if (const QString problem = obstacleToRun(document_); !problem.isEmpty() && !document_.isPredicting()) {
    isRefused_ = true;
    if (!document_.graph()) emit failed(problem);  // nothing else says it
    controls_.say(document_.graph() ? tr("There is no plan to run: %1").arg(problem)
                                    : problem);  // the plan and the timeline show it as well
    return emit runFinished(false);
  }
  controls_.setSteps(steps);
  isRun_ = true;
  pendingSteps_ = steps;
  controls_.setProgress(0, 0, tr("Starting the ranks …"));
  updateControls();
  if (!document_.isPredicting()) begin();
}

/// Starts what `startRun` requested.
void RunStarter::begin() {
  const int count = *std::exchange(pendingSteps_, std::nullopt);
  try {
    RunRequest request;
    request.plan = std::make_shared<const Plan>(document_.plan());
    request.steps = count;
    request.transport = controls_.transport();
    request.precision = controls_.computing().precision;
    request.optimizer = document_.design().request.optimizer;
    request.synthetic = rehearses(document_);
    if (document_.storePath().isEmpty()) {
      const QDir folder(QStandardPaths::writableLocation(QStandardPaths::AppDataLocation));
      if (!folder.mkpath(QStringLiteral(".")))
        throw Error(tr("Cannot create the folder %1 for runs; choose a run store.").arg(folder.path()).toStdString());
      document_.setStorePath(folder.filePath(QStringLiteral("runs.db")));
    }
    request.store = document_.storePath();
    shownBefore_ = document_.measured();
    follows_ = true;
    task_.run(request);
    updateControls();
  } catch (const Error& e) {
    endRun(false, {}, QString::fromUtf8(e.what()));
  }
}

void RunStarter::endRun(bool ok, std::optional<RunId> id, const QString& error) {
  const auto last = std::exchange(shownBefore_, nullptr);
  if (ok)
    controls_.say(id ? tr("Run %1 is recorded.").arg(id->value) : QString());
  else
    controls_.say(error.isEmpty() ? tr("The run was cancelled.") : tr("The run failed: %1").arg(error));
  updateControls();
  const auto now = document_.measured();
  if (!ok && now && now->live) document_.setMeasured(last);
  if (ok && id) emit recorded(*id);
  emit document_.storeChanged();  // lists it, also one that failed
  if (!error.isEmpty()) emit failed(error);
  emit runFinished(ok);
}

// ---- Profiles ----

void RunStarter::startProfile() {
  if (isBusy()) return;
  if (const QString no = obstacleToProfile(document_); !no.isEmpty()) {
    emit failed(no);
    return emit profileFinished(false);
  }
  isRun_ = false;
  profiled_ = document_.graph();
  const PlanRequest& r = document_.design().request;
  controls_.setProgress(0, 0, tr("Starting to measure …"));
  task_.profile({document_.design().models, r.microbatch, std::clamp(r.ranks * r.replicas, 1, std::max(1, QThread::idealThreadCount())),
                 r.loss, controls_.computing()});
  updateControls();
}

void RunStarter::endProfile(const std::shared_ptr<const Profile>& result, const QString& error) {
  const bool same = profiled_ == document_.graph();
  profiled_.reset();
  QString sentence = error;
  if (result && (!same || result->nodes.size() != document_.graph()->nodes.size()))
    sentence = tr("The profile belongs to a model that is no longer open; profile again.");
  const bool ok = result && sentence.isEmpty();
  if (ok) document_.edit(tr("Use measured profile"), [&](Design& design) { design.profile = result; });
  controls_.say(ok                   ? tr("Costs are now measured on this machine.")
                : sentence.isEmpty() ? tr("The profile was cancelled.")
                                     : tr("The profile failed: %1").arg(sentence));
  updateControls();
  if (!sentence.isEmpty()) emit failed(sentence);
  emit profileFinished(ok);
}

void RunStarter::cancel() {
  if (pendingSteps_) {
    pendingSteps_.reset();
    endRun(false, {}, {});
    return;
  }
  controls_.setProgress(0, 0, tr("Cancelling …"));
  task_.cancel();
}

}  // namespace pw::gui
