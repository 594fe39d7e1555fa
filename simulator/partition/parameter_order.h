#pragma once

#include <string>
#include <vector>

#include "simulator/model/model_graph.h"
#include "simulator/partition/partition.h"

namespace pw {

/// Parameters in the order of `model.parameters()` in Python, each storage once at its first name's place, under the name that the graph
/// reads it by. The trace lists them in that order, under all their names. Frozen and unread ones are among them. Cost: quadratic in tied
/// names only.
[[nodiscard]] std::vector<std::string> parameterOrder(const ModelGraph& graph);

/// Parameters and persistent buffers of the model that no stage of the partition holds, as no node reads them: part of the model's state
/// dict all the same. Without names of storages that a stage holds.
[[nodiscard]] std::vector<const StateTensor*> unreadState(const ModelGraph& graph, const Partition& partition);

}  // namespace pw
