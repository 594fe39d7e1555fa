#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/costs/cluster.h"
#include "simulator/costs/profile.h"
#include "simulator/model/model_graph.h"
#include "simulator/plan/plan.h"

namespace pw {

/// Reads a model; several archives are parts exported one per stage, in order. A layer table (`isLayerTableName`) becomes a chain
/// (`chainOf`), and so does a job (`layersOf`).
[[nodiscard]] ModelGraph loadModel(const std::vector<std::string>& paths);
/// A plan's file, and a profile's. Throw UsageError for files that are none; of what they are instead, see `requireKind`.
[[nodiscard]] Plan loadPlan(const std::string& path);
[[nodiscard]] Profile loadProfile(const std::string& path);

/// Names of the presets in `resources/clusters`, sorted.
[[nodiscard]] std::vector<std::string> clusterPresets();
/// The preset of the device that CUDA calls so; nothing where none has it, as of cards that no preset knows.
[[nodiscard]] std::optional<Cluster> presetOfGpu(std::string_view cudaName);
/// The links of `resources/links.json`.
[[nodiscard]] std::vector<NamedLink> linkPresets();
/// A preset by name, else a file: a file in the current folder with the name of a preset is read as `./NAME`. `NAME+LINK+…`: with links of
/// `linkPresets` instead of its own. A cluster's text
/// (simulator/costs/cluster_name.h) is that cluster. Profiles that its ranks name are read, too, relative to its file. Throws UsageError
/// listing presets and links.
[[nodiscard]] Cluster loadCluster(const std::string& nameOrFile);

/// This host and its processor.
[[nodiscard]] Machine thisMachine();

/// This host and CUDA's GPU of that number.
[[nodiscard]] Machine gpuMachine(int cudaIndex);

}  // namespace pw
