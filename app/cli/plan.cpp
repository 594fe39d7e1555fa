#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <thread>

#include "app/cli/commands.h"
#include "app/cli/model.h"
#include "app/cli/output.h"
#include "app/cli/schedule_options.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "schedules/units.h"
#include "simulator/json_fields.h"
#include "simulator/metrics.h"
#include "simulator/plan.h"

namespace pw::cli {
namespace {

struct Options {
  std::vector<std::string> models, splits;
  std::string schedule = "1f1b", balance = "time", profile, cluster, out, loss, memoryLimit;
  int ranks = 0, chunks = 0, microbatches = 0, threads = 1;
  std::int64_t microbatch = 0, batch = 0;
  bool json = false;
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
    if (std::adjacent_find(begins.begin(), begins.end()) != begins.end()) throw UsageError("Two of the split names mean the same place; name each place once.");
    return begins;
  }
  if (static_cast<int>(graph.splitMarkers.size()) + 1 == stages) return graph.splitMarkers;
  return balance(graph, profile, stages, parseBalance(o.balance));
}

/// The schedule asked for, for as many ranks and stages as options and model say. Refuses shapes and names before anything is measured.
Schedule chooseSchedule(const Options& o, const ModelGraph& graph) {
  const bool file = o.schedule.ends_with(".csv");
  const int chunks = o.chunks > 0 ? o.chunks : file ? 1 : generatorOf(o.schedule).chunks;
  ShapeOptions shape{.ranks = o.ranks, .chunks = o.chunks, .microbatches = o.microbatches, .group = 0, .strict = {}};
  const int pieces = static_cast<int>(o.splits.empty() ? graph.splitMarkers.size() : o.splits.size()) + 1;  // as the splits or the marks in the model say
  if (shape.ranks == 0 && !file && pieces > 1 && pieces % chunks == 0) shape.ranks = pieces / chunks;
  if (shape.ranks == 0 && !file) shape.ranks = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // the devices found: one rank per core
  const Schedule schedule = generateFrom(o.schedule, shape);
  for (const Problem& problem : check(schedule)) {
    if (problem.stops == Stops::Always) throw UsageError(fmt::format("{} cannot be run: rank {}: {}; `pipewright check` lists all problems", o.schedule, problem.rank.value, problem.message));
  }
  const int stages = shapeOf(schedule).stages;
  if (!o.splits.empty() && stages != pieces) {
    throw UsageError(fmt::format("{} split points make {} stages, and {} has {} on {} ranks; give {} split points.", o.splits.size(), pieces, o.schedule, stages,
                                 shapeOf(schedule).ranks, stages - 1));
  }
  return schedule;
}

std::vector<std::string> namesOf(const ModelGraph& graph, const std::vector<NodeId>& begins, const Bindings& bindings) {
  std::vector<std::string> names;
  const auto points = splitPoints(graph, bindings);
  for (const NodeId begin : begins) {
    const auto found = std::find_if(points.begin(), points.end(), [&](const SplitPoint& p) { return p.begin == begin; });
    names.push_back(found == points.end() ? fmt::format("node {}", begin.value) : found->name);
  }
  return names;
}

Profile chooseProfile(const Options& o, const ModelGraph& graph, std::int64_t microbatch, int ranks) {
  if (!o.profile.empty()) {
    Profile profile = parseProfile(readFile(o.profile), o.profile);
    if (profile.nodes.size() != graph.nodes.size()) throw UsageError(fmt::format("{} was not taken of {}; profile this model.", o.profile, graph.name));
    if (profile.microbatch != microbatch) {
      throw UsageError(fmt::format("{} was taken at microbatch {}, the plan has {}; profile with --microbatch {}.", o.profile, profile.microbatch, microbatch, microbatch));
    }
    return profile;
  }
  if (!o.cluster.empty()) return estimate(graph, microbatch, loadCluster(o.cluster));
  return measureWithRanks(o.models, microbatch, ranks, o.threads, o.loss);
}

void printStages(const Plan& plan, const ModelGraph& graph, const Metrics& metrics) {
  std::vector<std::vector<std::string>> rows{{"stage", "rank", "begins at", "operators", "forward", "backward", "parameters", "receives", "peak memory"}};
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
  fmt::print("{}", table(rows));
  for (const ReplicatedParameter& r : plan.partition.replicated) {
    std::string stages;
    for (const Stage s : r.stages) stages += (stages.empty() ? "" : " and ") + std::to_string(s.value);
    fmt::print("shared: {} ({}) is kept by stages {}, gradients summed each step\n", r.name, formatSize(r.bytes), stages);
  }
  for (std::size_t s = 0; s < plan.partition.stages.size(); ++s) {
    const auto& recomputed = plan.partition.stages[s].recomputed;
    if (recomputed.empty()) continue;
    std::string names;
    for (const NodeId node : recomputed) {
      for (const ValueId v : graph.node(node).outputs) names += (names.empty() ? "" : ", ") + graph.value(v).name;
    }
    fmt::print("recomputed by stage {} instead of received: {}\n", s, names);
  }
}

/// Says so when one device is enough: the whole model fits it and would be no slower there.
void adviseSingleRank(const Plan& plan, const ModelGraph& graph, const Profile& profile, Ns pipelined, Bytes limit) {
  if (plan.partition.stages.size() < 2) return;
  const Partition whole = cut(graph, {}, bindBatch(graph, plan.microbatchSize), nullptr);
  const Schedule schedule = generate("1f1b", {1, 1, plan.schedule.microbatches});
  CostTable costs = costTable(graph, whole, profile, schedule.placement);
  costs.microbatchScale = plan.costs.microbatchScale;
  const Metrics alone = measure(simulate(schedule, costs));
  if (limit > 0 && alone.ranks[0].peakBytes > limit) return;
  if (alone.step <= pipelined) {
    fmt::print("\nOne device suffices: the whole model takes {} per step on one rank, with {} of memory.\n", formatDuration(alone.step), formatSize(alone.ranks[0].peakBytes));
  } else {
    fmt::print("\nOn one rank the step would take {} ({:.2f} times as long).\n", formatDuration(alone.step), static_cast<double>(alone.step) / static_cast<double>(pipelined));
  }
}

Plan makePlan(const Options& o, const ModelGraph& graph, const Profile& profile, const Schedule& schedule) {
  const Bindings bindings = bindBatch(graph, o.microbatch);
  const std::vector<NodeId> begins = chooseSplits(o, graph, profile, shapeOf(schedule).stages);
  Plan plan;
  plan.modelFiles = graph.files;
  plan.modelName = graph.name;
  plan.microbatchSize = o.microbatch;
  plan.batch = o.batch;
  plan.loss = o.loss;
  plan.partition = cut(graph, begins, bindings, &profile);
  plan.splitNames = namesOf(graph, begins, bindings);
  plan.schedule = lower(schedule);
  plan.costs = costTable(graph, plan.partition, profile, plan.schedule.placement);
  const auto sizes = microbatchSizes(o.batch, o.microbatches);
  if (std::any_of(sizes.begin(), sizes.end(), [&](std::int64_t s) { return s != o.microbatch; })) {
    for (const std::int64_t size : sizes) plan.costs.microbatchScale.push_back(static_cast<double>(size) / static_cast<double>(o.microbatch));
  }
  plan.profile = profile;
  return plan;
}

int run(Options& o) {
  const ModelGraph graph = loadModel(o.models);
  if (o.batch == 0) o.batch = (o.microbatch == 0 ? exportedBatch(graph) : o.microbatch) * o.microbatches;
  if (o.batch < o.microbatches) throw UsageError(fmt::format("A batch of {} cannot be cut into {} microbatches; use a larger --batch or fewer --microbatches.", o.batch, o.microbatches));
  if (o.microbatch == 0) o.microbatch = (o.batch + o.microbatches - 1) / o.microbatches;
  if (microbatchSizes(o.batch, o.microbatches).front() != o.microbatch) {
    throw UsageError(fmt::format("--batch {} in {} microbatches has microbatches of {}, not {}; leave out --microbatch or --batch.", o.batch, o.microbatches,
                                 microbatchSizes(o.batch, o.microbatches).front(), o.microbatch));
  }
  static_cast<void>(bindBatch(graph, o.microbatch));  // refuses a batch the model was not exported for
  if (o.loss.empty()) o.loss = defaultLoss(graph);
  const Schedule schedule = chooseSchedule(o, graph);
  const int ranks = shapeOf(schedule).ranks;
  const Bytes limit = o.memoryLimit.empty() ? 0 : parseSize(o.memoryLimit);
  for (const std::string& split : o.splits) static_cast<void>(findSplit(graph, split));
  const Profile profile = chooseProfile(o, graph, o.microbatch, ranks);
  const Plan plan = makePlan(o, graph, profile, schedule);
  const Program program = compile(plan.schedule, plan.costs);
  Times times;
  execute(program, times);
  Prediction prediction = predict(plan.schedule, plan.costs, program, times, traceOf(plan.schedule, plan.costs, program, times));
  const Metrics& metrics = prediction.metrics;
  const auto tooLarge = std::find_if(metrics.ranks.begin(), metrics.ranks.end(), [&](const RankMetrics& r) { return limit > 0 && r.peakBytes > limit; });
  const bool fits = prediction.fits = tooLarge == metrics.ranks.end();
  if (!o.out.empty() && fits) writeFile(o.out, toJson(plan));
  if (o.json) {
    fmt::print("{}\n", predictionJson(prediction, plan.schedule, plan.costs));
  } else {
    fmt::print("{}: {} ranks, {}, {} microbatches of {}, loss {}\ncosts {}\n\n", graph.name, ranks, o.schedule, o.microbatches, o.microbatch, o.loss, sourceOf(plan.profile));
    printStages(plan, graph, metrics);
    fmt::print("\npredicted step {}, makespan {}, bubble {:.1f} %, lower bound of the makespan {}\n", formatDuration(metrics.step), formatDuration(metrics.makespan),
               100 * metrics.bubbleFraction, formatDuration(prediction.lowerBound.flush));
    adviseSingleRank(plan, graph, profile, metrics.step, limit);
    if (!o.out.empty() && fits) fmt::print("Written to {}.\n", o.out);
  }
  if (fits) return kYes;
  return complain(fmt::format("Rank {} would need {}, more than the limit of {}, so no plan was written; use more ranks, smaller microbatches or another balance",
                              tooLarge->rank.value, formatSize(tooLarge->peakBytes), formatSize(limit)), kNo);
}

}  // namespace

