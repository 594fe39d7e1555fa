#include "backends/host/installation.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "backends/host/paths.h"
#include "schedules/error.h"

namespace pw {

namespace fs = std::filesystem;

namespace {

/// That of our Python modules which this function is part of; else nothing.
std::optional<fs::path> pythonModule() {
  Dl_info place{};
  if (::dladdr(reinterpret_cast<const void*>(&ownPath), &place) == 0 || place.dli_fname == nullptr) return std::nullopt;
  fs::path file = fs::absolute(place.dli_fname);
  const std::string name = file.filename().string();
  if (!name.starts_with("_pipewright.") && !name.starts_with("_pipewright_torch.")) return std::nullopt;
  return file;
}

std::string programOf(const fs::path& module) {
  const fs::path folder = module.parent_path();
  for (const fs::path& prefix : {folder, folder.parent_path().parent_path()}) {
    const std::string program = (prefix / "bin" / "pipewright").string();
    if (pathExists(program)) return program;
  }
  throw Error("The program pipewright is not beside the Python module " + module.string() + "; install the package again.");
}

}  // namespace

std::string ownPath() {
  if (const auto module = pythonModule()) return programOf(*module);
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
