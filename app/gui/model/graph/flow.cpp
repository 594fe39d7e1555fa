#include "app/gui/model/graph/flow.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "simulator/model/graph_facts.h"
#include "simulator/model/symbolic.h"

namespace pw::gui {

ModelFlow flowOf(const ModelGraph& graph, const Bindings& bindings) {
  ModelFlow flow;
  flow.nodes = static_cast<int>(graph.nodes.size());
  for (const Value& value : graph.values) {
    const auto bytes = value.tensor ? knownBytes(*value.tensor, bindings) : std::nullopt;  // unknown where it depends on data
    flow.bytes.push_back(bytes.value_or(0));
  }
  const std::vector<bool> anywhere = recomputableNodes(graph);
  const auto add = [&](ValueId v, int reader) {
    const Value& value = graph.value(v);
    if (!value.tensor) return;
    if (value.origin == ValueOrigin::Input) flow.uses.push_back({v, -1, reader, false});
    if (value.origin == ValueOrigin::Node && value.producer.value < reader)
      flow.uses.push_back({v, value.producer.value, reader, !anywhere[value.producer.index()]});
  };
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (isAssertion(graph.nodes[n])) continue;  // not run, and so nothing is sent for it
    for (const ValueId v : readsOf(graph.nodes[n])) add(v, static_cast<int>(n));
  }
  for (const ValueId v : std::set<ValueId>(graph.outputs.begin(), graph.outputs.end())) add(v, flow.nodes);
  std::sort(flow.uses.begin(), flow.uses.end(),
            [](const TensorUse& a, const TensorUse& b) { return std::tie(a.from, a.value, a.to) < std::tie(b.from, b.value, b.to); });
  return flow;
}

std::vector<FlowEdge> edgesBetween(const ModelFlow& flow, const std::vector<int>& boxOfNode, int lastBox) {
  const auto boxOf = [&](int place) {
    if (place < 0) return 0;
    return place < static_cast<int>(boxOfNode.size()) ? boxOfNode[static_cast<std::size_t>(place)] : lastBox;
  };
  struct Part {
    int from, to;
    ValueId value;
    bool sent;
  };
  std::vector<Part> parts;
  for (const TensorUse& use : flow.uses) {
    const int from = boxOf(use.from), to = boxOf(use.to);
    if (from < to) parts.push_back({from, to, use.value, use.sent});
  }
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return std::tie(a.from, a.to, a.value) < std::tie(b.from, b.to, b.value); });
  std::vector<FlowEdge> edges;
  for (const Part& part : parts) {
    if (edges.empty() || edges.back().from != part.from || edges.back().to != part.to) edges.push_back({part.from, part.to, {}, 0, false});
    FlowEdge& edge = edges.back();
    if (!edge.values.empty() && edge.values.back() == part.value) continue;
    edge.values.push_back(part.value);
    edge.bytes += flow.bytes[part.value.index()];
    edge.sent = edge.sent || part.sent;
  }
  return edges;
}

Bytes bytesAcross(const ModelFlow& flow, const std::vector<NodeId>& begins, std::size_t split) {
  if (split >= begins.size()) return 0;
  const auto stageOfPlace = [&](int place) {
    return static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), NodeId(place)) - begins.begin());
  };
  const int cut = begins[split].value;
  std::set<std::pair<ValueId, std::size_t>> counted;
  Bytes bytes = 0;
  for (const TensorUse& use : flow.uses) {
    if (!use.sent || use.from >= cut || use.to < cut) continue;
    if (counted.emplace(use.value, stageOfPlace(use.to)).second) bytes += flow.bytes[use.value.index()];
  }
  return bytes;
}

}  // namespace pw::gui
