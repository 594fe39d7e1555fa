#include "simulator/job/memory.h"

#include <algorithm>
#include <map>
#include <optional>
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

std::vector<MeasuredMemory> memoryOf(const MeasuredJob& measured, std::size_t ranks) {
  std::vector<std::optional<MeasuredMemory>> most(ranks);
  for (const MeasuredStep& step : measured.steps) {
    std::map<Rank, MeasuredMemory> workers;
    for (const MemorySample& sample : step.trace.memory) {
      if (sample.rank.value < 0 || sample.bytes < 0) continue;
      MeasuredMemory& worker = workers.try_emplace(sample.rank, MeasuredMemory{sample.bytes, sample.bytes}).first->second;
      worker = {std::min(worker.base, sample.bytes), std::max(worker.peak, sample.bytes)};
    }
    for (const auto& [worker, memory] : workers) {
      std::optional<MeasuredMemory>& rank = most[worker.index() % ranks];
      if (!rank || memory.peak > rank->peak) rank = memory;
    }
  }
  std::vector<MeasuredMemory> all;
  for (const std::optional<MeasuredMemory>& rank : most) {
    if (!rank || rank->peak == rank->base) return {};  // one number for a step does not say what of it stays
    all.push_back(*rank);
  }
  return all;
}

void requireMemory(const Job& job, std::string_view limit) { requireShown(!job.memory.empty(), job.name, limit); }

void requireMemory(const ModelGraph& graph, std::string_view limit) {
  if (!isLayerChain(graph)) return;
  const LayerTable table = tableOf(graph);
  const bool isShown = std::ranges::any_of(table.layers, [](const Layer& layer) { return layer.activations > 0; });
  requireShown(isShown || !isOfJob(table), graph.name, limit);
}

}  // namespace pw
