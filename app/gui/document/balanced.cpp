#include "app/gui/document/balanced.h"

#include <algorithm>

#include "app/gui/document/document.h"
#include "schedules/error.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"

namespace pw::gui {

void balanceAnew(const Document& document, Design& design) {
  constexpr std::size_t kMostNodes = 20'000;
  const auto graph = document.graph();
  const auto profile = document.profile();
  const auto prediction = document.prediction();
  PlanRequest& request = design.request;
  if (!graph || !profile || !prediction || graph->nodes.size() > kMostNodes) return;
  if (request.begins.empty() || !request.replicaBegins.empty() || design.job || request.begins == graph->splitMarkers) return;
  const Placement& placement = prediction->rows->placement;
  if (placement.stages() != request.begins.size() + 1) return;  // of an earlier design
  try {
    const StageSpeeds speeds = stageSpeeds(*profile, placement, request.replicas);
    if (balancedSplits(*graph, *profile, static_cast<int>(placement.stages()), Balance::Time, speeds) == request.begins)
      request.begins.clear();
  } catch (const Error&) {}  // more ranks than the cluster lists: it says so itself
}

}  // namespace pw::gui
