#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/run/trial.h"
#include "simulator/costs/operator_costs.h"
#include "simulator/model/export_record.h"
#include "simulator/model/model_graph.h"
#include "simulator/partition/module_tree.h"
#include "simulator/partition/split.h"
#include "simulator/report/split_report.h"

namespace pw {

inline constexpr int kMostDepth = 1000;  ///< of modules that are listed

/// What is looked at in a model: the options of `pipewright inspect`.
struct InspectOptions {
  std::vector<std::string> models;     ///< archives; several where each stage was exported on its own
  std::optional<int> depth;            ///< of the modules that are shown; nothing: all in JSON
  std::int64_t microbatch = 0;         ///< samples for FLOPs and activations; 0: as exported
  std::vector<std::string> libraries;  ///< that define custom operators
  bool report = false;                 ///< whether it can be split and microbatched
  bool tries = false;                  ///< trains a step on a random batch in this process, which loads LibTorch
};

/// What is in a model.
struct Inspection {
  ModelGraph graph;
  ExportRecord exported;
  std::int64_t microbatch = 0;
  std::vector<ModuleSummary> modules;
  std::vector<SplitPoint> splits;
  std::vector<NotCounted> notCounted;
  std::map<std::string, std::string> tied;
  std::vector<Finding> findings;
  std::vector<Trial> trials;
  bool hasTorch = false;  ///< it told which operators it has
};

/// Reads the model and looks at it. Throws UsageError for what is not a model, Error where it was to be tried and there is no LibTorch.
/// Cost: linear in nodes; a trial is three training steps.
[[nodiscard]] Inspection inspect(const InspectOptions& options);

/// Whether all weights are in the file.
[[nodiscard]] bool hasWeights(const ModelGraph& graph);

/// The document of `inspect --json`, without its version.
[[nodiscard]] std::string documentOf(const Inspection& shown, const InspectOptions& options);

}  // namespace pw
