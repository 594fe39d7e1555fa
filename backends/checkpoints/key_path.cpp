#include "backends/checkpoints/key_path.h"

#include <filesystem>

namespace pw {

std::string joined(const KeyPath& path) {
  std::string text;
  for (const auto& key : path) {
    text += text.empty() ? "" : ".";
    text += std::holds_alternative<std::string>(key) ? std::get<std::string>(key) : std::to_string(std::get<std::int64_t>(key));
  }
  return text;
}

std::string metadataOf(const std::string& folder) { return (std::filesystem::path(folder) / kMetadataFile).string(); }

}  // namespace pw
