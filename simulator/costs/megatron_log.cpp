#include "simulator/costs/megatron_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/placement.h"
#include "simulator/costs/pipedream_graph.h"
#include "simulator/text/median.h"
#include "simulator/text/number_text.h"

namespace pw {
namespace {

constexpr std::string_view kAll = "times across ranks (ms):", kMinMax = "(min, max) time across ranks (ms):",
                           kMax = "max time across ranks (ms):";
constexpr double kMostMs = 1e9;  ///< of a sum over a step: 11 days
constexpr double kAlike = 1.25;  ///< the widest range of times that stands for all ranks
constexpr std::int64_t kMostWorld = 10'000'000, kMostReports = 1'000'000;

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<double> milliseconds(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || !(value >= 0) || value > kMostMs) return std::nullopt;
  return value;
}

/// Times of a timer by rank, one for each report; −1: of all ranks.
using Timer = std::map<std::int64_t, std::vector<double>>;

class Log {
 public:
  explicit Log(const std::string& source) : source_(source) {}
  LayerTable read(std::string_view text);

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw UsageError(fmt::format(
        "{} is not a usable log of Megatron-LM: {}; log a training with --timing-log-level 2 --timing-log-option all", source_, what));
  }
  void takeLine(std::string_view line);
  [[nodiscard]] bool takeArgument(std::string_view line);
  void takeTime(std::string_view line);
  [[nodiscard]] std::int64_t argument(const char* name, std::int64_t fallback, std::int64_t most) const;
  [[nodiscard]] std::int64_t stageOf(std::int64_t rank) const;
  [[nodiscard]] std::int64_t chunksOf(const std::vector<std::int64_t>& layers) const;
  [[nodiscard]] std::vector<double> stageTimes(const Timer& timer) const;
  [[nodiscard]] bool isOn(std::string_view name) const;
  [[nodiscard]] std::vector<std::int64_t> layersOfStages(std::int64_t all, std::string_view counted) const;
  [[nodiscard]] std::vector<std::vector<std::int64_t>> layersOfParts() const;
  [[nodiscard]] Bytes outputBytes(std::int64_t microbatch) const;

  const std::string& source_;
  std::map<std::string, std::string, std::less<>> arguments_;
  Timer forward_, backward_;
  Timer* timer_ = nullptr;
  bool inReport_ = false;
  bool hasOthers_ = false;  ///< reports of another batch size
  double widest_ = 1;       ///< the longest time of all ranks over the shortest, where reports have no more
  std::int64_t batch_ = 0;  ///< of the iteration at hand; 0: not known
  std::int64_t reports_ = 0, stages_ = 1, world_ = 1;
};

/// `  num_layers ...................................... 24`, perhaps with a launcher's words before it.
bool Log::takeArgument(std::string_view line) {
  const std::size_t dots = line.find(" ..");
  if (dots == std::string_view::npos) return false;
  const std::size_t end = line.find_first_not_of('.', dots + 1);
  if (end == std::string_view::npos || line[end] != ' ') return false;
  const std::string_view before = trimmed(line.substr(0, dots));
  const std::size_t begin = before.find_last_of(" \t");
  const std::string_view name = before.substr(begin == std::string_view::npos ? 0 : begin + 1);
  constexpr std::size_t kMostArguments = 10'000;
  if (name.empty() || name.size() > 100 || arguments_.size() >= kMostArguments) return false;
  arguments_.try_emplace(std::string(name), trimmed(line.substr(end)));
  return true;
}