Command addPlan(CLI::App& app) {
  auto* sub = app.add_subcommand("plan", "Cut a model into stages and schedule it");
  auto o = std::make_shared<Options>();
  sub->add_option("MODEL.pt2", o->models, "Model archive (.pt2); several when each stage was exported on its own")->required()->option_text("MODEL.pt2");
  sub->add_option("--ranks", o->ranks, "Pipeline ranks (default: split points + 1, else one per core)")->check(CLI::Range(1, 1024))->option_text("R");
  sub->add_option("--chunks", o->chunks, "Stages per rank (default: as the schedule usually has)")->check(CLI::Range(1, 1024))->option_text("V");
  sub->add_option("--microbatches", o->microbatches, "Microbatches per step")->required()->check(CLI::Range(1, kMaxMicrobatches))->option_text("M");
  sub->add_option("--microbatch", o->microbatch, "Samples per microbatch (default: as exported)")->check(CLI::Range(1, 1 << 20))->option_text("B");
  sub->add_option("--batch", o->batch, "Samples per step, where microbatches may be uneven")->check(CLI::Range(1, 1 << 24))->option_text("SAMPLES");
  sub->add_option("--schedule", o->schedule, "A name of `schedule list` (default: 1f1b) or a CSV file")->option_text("NAME");
  sub->add_option("--split", o->splits, "Where stages begin: module names, `name` before or `name:end` after a module, `@node`; see `inspect`")->delimiter(',')->option_text("NAME,...");
  sub->add_option("--balance", o->balance, "What to balance where no split is named")->check(CLI::IsMember({"time", "memory", "parameters", "layers"}))->option_text("time|memory|parameters|layers");
  sub->add_option("--profile", o->profile, "A profile of this model (default: measured now)")->option_text("FILE");
  sub->add_option("--cluster", o->cluster, "Estimate costs for a cluster preset or file instead of measuring")->option_text("CLUSTER");
  sub->add_option("--memory-limit", o->memoryLimit, "Memory of a rank, for example 24GiB: says no when the plan needs more")->option_text("SIZE");
  sub->add_option("--loss", o->loss, "cross_entropy, mse, sum, output:NAME (default: the model's own, else cross_entropy)")->option_text("LOSS");
  sub->add_option("--threads", o->threads, "Intra-op threads of each rank")->check(CLI::Range(1, 1024))->option_text("N");
  sub->add_option("--out", o->out, "Write the plan here (JSON)")->option_text("FILE");
  sub->add_flag("--json", o->json, "Print the prediction as JSON");
  sub->footer("\nExamples:\n"
              "  pipewright plan gpt.pt2 --ranks 2 --microbatches 8 --out plan.json\n"
              "  pipewright plan gpt.pt2 --split blocks.2,blocks.5 --microbatches 8 --schedule gpipe\n"
              "  pipewright plan gpt.pt2 --ranks 8 --microbatches 32 --cluster h100-nvlink --memory-limit 80GB");
  return [o] { return run(*o); };
}

}  // namespace pw::cli
