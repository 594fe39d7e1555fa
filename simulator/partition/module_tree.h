#pragma once

#include <map>
#include <string>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// One module of a model with the totals of all operators inside it, for one microbatch.
struct ModuleSummary {
  std::string path;   ///< empty for the root
  std::string label;  ///< the path from the module around it
  std::string className;
  int depth = 0;  ///< modules around it
  int operators = 0;
  std::int64_t parameters = 0;  ///< elements; each storage once
  Bytes parameterBytes = 0;
  double forwardFlops = 0;
  Bytes activationBytes = 0;  ///< results that need a gradient; views, which share memory, do not count
};

/// All modules, each after the one around it, in order of first execution; the root is first. Data-dependent sizes count as 0.
[[nodiscard]] std::vector<ModuleSummary> moduleTree(const ModelGraph& graph, const Bindings& bindings);

/// Dimensions for display: `batch`, `2·batch + 1`, `32`, or a symbol's name.
[[nodiscard]] std::vector<std::string> dimensionLabels(const ModelGraph& graph, const TensorMeta& meta);

/// Tied parameters: name → name of the one that holds the bytes.
[[nodiscard]] std::map<std::string, std::string> tiedParameters(const ModelGraph& graph);

}  // namespace pw
