#include <ATen/Parallel.h>
#include <c10/util/Logging.h>

#include "backends/torch_backend.h"
#include "backends/torch_memory.h"

namespace {

void prepareProcess(int threads) {
  c10::initLogging();  // takes TORCH_CPP_LOG_LEVEL, which torchBackend() set
  at::set_num_threads(threads);
  pw::installCountingAllocator();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const pw::TorchBackend* pipewrightTorchBackend() {
  static const pw::TorchBackend backend{&prepareProcess, &pw::makeTracedStage, &pw::connectGloo, &pw::measureProfile};
  return &backend;
}
