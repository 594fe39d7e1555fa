#include "backends/torch_backend.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "schedules/error.h"

namespace pw {
namespace {

const TorchBackend* load() {
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);  // what goes wrong comes as an exception; a log beside it only confuses
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::filesystem::path folder = std::filesystem::path(length > 0 ? path.data() : ".").parent_path();
  std::string reason;
  for (const auto& candidate : {folder / ".." / "lib" / "libpw_torch.so", folder / "libpw_torch.so"}) {
    void* module = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
      reason = std::filesystem::exists(candidate) || reason.empty() ? dlerror() : reason;
      continue;
    }
    using Entry = const TorchBackend* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(module, "pipewrightTorchBackend"));
    if (entry != nullptr) return entry();
    reason = candidate.string() + " is from another version";
  }
  throw Error("The LibTorch module libpw_torch.so could not be loaded (" + reason + "); build it with ./dev build.");
}

}  // namespace

const TorchBackend& torchBackend() {
  static const TorchBackend* backend = load();
  return *backend;
}

}  // namespace pw
