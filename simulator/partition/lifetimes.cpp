#include "simulator/partition/lifetimes.h"

#include <algorithm>

#include "simulator/model/loss.h"

namespace pw {

Lifetimes::Lifetimes(const ModelGraph& graph, const std::vector<std::vector<ValueId>>& reads, const std::vector<ValueId>& bases,
                     const std::vector<Bytes>& bytes)
    : made_(graph.nodes.size()), ending_(graph.nodes.size() + 1), ofValue_(graph.values.size()) {
  std::vector<ValueId> kept;
  if (!graph.outputs.empty()) kept.push_back(graph.outputs[outputOf(graph, defaultLoss(graph))]);
  std::vector<std::size_t> last(graph.values.size(), 0);
  for (std::size_t n = 0; n <= graph.nodes.size(); ++n) {
    for (const ValueId v : n < graph.nodes.size() ? reads[n] : kept) last[bases[v.index()].index()] = n;
  }
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId v : graph.nodes[n].outputs) {
      const Value& value = graph.value(v);
      if (!value.tensor || value.symbolic || bases[v.index()] != v || bytes[v.index()] < 0) continue;
      const Life life{v, NodeId(n), NodeId(std::max(last[v.index()], n)), bytes[v.index()]};
      ofValue_[v.index()] = life;
      made_[n].push_back(life);
      ending_[life.to.index()].push_back(life);
    }
  }
}

Bytes Lifetimes::endingAt(std::size_t node, NodeId rangeBegin) const {
  Bytes bytes = 0;
  for (const Life& life : ending_[node]) bytes += life.from >= rangeBegin ? life.bytes : 0;
  return bytes;
}

Bytes Lifetimes::leaving(const NodeRange& range) const {
  Bytes bytes = 0;
  for (auto n = range.begin.index(); n < range.end.index(); ++n) {
    for (const Life& life : made_[n]) bytes += life.to >= range.end ? life.bytes : 0;
  }
  return bytes;
}

}  // namespace pw