/// `  forward-compute:`, `     rank  3: 12.34`, or `    forward-compute ....: (12.34, 15.60)`.
void Log::takeTime(std::string_view line) {
  const std::size_t colon = line.rfind(':');
  if (colon == std::string_view::npos) return;
  const std::string_view name = trimmed(line.substr(0, std::min(line.find(" ."), colon)));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (const std::size_t rank = name.rfind("rank "); rank != std::string_view::npos && name.find("compute") == std::string_view::npos) {
    const auto number = numberOf<std::int64_t>(trimmed(name.substr(rank + 5)));
    const auto time = milliseconds(value);
    if (timer_ != nullptr && number && *number >= 0 && *number < kMostWorld && time) (*timer_)[*number].push_back(*time);
    return;
  }
  timer_ = name.ends_with("forward-compute") ? &forward_ : name.ends_with("backward-compute") ? &backward_ : nullptr;
  if (timer_ == nullptr || value.empty()) return;
  if (value.starts_with('(') && value.ends_with(')')) {
    const std::size_t comma = value.find(',');
    const auto least = milliseconds(value.substr(1, std::min(comma, value.size()) - 1));
    const auto most = comma == std::string_view::npos ? std::nullopt : milliseconds(value.substr(comma + 1, value.size() - comma - 2));
    if (least && most) (*timer_)[-1].push_back((*least + *most) / 2), widest_ = std::max(widest_, *most / std::max(*least, 1e-9));
  } else if (const auto time = milliseconds(value)) {
    (*timer_)[-1].push_back(*time);
    widest_ = std::numeric_limits<double>::infinity();
  }
  timer_ = nullptr;
}

void Log::takeLine(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.find(kAll) != std::string_view::npos || line.find(kMinMax) != std::string_view::npos ||
      line.find(kMax) != std::string_view::npos) {
    const auto batch = arguments_.find("global_batch_size");
    const bool isWhole = batch_ == 0 || batch == arguments_.end() || numberOf<std::int64_t>(batch->second) == batch_;  // not while it grows
    if (!isWhole) hasOthers_ = true;
    inReport_ = ++reports_ < kMostReports && isWhole;
    timer_ = nullptr;
    return;
  }
  constexpr std::string_view kBatch = "global batch size:";
  if (const std::size_t at = line.find(kBatch); at != std::string_view::npos) {
    const std::string_view rest = line.substr(at + kBatch.size());
    batch_ = numberOf<std::int64_t>(trimmed(rest.substr(0, rest.find('|')))).value_or(0);
  }
  if (!inReport_) return static_cast<void>(takeArgument(line));
  if (line.find(" iteration ") != std::string_view::npos) inReport_ = false;
  if (inReport_) takeTime(line);
}

std::int64_t Log::argument(const char* name, std::int64_t fallback, std::int64_t most) const {
  const auto at = arguments_.find(name);
  if (at == arguments_.end() || at->second == "None") {
    if (fallback < 0) refuse(fmt::format("its list of arguments has no {}", name));
    return fallback;
  }
  const auto value = numberOf<std::int64_t>(at->second);
  if (!value || *value < 1 || *value > most) refuse(fmt::format("{} is {}, not from 1 to {}", name, at->second.substr(0, 40), most));
  return *value;
}

/// The pipeline rank of a rank: outermost, or with --use-tp-pp-dp-mapping outside of tensor and context parallelism.
std::int64_t Log::stageOf(std::int64_t rank) const {
  if (!isOn("use_tp_pp_dp_mapping")) return rank / std::max<std::int64_t>(1, world_ / stages_);
  const std::int64_t inner = argument("tensor_model_parallel_size", 1, kMostWorld) * argument("context_parallel_size", 1, kMostWorld);
  return rank / inner % stages_;
}

/// Stages on each rank, and so the parts in which its layers are.
std::int64_t Log::chunksOf(const std::vector<std::int64_t>& layers) const {
  const auto each = argument("num_layers_per_virtual_pipeline_stage", 0, static_cast<std::int64_t>(kMostLayers));
  const std::int64_t chunks =
      each > 0 ? layers.front() / each : argument("virtual_pipeline_model_parallel_size", 1, static_cast<std::int64_t>(kMostLayers));
  if (chunks < 1 || std::ranges::any_of(layers, [&](std::int64_t of) { return of % chunks != 0; }))
    refuse(fmt::format("the layers of a rank are not shared evenly by its {} virtual stages", chunks));
  return chunks;
}

