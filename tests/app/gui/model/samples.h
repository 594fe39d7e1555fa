#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "app/gui/model/parts/call_tree.h"
#include "backends/pt2/read.h"
#include "simulator/partition/partition.h"
#include "simulator/partition/split.h"

namespace pw::gui {

inline constexpr const char* kSamples[] = {"gpt_small", "hf_bert", "hf_gpt2", "hf_llama", "resnet18_narrow", "vit_small", "gpt_split"};

inline std::string samplePath(const std::string& name) { return std::string(PW_SOURCE_DIR "/resources/models/") + name + ".pt2"; }

/// A shipped model with what the panel makes of it.
struct SampleModel {
  explicit SampleModel(const std::string& name, std::int64_t microbatch = 2)
      : graph(std::make_shared<const ModelGraph>(readPt2(samplePath(name)))),
        bindings(bindBatch(*graph, microbatch)),
        points(splitPoints(*graph, bindings)) {
    for (const SplitPoint& point : points) cuts.push_back(point.begin);
    tree = callTree(*graph, cuts);
  }

  /// The row of a module's call; −1: none.
  [[nodiscard]] int row(const std::string& path, int call = 0) const {
    for (int r = 0; r < tree.size(); ++r) {
      if (tree.row(r).isModule && tree.row(r).path == path && tree.row(r).call == call) return r;
    }
    return -1;
  }
  [[nodiscard]] NodeId begin(const std::string& name) const { return findSplit(*graph, name); }

  std::shared_ptr<const ModelGraph> graph;
  Bindings bindings;
  std::vector<SplitPoint> points;
  std::vector<NodeId> cuts;
  CallTree tree;
};

/// Costs that differ from node to node, so that a node counted twice or left out shows: node n takes n + 1 and 2n + 1 ns and keeps 8n
/// bytes.
inline Profile countingProfile(const ModelGraph& graph) {
  Profile profile;
  profile.model = graph.name;
  profile.microbatch = 2;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    NodeCost cost;
    cost.forward = static_cast<Ns>(n) + 1;
    cost.backward = 2 * static_cast<Ns>(n) + 1;
    cost.saved = 8 * static_cast<Bytes>(n);
    profile.nodes.push_back(cost);
  }
  return profile;
}

}  // namespace pw::gui
