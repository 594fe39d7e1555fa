#include "backends/torch/backend.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "backends/host/environment.h"
#include "backends/host/module.h"
#include "backends/torch/wheel.h"
#include "schedules/error.h"

namespace pw {
namespace {

const TorchBackend* load() {
  // What goes wrong comes as an exception; a log beside it only confuses.
  setDefaultVariables(std::array<EnvironmentVariable, 1>{{{"TORCH_CPP_LOG_LEVEL", "FATAL"}}});
  loadTorchLibrary("libtorch_cpu.so");
  return static_cast<const TorchBackend*>(
      loadModule("libpw_torch.so", "pipewrightTorchBackend", "./dev build fetches PyTorch's wheel (about 3 GB) and builds it."));
}

}  // namespace

const TorchBackend& torchBackend() {
  static const TorchBackend* backend = load();
  return *backend;
}

std::vector<std::string> libraryPaths(const std::vector<std::string>& given) {
  namespace fs = std::filesystem;
  std::vector<std::string> paths;
  for (const std::string& path : given) {
    std::error_code problem;
    if (!fs::is_regular_file(path, problem)) {
      throw UsageError("The library of operators " + path + " is not a file; give --load-library the path of a shared library (.so).");
    }
    const std::string absolute = fs::canonical(path, problem).string();  // loaded by two names, it would define its operators twice
    if (std::find(paths.begin(), paths.end(), absolute) == paths.end()) paths.push_back(absolute);
  }
  return paths;
}

void loadLibraries(const std::vector<std::string>& paths) {
  for (const std::string& path : libraryPaths(paths)) torchBackend().loadLibrary(path);
}

}  // namespace pw