/// Per stage [ms of a step]: the mean of its ranks.
std::vector<double> Log::stageTimes(const Timer& timer) const {
  std::vector<double> sums(static_cast<std::size_t>(stages_)), counts(sums.size());
  for (const auto& [rank, all] : timer) {
    // The first report has what a training does once.
    const double time = *medianOf(all.size() > 1 ? std::vector<double>(all.begin() + 1, all.end()) : all);
    if (rank >= world_) refuse(fmt::format("it has times of rank {}, but {} ranks", rank, world_));
    for (std::int64_t stage = 0; stage < stages_; ++stage) {
      if (rank >= 0 && stageOf(rank) != stage) continue;
      sums[static_cast<std::size_t>(stage)] += time;
      counts[static_cast<std::size_t>(stage)] += 1;
    }
  }
  for (std::size_t s = 0; s < sums.size(); ++s) {
    if (counts[s] == 0) refuse(fmt::format("no rank of stage {} reports forward-compute and backward-compute", s));
    sums[s] /= counts[s];
  }
  return sums;
}

bool Log::isOn(std::string_view name) const {
  const auto at = arguments_.find(name);
  return at != arguments_.end() && at->second == "True";
}

/// `counted`: what counts as a layer beside them, for a refusal.
std::vector<std::int64_t> Log::layersOfStages(std::int64_t all, std::string_view counted) const {
  if (const auto at = arguments_.find("pipeline_model_parallel_layout"); at != arguments_.end() && at->second != "None")
    throw UsageError(
        fmt::format("{} is of a training with --pipeline-model-parallel-layout, and how its layers were laid out is not read from a log; "
                    "log one with as many layers on each stage",
                    source_));
  std::vector<std::int64_t> layers(static_cast<std::size_t>(stages_), 0);
  std::int64_t left = all, even = stages_;
  const auto given = [&](const char* name, std::size_t stage) {
    const std::int64_t own = argument(name, 0, all);
    if (own == 0 || layers[stage] != 0) return;
    layers[stage] = own;
    left -= own;
    --even;
  };
  given("decoder_first_pipeline_num_layers", 0);
  given("decoder_last_pipeline_num_layers", layers.size() - 1);
  if (left < 0 || (even == 0 && left > 0) || (even > 0 && left % even != 0))
    refuse(fmt::format("{} layers{} are not shared evenly by {} stages", all, counted, stages_));
  for (std::int64_t& of : layers) of = of == 0 ? left / even : of;
  if (std::ranges::find(layers, 0) != layers.end()) refuse("a stage has no layer");
  return layers;
}

/// Layers by chunk, then stage. Embedding and loss may each count as a layer, which the first or the last part then has less (Megatron-LM,
/// get_num_layers_to_build).
std::vector<std::vector<std::int64_t>> Log::layersOfParts() const {
  const bool embedding = isOn("account_for_embedding_in_pipeline_split"), loss = isOn("account_for_loss_in_pipeline_split");
  const auto own = argument("num_layers", -1, static_cast<std::int64_t>(kMostLayers));
  const char* counted = embedding && loss ? ", with embedding and loss,"
                        : embedding       ? ", with the embedding,"
                        : loss            ? ", with the loss,"
                                          : "";
  std::vector<std::int64_t> layers = layersOfStages(own + (embedding ? 1 : 0) + (loss ? 1 : 0), counted);
  const std::int64_t chunks = chunksOf(layers);
  for (std::int64_t& of : layers) of /= chunks;
  std::vector<std::vector<std::int64_t>> parts(static_cast<std::size_t>(chunks), layers);
  if (embedding) --parts.front().front();
  if (loss) --parts.back().back();
  return parts;
}

Bytes Log::outputBytes(std::int64_t microbatch) const {
  const auto tokens = argument("seq_length", 0, 1 << 30), width = argument("hidden_size", 0, 1 << 24);
  const auto type = arguments_.find("params_dtype");
  const std::int64_t each = type != arguments_.end() && type->second == "torch.float32" ? 4 : 2;
  const std::int64_t parts = isOn("sequence_parallel") ? argument("tensor_model_parallel_size", 1, kMostWorld) : 1;
  const double bytes = static_cast<double>(tokens) * static_cast<double>(width) * static_cast<double>(microbatch) *
                       static_cast<double>(each) / static_cast<double>(parts);
  return bytes < 1e15 ? static_cast<Bytes>(bytes) : 0;
}

