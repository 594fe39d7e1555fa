#include "app/gui/explain/explainable.h"

#include <QFileInfo>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/document/job_design.h"
#include "app/gui/document/times.h"
#include "schedules/error.h"
#include "simulator/job/between_steps.h"
#include "simulator/job/recover.h"

namespace pw::gui {
namespace {

QString nameOf(const JobOptions& from) {
  if (!from.store.empty()) return from.run ? translated("run %1").arg(from.run->value) : translated("newest run");
  const QString first = QFileInfo(QString::fromStdString(from.paths.front())).fileName();
  return from.paths.size() == 1 ? first : translated("%1 and %2 more").arg(first).arg(from.paths.size() - 1);
}

constexpr double kMostWork = 500e6;  ///< actions to replay: some seconds

/// A plan is explained after every edit, and each of its stages and ranks takes a replay.
void requireSmall(const Prediction& prediction) {
  double actions = 0;
  for (const auto& row : prediction.rows->rows) actions += static_cast<double>(row.size());
  const auto replays = static_cast<double>(prediction.rows->placement.stages() + prediction.rows->rows.size());
  if (actions * replays <= kMostWork) return;
  throw UsageError(translated("This step of %1 actions is too large to replay it for each of its stages and ranks here; save the plan, and "
                              "`pipewright explain` does it.")
                       .arg(countText(actions))
                       .toStdString());
}

pw::Job jobOfPlan(const Prediction& prediction) {
  requireSmall(prediction);
  MeasuredJob measured;
  measured.name = translated("the plan").toStdString();
  measured.times = TimesOf::Predicted;
  measured.steps.push_back({"predicted step", traceOf(prediction), {}});
  measured.schedule = *prediction.rows;
  return jobOf(measured);
}

}  // namespace

std::vector<Explainable> explainableIn(const Document& document) {
  std::vector<Explainable> all;
  const auto measured = document.measured();
  const auto& job = document.design().job;
  const bool canRead = measured && !measured->live && measured->pinnedAs.isEmpty() && measured->from != JobOptions();
  const bool isOfJob = canRead && job && job->from == measured->from;
  if (canRead && !measured->isReplayed)
    all.push_back(
        {ExplainedOf::Measured,
         (timesOf(*measured) == TimesOf::Rehearsed ? translated("Rehearsed: %1") : translated("Measured: %1")).arg(nameOf(measured->from)),
         measured->from, isOfJob ? job : nullptr, nullptr});
  if (job && (!isOfJob || measured->isReplayed))
    all.push_back({ExplainedOf::Job, translated("Job: %1").arg(nameOf(job->from)), job->from, job, nullptr});
  if (const auto prediction = document.prediction(); prediction && document.problem().isEmpty())
    all.push_back({ExplainedOf::Plan, translated("This plan, predicted"), {}, nullptr, prediction});
  return all;
}

std::shared_ptr<const ShownExplanation> explained(const Explainable& what,
                                                  const std::function<bool(std::int64_t, std::int64_t)>& progress) {
  auto shown = std::make_shared<ShownExplanation>();
  shown->job = what.prediction ? std::make_shared<const JobBasis>(JobBasis{{}, jobOfPlan(*what.prediction)})
               : what.job      ? what.job
                               : readJob(what.from, progress);
  if (!shown->job) return nullptr;
  const pw::Job& job = shown->job->job;
  const JobShape shape(job);
  const std::optional<JobExplanation> found = explainJob(shape, job, [&] { return progress(0, 0); });
  if (!found) return nullptr;
  const JobExplanation& explanation = *found;
  shown->tables = explainedTables(shape, job, explanation);
  shown->common = QString::fromStdString(commonText(explanation));
  const auto text = [](const std::string& sentence) { return QString::fromStdString(sentence).toHtmlEscaped(); };
  QString step = text(std::string(nameOf(job.times)) + " " + stepText(explanation) + ".");
  step[0] = step[0].toUpper();
  QStringList parts{text(shapeText(job)), step, text(stragglerText(explanation))};
  if (const std::string between = betweenText(job); !between.empty()) parts << text(between);
  if (what.of != ExplainedOf::Plan) parts << text(replayText(explanation));
  for (const std::string& note : job.notes) parts << text(note);
  shown->summary = QStringLiteral("<p>") + parts.join(QStringLiteral("</p><p>")) + QStringLiteral("</p>");
  return shown;
}

}  // namespace pw::gui
