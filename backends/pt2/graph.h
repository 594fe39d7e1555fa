#pragma once

// Internal to the archive reader: from the texts of an archive to a ModelGraph.

#include <map>
#include <string>

#include "backends/pt2/json.h"
#include "backends/pt2/zip.h"
#include "simulator/model/model_graph.h"

namespace pw::pt2 {

inline constexpr const char* kModelEntry = "models/model.json";
inline constexpr const char* kWeightsEntry = "data/weights/model_weights_config.json";
inline constexpr const char* kConstantsEntry = "data/constants/model_constants_config.json";
inline constexpr const char* kByteOrderEntry = "byteorder";

/// The whole graph. `texts` holds the entries named above, as far as the archive has them.
[[nodiscard]] ModelGraph buildGraph(const Archive& archive, const std::map<std::string, std::string>& texts);

}  // namespace pw::pt2
