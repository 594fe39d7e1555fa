#include "engine/planning/inputs/measure.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "backends/host/gpu_inventory.h"
#include "backends/host/installation.h"
#include "backends/resources/resources.h"
#include "backends/torch/backend.h"
#include "backends/torch/wheel.h"
#include "engine/processes/failure.h"
#include "engine/processes/launcher.h"
#include "schedules/error.h"
#include "simulator/costs/estimate.h"
#include "simulator/text/counted.h"

namespace pw {

std::string nameOf(const MeasureDevice& device) {
  if (const auto* gpu = std::get_if<OnGpu>(&device)) return fmt::format("cuda:{}", gpu->number);
  return std::holds_alternative<OnGpus>(device) ? "cuda" : "cpu";
}

MeasureDevice parseMeasureDevice(const std::string& name) {
  if (name == "cpu") return OnCpus();
  if (name == "cuda") return OnGpus();
  constexpr std::string_view kPrefix = "cuda:";
  int number = -1;
  const char* const end = name.data() + name.size();
  if (name.starts_with(kPrefix) && std::from_chars(name.data() + kPrefix.size(), end, number).ptr != end) number = -1;
  if (number < 0) throw UsageError(fmt::format("There is no device '{}'; give cpu, cuda, or cuda:0 and so on.", name));
  return OnGpu{number};
}

std::optional<int> gpuNumber(const MeasureOptions& o) {
  if (!o.device || std::holds_alternative<OnCpus>(*o.device)) return std::nullopt;
  const auto* one = std::get_if<OnGpu>(&*o.device);
  return one == nullptr ? 0 : one->number;
}

void refuseWhatCannotMeasure(const MeasureOptions& o, CostsFrom costs) {
  const std::optional<int> number = gpuNumber(o);
  if (costs != CostsFrom::Cluster && o.attention != Attention::AsTraced)
    throw UsageError("--attention says how estimates count it, but these costs are not estimated; omit it, or give --cluster alone.");
  if (costs == CostsFrom::Measuring && o.precision == DType::Float8)
    throw UsageError("The engine does not compute in fp8, so its costs cannot be measured; estimate them for a cluster, or use bf16.");
  if (costs == CostsFrom::Cluster && (o.device || o.tf32 || o.noGraphs || o.threads > 0)) {
    throw UsageError(
        "--device, --tf32, --no-graphs and --threads control how costs are measured, but estimated costs for a cluster are not measured "
        "now; omit them.");
  }
  if (costs == CostsFrom::Profile && (o.device || o.precision != DType::Unknown || o.tf32 || o.noGraphs || o.threads > 0)) {
    throw UsageError(
        "--device, --precision, --tf32, --no-graphs and --threads control how costs are measured, but these costs are not measured now; "
        "omit them.");
  }
  if (!number && o.tf32) throw UsageError("--tf32 is for GPUs; add --device cuda, or omit it.");
  if (!number && o.noGraphs) throw UsageError("--no-graphs is for GPUs; add --device cuda, or omit it.");
  if (!number) return;
  const std::string why = whyUnusable(gpuInventory(), *number);
  const std::string cure = *number == 0 ? " Without one, measure on the CPU or estimate for a cluster." : "";
  if (!why.empty()) throw UsageError(fmt::format("--device {} needs that GPU. {}{}", nameOf(*o.device), why, cure));
}

void refuseBesideEstimate(const MeasureOptions& o, int ranks) {
  if (ranks > 0 || !o.libraries.empty())
    throw UsageError("An estimate starts no processes and computes nothing; omit --ranks and --load-library.");
}

Profile estimateFor(const ModelGraph& graph, std::int64_t microbatch, const Cluster& cluster, const MeasureOptions& options,
                    const Loss& loss) {
  return estimate(graph, microbatch, cluster, options.precision, options.attention, loss);
}

double peakOfGpu(const ModelGraph& graph, const Profile& measured) {
  std::optional<Cluster> preset = measured.computing.onGpu ? presetOfGpu(measured.machine.processor) : std::nullopt;
  if (!preset) return 0;
  const auto rounded = preset->peakFlops.find("tf32");
  if (measured.computing.tf32 && rounded != preset->peakFlops.end()) preset->peakFlops["fp32"] = rounded->second;
  return estimate(graph, measured.microbatch, *preset, measured.computing.precision).peakFlops;
}

Profile measureWithRanks(const std::vector<std::string>& models, std::int64_t microbatch, int ranks, const MeasureOptions& options,
                         const Loss& loss, const Tell& tell) {
  if (gpuNumber(options)) {
    const auto gpus = static_cast<int>(std::ranges::count_if(gpuInventory().gpus, isUsable));
    ranks = std::holds_alternative<OnGpus>(*options.device) ? std::clamp(ranks, 1, std::max(1, gpus)) : 1;
  } else if (static std::atomic<bool> looked = false;
             tell && !options.device && !looked.exchange(true) && whyUnusable(gpuInventory(), 0).empty()) {
    tell("costs are measured on the CPU; use --device cuda for the GPUs of this machine");
  }
  constexpr int kMostPerCore = 4;  // more would only wait for each other, and each needs some 300 MB
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (!gpuNumber(options) && ranks > std::max(16, kMostPerCore * cores)) {
    throw UsageError(fmt::format(
        "Costs are measured with one process per rank, and {} are too many for {}; estimate them with --cluster, or use a --profile.",
        ranks, counted(cores, "core")));
  }
  requireTorch();
  const int threads = std::max(1, options.threads);
  std::vector<std::string> argv{ownPath(), "profile"};
  argv.insert(argv.end(), models.begin(), models.end());
  argv.insert(argv.end(),
              {"--microbatch", std::to_string(microbatch), "--threads", std::to_string(threads), "--loss", toString(loss), "--progress",
               std::string(nameOf(options.progressStyle)), "--json", "--precision", std::string(precisionName(options.precision))});
  if (options.device) argv.insert(argv.end(), {"--device", nameOf(*options.device)});
  if (options.tf32) argv.emplace_back("--tf32");
  if (options.noGraphs) argv.emplace_back("--no-graphs");
  for (const std::string& library : libraryPaths(options.libraries)) argv.insert(argv.end(), {"--load-library", library});
  std::string json;  // rank 0 prints it, because others could read or replace a file
  const auto collect = [&](JobRank rank, const std::string& line) {
    if (rank == JobRank(0)) json.append(line).append("\n");
  };
  throwUnlessOk(launch(ranks, argv, threads, collect, std::chrono::minutes(30)));
  return parseProfile(json, "The measured profile");
}

}  // namespace pw
