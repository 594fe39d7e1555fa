#pragma once

#include <cstddef>
#include <string>

namespace pw {

/// Bytes that nobody can guess (getrandom). Throws Error where the system gives none.
[[nodiscard]] std::string randomBytes(std::size_t count);

}  // namespace pw
