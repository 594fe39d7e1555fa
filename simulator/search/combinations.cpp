#include "simulator/search/combinations.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/model/graph_facts.h"
#include "simulator/order/find.h"

namespace pw {
namespace {

/// The counts to try, ascending.
std::vector<int> countsOf(const SearchSpace& space, std::int64_t batch) {
  std::vector<int> counts = space.microbatches.empty() ? usualCounts(space.base.ranks, space.base.replicas, batch) : space.microbatches;
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

/// The size microbatches must have [samples]; 0: any.
std::int64_t fixedSize(const ModelGraph& graph, const SearchSpace& space) {
  return batchSymbol(graph).empty() ? exportedBatch(graph) : space.fixedMicrobatch ? space.base.microbatch : 0;
}

/// The request with this many microbatches; nothing if the batch cannot be divided that way.
std::optional<PlanRequest> requestOf(const PlanRequest& base, int microbatches, std::int64_t batch, std::int64_t fixed) {
  const std::int64_t parts = std::int64_t{base.replicas} * microbatches;
  PlanRequest request = base;
  request.microbatches = microbatches;
  if (fixed > 0) {
    request.microbatch = fixed;
    if (batch > 0 && batch != request.microbatch * parts) return std::nullopt;
    request.batch = request.microbatch * parts;
  } else {
    if (batch < parts) return std::nullopt;
    request.microbatch = (batch + parts - 1) / parts;
    request.batch = batch;
  }
  return request;
}

void addShapes(const Generator& family, const PlanRequest& request, std::vector<int> chunks, Combinations& all) {
  if (chunks.empty()) chunks = family.chunks > 1 ? std::vector<int>{family.chunks, 2 * family.chunks} : std::vector<int>{family.chunks};
  bool any = false;
  std::optional<std::string> refusal;
  SearchShape shape;
  shape.request = request;
  shape.request.schedule = family.name;
  for (const int v : chunks) {
    shape.stages = request.ranks * v;
    shape.request.chunks = v;
    const auto refused = family.refusal({request.ranks, shape.stages, request.microbatches});
    if (refused && !refusal) refusal = refused;
    any = any || !refused;
    if (!refused) all.shapes.push_back(shape);
  }
  if (!any) all.skipped.insert(fmt::format("{}, {} microbatches: {}", family.name, request.microbatches, *refusal));
}

/// The schedules wanted, without `auto`.
std::vector<const Generator*> wantedFamilies(const SearchSpace& space) {
  std::vector<const Generator*> families;
  for (const std::string& wanted : space.schedules) {
    if (wanted == kAutoSchedule) continue;
    if (madeSchedule(wanted) != nullptr)
      throw UsageError(fmt::format(
          "{} limits memory by itself; plan and simulate take it, and a search makes orders with auto and a memory limit", wanted));
    families.push_back(&familyOf(wanted));
  }
  return families;
}

}  // namespace

Combinations combinationsOf(const ModelGraph& graph, const SearchSpace& space) {
  const PlanRequest& base = space.base;
  Combinations all;
  std::vector<const Generator*> families = wantedFamilies(space);
  all.withOrders = space.schedules.empty() || families.size() < space.schedules.size();
  all.withFamilies = space.schedules.empty() || !families.empty();
  if (families.empty()) {
    for (const Generator& family : generators()) families.push_back(&family);
  }
  std::erase_if(families, [](const Generator* family) { return !family->trains; });
  const std::int64_t fixed = fixedSize(graph, space);
  std::int64_t batch = base.batch;
  if (batch == 0 && fixed == 0) batch = exportedBatch(graph) * countsOf(space, 0).back() * base.replicas;
  const std::vector<int> tried = countsOf(space, batch);
  bool divides = false;
  for (const int microbatches : tried) {
    const auto request = requestOf(base, microbatches, batch, fixed);
    divides = divides || request;
    for (std::size_t f = 0; f < families.size() && request; ++f) addShapes(*families[f], *request, space.chunks, all);
  }
  const std::string pieces = fmt::format("{}{}", base.replicas > 1 ? fmt::format(" for each of {} replicas", base.replicas) : "",
                                         fixed > 0 ? fmt::format(" of {}, {}", fixed,
                                                                 isLayerChain(graph)          ? "the size that the layer table has costs of"
                                                                 : batchSymbol(graph).empty() ? "the size the model was exported with"
                                                                                              : "the requested size")
                                                   : "");
  if (!divides) {
    throw UsageError(fmt::format("A batch of {} cannot be cut into {} microbatches{}; use another batch or other counts.", batch,
                                 fmt::join(tried, ", "), pieces));
  }
  if (!all.withFamilies && !all.shapes.empty()) all.skipped.clear();  // only `auto` was requested
  if (all.shapes.empty())
    throw NothingToTry(fmt::format("No schedule supports {} ranks with these microbatch counts ({}).", base.ranks,
                                   all.skipped.empty() ? "only forward-only was requested" : *all.skipped.begin()));
  for (const int microbatches : space.microbatches) {
    if (!requestOf(base, microbatches, batch, fixed))
      all.skipped.insert(fmt::format("{} microbatches: a batch of {} cannot be cut into so many{}", microbatches, batch, pieces));
  }
  return all;
}

}  // namespace pw
