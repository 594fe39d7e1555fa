#include "backends/host/module.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "schedules/error.h"

namespace pw {

const void* loadModule(const std::string& file, const char* entry, const std::string& cure) {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::filesystem::path folder = std::filesystem::path(length > 0 ? path.data() : ".").parent_path();
  std::string reason;
  for (const auto& candidate : {folder / ".." / "lib" / file, folder / file}) {
    void* module = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
      reason = std::filesystem::exists(candidate) || reason.empty() ? dlerror() : reason;
      continue;
    }
    using Entry = const void* (*)();
    const auto found = reinterpret_cast<Entry>(dlsym(module, entry));
    if (found != nullptr) return found();
    reason = candidate.string() + " is from another version";
  }
  throw Error("The module " + file + " could not be loaded (" + reason + "); " + cure);
}

}  // namespace pw
