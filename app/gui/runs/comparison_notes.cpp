#include "app/gui/runs/comparison_notes.h"

#include <QStringList>
#include <cmath>

#include "app/gui/common/format.h"
#include "app/gui/document/cluster_title.h"
#include "app/gui/document/times.h"
#include "app/gui/runs/run_loading.h"
#include "engine/run/host_inventory.h"

namespace pw::gui {

QString whyNotCompared(const Measured* measured, const RunRecord* run) {
  if (measured == nullptr && run != nullptr) {
    const QString sentence = run->state == RunState::Failed ? translated("Run %1 has no complete step. It failed: %2")
                                                            : translated("Run %1 has no complete step. %2");
    return sentence.arg(run->id.value).arg(QString::fromStdString(run->failure));
  }
  if (measured == nullptr) return translated("Select a run to see where prediction and measurement differ, or two runs to compare them.");
  return measured->live ? translated("The comparison is shown when the run has ended.")
                        : translated("There is no prediction to compare this with.");
}

namespace {

/// Which times a run was predicted from; empty where that is not known.
QString timesNote(const RunRecord& run) {
  if (!run.facts.costs) return {};
  const Profile& profile = run.plan.profile;
  if (*run.facts.costs == CostSource::Measured)
    return translated("It was predicted from times measured on %1.").arg(QString::fromStdString(profile.machine.host));
  return profile.cluster.empty() ? translated("It was predicted from estimated times; Profile measures those of this machine.")
                                 : translated("It was predicted from times estimated for %1; Profile measures those of this machine.")
                                       .arg(clusterTitle(profile.cluster));
}

}  // namespace

QStringList notesOn(const Measured& measured, const Prediction* prediction, const Verdict& verdict) {
  QStringList notes;
  if (measured.run && measured.run->state != RunState::Completed)
    notes << (measured.run->state == RunState::Failed ? translated("The run failed after these steps: %1") : QStringLiteral("%1"))
                 .arg(QString::fromStdString(measured.run->failure));
  if (measured.run && prediction != nullptr && !isOfPlan(*prediction, measured.run->plan))
    notes << translated("This run used a different plan: it is compared with what was predicted for that plan.");
  if (measured.run && measured.run->machine.device == "cpu") {
    const Plan& plan = measured.run->plan;
    const std::string crowded = crowdingNote(static_cast<int>(plan.schedule.rows.size()) * plan.replicas, measured.run->machine.cores);
    if (!crowded.empty()) notes << QString::fromStdString(crowded) + QLatin1Char('.');
  }
  constexpr double kFarOff = 0.2;
  if (measured.run && timesOf(measured) == TimesOf::Measured && std::abs(verdict.comparison.makespanError) > kFarOff) {
    if (const QString note = timesNote(*measured.run); !note.isEmpty()) notes << note;
  }
  return notes;
}

SizedStep sizedStep(const QString& name, const Measured& measured) {
  return {name, measured.timeline.end, measured.run ? measured.run->plan.batch : measured.samples};
}

QString perSampleVerdict(const SizedStep& before, const SizedStep& after, Happened happened) {
  if (before.samples <= 0 || after.samples <= 0 || before.time <= 0 || before.samples == after.samples) return {};
  Verdict verdict;
  Comparison& c = verdict.comparison;
  c.predictedMakespan = before.time / before.samples;
  c.measuredMakespan = after.time / after.samples;
  c.makespanError = static_cast<double>(after.time) * static_cast<double>(before.samples) /
                        (static_cast<double>(before.time) * static_cast<double>(after.samples)) -
                    1;
  const std::string text = verdictText(verdict, before.name.toStdString(), after.name.toStdString(), happened);
  return translated("Per sample: %1 Their batches differ: %2 and %3 samples.")
      .arg(QString::fromStdString(text))
      .arg(after.samples)
      .arg(before.samples);
}

}  // namespace pw::gui
