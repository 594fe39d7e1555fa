#pragma once

#include <string>
#include <vector>

#include "backends/pt2/graph.h"

namespace pw::pt2 {

/// Keys of the model's outputs, one per entry of `output_specs`, empty where an output has none; nothing if `graph_module` does not contain
/// them, or in a form unknown to this version. `loss` of a dict or dataclass, `hidden.0` of a list inside one.
[[nodiscard]] std::vector<std::string> readOutputKeys(const Json& graphModule, std::size_t outputs);

}  // namespace pw::pt2
