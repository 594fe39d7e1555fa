#pragma once

#include <QString>
#include <vector>

#include "simulator/costs/topology.h"

namespace pw::gui {

/// By rank of a timeline: its node, its replica, or both, where there are several. Empty: all ranks are in one group. A timeline of one
/// pipeline of several has the ranks of the first; `pipeline`: ranks of one, 0 where it is unknown.
[[nodiscard]] std::vector<QString> groupsOf(std::size_t ranks, std::size_t pipeline, const Topology& topology);

}  // namespace pw::gui
