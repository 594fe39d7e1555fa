#pragma once

// Internal to the archive reader: from the texts of an archive to a ModelGraph.

#include <map>
#include <string>
#include <string_view>
#include <vector>

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

/// Gives every parameter, buffer and constant the place of its bytes, and folds tied parameters that no node reads.
/// `isRead` has one flag per value.
void attachState(ModelGraph& graph, const Archive& archive, const std::map<std::string, std::string>& texts,
                 const std::vector<bool>& isRead);

/// Keys of the model's outputs, one per entry of `output_specs`, empty where an output has none; nothing where `graph_module` does not say,
/// or says it in a form this version does not know. `loss` of a dict or dataclass, `hidden.0` of a list inside one.
[[nodiscard]] std::vector<std::string> readOutputKeys(const Json& graphModule, std::size_t outputs);

/// `key,path,class;key,path,class` → frames, root first. Commas and semicolons inside brackets belong to a name; a
/// `@1` that marks a repeated call is cut off. Text of another form gives the root alone, without class name.
[[nodiscard]] std::vector<ModuleFrame> parseModules(std::string_view stack);

/// The innermost `File "…", line N, in f` outside torch's own modules as `model.py:21 in forward`. Absolute paths keep their
/// last part only. Empty without such a line.
[[nodiscard]] std::string parseSourceLine(std::string_view trace);

}  // namespace pw::pt2
