#pragma once

#include <cstdint>
#include <string_view>

#include "schedules/named_values.h"

namespace pw {

/// Where the times of a model's nodes come from.
enum class CostSource : std::uint8_t {
  Measured,   ///< on this machine, or one like it
  Estimated,  ///< from the model's operators and a cluster's figures (estimate.h)
};
constexpr std::string_view nameOf(CostSource source) {
  switch (source) {
    case CostSource::Measured: return "measured";
    case CostSource::Estimated: return "estimated";
  }
  return {};
}

}  // namespace pw
