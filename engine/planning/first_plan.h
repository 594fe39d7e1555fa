#pragma once

#include <string>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// What a model is planned for before anything was chosen: 1F1B with twice as many microbatches as ranks, of the size at export.
struct FirstPlan {
  std::string cluster;  ///< for `loadCluster`
  int ranks = 1;        ///< as many as the model's split markers make stages; else up to four, or 8, 16, … where these do not hold it
  std::vector<NodeId> begins;            ///< balanced by time, or the markers
  bool recomputes = false;               ///< whole stages, as they do not fit otherwise
  bool fits = true;                      ///< the cluster has so many ranks, and each needs no more memory than its device has
  std::vector<std::string> others = {};  ///< clusters that hold it, too: those with larger devices, smallest first
};

/// On the fewest ranks that a cluster has and that its memory allows, rather without recomputation than with, and of the clusters with so
/// many ranks on the one with the smallest device: among the presets (of CPUs only a workstation), or, where it is not empty, on
/// `preferred`. The last one tried where none fits. Of a layer table, whose costs are of no cluster, only the ranks are chosen. Cost: as a
/// few plans. Throws UsageError where `preferred` cannot be loaded.
[[nodiscard]] FirstPlan firstPlan(const ModelGraph& graph, const std::string& preferred = {});

}  // namespace pw
