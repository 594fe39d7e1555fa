#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Logging.h>

#include <dlfcn.h>

#include <optional>
#include <string>
#include <vector>

#include "backends/torch/autograd/tensors.h"
#include "backends/torch/backend.h"
#include "backends/torch/program/operators.h"
#include "backends/torch/program/steps.h"
#include "backends/torch/stage/data.h"
#include "backends/torch/stage/memory.h"
#include "schedules/error.h"

namespace {

void prepareProcess(int threads) {
  c10::initLogging();  // takes TORCH_CPP_LOG_LEVEL, which torchBackend() set
  at::set_num_threads(threads);
  pw::installCountingAllocator();
}

bool hasOperator(const std::string& target) { return pw::isHigherOrder(target) || pw::operatorNamed(target).has_value(); }

std::vector<std::string> writtenArguments(const std::string& target) {
  std::vector<std::string> names;
  const auto found = pw::operatorNamed(target);
  if (!found) return names;
  for (const c10::Argument& argument : found->schema().arguments()) {
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) names.push_back(argument.name());
  }
  return names;
}

/// The libraries that it needs itself are here already, and its operators become known while it is loaded. What it takes from LibTorch
/// without saying so (an extension built by hand) is found where LibTorch's names are visible to all.
void loadLibrary(const std::string& path) {
  for (const char* needed : {"libc10.so", "libtorch_cpu.so"}) ::dlopen(needed, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  const char* problem = ::dlerror();
  const std::string why = problem == nullptr ? "the system does not say why" : problem;
  const std::string cure = why.find("Py") == std::string::npos
                               ? "build it with the compiler and the version of PyTorch that Pipewright uses"
                               : "it needs Python: build it without, by torch.utils.cpp_extension.load(..., is_python_module=False)";
  throw pw::UsageError("The library of operators " + path + " cannot be loaded (" + why + "); " + cure + ".");
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const pw::TorchBackend* pipewrightTorchBackend() {
  static const pw::TorchBackend backend{&prepareProcess,      &pw::makeTracedStage,   &pw::connectGloo, &pw::connectStore,
                                        &pw::measureProfile,  &hasOperator,           &loadLibrary,     &writtenArguments,
                                        &pw::connectGlooLink, &pw::autogradFunctions, &pw::checkBatch,  &pw::stageFunctions};
  return &backend;
}
