#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>

#include "app/cli/commands.h"
#include "app/cli/model.h"
#include "app/cli/output.h"
#include "backends/cuda_backend.h"
#include "backends/gpu_inventory.h"
#include "backends/torch_backend.h"
#include "engine/failure.h"
#include "engine/launcher.h"
#include "engine/worker.h"
#include "schedules/error.h"
#include "simulator/planner.h"
#include "schedules/units.h"

namespace pw::cli {
namespace {

struct Options {
  std::vector<std::string> models;
  std::string device = "cpu", precision = "traced", cluster, out, loss, progressStyle = "auto";
  int threads = 1, ranks = 1, depth = 3;
  std::int64_t microbatch = 0;
  bool json = false, quiet = false, tf32 = false, noGraphs = false;
};

/// Sums over the modules of a depth: what each module's nodes cost.
void print(const ModelGraph& graph, const Profile& profile, int depth) {
  std::vector<std::string> order;
  std::map<std::string, NodeCost> sums;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    std::string path = "(model)";
    for (const ModuleFrame& frame : graph.nodes[n].modules) {
      if (!frame.path.empty() && std::count(frame.path.begin(), frame.path.end(), '.') < depth) path = frame.path;
    }
    if (!sums.contains(path)) order.push_back(path);
    NodeCost& sum = sums[path];
    const NodeCost& cost = profile.nodes[n];
    sum.forward += cost.forward;
    sum.backward += cost.backward;
    sum.forwardSpread += cost.forwardSpread;
    sum.backwardSpread += cost.backwardSpread;
    sum.saved += cost.saved;
    sum.flops += cost.flops;
    sum.weight += cost.weight;
  }
  order.emplace_back("(loss)");
  sums["(loss)"] = profile.loss;
  std::vector<std::vector<std::string>> rows{{"module", "forward", "±", "backward", "±", "of it weights", "saved", "GFLOP"}};
  for (const std::string& path : order) {
    const NodeCost& c = sums[path];
    rows.push_back({path, formatDuration(c.forward), formatDuration(c.forwardSpread), formatDuration(c.backward), formatDuration(c.backwardSpread), formatDuration(c.weight),
                    formatSize(std::max<Bytes>(0, c.saved)), fmt::format("{:.3f}", c.flops / 1e9)});
  }
  fmt::print("{}", table(rows));
  fmt::print("\n{} at microbatch {}, {}: optimizer {:.2f} ns per KiB of parameters", profile.model, profile.microbatch,
             sourceOf(profile), profile.optimizerNsPerByte * 1024);
  if (profile.link.bytesPerSecond > 0) fmt::print("; link {} + {:.2f} GB/s", formatDuration(profile.link.latency), profile.link.bytesPerSecond / 1e9);
  fmt::print("\n");
}

/// CUDA's number of `cuda:N`, −1 for the CPU. Throws UsageError for other names, and where there is no GPU.
int gpuNumber(const std::string& device) {
  if (device == "cpu") return -1;
  constexpr std::string_view kPrefix = "cuda:";
  int number = -1;
  const char* const end = device.data() + device.size();
  const bool named = device == "cuda" || device.starts_with(kPrefix);
  if (device == "cuda") number = 0;
  if (named && number < 0 && std::from_chars(device.data() + kPrefix.size(), end, number).ptr != end) number = -1;
  if (number < 0) throw UsageError(fmt::format("There is no device '{}'; give cpu, or cuda:0 and so on.", device));
  const std::string why = whyUnusable(gpuInventory(), number);
  if (!why.empty()) throw UsageError(fmt::format("--device {} needs a GPU. {} Without one, use --device cpu or --estimate CLUSTER.", device, why));
  return number;
}

/// Measures here, and on all ranks at once where `environment` says so; fills `group`, which must outlive a failure (see run.cpp).
Profile measure(const Options& o, const ModelGraph& graph, const RankEnvironment* environment, std::unique_ptr<Communicator>& group) {
  if (environment != nullptr) bindToCores(*environment);
  const TorchBackend& torch = torchBackend();
  torch.prepareProcess(o.threads);
  if (environment != nullptr && environment->worldSize > 1) group = torch.connectGloo(rendezvousOf(*environment, std::chrono::minutes(5)));
  ProfileOptions options;
  if (const int number = gpuNumber(o.device); number >= 0) {
    const CudaBackend& cuda = cudaBackend();
    static_cast<void>(cuda.prepareProcess(number, o.tf32, {}));
    options.stage.device = &cuda.device();
  }
  options.microbatch = o.microbatch;
  options.loss = o.loss;
  if (o.precision == "bf16") options.stage.precision = DType::BFloat16;
  if (o.precision == "fp16") options.stage.precision = DType::Float16;
  options.stage.graphs = !o.noGraphs;
  options.stage.tell = [&graph](const std::string& what) { fmt::print(stderr, "pipewright: {} {}\n", graph.name, what); };
  options.stage.initRandom = true;  // where the archive has no weights: times do not depend on them
  const bool shows = environment == nullptr || environment->rank.value == 0;
  std::function<void(int, int)> report;
  if (shows) {
    report = [show = progress("profile " + graph.name, parseProgressStyle(o.progressStyle))](int done, int all) { show(done, all, "samples"); };
  }
  Profile profile = torch.measureProfile(graph, options, group.get(), report);
  profile.machine = thisMachine();
  profile.machine.device = o.device;
  profile.threads = o.threads;
  if (group) group->barrier();
  return profile;
}

int run(Options& o) {
  const bool onGpu = gpuNumber(o.device) >= 0;
  if (o.tf32 && !onGpu) throw UsageError("--tf32 is for GPUs; add --device cuda:0, or leave it out.");
  if (o.precision != "traced" && o.ranks > 1) throw UsageError("--precision is measured by one process; leave out --ranks.");
  const ModelGraph graph = loadModel(o.models);
  if (o.microbatch == 0) o.microbatch = exportedBatch(graph);
  if (o.loss.empty()) o.loss = defaultLoss(graph);
  const auto environment = rankEnvironment();
  Profile profile;
  if (!o.cluster.empty()) {
    profile = estimate(graph, o.microbatch, loadCluster(o.cluster));
  } else if (o.ranks > 1 && !environment) {
    profile = measureWithRanks(o.models, o.microbatch, o.ranks, o.threads, o.loss, o.progressStyle);
  } else {
    std::unique_ptr<Communicator> group;
    try {
      profile = measure(o, graph, environment ? &*environment : nullptr, group);
    } catch (const std::exception& e) {
      if (environment) failRank(*environment, e);
      throw;
    }
  }
  if (environment && environment->rank.value != 0) return kYes;
  if (!o.out.empty()) writeFile(o.out, toJson(profile));
  if (o.quiet) return kYes;
  if (o.json) {
    fmt::print("{}\n", toJson(profile));
  } else {
    print(graph, profile, o.depth);
    if (!o.out.empty()) fmt::print("Written to {}.\n", o.out);
  }
  return kYes;
}

}  // namespace

