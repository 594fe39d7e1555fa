#pragma once

// Internal to the checkpoints of torch.distributed.checkpoint: what their reader and writer agree on.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace pw {

/// The keys that lead to a value in the dict that was saved; list places as numbers.
using KeyPath = std::vector<std::variant<std::string, std::int64_t>>;

/// The keys joined by dots, which is a value's name in the metadata.
[[nodiscard]] std::string joined(const KeyPath& path);

inline constexpr const char* kMetadataFile = ".metadata";

/// That file of a checkpoint's folder.
[[nodiscard]] std::string metadataOf(const std::string& folder);

inline constexpr std::string_view kNumbersKey = "pipewright";  ///< of the dict with what only we keep: numbers by name
inline constexpr std::string_view kStepKey = "step";           ///< of an optimizer's state: how many steps it has made

}  // namespace pw
