#include "backends/host/installation.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "backends/host/paths.h"
#include "schedules/error.h"

namespace pw {

namespace fs = std::filesystem;

std::string ownPath() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) throw Error("This program cannot find its own path in /proc/self/exe; mount /proc.");
  return path.data();
}

std::optional<std::string> installPrefix() {
  const fs::path prefix = fs::path(ownPath()).parent_path().parent_path();
  if (!isFolder((prefix / "share" / "pipewright").string())) return std::nullopt;
  return prefix.string();
}

std::vector<std::string> moduleCandidates(const std::string& file) {
  const fs::path own = fs::path(ownPath()).parent_path(), lib = own.parent_path() / "lib";
  return {(lib / "pipewright" / file).string(), (lib / file).string(), (own / file).string()};
}

std::optional<std::string> modulePath(const std::string& file) {
  for (const std::string& path : moduleCandidates(file)) {
    if (pathExists(path)) return path;
  }
  return std::nullopt;
}

std::string resourceFolder() {
  if (const char* folder = std::getenv("PIPEWRIGHT_RESOURCES")) return folder;
  if (const auto prefix = installPrefix()) return *prefix + "/share/pipewright";
  return (fs::path(ownPath()).parent_path().parent_path().parent_path() / "resources").string();
}

}  // namespace pw
