#pragma once

#include <cstdint>

namespace pw {

/// For products of two numbers of 64 bits; g++ and clang have it.
__extension__ using Wide = __int128;

}  // namespace pw
