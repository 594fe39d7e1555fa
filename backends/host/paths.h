#pragma once

#include <string>

namespace pw {

/// Whether the path exists; also false if a folder on the way cannot be entered or the path is too long. Never throws.
[[nodiscard]] bool pathExists(const std::string& path);
[[nodiscard]] bool isFolder(const std::string& path);
/// The absolute path; unchanged if the working folder no longer exists. Never throws.
[[nodiscard]] std::string absolutePath(const std::string& path);
/// The file's name for a reader of SQLite that may create nothing beside it: SQLite takes the file for unchanging.
[[nodiscard]] std::string immutableUri(const std::string& path);

}  // namespace pw
