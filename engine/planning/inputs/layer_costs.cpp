#include "engine/planning/inputs/layer_costs.h"

#include <algorithm>

#include <fmt/format.h>

#include "backends/resources/resources.h"
#include "schedules/error.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/model/graph_facts.h"

namespace pw {

void requireOperators(const ModelGraph& graph) {
  if (isLayerChain(graph))
    throw UsageError(
        fmt::format("Model {} is a layer table, which has its own costs: there is nothing to measure; plan it with --layers.", graph.name));
}

Profile layerCosts(const ModelGraph& chain, const LayerOptions& options) {
  if (options.hasProfile) throw UsageError(fmt::format("Layer table {} has its own costs; omit --profile.", chain.name));
  if (!options.loss.empty()) throw UsageError(fmt::format("Layer table {} has no outputs to take a loss of; omit --loss.", chain.name));
  if (!options.how.libraries.empty()) throw UsageError(fmt::format("Layer table {} has no operators; omit --load-library.", chain.name));
  const auto says = [](const Node& layer) { return keptIfRecomputed(layer).has_value(); };
  if (options.recomputes && std::ranges::none_of(chain.nodes, says)) {
    throw UsageError(
        fmt::format("Layer table {} does not say what is kept when a layer is recomputed; omit --recompute, or give it there as `{}`.",
                    chain.name, kKeptIfRecomputed));
  }
  const std::int64_t own = exportedBatch(chain);
  if (options.microbatch != 0 && options.microbatch != own) {
    throw UsageError(
        fmt::format("Layer table {} has costs of microbatches of {}, not {}; give --batch {} times the number of microbatches.", chain.name,
                    own, options.microbatch, own));
  }
  refuseWhatCannotMeasure(options.how, CostsFrom::Profile);
  return options.cluster.empty() ? profileOf(chain) : estimate(chain, own, loadCluster(options.cluster));
}

}  // namespace pw
