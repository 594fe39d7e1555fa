#include "app/gui/runs/calibration.h"

#include <optional>

#include "app/gui/common/format.h"
#include "app/gui/runs/run_list.h"
#include "app/gui/runs/run_loading.h"
#include "schedules/error.h"
#include "simulator/plan/plan_fits.h"

namespace pw::gui {
namespace {

/// Nothing where the run is of another model or size, or cannot be used.
std::optional<CalibratedProfile> calibratedLike(const RunStore& store, RunId id, const ModelGraph& graph, std::int64_t microbatch) {
  try {
    const Plan plan = store.load(id).plan;
    if (plan.microbatchSize != microbatch) return std::nullopt;
    requireFits(plan, graph);
    return calibratedBy(store, id);
  } catch (const UsageError&) {
    return std::nullopt;  // an older run may do
  }
}

}  // namespace

std::shared_ptr<const CalibratedProfile> calibratedFor(const std::string& store, const ModelGraph& graph, std::int64_t microbatch) {
  const std::vector<RunSummary> runs = listRuns(store).runs;
  if (!runs.empty()) {
    const RunStore file(store, RunStore::Mode::ReadOnly);
    for (auto at = runs.rbegin(); at != runs.rend(); ++at) {
      const RunSummary& run = *at;
      if (run.model != graph.name || run.state != RunState::Completed || run.facts.synthetic) continue;
      if (auto made = calibratedLike(file, run.id, graph, microbatch)) return std::make_shared<const CalibratedProfile>(*std::move(made));
    }
  }
  throw UsageError(translated("No run of %1 with microbatches of %2 can be used to calibrate; run this plan for two steps or more.")
                       .arg(QString::fromStdString(graph.name))
                       .arg(microbatch)
                       .toStdString());
}

}  // namespace pw::gui
