#pragma once

#include <string>

namespace pw {

/// Whether something is there; false too where a folder on the way cannot be entered, or the path is too long to be one. Never throws.
[[nodiscard]] bool pathExists(const std::string& path);
[[nodiscard]] bool isFolder(const std::string& path);
/// The path from the root; as it stands where the working folder is gone. Never throws.
[[nodiscard]] std::string absolutePath(const std::string& path);

}  // namespace pw
