#pragma once

#include <cstddef>
#include <string>

namespace pw {

/// Cryptographically random bytes (getrandom). Throws Error if the system provides none.
[[nodiscard]] std::string randomBytes(std::size_t count);

}  // namespace pw
