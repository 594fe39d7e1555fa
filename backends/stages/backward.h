#pragma once

#include <cstdint>
#include <string_view>

#include "schedules/named_values.h"

namespace pw {

/// Who says which forward or backward a rank does next.
enum class Backward : std::uint8_t {
  Schedule,  ///< the rows of the plan
  Dynamic,   ///< nobody: values go by remote calls, and distributed autograd finds its way back
};
constexpr std::string_view nameOf(Backward backward) {
  switch (backward) {
    case Backward::Schedule: return "schedule";
    case Backward::Dynamic: return "dynamic";
  }
  return {};
}

}  // namespace pw
