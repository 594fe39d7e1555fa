#include "simulator/plan/layer_export.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/split.h"
#include "simulator/plan/plan_fits.h"

namespace pw {
namespace {

/// Parameter bytes by the node that is the first to read them; tied ones are one.
std::vector<Bytes> parameterBytes(const ModelGraph& graph, const Bindings& bindings) {
  std::vector<Bytes> bytes(graph.nodes.size(), 0);
  std::set<std::string> seen;
  const std::vector<int> parameterOf = indexByValue(graph, graph.parameters);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId v : readsOf(graph.nodes[n])) {
      const int p = parameterOf[v.index()];
      if (p < 0 || !seen.insert(storageOf(graph.parameters[static_cast<std::size_t>(p)])).second) continue;
      bytes[n] += bytesOf(*graph.value(v).tensor, bindings);
    }
  }
  return bytes;
}

}  // namespace

LayerTable layersOf(const Plan& plan, const ModelGraph& graph) {
  requireFits(plan, graph);
  if (isLayerChain(graph)) throw UsageError(fmt::format("Model {} is a layer table already", graph.name));
  const Profile& profile = plan.profile;
  if (profile.nodes.size() != graph.nodes.size())
    throw UsageError(fmt::format("The plan has no profile of {}, so layers have no costs; plan the model again.", graph.name));
  const Bindings bindings = bindBatch(graph, plan.microbatchSize);
  const std::vector<SplitPoint> points = splitPoints(graph, bindings);
  const std::vector<Bytes> parameters = parameterBytes(graph, bindings);
  const bool splits = std::ranges::any_of(profile.nodes, [](const NodeCost& c) { return c.weight != 0; }) || profile.loss.weight != 0;
  const LinkSpec& link = profile.topology.sameNode;
  const bool hasLink = !profile.estimated && (link.latency > 0 || link.bytesPerSecond > 0);
  LayerTable table{graph.name, plan.microbatchSize, profile.actionOverhead, profile.optimizerNsPerByte, {}, profile.sendOverhead};
  for (std::size_t i = 0; i <= points.size(); ++i) {
    Layer layer;
    layer.name = i == 0 ? "start" : points[i - 1].name;
    NodeCost sum = i == points.size() ? profile.loss : NodeCost();
    const std::size_t begin = i == 0 ? 0 : points[i - 1].begin.index(),
                      end = i == points.size() ? graph.nodes.size() : points[i].begin.index();
    for (std::size_t n = begin; n < end; ++n) {
      sum.forward += profile.nodes[n].forward;
      sum.backward += profile.nodes[n].backward;
      sum.weight += profile.nodes[n].weight;
      sum.saved += profile.nodes[n].saved;
      sum.heldForWeight += profile.nodes[n].heldForWeight;
      layer.parameters += parameters[n];
    }
    layer.forward = sum.forward;
    layer.weight = splits ? sum.weight : sum.backward - sum.backward / 2;
    layer.input = sum.backward - layer.weight;
    layer.activations = std::max<Bytes>(0, sum.saved);
    layer.afterInput = splits ? sum.heldForWeight : layer.activations;
    layer.output = i == points.size() ? 0 : points[i].crossing;
    if (hasLink && i < points.size()) layer.sent = link.latency + transferTime(link, layer.output);
    for (const ModuleFrame& frame : graph.nodes[begin].modules) layer.module = frame.path;
    table.layers.push_back(std::move(layer));
  }
  return table;
}

}  // namespace pw
