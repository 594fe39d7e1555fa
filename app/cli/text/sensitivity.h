#pragma once

#include <string>

#include "simulator/report/sensitivity.h"

namespace pw::cli {

/// A tornado: what changes the makespan most comes first, with bars to both sides.
[[nodiscard]] std::string sensitivityText(const SensitivityReport& report);
/// A JSON document with the field `sensitivity` added.
[[nodiscard]] std::string withSensitivity(const std::string& document, const SensitivityReport& report);

}  // namespace pw::cli
