#include "app/gui/document/job_design.h"

#include <QCoreApplication>

#include "backends/host/files.h"
#include "simulator/job/job_costs.h"
#include "simulator/job/job_json.h"

namespace pw::gui {

bool isJob(const std::string& head) { return looksLikeJob(head); }

void planAsItRan(const std::string& path, Loaded& loaded) {
  const pw::Job job = parseJob(readFile(path), path);
  const Shape shape = shapeOf(job.schedule);
  PlanRequest& request = loaded.design.request;
  const bool isRegular = shape.stages % shape.ranks == 0 && !job.schedule.name.empty() && !job.schedule.placement.bidirectional();
  if (isRegular) {
    request.schedule = job.schedule.name;
    request.ranks = shape.ranks;
    request.chunks = shape.stages / shape.ranks;
    request.microbatches = shape.microbatches;
    request.begins.clear();
    for (int s = 1; s < shape.stages; ++s) request.begins.emplace_back(s * kPartsOfStage);  // a node for each layer
  }
  const QString said = isRegular
                           ? QCoreApplication::translate("pw::gui::Loading", "Planned as the job ran: %1. A job does not show memory.")
                           : QCoreApplication::translate("pw::gui::Loading", "The job ran as %1, which is planned anew here.");
  loaded.notes << said.arg(QString::fromStdString(shapeText(job)));
  for (const std::string& note : job.notes) loaded.notes << QString::fromStdString(note);
}

}  // namespace pw::gui