Command addProfile(CLI::App& app) {
  auto* sub = app.add_subcommand("profile", "Measure forward and backward time of every operator");
  auto o = std::make_shared<Options>();
  sub->add_option("MODEL.pt2", o->models, "Model archive (.pt2); several when each stage was exported on its own")->required()->option_text("MODEL.pt2");
  sub->add_option("--device", o->device, "cpu (default), or cuda:N")->option_text("DEVICE");
  sub->add_option("--precision", o->precision, "As the run will have it (see run --precision)")->check(CLI::IsMember({"traced", "bf16", "fp16"}))->option_text("bf16|fp16");
  sub->add_flag("--tf32", o->tf32, "As the run will have it: GPUs may round the inputs of float32 matrix products to 19 bits");
  sub->add_flag("--no-graphs", o->noGraphs, "As the run will have it: a GPU is asked for every operator by itself");
  sub->add_option("--threads", o->threads, "Intra-op threads of each process")->check(CLI::Range(1, 1024))->option_text("N");
  sub->add_option("--microbatch", o->microbatch, "Samples per microbatch (default: as exported)")->check(CLI::Range(1, 1 << 20))->option_text("B");
  sub->add_option("--ranks", o->ranks, "Processes that compute at once, as in a run on one host; also measures their link")->check(CLI::Range(1, 1024))->option_text("R");
  sub->add_option("--loss", o->loss, "cross_entropy, mse, sum, output:NAME")->option_text("LOSS");
  sub->add_option("--estimate", o->cluster, "Estimate from FLOPs and bytes for a cluster preset or file")->option_text("CLUSTER");
  sub->add_option("--out", o->out, "Write the profile here (JSON)")->option_text("FILE");
  sub->add_option("--depth", o->depth, "Depth of the module table")->option_text("N");
  sub->add_option("--progress", o->progressStyle, "auto or json")->option_text("STYLE");
  sub->add_flag("--json", o->json, "Print the profile as JSON");
  sub->add_flag("--quiet", o->quiet, "Print nothing");
  sub->footer("\nExamples:\n"
              "  pipewright profile gpt.pt2 --microbatch 4 --ranks 2 --out profile.json\n"
              "  pipewright profile gpt.pt2 --device cuda:0 --microbatch 4 --out profile.json\n"
              "  pipewright profile gpt.pt2 --estimate h100-nvlink");
  return [o] { return run(*o); };
}

}  // namespace pw::cli
