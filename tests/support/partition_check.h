#pragma once

#include <gtest/gtest.h>

#include <set>

#include "simulator/partition/partition.h"

namespace pw::test {

/// Expects that everything each stage reads is available: its inputs and state, then what it computes again, receives and computes, in this
/// order.
inline void expectEveryReadAvailable(const ModelGraph& graph, const Partition& partition) {
  for (std::size_t s = 0; s < partition.stages.size(); ++s) {
    const StageSpec& spec = partition.stages[s];
    std::set<ValueId> available(spec.modelInputs.begin(), spec.modelInputs.end());
    for (const std::size_t held : spec.parameters) {
      for (const StateTensor& p : graph.parameters) {
        if (storageOf(p) == storageOf(graph.parameters[held])) available.insert(p.value);
      }
    }
    for (const std::size_t i : spec.buffers) available.insert(graph.buffers[i].value);
    for (const std::size_t i : spec.constants) available.insert(graph.constants[i].value);
    const auto use = [&](const std::vector<ValueId>& reads) {
      for (const ValueId v : reads)
        EXPECT_TRUE(graph.value(v).symbolic || available.contains(v)) << graph.value(v).name << " in stage " << s;
    };
    const auto compute = [&](NodeId n) {
      use(readsOf(graph.node(n)));
      available.insert(graph.node(n).outputs.begin(), graph.node(n).outputs.end());
    };
    for (const NodeId n : spec.recomputed) compute(n);
    for (const Transfer& t : partition.transfers) {
      if (t.to != Stage(s)) continue;
      EXPECT_TRUE(available.insert(t.value).second) << "received what was there already";
    }
    for (auto n = spec.begin.index(); n < spec.end.index(); ++n) compute(NodeId(n));
    if (s + 1 == partition.stages.size()) use(graph.outputs);
  }
}

}  // namespace pw::test
