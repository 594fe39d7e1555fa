#pragma once

#include <string>
#include <string_view>

#include "simulator/costs/layer_table.h"

namespace pw {

/// Reads a measured graph of PipeDream's profiler (Narayanan et al., SOSP 2019; msr-fiddle/pipedream): a line for each node, `ID --
/// operator -- forward_compute_time=ms, backward_compute_time=ms, activation_size=bytes, parameter_size=bytes`, and one for each edge,
/// `<tab>ID -- ID`. Layers are the nodes in a topological order (ties: the lower number first), named `node12.Conv2d`. Where the graph
/// branches, what crosses a cut is every value that a later layer reads, each once, wherever it was made; an element that `__getitem__`
/// takes from a list is that element, not a copy. The backward's halves are its parts, as the file has none. The file does not say how many
/// samples it measured; the table calls them a microbatch of 1. Throws UsageError naming line or node for other text, unknown and repeated
/// nodes, and cycles. Cost: n log n.
[[nodiscard]] LayerTable parsePipeDream(std::string_view text, const std::string& source);

}  // namespace pw
