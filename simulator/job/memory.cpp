#include "simulator/job/memory.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/job/job_costs.h"
#include "simulator/model/graph_facts.h"

namespace pw {
namespace {

void requireShown(bool isShown, const std::string& job, std::string_view limit) {
  if (!isShown)
    throw UsageError(fmt::format("the traces of {} say nothing of memory, so that no limit can be checked; omit {}", job, limit));
}

}  // namespace

void requireMemory(const Job& job, std::string_view limit) { requireShown(!job.memory.empty(), job.name, limit); }

void requireMemory(const ModelGraph& graph, std::string_view limit) {
  if (!isLayerChain(graph)) return;
  const LayerTable table = tableOf(graph);
  const bool isShown = std::ranges::any_of(table.layers, [](const Layer& layer) { return layer.activations > 0; });
  requireShown(isShown || !isOfJob(table), graph.name, limit);
}

}  // namespace pw
