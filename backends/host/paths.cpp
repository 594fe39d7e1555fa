#include "backends/host/paths.h"

#include <filesystem>
#include <system_error>

namespace pw {

bool pathExists(const std::string& path) {
  std::error_code unreachable;
  return std::filesystem::exists(path, unreachable);
}

bool isFolder(const std::string& path) {
  std::error_code unreachable;
  return std::filesystem::is_directory(path, unreachable);
}

std::string absolutePath(const std::string& path) {
  std::error_code noFolder;
  const std::filesystem::path found = std::filesystem::absolute(path, noFolder);
  return noFolder ? path : found.string();
}

}  // namespace pw
