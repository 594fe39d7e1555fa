#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/resources/resources.h"
#include "simulator/plan/optimizer.h"

namespace CLI {
class App;
}

namespace pw::cli {

/// This program's path and arguments, to start it again as a rank.
[[nodiscard]] std::vector<std::string> ownCall();

/// How costs are measured: the options that `profile`, `plan` and `search` share.
struct MeasureOptions {
  std::string device;  ///< cpu, cuda (one GPU per process) or cuda:N; empty: not given, cpu
  std::string precision = "traced";
  bool tf32 = false, noGraphs = false;
  int threads = 0;                     ///< 0: not given, 1
  std::vector<std::string> libraries;  ///< that define custom operators; not only for measuring
};

/// `--load-library`, which `inspect` and `run` have too.
void addLibraryOption(CLI::App& command, std::vector<std::string>& libraries);
void addMeasureOptions(CLI::App& command, MeasureOptions& options);

/// Where the costs of a plan come from.
enum class CostsFrom : std::uint8_t { Measuring, Profile, Cluster };

/// Throws UsageError if the device is unknown or cannot be used here, another option needs a GPU, or nothing is measured, so that the
/// options have no effect.
void refuseWhatCannotMeasure(const MeasureOptions& options, CostsFrom costs);
/// CUDA's number of `cuda:N`, 0 for `cuda`, −1 for a CPU. Throws UsageError for other names.
[[nodiscard]] int gpuNumber(const MeasureOptions& options);

/// The optimizer that a plan or search accounts for. Throws UsageError for an unknown name and a momentum that it does not have.
[[nodiscard]] OptimizerSpec plannedOptimizer(const std::string& name, double momentum);

/// Measures a profile with `ranks` processes of this program computing at once; on GPUs with at most as many as there are GPUs.
/// `progressStyle`: as of `--progress`.
[[nodiscard]] Profile measureWithRanks(const std::vector<std::string>& models, std::int64_t microbatch, int ranks,
                                       const MeasureOptions& options, const std::string& loss, const std::string& progressStyle = "auto");

}  // namespace pw::cli
