#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pw {

/// `1 rank`, `4 ranks`.
[[nodiscard]] std::string counted(std::int64_t number, std::string_view noun);

}  // namespace pw
