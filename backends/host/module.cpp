#include "backends/host/module.h"

#include <dlfcn.h>

#include "backends/host/installation.h"
#include "backends/host/paths.h"
#include "schedules/error.h"

namespace pw {

const void* loadModule(const std::string& file, const char* entry, const std::string& cure) {
  std::string reason;
  for (const std::string& candidate : moduleCandidates(file)) {
    void* module = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
      reason = pathExists(candidate) || reason.empty() ? dlerror() : reason;
      continue;
    }
    using Entry = const void* (*)();
    const auto found = reinterpret_cast<Entry>(dlsym(module, entry));
    if (found != nullptr) return found();
    reason = candidate + " is from another version";
  }
  throw Error("The module " + file + " could not be loaded (" + reason + "); " + cure);
}

}  // namespace pw
