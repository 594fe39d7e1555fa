#include "simulator/costs/cluster_name.h"

#include <nlohmann/json.hpp>

#include "simulator/costs/cluster.h"
#include "simulator/text/json_text.h"

namespace pw {

bool isClusterText(std::string_view name) { return name.starts_with('{'); }

nlohmann::ordered_json clusterNameJson(const std::string& name) {
  return isClusterText(name) ? ownJson(name) : nlohmann::ordered_json(name);
}

std::string clusterNameIn(const JsonPart& part, const std::string& source) {
  if (!part.json().is_object()) {
    auto name = part.as<std::string>();
    if (isClusterText(name)) part.fail("is neither a cluster's name nor a cluster");
    return name;
  }
  return toJson(parseCluster(part.json().dump(), "The cluster in " + source));
}

}  // namespace pw
