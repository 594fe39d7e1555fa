#pragma once

#include <string>
#include <vector>

#include "simulator/costs/operator_costs.h"

namespace pw::cli {

/// A JSON list of `{op, module, count, why}`.
[[nodiscard]] std::string notCountedJson(const std::vector<NotCounted>& list);

/// A sentence with a line break before it that says what FLOPs and, where `estimated`, times leave out; empty for an empty list.
[[nodiscard]] std::string incompleteLine(const std::vector<NotCounted>& list, bool estimated);

}  // namespace pw::cli
