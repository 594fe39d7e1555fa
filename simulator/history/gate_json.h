#pragma once

#include <string>

#include "simulator/history/gate.h"

namespace pw {

/// The JSON document of `gate --json`, as text without a final newline; keys have a fixed order.
[[nodiscard]] std::string gateJson(const GateReport& report);

}  // namespace pw
