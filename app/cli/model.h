#pragma once

#include <string>
#include <vector>

#include "simulator/cluster.h"
#include "simulator/model_graph.h"
#include "simulator/profile.h"

namespace pw::cli {

/// Reads a model; several archives are parts exported one per stage, in order.
[[nodiscard]] ModelGraph loadModel(const std::vector<std::string>& paths);

/// The loss taken when none is named: the model's own where an output named `loss`, or else its
/// first output, is a single number, else cross_entropy.
[[nodiscard]] std::string defaultLoss(const ModelGraph& graph);

/// A preset of `resources/clusters` by name, or a file. Throws UsageError listing the presets.
[[nodiscard]] Cluster loadCluster(const std::string& nameOrFile);

/// This host and its processor.
[[nodiscard]] Machine thisMachine();

/// Path of this program, to start it again as a rank or for a part of the demo.
[[nodiscard]] std::string ownPath();

/// This program's path and the arguments it was called with, to start it again as its own rank.
[[nodiscard]] std::vector<std::string> ownCall();

/// `resources` beside the program's build folder, or $PIPEWRIGHT_RESOURCES.
[[nodiscard]] std::string resourceFolder();

/// Measures a profile with `ranks` processes of this program computing at once.
[[nodiscard]] Profile measureWithRanks(const std::vector<std::string>& models, std::int64_t microbatch, int ranks, int threads,
                                       const std::string& loss);

}  // namespace pw::cli
