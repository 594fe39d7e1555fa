#include "app/cli/options/own_ranks.h"

#include <CLI/CLI.hpp>
#include <fstream>

#include "app/cli/options/choices.h"
#include "app/cli/options/numbers.h"
#include "backends/host/installation.h"
#include "engine/planning/inputs/limits.h"
#include "schedules/error.h"

namespace pw::cli {

std::vector<std::string> ownCall() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> call;
  for (std::string argument; std::getline(file, argument, '\0');) call.push_back(argument);
  if (call.empty()) throw Error("This program cannot find its own arguments in /proc/self/cmdline; mount /proc.");
  call.front() = ownPath();
  return call;
}

void addLibraryOption(CLI::App& command, std::vector<std::string>& libraries) {
  command
      .add_option("--load-library", libraries,
                  "A shared library that defines custom operators of the model (TORCH_LIBRARY); may be repeated")
      ->allow_extra_args(false)  // what follows it is another argument
      ->option_text("FILE.so");
}

void addMeasureOptions(CLI::App& command, MeasureOptions& o) {
  addLibraryOption(command, o.libraries);
  command
      .add_option_function<std::string>(
          "--device", [&o](const std::string& name) { o.device = parseMeasureDevice(name); },
          "Device to measure costs on: cpu (default), cuda (one GPU per process) or cuda:N")
      ->option_text("DEVICE");
  addChoice(
      command, "--precision", "traced|bf16|fp16|fp8", [&o](std::string_view name) { o.precision = precisionNamed(name).value(); },
      "Compute matrix products and similar operators in bf16 or fp16 (autocast), as the run will; also applies to estimates for a cluster, "
      "where fp8 computes linear layers in 8 bits and the rest in bf16");
  addChoice(command, "--attention", o.attention,
            "How estimates for a cluster count attention: as it is traced (default), all as fused kernels, or none as one");
  command.add_flag("--tf32", o.tf32, "Allow GPUs to round the inputs of float32 matrix products to 19 bits (TF32), as the run will");
  command.add_flag("--no-graphs", o.noGraphs, "Launch every operator on its own instead of replaying CUDA graphs, as the run will");
  command.add_option("--threads", o.threads, "Intra-op threads of each process (default 1)")
      ->check(wholeFrom(1, kMostThreads))
      ->option_text("N");
}

}  // namespace pw::cli
