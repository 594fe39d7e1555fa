#pragma once

#include <string>
#include <vector>

#include "simulator/costs/operator_costs.h"

namespace pw::cli {

/// A sentence, preceded by a line break, that lists what FLOPs and, if `estimated`, times do not include; empty for an empty list.
[[nodiscard]] std::string incompleteLine(const std::vector<NotCounted>& list, bool estimated);

}  // namespace pw::cli
