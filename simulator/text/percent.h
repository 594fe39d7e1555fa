#pragma once

#include <string>

namespace pw {

/// `12.3 %` of a fraction; with `signedPercent` `+12.3 %`.
[[nodiscard]] std::string percent(double fraction);
[[nodiscard]] std::string signedPercent(double fraction);

}  // namespace pw
