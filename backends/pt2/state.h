#pragma once

#include <map>
#include <string>
#include <vector>

#include "backends/pt2/graph.h"

namespace pw::pt2 {

/// Gives every parameter, buffer and constant the place of its bytes, and folds tied parameters that no node reads.
/// `isRead` has one flag per value.
void attachState(ModelGraph& graph, const Archive& archive, const std::map<std::string, std::string>& texts,
                 const std::vector<bool>& isRead);

}  // namespace pw::pt2
