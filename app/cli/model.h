#pragma once

#include <string>
#include <vector>

#include "backends/resources.h"

namespace pw::cli {

/// This program's path and the arguments it was called with, to start it again as its own rank.
[[nodiscard]] std::vector<std::string> ownCall();

/// Measures a profile with `ranks` processes of this program computing at once. `progressStyle`: as of `--progress`.
[[nodiscard]] Profile measureWithRanks(const std::vector<std::string>& models, std::int64_t microbatch, int ranks, int threads,
                                       const std::string& loss, const std::string& progressStyle = "auto");

}  // namespace pw::cli
