#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/planning/inputs/progress_style.h"
#include "simulator/costs/attention.h"
#include "simulator/costs/profile.h"
#include "simulator/model/loss.h"

namespace pw {

/// Where costs are measured: on CPUs, on a GPU for each process, or on one GPU.
struct OnCpus {
  bool operator==(const OnCpus&) const = default;
};
struct OnGpus {
  bool operator==(const OnGpus&) const = default;
};
struct OnGpu {
  int number = 0;  ///< CUDA's
  bool operator==(const OnGpu&) const = default;
};
using MeasureDevice = std::variant<OnCpus, OnGpus, OnGpu>;

/// `cpu`, `cuda`, `cuda:2`.
[[nodiscard]] std::string nameOf(const MeasureDevice& device);
/// The reverse. Throws UsageError for other names.
[[nodiscard]] MeasureDevice parseMeasureDevice(const std::string& name);

/// How costs are measured: the options that `profile`, `plan` and `search` share.
struct MeasureOptions {
  std::optional<MeasureDevice> device;        ///< nothing: not given, on CPUs
  DType precision = DType::Unknown;           ///< Unknown: as traced; BFloat16, Float16; of estimates also Float8
  Attention attention = Attention::AsTraced;  ///< of estimates
  bool tf32 = false, noGraphs = false;
  int threads = 0;                                         ///< 0: not given, 1
  std::vector<std::string> libraries{};                    ///< that define custom operators; not only for measuring
  ProgressStyle progressStyle = ProgressStyle::Automatic;  ///< of the measuring processes
};

/// Where the costs of a plan come from.
enum class CostsFrom : std::uint8_t { Measuring, Profile, Cluster };

/// Throws UsageError if the device cannot be used here, another option needs a GPU, or nothing is measured, so that the
/// options have no effect.
void refuseWhatCannotMeasure(const MeasureOptions& options, CostsFrom costs);
/// Throws UsageError for what an estimate alone, without a plan, makes no use of. `ranks`: 0 where not given.
void refuseBesideEstimate(const MeasureOptions& options, int ranks);
/// CUDA's number of the GPU, the first of several; nothing for CPUs.
[[nodiscard]] std::optional<int> gpuNumber(const MeasureOptions& options);

/// Costs estimated for a cluster with these options.
[[nodiscard]] Profile estimateFor(const ModelGraph& graph, std::int64_t microbatch, const Cluster& cluster, const MeasureOptions& options,
                                  const Loss& loss);

/// Peak FLOP/s of the GPU that these costs were measured on, at the type of most of the model's FLOPs there, by the preset of its name; 0:
/// on a CPU, or no preset knows it.
[[nodiscard]] double peakOfGpu(const ModelGraph& graph, const Profile& measured);

/// Gets a sentence for the user.
using Tell = std::function<void(const std::string& sentence)>;

/// Measures a profile with `ranks` processes of this program computing at once; on GPUs with at most as many as there are GPUs. `tell` is
/// called at most once per process, to say that there are GPUs that were not requested; may be empty. One at a time in a process, as
/// `launch`; takes seconds to minutes, at most 30. Throws UsageError for a device, a number of ranks or a model that cannot be used, Error
/// where measuring fails.
[[nodiscard]] Profile measureWithRanks(const std::vector<std::string>& models, std::int64_t microbatch, int ranks,
                                       const MeasureOptions& options, const Loss& loss, const Tell& tell);

}  // namespace pw
