#include "app/gui/runs/run_loading.h"

#include <QCryptographicHash>
#include <QDir>
#include <QStandardPaths>
#include <filesystem>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/document/run_name.h"
#include "backends/host/files.h"
#include "schedules/error.h"
#include "simulator/timeline/fill.h"

namespace pw::gui {
namespace {

QDir plansFolder() { return {QStandardPaths::writableLocation(QStandardPaths::AppLocalDataLocation) + QStringLiteral("/plans")}; }

/// Where the plan of a run with this text is kept.
std::string planPath(RunId id, const std::string& text) {
  const QByteArray hash =
      QCryptographicHash::hash(QByteArrayView(text.data(), static_cast<qsizetype>(text.size())), QCryptographicHash::Sha256)
          .toHex()
          .left(12);
  return plansFolder().filePath(QStringLiteral("run-%1-%2.json").arg(id.value).arg(QString::fromLatin1(hash))).toStdString();
}

}  // namespace

RunsOfStore listRuns(const std::string& store) {
  std::error_code ignored;
  if (store.empty() || !std::filesystem::exists(store, ignored)) return {};
  const RunStore file(store, RunStore::Mode::ReadOnly);
  return {file.list(), file.note()};
}

std::shared_ptr<const Measured> measuredOf(const RunStore& store, const std::string& path, const RunRecord& run, std::optional<int> step) {
  if (store.stepCount(run.id) == 0) return nullptr;
  StepRecord chosen = store.loadStep(run, step);
  auto measured = std::make_shared<Measured>();
  measured->title = titleOf(runNameOf(run));
  measured->trace = std::move(chosen.measured);
  measured->timeline = timelineOf(measured->trace);
  measured->run = run;
  measured->step = chosen.step;
  measured->from = {.paths = {}, .store = path, .run = run.id, .steps = {}};
  measured->stepName = "step " + std::to_string(chosen.step);
  return measured;
}

bool isOfPlan(const Prediction& prediction, const Plan& plan) {
  return *prediction.rows == plan.schedule && prediction.costs == plan.costs;
}

std::string keepPlan(const RunRecord& run) {
  const QDir folder = plansFolder();
  const std::string text = toJson(run.plan);
  if (!folder.mkpath(QStringLiteral(".")))
    throw Error(translated("Cannot make the folder %1 for the plan; make it writable.").arg(folder.path()).toStdString());
  std::string path = planPath(run.id, text);
  writeFile(path, text);
  return path;
}

bool isPlanOf(const RunRecord& run, const std::string& path) { return path == planPath(run.id, toJson(run.plan)); }

}  // namespace pw::gui
