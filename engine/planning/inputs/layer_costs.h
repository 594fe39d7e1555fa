#pragma once

#include <cstdint>
#include <string>

#include "engine/planning/inputs/measure.h"
#include "simulator/costs/profile.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// What may be given beside a layer table (`chainOf`).
struct LayerOptions {
  std::string cluster;          ///< preset or file; empty: messages take only the time that the table gives
  bool hasProfile = false;      ///< refused
  bool recomputes = false;      ///< certain layers or all; refused where the table does not say what is kept then
  std::int64_t microbatch = 0;  ///< samples; 0: the table's own, and nothing else is taken
  std::string loss;             ///< refused: the table has no outputs
  MeasureOptions how;           ///< nothing is measured
};

/// Throws UsageError for a layer table, whose costs are not measured.
void requireOperators(const ModelGraph& graph);

/// The table's costs, with the cluster's link and optimizer speed. Throws UsageError for what a table has no costs for.
[[nodiscard]] Profile layerCosts(const ModelGraph& chain, const LayerOptions& options);

}  // namespace pw