LayerTable Log::read(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    takeLine(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (hasOthers_ && (forward_.empty() || backward_.empty()))
    refuse("its reports are of smaller batches than global_batch_size, as --rampup-batch-size makes them");
  if (forward_.empty() || backward_.empty()) refuse("it has no times of forward-compute and backward-compute");
  if (arguments_.find("micro_batch_size") == arguments_.end())
    throw UsageError(
        fmt::format("{} has reports of Megatron-LM's timers but no micro_batch_size: the list of arguments that Megatron-LM prints as a "
                    "training begins is missing; give the log from its beginning",
                    source_));
  stages_ = argument("pipeline_model_parallel_size", 1, kMaxRanks);
  world_ = argument("world_size", stages_, kMostWorld);
  if (world_ % stages_ != 0) refuse(fmt::format("{} ranks are no multiple of {} pipeline stages", world_, stages_));
  const std::int64_t microbatch = argument("micro_batch_size", -1, kMostWorld);
  const std::int64_t batch = argument("global_batch_size", -1, kMostWorld), replicas = argument("data_parallel_size", 1, kMostWorld);
  const double microbatches = std::max(1.0, static_cast<double>(batch) / static_cast<double>(microbatch * replicas));
  std::array<std::vector<double>, 2> times{stageTimes(forward_), stageTimes(backward_)};
  if (stages_ > 1 && widest_ > kAlike)
    refuse("its reports give the shortest or longest time of all ranks alone, which does not tell stages apart");
  const std::vector<std::vector<std::int64_t>> parts = layersOfParts();
  std::vector<std::int64_t> layers(static_cast<std::size_t>(stages_), 0);
  for (const auto& chunk : parts) std::ranges::transform(layers, chunk, layers.begin(), std::plus());
  if (stages_ < 3 && std::ranges::find(layers, 0) != layers.end()) refuse("a stage has no layer");
  LayerTable table;
  table.name = std::filesystem::path(source_).stem().string();
  table.microbatch = microbatch;
  const Bytes output = outputBytes(microbatch);
  const auto nsOf = [&](double ms) { return static_cast<Ns>(std::llround(std::max(0.0, ms) * 1e6 / microbatches)); };
  const auto layerOf = [&](std::string name, double forward, double backward) {
    Layer layer;
    layer.name = std::move(name);
    layer.forward = nsOf(forward);
    const Ns whole = nsOf(backward);
    layer.input = whole / 2;
    layer.weight = whole - whole / 2;
    layer.output = output;
    return layer;
  };
  // What the ends do beside their layers: what they take more than as many layers in the middle.
  std::array<double, 2> before{}, after{};
  if (stages_ > 2) {
    for (std::size_t k = 0; k < 2; ++k) {
      double sum = 0, count = 0;
      for (std::size_t s = 1; s + 1 < layers.size(); ++s) sum += times[k][s], count += static_cast<double>(layers[s]);
      const double each = sum / count;
      before[k] = std::max(0.0, times[k].front() - each * static_cast<double>(layers.front()));
      after[k] = std::max(0.0, times[k].back() - each * static_cast<double>(layers.back()));
      times[k].front() -= before[k];
      times[k].back() -= after[k];
    }
    table.layers.push_back(layerOf("embedding", before[0], before[1]));
  }
  std::int64_t number = 0;
  for (const auto& chunk : parts) {
    for (std::size_t s = 0; s < layers.size(); ++s) {
      const auto of = static_cast<double>(layers[s]);
      for (std::int64_t l = 0; l < chunk[s]; ++l)
        table.layers.push_back(layerOf(fmt::format("layer{}", number++), times[0][s] / of, times[1][s] / of));
    }
  }
  if (stages_ > 2) table.layers.push_back(layerOf("output", after[0], after[1]));
  table.layers.back().output = 0;
  return table;
}

}  // namespace

bool isMegatronLog(std::string_view text) {
  return text.find(kAll) != std::string_view::npos || text.find(kMinMax) != std::string_view::npos ||
         text.find(kMax) != std::string_view::npos;
}

LayerTable parseMegatronLog(std::string_view text, const std::string& source) { return Log(source).read(text); }

LayerTable parseMeasuredLayers(std::string_view text, const std::string& source) {
  return isMegatronLog(text) ? parseMegatronLog(text, source) : parsePipeDream(text, source);
}

}  // namespace pw
