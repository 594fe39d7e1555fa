#pragma once

// Internal to the search for orders.

#include <cstddef>
#include <cstdint>

namespace pw {

/// A count or number ≥ 0 as the index of a container.
[[nodiscard]] constexpr std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace pw
