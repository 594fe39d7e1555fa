#include "backends/torch_backend.h"

#include <cstdlib>

#include "backends/module.h"

namespace pw {
namespace {

const TorchBackend* load() {
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);  // what goes wrong comes as an exception; a log beside it only confuses
  return static_cast<const TorchBackend*>(loadModule("libpw_torch.so", "pipewrightTorchBackend", "build it with ./dev build."));
}

}  // namespace

const TorchBackend& torchBackend() {
  static const TorchBackend* backend = load();
  return *backend;
}

}  // namespace pw
