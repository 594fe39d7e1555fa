#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <optional>

#include "app/cli/commands.h"
#include "app/cli/options/numbers.h"
#include "app/cli/options/own_ranks.h"
#include "app/cli/options/shared.h"
#include "app/cli/text/output.h"
#include "backends/cuda/backend.h"
#include "backends/resources/resources.h"
#include "backends/torch/backend.h"
#include "engine/planning/inputs/layer_costs.h"
#include "engine/planning/inputs/limits.h"
#include "engine/processes/connect.h"
#include "engine/processes/failure.h"
#include "engine/processes/launcher.h"
#include "engine/processes/meeting.h"
#include "engine/worker.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/costs/estimate.h"
#include "simulator/plan/planner.h"

namespace pw::cli {
namespace {

struct ProfileArguments {
  std::vector<std::string> models;
  std::string cluster, out, loss;
  MeasureOptions how;
  int ranks = 0;  ///< 0: not given, 1
  std::optional<int> depth;
  std::int64_t microbatch = 0;
  bool json = false, quiet = false;
};

/// Sums of node costs over the modules of a depth.
void printModules(const ModelGraph& graph, const Profile& profile, int depth) {
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
    rows.push_back({path, formatDuration(c.forward), formatDuration(c.forwardSpread), formatDuration(c.backward),
                    formatDuration(c.backwardSpread), formatDuration(c.weight), formatSize(std::max<Bytes>(0, c.saved)),
                    fmt::format("{:.3f}", c.flops / 1e9)});
  }
  print(table(rows));
  print(fmt::format("\n{} at microbatch {}, {}: optimizer {:.2f} ns per KiB of parameters", profile.model, profile.microbatch,
                    sourceOf(profile), profile.optimizerNsPerByte * 1024));
  if (profile.topology.sameNode.bytesPerSecond > 0)
    print(fmt::format("; link {} + {:.2f} GB/s", formatDuration(profile.topology.sameNode.latency),
                      profile.topology.sameNode.bytesPerSecond / 1e9));
  print("\n");
}

/// The device to measure on (null: the CPU), and the group of ranks that measure at the same time.
const Device* prepare(const MeasureOptions& how, const RankEnvironment* environment, const TorchBackend& torch,
                      std::unique_ptr<Communicator>& group) {
  const std::optional<int> number = gpuNumber(how);
  const bool isAlone = environment == nullptr || environment->worldSize == 1;
  constexpr std::chrono::minutes kDeadline{5};
  if (number && isAlone) {
    const CudaBackend& cuda = cudaBackend();
    static_cast<void>(cuda.prepareProcess(*number, how.tf32, {}));
    return &cuda.device();
  }
  if (isAlone) return nullptr;
  if (!number) {
    group = connectRanks(Transport::Ucx, rendezvousOf(*environment, kDeadline), torch);
    return nullptr;
  }
  const Rendezvous rendezvous = rendezvousOf(*environment, kDeadline);
  GpuRank rank = connectGpus(*environment, rendezvous, openMeeting(rendezvous).dictionary(), how.tf32);
  if (environment->rank.value == 0 && !rank.gpu.note.empty()) warn(rank.gpu.note);
  group = std::move(rank.communicator);
  return rank.gpu.device;
}

/// Measures here, and on all ranks at once where `environment` says so; fills `group`, which must outlive a failure.
Profile measure(const ProfileArguments& o, const ModelGraph& graph, const RankEnvironment* environment,
                std::unique_ptr<Communicator>& group) {
  if (environment != nullptr) bindToCores(*environment);
  const TorchBackend& torch = torchBackend();
  torch.prepareProcess(std::max(1, o.how.threads));
  loadLibraries(o.how.libraries);
  ProfileOptions options;
  options.stage.device = prepare(o.how, environment, torch, group);
  const bool onGpu = options.stage.device != nullptr;
  options.microbatch = o.microbatch;
  options.loss = lossNamed(o.loss, graph);
  options.stage.precision = o.how.precision;
  options.stage.graphs = !o.how.noGraphs;
  const bool shows = environment == nullptr || environment->rank.value == 0;
  if (shows) options.stage.tell = [&graph](const std::string& what) { warn(fmt::format("{} {}", graph.name, what)); };
  options.stage.initRandom = true;  // where the archive has no weights: times do not depend on them
  std::function<void(int, int)> report;
  if (shows) {
    report = [show = progress("profile " + graph.name, o.how.progressStyle)](int done, int all) { show(done, all, "samples"); };
  }
  Profile profile = torch.measureProfile(graph, options, group.get(), report);
  profile.machine = onGpu ? gpuMachine(options.stage.device->index) : thisMachine();
  profile.computing.onGpu = onGpu;
  profile.computing.tf32 = o.how.tf32;
  profile.computing.graphs = onGpu && !o.how.noGraphs;
  profile.threads = std::max(1, o.how.threads);
  profile.peakFlops = peakOfGpu(graph, profile);
  if (group) group->barrier();
  return profile;
}

int runProfile(ProfileArguments& o) {
  if (!o.cluster.empty()) refuseBesideEstimate(o.how, o.ranks);
  if (o.json && o.quiet) throw UsageError("--json prints what --quiet leaves out; omit one of them.");
  if (o.depth && (o.json || o.quiet)) throw UsageError("--depth is of the table of modules; omit it, or --json and --quiet.");
  refuseWhatCannotMeasure(o.how, o.cluster.empty() ? CostsFrom::Measuring : CostsFrom::Cluster);
  const auto environment = rankEnvironment();
  if (environment && o.ranks > 0 && o.ranks != environment->worldSize)
    throw UsageError(fmt::format("--ranks is {}, but WORLD_SIZE of this job is {}; omit --ranks.", o.ranks, environment->worldSize));
  if (o.how.device && std::holds_alternative<OnGpu>(*o.how.device) && (o.ranks > 1 || (environment && environment->worldSize > 1))) {
    throw UsageError(
        fmt::format("--device {} names a single GPU, but several processes need one each; use --device cuda.", nameOf(*o.how.device)));
  }
  const ModelGraph graph = loadModel(o.models);
  requireOperators(graph);
  if (o.microbatch == 0) o.microbatch = exportedBatch(graph);
  const Loss loss = lossNamed(o.loss, graph);
  Profile profile;
  if (!o.cluster.empty()) {
    profile = estimateFor(graph, o.microbatch, loadCluster(o.cluster), o.how, loss);
  } else if (o.ranks > 1 && !environment) {
    profile = measureWithRanks(o.models, o.microbatch, o.ranks, o.how, loss, &warn);
  } else {
    std::unique_ptr<Communicator> group;
    try {
      profile = measure(o, graph, environment ? &*environment : nullptr, group);
    } catch (const std::exception& e) {
      if (environment) failRank(*environment, e, &complain);
      throw;
    }
  }
  if (environment && environment->rank.value != 0) return kYes;
  if (!o.out.empty()) writeFile(o.out, toJson(profile));
  if (o.quiet) return kYes;
  if (o.json) {
    print(toJson(profile) + "\n");
  } else {
    printModules(graph, profile, o.depth.value_or(3));
    if (!o.out.empty()) print(fmt::format("Written to {}.\n", o.out));
  }
  return kYes;
}

}  // namespace

