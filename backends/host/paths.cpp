#include "backends/host/paths.h"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

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

std::string immutableUri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#')
      uri += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    else
      uri += c;
  }
  return uri + "?immutable=1";
}

}  // namespace pw
