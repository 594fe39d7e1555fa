#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/planning/progress_style.h"
#include "simulator/costs/attention.h"
#include "simulator/costs/profile.h"

namespace pw {

/// How costs are measured: the options that `profile`, `plan` and `search` share.
struct MeasureOptions {
  std::string device;                         ///< cpu, cuda (one GPU per process) or cuda:N; empty: not given, cpu
  DType precision = DType::Unknown;           ///< Unknown: as traced; BFloat16, Float16; of estimates also Float8
  Attention attention = Attention::AsTraced;  ///< of estimates
  bool tf32 = false, noGraphs = false;
  int threads = 0;                                         ///< 0: not given, 1
  std::vector<std::string> libraries;                      ///< that define custom operators; not only for measuring
  ProgressStyle progressStyle = ProgressStyle::Automatic;  ///< of the measuring processes
};

/// Where the costs of a plan come from.
enum class CostsFrom : std::uint8_t { Measuring, Profile, Cluster };

/// Throws UsageError if the device is unknown or cannot be used here, another option needs a GPU, or nothing is measured, so that the
/// options have no effect.
void refuseWhatCannotMeasure(const MeasureOptions& options, CostsFrom costs);
/// CUDA's number of `cuda:N`, 0 for `cuda`, −1 for a CPU. Throws UsageError for other names.
[[nodiscard]] int gpuNumber(const MeasureOptions& options);

/// Costs estimated for a cluster with these options.
[[nodiscard]] Profile estimateFor(const ModelGraph& graph, std::int64_t microbatch, const Cluster& cluster, const MeasureOptions& options);

/// Gets a sentence for the user.
using Tell = std::function<void(const std::string& sentence)>;

/// Measures a profile with `ranks` processes of this program computing at once; on GPUs with at most as many as there are GPUs. `tell` is
/// called at most once per process, to say that there are GPUs that were not requested; may be empty. One at a time in a process, as
/// `launch`; takes seconds to minutes, at most 30. Throws UsageError for a device, a number of ranks or a model that cannot be used, Error
/// where measuring fails.
[[nodiscard]] Profile measureWithRanks(const std::vector<std::string>& models, std::int64_t microbatch, int ranks,
                                       const MeasureOptions& options, const std::string& loss, const Tell& tell);

}  // namespace pw