Command addProfile(CLI::App& app) {
  auto* sub = app.add_subcommand("profile", "Measure forward and backward time of every operator");
  auto o = std::make_shared<ProfileArguments>();
  sub->add_option("MODEL.pt2", o->models, "Model archive (.pt2); several if each stage was exported separately")
      ->required()
      ->option_text("MODEL.pt2");
  addMeasureOptions(*sub, o->how);
  sub->add_option("--microbatch", o->microbatch, "Samples per microbatch (default: as exported)")
      ->check(wholeFrom(1, kMostMicrobatchSamples))
      ->option_text("B");
  sub->add_option("--ranks", o->ranks, "Processes that compute at the same time, as in a run on one host; also measures their link")
      ->check(wholeFrom(1, kMostPlanRanks))
      ->option_text("R");
  sub->add_option("--loss", o->loss, "cross_entropy, mse, sum, output:NAME")->option_text("LOSS");
  sub->add_option("--estimate", o->cluster, "Estimate costs from FLOPs and bytes for a cluster preset or file instead of measuring")
      ->option_text("CLUSTER");
  sub->add_option("--out", o->out, "Write the profile here (JSON)")->option_text("FILE");
  sub->add_option("--depth", o->depth, "Depth of the module table (default: 3)")->check(wholeFrom(0, 1000))->option_text("N");
  addProgress(*sub, o->how.progressStyle);
  sub->add_flag("--json", o->json, "Print the profile as JSON");
  sub->add_flag("--quiet", o->quiet, "Print nothing");
  sub->footer(
      "\nExamples:\n"
      "  pipewright profile gpt.pt2 --microbatch 4 --ranks 2 --out profile.json\n"
      "  pipewright profile gpt.pt2 --device cuda --ranks 2 --precision bf16 --microbatch 4 --out profile.json\n"
      "  pipewright profile gpt.pt2 --estimate h100-nvlink --precision bf16");
  return [o] { return runProfile(*o); };
}

}  // namespace pw::cli
