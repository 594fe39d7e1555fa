#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "app/cli/commands.h"
#include "app/cli/not_counted.h"
#include "app/cli/numbers.h"
#include "app/cli/output.h"
#include "app/cli/own_ranks.h"
#include "app/cli/schedule_options.h"
#include "backends/host/gpu_inventory.h"
#include "backends/pt2/record.h"
#include "backends/torch/backend.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/units.h"
#include "simulator/costs/estimate.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/loss_count.h"
#include "simulator/plan/planner.h"
#include "simulator/plan/sharing.h"
#include "simulator/plan/split.h"
#include "simulator/plan/stage_costs.h"
#include "simulator/report/json_fields.h"
#include "simulator/report/lower_bound.h"
#include "simulator/report/metrics.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "simulator/text/json_text.h"

namespace pw::cli {
namespace {

struct Options {
  std::vector<std::string> models, splits, recompute{"none"};
  std::string schedule = "1f1b", balance = "time", profile, cluster, out, loss, memoryLimit, share = "auto", optimizer = "sgd";
  MeasureOptions how;
  int ranks = 0, chunks = 0, microbatches = 0, replicas = 1;
  std::int64_t microbatch = 0, batch = 0;
  double momentum = 0;
  bool json = false, zero1 = false, microbatchesByDefault = false;
};

Balance parseBalance(const std::string& text) {
  if (text == "time") return Balance::Time;
  if (text == "memory") return Balance::Memory;
  if (text == "parameters") return Balance::Parameters;
  return Balance::Layers;
}

/// Split points by name, by the marks in the model, or balanced.
std::vector<NodeId> chooseSplits(const Options& o, const ModelGraph& graph, const Profile& profile, int stages) {
  if (!o.splits.empty()) {
    std::vector<NodeId> begins;
    for (const std::string& split : o.splits) begins.push_back(findSplit(graph, split));
    std::sort(begins.begin(), begins.end());
    if (std::adjacent_find(begins.begin(), begins.end()) != begins.end())
      throw UsageError("Two of the split names denote the same place; name each place once.");
    return begins;
  }
  if (static_cast<int>(graph.splitMarkers.size()) + 1 == stages) return graph.splitMarkers;
  return balancedSplits(graph, profile, stages, parseBalance(o.balance));
}

/// The number of devices: GPUs if there are several and the CPU was not requested, otherwise cores.
int devicesHere(const MeasureOptions& how) {
  const auto gpus = how.device == "cpu" ? 0 : std::ranges::count_if(gpuInventory().gpus, isUsable);
  return gpus > 1 ? static_cast<int>(gpus) : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Stages that the splits, or the marks in the model, make.
int piecesOf(const Options& o, const ModelGraph& graph) {
  return static_cast<int>(o.splits.empty() ? graph.splitMarkers.size() : o.splits.size()) + 1;
}

/// Our name of the schedule, and defaults for ranks and microbatches that were not given.
void settleShape(Options& o, const ModelGraph& graph) {
  if (o.schedule.ends_with(".csv")) {
    const Shape shape =
        shapeOf(generateFrom(o.schedule, {.ranks = o.ranks, .chunks = o.chunks, .microbatches = o.microbatches, .group = 0, .strict = {}}));
    o.microbatches = shape.microbatches;
    return;
  }
  const Generator& family = generatorOf(o.schedule);
  o.schedule = family.name;
  const int chunks = o.chunks > 0 ? o.chunks : family.chunks, pieces = piecesOf(o, graph);
  if (o.ranks == 0 && pieces > 1 && pieces % chunks == 0) o.ranks = pieces / chunks;
  if (o.ranks == 0) o.ranks = devicesHere(o.how);
  o.microbatchesByDefault = o.microbatches == 0;
  const std::int64_t fixed = batchSymbol(graph).empty() ? exportedBatch(graph) : o.microbatch;
  if (o.microbatches == 0) o.microbatches = defaultMicrobatches(o.ranks, o.replicas, o.batch, fixed);
}

/// Batch and microbatch size where they were not given. Refuses what does not fit together.
void settleBatch(Options& o, const ModelGraph& graph) {
  const int parts = o.replicas * o.microbatches;
  if (o.batch == 0) o.batch = (o.microbatch == 0 ? exportedBatch(graph) : o.microbatch) * parts;
  if (o.batch < parts)
    throw UsageError(
        fmt::format("A batch of {} cannot be cut into {} microbatches; use a larger --batch or fewer --microbatches.", o.batch, parts));
  if (o.microbatch == 0) o.microbatch = (o.batch + parts - 1) / parts;
  if (microbatchSizes(o.batch, parts).front() != o.microbatch) {
    throw UsageError(fmt::format("--batch {} in {} microbatches has microbatches of {}, not {}; omit --microbatch or --batch.", o.batch,
                                 parts, microbatchSizes(o.batch, parts).front(), o.microbatch));
  }
}

/// The requested schedule, for the ranks and stages that options and model determine. Refuses impossible combinations and unknown names
/// before anything is measured.
Schedule chooseSchedule(const Options& o, const ModelGraph& graph) {
  const int pieces = piecesOf(o, graph);
  const Schedule schedule =
      generateFrom(o.schedule, {.ranks = o.ranks, .chunks = o.chunks, .microbatches = o.microbatches, .group = 0, .strict = {}});
  for (const Problem& problem : check(schedule)) {
    if (problem.stops == Stops::Always)
      throw UsageError(fmt::format("{} cannot be run: rank {}: {}; `pipewright check` lists all problems", o.schedule, problem.rank.value,
                                   problem.message));
  }
  const int stages = shapeOf(schedule).stages;
  if (!o.splits.empty() && stages != pieces) {
    throw UsageError(fmt::format("{} split points make {} stages, and {} has {} on {} ranks; use {} split points.", o.splits.size(), pieces,
                                 o.schedule, stages, shapeOf(schedule).ranks, stages - 1));
  }
  return schedule;
}

Profile chooseProfile(const Options& o, const ModelGraph& graph, std::int64_t microbatch, int ranks) {
  if (!o.profile.empty()) {
    Profile profile = parseProfile(readFile(o.profile), o.profile);
    if (profile.nodes.size() != graph.nodes.size())
      throw UsageError(fmt::format("{} is not a profile of {}; profile this model.", o.profile, graph.name));
    if (profile.microbatch != microbatch) {
      throw UsageError(fmt::format("{} was measured at microbatch {}, the plan has {}; profile with --microbatch {}.", o.profile,
                                   profile.microbatch, microbatch, microbatch));
    }
    return profile;
  }
  if (!o.cluster.empty()) return estimate(graph, microbatch, loadCluster(o.cluster), precisionOf(o.how.precision).value());
  return measureWithRanks(o.models, microbatch, ranks, o.how, o.loss);
}

void printHead(const Options& o, const Plan& plan, const ModelGraph& graph, const ExportRecord& exported) {
  const int ranks = shapeOf(plan.schedule).ranks;
  const std::string copies = plan.replicas > 1 ? fmt::format(" in each of {} replicas", plan.replicas) : "";
  const std::string count = counted(o.microbatches, "microbatch") + (o.microbatchesByDefault ? " (by default)" : "");
  print(fmt::format("{}: {}{}, {}, {} of {}, loss {}\ncosts {}\ntrace {}\n\n", graph.name, counted(ranks, "rank"), copies, o.schedule,
                    count, o.microbatch, o.loss, sourceOf(plan.profile, ranks), describe(exported)));
}

void printStages(const Plan& plan, const ModelGraph& graph, const Metrics& metrics) {
  std::vector<std::vector<std::string>> rows{
      {"stage", "rank", "begins at", "operators", "forward", "backward", "parameters", "receives", "peak memory"}};
  for (std::size_t s = 0; s < plan.partition.stages.size(); ++s) {
    const StageSpec& spec = plan.partition.stages[s];
    const StageCost& cost = plan.costs.stages[s];
    Bytes received = 0;
    for (const Transfer& t : plan.partition.transfers) received += t.to == Stage(s) ? t.bytes : 0;
    const Rank rank = plan.schedule.placement.rankOfStage[s];
    rows.push_back({std::to_string(s), std::to_string(rank.value), s == 0 ? "(start)" : plan.splitNames[s - 1],
                    std::to_string(spec.end.value - spec.begin.value), formatDuration(cost.forward), formatDuration(cost.backward),
                    formatSize(cost.parameterBytes), formatSize(received), formatSize(metrics.ranks[rank.index()].peakBytes)});
  }
  print(table(rows));
  for (std::size_t s = 0; s < plan.partition.stages.size(); ++s) {
    const auto& recomputed = plan.partition.stages[s].recomputed;
    if (recomputed.empty()) continue;
    std::string names;
    for (const NodeId node : recomputed) {
      for (const ValueId v : graph.node(node).outputs) names += (names.empty() ? "" : ", ") + graph.value(v).name;
    }
    print(fmt::format("recomputed by stage {} instead of received: {}\n", s, names));
  }
}

/// How shared parameters are kept equal, and why.
void printShared(const Plan& plan, const std::vector<SharingChoice>& choices, const std::string& requested) {
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const SharedParameter& shared = plan.partition.shared[i];
    const SharingChoice& choice = choices[i];
    std::string stages, why;
    for (const Stage s : shared.stages) stages += (stages.empty() ? "" : " and ") + std::to_string(s.value);
    if (choice.ranks < 2) {
      why = "on one rank: nothing is sent";
    } else {
      const bool transmits = choice.sharing == Sharing::Transmit;
      why = transmits ? fmt::format("updated by stage {} and transmitted", shared.stages.front().value)
                      : std::string("replicated, each rank updates its copy");
      const std::string reason = requested != "auto" ? "as requested"
                                 : choice.forMemory  ? "otherwise a rank does not fit"
                                                     : "the shorter end of the step";
      why += fmt::format(" ({}: replicate {} and {} over the links, transmit {} and {})", reason, formatDuration(choice.replicateTime),
                         formatSize(choice.replicateBytes), formatDuration(choice.transmitTime), formatSize(choice.transmitBytes));
    }
    print(
        fmt::format("shared: {} ({}) of stages {}: gradients summed each step, {}\n", shared.name, formatSize(shared.bytes), stages, why));
  }
}

/// What a stage recomputes in its backward, what that costs and saves for each microbatch.
struct Recomputed {
  Stage stage;
  int operators = 0;
  Ns time = 0;
  Bytes saved = 0;
};

std::vector<Recomputed> recomputedBy(const Plan& plan, const ModelGraph& graph) {
  Partition kept = plan.partition;
  for (StageSpec& stage : kept.stages) stage.checkpoints.clear();
  const CostTable without = costTable(graph, kept, plan.profile, plan.schedule.placement, plan.replicas);
  std::vector<Recomputed> all;
  for (std::size_t s = 0; s < kept.stages.size(); ++s) {
    Recomputed r{Stage(s), 0, plan.costs.stages[s].backward - without.stages[s].backward,
                 without.stages[s].activationBytes - plan.costs.stages[s].activationBytes};
    for (const NodeRange& range : plan.partition.stages[s].checkpoints) r.operators += range.end.value - range.begin.value;
    if (r.operators > 0) all.push_back(r);
  }
  return all;
}

void printRecomputed(const std::vector<Recomputed>& all) {
  for (const Recomputed& r : all) {
    print(fmt::format("recomputed in the backward of stage {}: {} operators, {} more per microbatch, {} less kept\n", r.stage.value,
                      r.operators, formatDuration(r.time), formatSize(std::max<Bytes>(0, r.saved))));
  }
}

std::string withPlanFields(const std::string& prediction, const Plan& plan, const ExportRecord& exported,
                           const std::vector<SharingChoice>& shared, const std::vector<Recomputed>& recomputed,
                           const std::vector<NotCounted>& missing) {
  auto json = ownJson(prediction);
  json["trace_check"] = ownJson(toJson(exported));
  json["not_counted"] = ownJson(notCountedJson(missing));
  json["replicas"] = plan.replicas;
  json["world_size"] = worldSize(plan);
  json["recomputed"] = nlohmann::ordered_json::array();
  for (const Recomputed& r : recomputed) {
    json["recomputed"].push_back({{"stage", r.stage.value}, {"operators", r.operators}, {"backward_ns", r.time}, {"saved_bytes", r.saved}});
  }
  json["shared"] = nlohmann::ordered_json::array();
  for (const SharingChoice& c : shared) {
    json["shared"].push_back({{"name", c.name},
                              {"sharing", name(c.sharing)},
                              {"ranks", c.ranks},
                              {"replicate_ns", c.replicateTime},
                              {"transmit_ns", c.transmitTime},
                              {"replicate_bytes", c.replicateBytes},
                              {"transmit_bytes", c.transmitBytes}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// Notes when one device is enough: the whole model fits it and would be no slower there.
void adviseSingleRank(const Plan& plan, const ModelGraph& graph, const Profile& profile, Ns pipelined, Bytes limit, int copies) {
  if (plan.partition.stages.size() < 2 || plan.replicas > 1) return;
  const Partition whole = cutGraph(graph, {}, bindBatch(graph, plan.microbatchSize), nullptr);
  const bool trains = std::ranges::any_of(plan.schedule.rows, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& a) { return isCompute(a.kind) && a.kind != ActionKind::Forward; });
  });
  const Schedule schedule = generate(trains ? "1f1b" : "forward-only", {1, 1, plan.schedule.microbatches});
  CostTable costs = costTable(graph, whole, profile, schedule.placement);
  addOptimizerState(costs, copies, 1);
  costs.microbatchScale = plan.costs.microbatchScale;
  const Metrics alone = metricsOf(simulate(schedule, costs));
  if (limit > 0 && alone.ranks[0].peakBytes > limit) return;
  if (alone.step <= pipelined) {
    print(fmt::format("\nOne device suffices: the whole model takes {} per step on one rank, with {} of memory.\n",
                      formatDuration(alone.step), formatSize(alone.ranks[0].peakBytes)));
  } else {
    print(fmt::format("\nOn one rank the step would take {} ({:.2f} times as long).\n", formatDuration(alone.step),
                      static_cast<double>(alone.step) / static_cast<double>(pipelined)));
  }
}

PlanRequest requestOf(const Options& o, const ModelGraph& graph, const Profile& profile, const Schedule& schedule, Bytes limit) {
  if (std::holds_alternative<RecomputeAuto>(parseRecompute(o.recompute)) && limit == 0) {
    throw UsageError(
        "--recompute auto recomputes as little as the memory limit allows; set --memory-limit, or name the modules to recompute.");
  }
  PlanRequest request;
  request.microbatches = o.microbatches;
  request.replicas = o.replicas;
  request.microbatch = o.microbatch;
  request.batch = o.batch;
  request.begins = chooseSplits(o, graph, profile, shapeOf(schedule).stages);
  request.loss = o.loss;
  request.recompute = parseRecompute(o.recompute);
  if (o.share != "auto") request.sharing = o.share == "transmit" ? Sharing::Transmit : Sharing::Replicate;
  request.optimizer = plannedOptimizer(o.optimizer, o.momentum);
  request.zero1 = o.zero1;
  request.memoryLimit = limit;
  return request;
}

int run(Options& o) {
  const ModelGraph graph = loadModel(o.models);  // first of all: a file that is not there matters most
  refuseWhatCannotMeasure(o.how, !o.profile.empty() ? CostsFrom::Profile : !o.cluster.empty() ? CostsFrom::Cluster : CostsFrom::Measuring);
  static_cast<void>(plannedOptimizer(o.optimizer, o.momentum));
  const ExportRecord exported = readExportRecord(graph.files);
  settleShape(o, graph);
  settleBatch(o, graph);
  static_cast<void>(bindBatch(graph, o.microbatch));  // refuses a batch the model was not exported for
  if (o.loss.empty()) o.loss = defaultLoss(graph);
  const Schedule schedule = chooseSchedule(o, graph);
  const int ranks = shapeOf(schedule).ranks;
  const Bytes limit = o.memoryLimit.empty() ? 0 : parseSize(o.memoryLimit);
  for (const std::string& split : o.splits) static_cast<void>(findSplit(graph, split));
  const Profile profile = chooseProfile(o, graph, o.microbatch, ranks);
  const PlanRequest request = requestOf(o, graph, profile, schedule, limit);
  const Schedule rows = planRows(schedule, o.replicas);
  const Priced priced = price(request, graph, profile, rows);
  Plan plan = planOf(request, graph, profile, rows, priced, splitPoints(graph, bindBatch(graph, o.microbatch)));
  plan.libraries = libraryPaths(o.how.libraries);
  const std::vector<SharingChoice>& shared = priced.sharing;
  const std::vector<Recomputed> recomputed = recomputedBy(plan, graph);
  const std::vector<NotCounted> missing = notCounted(graph, o.microbatch);
  CostTable costs = plan.costs;  // a run adds the state of its optimizer itself
  addOptimizerState(costs, stateCopies(request.optimizer), optimizerShards(request, plan.schedule.placement));
  const Program program = compile(plan.schedule, costs);
  Times times;
  execute(program, times);
  PredictionReport prediction = predict(plan.schedule, costs, program, times, traceOf(plan.schedule, costs, program, times));
  const Metrics& metrics = prediction.metrics;
  const auto tooLarge =
      std::find_if(metrics.ranks.begin(), metrics.ranks.end(), [&](const RankMetrics& r) { return limit > 0 && r.peakBytes > limit; });
  const bool fits = prediction.fits = tooLarge == metrics.ranks.end();
  if (!o.out.empty() && fits) writeFile(o.out, toJson(plan));
  if (o.json) {
    print(versioned(withPlanFields(predictionJson(prediction, plan.schedule, costs), plan, exported, shared, recomputed, missing)) + "\n");
  } else {
    printHead(o, plan, graph, exported);
    printStages(plan, graph, metrics);
    printShared(plan, shared, o.share);
    printRecomputed(recomputed);
    print(fmt::format("\npredicted step {}, makespan {}, bubble {:.1f} %, lower bound of the makespan {}\n", formatDuration(metrics.step),
                      formatDuration(metrics.makespan), 100 * metrics.bubbleFraction, formatDuration(prediction.lowerBound.flush)));
    if (profile.estimated) print(incompleteLine(missing, true));
    adviseSingleRank(plan, graph, profile, metrics.step, limit, stateCopies(request.optimizer));
    if (!o.out.empty() && fits) print(fmt::format("Written to {}.\n", o.out));
  }
  if (const std::vector<std::string> custom = customOperators(graph); !custom.empty() && plan.libraries.empty()) {
    warn(fmt::format("{} {} not LibTorch's own: to run this plan, give the library that defines {} with --load-library FILE.so",
                     fmt::join(custom, ", "), custom.size() == 1 ? "is" : "are", custom.size() == 1 ? "it" : "them"));
  }
  const std::string bias = plan.replicas * plan.schedule.microbatches > 1 ? lossBias(graph, plan.loss) : "";
  if (!bias.empty()) warn(bias);
  if (fits) return kYes;
  return complain(fmt::format("Rank {} would need {}, more than the limit of {}, so no plan was written; use more ranks, smaller "
                              "microbatches, --recompute auto or another balance",
                              tooLarge->rank.value, formatSize(tooLarge->peakBytes), formatSize(limit)),
                  kNo);
}

/// The model, how it is cut and how the stages are scheduled.
void declareStages(CLI::App& sub, const std::shared_ptr<Options>& o) {
  sub.add_option("MODEL.pt2", o->models, "Model archive (.pt2); several if each stage was exported separately")
      ->required()
      ->option_text("MODEL.pt2");
  sub.add_option("--ranks", o->ranks,
                 "Pipeline ranks (default: split points + 1, else one per GPU where there are several, else one per core)")
      ->check(wholeFrom(1, 1024))
      ->option_text("R");
  sub.add_option("--chunks", o->chunks, "Stages per rank (default: the schedule's usual number)")
      ->check(wholeFrom(1, 1024))
      ->option_text("V");
  sub.add_option("--microbatches", o->microbatches,
                 "Microbatches per step (default: 4 per rank, or fewer if --batch is smaller or not divisible by that)")
      ->check(wholeFrom(1, kMaxMicrobatches))
      ->option_text("M");
  sub.add_option("--microbatch", o->microbatch, "Samples per microbatch (default: as exported)")
      ->check(wholeFrom(1, 1 << 20))
      ->option_text("B");
  sub.add_option("--replicas", o->replicas, "Data-parallel copies of the pipeline, each with its own microbatches (default: 1)")
      ->check(wholeFrom(1, kMaxReplicas))
      ->option_text("D");
  sub.add_option("--batch", o->batch, "Samples per step over all replicas; microbatches may then differ in size")
      ->check(wholeFrom(1, 1 << 24))
      ->option_text("SAMPLES");
  sub.add_option("--schedule", o->schedule, "Schedule: a name from `schedule list` (default: 1f1b) or a CSV file")->option_text("NAME");
  sub.add_option("--split", o->splits, "Where stages begin: `name` before or `name:end` after a module, or `@node`; see `inspect`")
      ->delimiter(',')
      ->option_text("NAME,...");
  sub.add_option("--balance", o->balance, "What to balance if no splits are named")
      ->check(CLI::IsMember({"time", "memory", "parameters", "layers"}))
      ->option_text("time|memory|parameters|layers");
}

/// Where costs come from, memory, and what the training adds to both.
void declareCosts(CLI::App& sub, const std::shared_ptr<Options>& o) {
  sub.add_option("--profile", o->profile, "A profile of this model (default: measured now)")->option_text("FILE");
  sub.add_option("--cluster", o->cluster, "Estimate costs for a cluster preset or file instead of measuring")->option_text("CLUSTER");
  sub.add_option("--memory-limit", o->memoryLimit, "Memory limit of a rank, for example 24GiB; exit status 1 if the plan needs more")
      ->check(aSize())
      ->option_text("SIZE");
  sub.add_option("--recompute", o->recompute,
                 "Activations to recompute in the backward instead of keeping them: module names (`blocks`: each of its layers), full "
                 "(whole stages), or auto (as few stages as --memory-limit allows)")
      ->delimiter(',')
      ->option_text("none|full|auto|NAME,...");
  sub.add_option("--share", o->share,
                 "Parameters used by several stages: each updates a copy (replicate), or one updates and sends it (transmit) (default: "
                 "auto, the faster one)")
      ->check(CLI::IsMember({"auto", "replicate", "transmit"}))
      ->option_text("auto|replicate|transmit");
  sub.add_option("--optimizer", o->optimizer,
                 "Optimizer whose state is counted in memory and time (default: sgd, which has none); a run may use another")
      ->option_text(optimizerNames("|"));
  sub.add_option("--momentum", o->momentum, "For sgd and rmsprop: momentum, one more number of state per parameter")
      ->check(numberFrom(0, 1))
      ->option_text("X");
  sub.add_flag("--zero1", o->zero1, "Spread the optimizer's state over the replicas (ZeRO stage 1)");
  sub.add_option("--loss", o->loss, "Loss: cross_entropy, mse, sum or output:NAME (default: the model's own, otherwise cross_entropy)")
      ->option_text("LOSS");
  addMeasureOptions(sub, o->how);
}

}  // namespace

Command addPlan(CLI::App& app) {
  auto* sub = app.add_subcommand("plan", "Cut a model into stages and schedule it");
  auto o = std::make_shared<Options>();
  declareStages(*sub, o);
  declareCosts(*sub, o);
  sub->add_option("--out", o->out, "Write the plan here (JSON)")->option_text("FILE");
  sub->add_flag("--json", o->json, "Print the prediction as JSON");
  sub->footer(
      "\nExamples:\n"
      "  pipewright plan gpt.pt2 --ranks 2 --microbatches 8 --out plan.json\n"
      "  pipewright plan gpt.pt2 --split blocks.2,blocks.5 --microbatches 8 --schedule gpipe\n"
      "  pipewright plan gpt.pt2 --ranks 8 --microbatches 32 --cluster h100-nvlink --precision bf16 --optimizer adamw --memory-limit 80GB "
      "--recompute auto\n"
      "  pipewright plan gpt.pt2 --ranks 2 --replicas 2 --microbatches 8 --recompute blocks --optimizer adamw");
  return [o] { return run(*o); };
}

}  // namespace pw::cli
