#pragma once

// How files and designs remember a cluster, for `loadCluster`: a preset's name or a file's path, with links; or the cluster itself, as the
// text of its file, which nobody has to keep beside them.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "simulator/text/json_part.h"

namespace pw {

/// Whether it is a cluster's text, rather than where there is one.
[[nodiscard]] bool isClusterText(std::string_view name);

/// In JSON a text is the object that it says.
[[nodiscard]] nlohmann::ordered_json clusterNameJson(const std::string& name);
/// The same back; a text is as `toJson` of its cluster writes it. `source` names the file in errors. Throws UsageError for what is neither
/// a text nor a cluster.
[[nodiscard]] std::string clusterNameIn(const JsonPart& part, const std::string& source);

}  // namespace pw
