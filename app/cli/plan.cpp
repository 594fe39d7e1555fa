#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/choices.h"
#include "app/cli/options/layers.h"
#include "app/cli/options/numbers.h"
#include "app/cli/options/optimizer.h"
#include "app/cli/options/own_ranks.h"
#include "app/cli/options/schedule.h"
#include "app/cli/options/shared.h"
#include "app/cli/order_watch.h"
#include "app/cli/text/memory.h"
#include "app/cli/text/not_counted.h"
#include "app/cli/text/output.h"
#include "app/cli/text/sensitivity.h"
#include "backends/pt2/record.h"
#include "engine/planning/inputs/limits.h"
#include "engine/planning/plan_model.h"
#include "schedules/generate.h"
#include "schedules/units.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/loss_count.h"
#include "simulator/partition/model_costs.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/made_order.h"
#include "simulator/plan/memory.h"
#include "simulator/plan/planner.h"
#include "simulator/plan/replica_prices.h"
#include "simulator/plan/sharing.h"
#include "simulator/report/json.h"
#include "simulator/report/metrics.h"
#include "simulator/report/sensitivity.h"
#include "simulator/text/json_text.h"

namespace pw::cli {
namespace {

struct PlanArguments {
  PlanOptions plan;
  std::string layers, out;
  bool json = false, whyMemory = false;
  double sensitivity = 0;
};

/// Of a plan with the costs it was made with.
PlanMemory memoryOf(const PlannedModel& planned) {
  ModelCosts model(planned.graph, planned.profile, planned.request.microbatch);
  return pw::memoryOf(planned.request, model, planned.plan.schedule, planned.plan.partition);
}

void printStages(const Plan& plan, const ModelGraph& graph, const Metrics& metrics) {
  std::vector<std::vector<std::string>> rows{{"stage", "rank", "begins at", isLayerChain(graph) ? "layers" : "operators", "forward",
                                              "backward", "parameters", "receives", "peak memory"}};
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
void printShared(const Plan& plan, const std::vector<SharingChoice>& choices, std::optional<Sharing> requested) {
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
      const std::string reason = requested          ? "as requested"
                                 : choice.forMemory ? "otherwise a rank does not fit"
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

std::vector<Recomputed> recomputedBy(const PlannedModel& planned) {
  const Plan& plan = planned.plan;
  Partition kept = plan.partition;
  for (StageSpec& stage : kept.stages) stage.checkpoints.clear();
  const OwnPipeline shown = shownPipeline(planned.request, plan.profile);
  const CostTable without = costTable(planned.graph, kept, shown.profile, plan.schedule.placement, shown.request.replicas);
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

std::string withPlanFields(const std::string& prediction, const PlannedModel& planned, const ExportRecord& exported,
                           const std::vector<Recomputed>& recomputed, const std::vector<NotCounted>& missing) {
  const Plan& plan = planned.plan;
  const PlanRequest& request = planned.request;
  auto json = ownJson(prediction);
  json["trace_check"] = ownJson(toJson(exported));
  json["not_counted"] = ownJson(notCountedJson(missing));
  json["replicas"] = plan.replicas;
  json["flop_utilisation"] = planned.prediction.utilisation;
  if (planned.oneRank) {
    json["one_rank"] = {{"step_ns", planned.oneRank->step}, {"peak_bytes", planned.oneRank->peak}};
    if (planned.oneRank->rank) json["one_rank"]["rank"] = planned.oneRank->rank->value;
    if (planned.oneRank->replicas > 1) json["one_rank"]["replicas"] = planned.oneRank->replicas;
  }
  json["splits_moved_to_fit"] = planned.movedToFit;
  if (plan.cuts) {
    json["replica_splits"] = nlohmann::ordered_json::array();
    for (const ReplicaCut& cut : plan.cuts->replicas) json["replica_splits"].push_back(cut.splitNames);
    json["shown_replica"] = plan.cuts->shown;
    if (planned.stepWithSameSplits) json["step_with_same_splits_ns"] = planned.stepWithSameSplits->value;
  }
  json["world_size"] = worldSize(plan);
  json["rank_order"] = nlohmann::ordered_json::array();
  for (int i = 0; i < request.ranks; ++i)
    json["rank_order"].push_back(request.rankOrder.empty() ? i : request.rankOrder[static_cast<std::size_t>(i)].value);
  json["recomputed"] = nlohmann::ordered_json::array();
  for (const Recomputed& r : recomputed) {
    json["recomputed"].push_back({{"stage", r.stage.value}, {"operators", r.operators}, {"backward_ns", r.time}, {"saved_bytes", r.saved}});
  }
  json["shared"] = nlohmann::ordered_json::array();
  for (const SharingChoice& c : planned.sharing) {
    json["shared"].push_back({{"name", c.name},
                              {"sharing", nameOf(c.sharing)},
                              {"ranks", c.ranks},
                              {"replicate_ns", c.replicateTime},
                              {"transmit_ns", c.transmitTime},
                              {"replicate_bytes", c.replicateBytes},
                              {"transmit_bytes", c.transmitBytes}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// What is particular of the ranks, and their order where it is not that of their numbers.
void printRanks(const Plan& plan, const std::vector<Rank>& order) {
  const std::string own = heterogeneityText(plan.profile.topology, worldSize(plan));
  if (!own.empty()) print(fmt::format("ranks {}\n", own));
  const std::string unused = unusedRanksText(plan.profile, worldSize(plan));
  if (!unused.empty()) print(fmt::format("note: {}\n", unused));
  std::vector<int> numbers;
  numbers.reserve(order.size());
  for (const Rank rank : order) numbers.push_back(rank.value);
  if (!order.empty()) print(fmt::format("order of the ranks along the pipeline: {}\n", fmt::join(numbers, ", ")));
}

/// Where each replica is cut, if they differ in that.
void printReplicaSplits(const PlannedModel& planned) {
  if (!planned.plan.cuts) return;
  const ReplicaCuts& cuts = *planned.plan.cuts;
  for (std::size_t d = 0; d < cuts.replicas.size(); ++d)
    print(fmt::format("replica {}: stages begin at {}\n", d, fmt::join(cuts.replicas[d].splitNames, ", ")));
  const std::string same = planned.stepWithSameSplits ? "the step would take " + formatDuration(*planned.stepWithSameSplits)
                                                      : "a rank would be above its memory limit";
  print(fmt::format("each has splits for its own ranks: with the same for all {}; shown is replica {}, the slowest\n", same, cuts.shown));
}

void printPlan(const PlannedModel& planned, const ExportRecord& exported, const std::vector<Recomputed>& recomputed,
               const std::vector<NotCounted>& missing) {
  const PlanOptions& o = planned.options;
  const Plan& plan = planned.plan;
  const Metrics& metrics = planned.prediction.metrics;
  const int ranks = shapeOf(plan.schedule).ranks;
  const std::string copies = plan.replicas > 1 ? fmt::format(" in each of {} replicas", plan.replicas) : "";
  const std::string count = counted(o.microbatches, "microbatch") + (planned.microbatchesByDefault ? " (by default)" : "");
  const bool layers = isLayerChain(planned.graph);  // without a loss and a trace
  print(fmt::format("{}: {}{}, {}, {} of {}{}\ncosts {}\n{}\n", planned.graph.name, counted(ranks, "rank"), copies, o.schedule, count,
                    o.microbatch, layers ? "" : ", loss " + toString(plan.loss), sourceOf(plan.profile, ranks),
                    layers ? "" : fmt::format("trace {}\n", describe(exported))));
  printRanks(plan, planned.request.rankOrder);
  printReplicaSplits(planned);
  printStages(plan, planned.graph, metrics);
  printShared(plan, planned.sharing, o.share);
  printRecomputed(recomputed);
  print(fmt::format("\npredicted step {}, makespan {}, bubble {:.1f} %, lower bound of the makespan {}\n",
                    formatPrediction(metrics.step, planned.prediction.uncertainty), formatDuration(metrics.makespan),
                    100 * metrics.bubbleFraction, formatDuration(planned.prediction.lowerBound.flush)));
  if (planned.prediction.utilisation > 0)
    print(fmt::format("model FLOPs utilisation {:.3g} % of {:.4g} TFLOP/s a rank\n", 100 * planned.prediction.utilisation,
                      plan.profile.peakFlops / 1e12));
  if (!planned.prediction.processBytes.empty())
    print(fmt::format("each process holds about {} beside its tensors\n", rangeOfSizes(planned.prediction.processBytes)));
  if (const auto& certificate = planned.prediction.certificate)
    print(fmt::format("{}: found by {}; {}\n", o.schedule, certificate->foundBy, toString(*certificate)));
  if (planned.movedToFit && planned.plan.certificate)
    print("within the memory limit an order for these splits ends earlier than one for balanced ones\n");
  else if (planned.movedToFit)
    print("balanced splits need more memory than a rank has: these fit, and of those tried end earliest\n");
  if (planned.profile.estimated) print(incompleteLine(missing, true));
  if (planned.oneRank) print(fmt::format("\n{}\n", toString(*planned.oneRank, metrics.step)));
  for (const std::string& note : planned.notes) print("note: " + note + "\n");
}

SensitivityReport sensitivityOf(const PlannedModel& planned, const PlanArguments& o) {
  const Plan& plan = planned.plan;
  SensitivityReport report = pw::sensitivityOf(plan.schedule, planned.costs, Sending::Overlapped, o.sensitivity);
  OrderWatch watch(o.plan.how.progressStyle);
  ModelCosts model(planned.graph, planned.profile, planned.request.microbatch);
  const OrderEffort effort{
      .seconds = o.plan.seconds.value_or(OrderEffort().seconds), .threads = kOrderThreads, .shouldContinue = watch.shouldContinue()};
  if (const auto limit = limitSensitivity(planned.request, model, plan.schedule, o.sensitivity, effort)) report.limits.push_back(*limit);
  watch.end();
  return report;
}

int runPlan(const PlanArguments& o) {
  PlanOptions plans = o.plan;
  plans.models = modelFiles(o.plan.models, o.layers, "plan");
  OrderWatch watch(plans.how.progressStyle);
  plans.shouldContinue = watch.shouldContinue();
  const PlannedModel planned = planModel(std::move(plans), &warn);
  watch.end();
  const Plan& plan = planned.plan;
  const ModelGraph& graph = planned.graph;
  const ExportRecord exported = readExportRecord(graph);
  const std::vector<Recomputed> recomputed = recomputedBy(planned);
  const std::vector<NotCounted> missing = notCounted(graph, plan.microbatchSize);
  const bool fits = planned.prediction.fits;
  if (!o.out.empty() && fits) writeFile(o.out, toJson(plan));
  if (o.json) {
    std::string document =
        withPlanFields(predictionJson(planned.prediction, plan.schedule, planned.costs), planned, exported, recomputed, missing);
    if (o.whyMemory) document = withMemory(document, memoryOf(planned));
    if (o.sensitivity > 0) document = withSensitivity(document, sensitivityOf(planned, o));
    print(versioned(document) + "\n");
  } else {
    printPlan(planned, exported, recomputed, missing);
    if (o.whyMemory) print("\n" + memoryText(memoryOf(planned)));
    if (o.sensitivity > 0) print("\n" + sensitivityText(sensitivityOf(planned, o)));
    if (!o.out.empty() && fits) print(fmt::format("Written to {}.\n", o.out));
  }
  if (const std::vector<std::string> custom = customOperators(graph); !custom.empty() && plan.libraries.empty()) {
    warn(fmt::format("{} {} not LibTorch's own: to run this plan, give the library that defines {} with --load-library FILE.so",
                     fmt::join(custom, ", "), custom.size() == 1 ? "is" : "are", custom.size() == 1 ? "it" : "them"));
  }
  const std::string bias = plan.replicas * plan.schedule.microbatches > 1 ? lossBias(graph, plan.loss) : "";
  if (!bias.empty()) warn(bias);
  return fits ? watch.status(kYes) : complain(tooLargeSentence(planned), kNo);
}

/// How the model is cut and how the stages are scheduled.
void declareStages(CLI::App& sub, PlanOptions& o) {
  sub.add_option(
         "--ranks", o.ranks,
         "Pipeline ranks (default: split points + 1, else those of a job, else one per GPU where there are several, else one per core)")
      ->check(wholeFrom(1, kMostPlanRanks))
      ->option_text("R");
  sub.add_option("--chunks", o.chunks, "Stages per rank (default: the schedule's usual number)")
      ->check(wholeFrom(1, kMostPlanChunks))
      ->option_text("V");
  sub.add_option(
         "--microbatches", o.microbatches,
         "Microbatches per step (default: those of a job, else 4 per rank, or fewer if --batch is smaller or not divisible by that)")
      ->check(wholeFrom(1, kMaxMicrobatches))
      ->option_text("M");
  sub.add_option("--microbatch", o.microbatch, "Samples per microbatch (default: as exported)")
      ->check(wholeFrom(1, kMostMicrobatchSamples))
      ->option_text("B");
  sub.add_option("--replicas", o.replicas, "Data-parallel copies of the pipeline, each with its own microbatches (default: 1)")
      ->check(wholeFrom(1, kMaxReplicas))
      ->option_text("D");
  sub.add_option("--batch", o.batch, "Samples per step over all replicas; microbatches may then differ in size")
      ->check(wholeFrom(1, kMostBatchSamples))
      ->option_text("SAMPLES");
  sub.add_option("--schedule", o.schedule,
                 "Schedule: a name from `schedule list` (default: 1f1b), auto (an order made for the stages' costs and the memory limit) "
                 "or a CSV file")
      ->option_text("NAME");
  declareSeconds(sub, o.seconds);
  sub.add_option("--split", o.splits, "Where stages begin: `name` before or `name:end` after a module, or `@node`; see `inspect`")
      ->delimiter(',')
      ->option_text("NAME,...");
  sub.add_flag("--same-splits", o.sameSplits,
               "Cut all replicas alike, also where their ranks differ and splits of their own would be faster");
  addChoice(sub, "--balance", o.balance, "What to balance if no splits are named (default: time, where the model has no marks of its own)");
}

/// Where costs come from, memory, and what the training adds to both.
void declarePlanCosts(CLI::App& sub, PlanOptions& o) {
  sub.add_option("--profile", o.profile, "A profile of this model (default: measured now)")->option_text("FILE");
  sub.add_option("--cluster", o.cluster,
                 "Estimate costs for a cluster preset or file instead of measuring; with --profile, take only its ranks and links")
      ->option_text("CLUSTER");
  declareRankOrder(sub, o.rankOrder);
  sub.add_option("--memory-limit", o.memoryLimit, "Memory limit of a rank, for example 24GiB; exit status 1 if the plan needs more")
      ->check(aSize())
      ->option_text("SIZE");
  sub.add_option_function<std::vector<std::string>>(
         "--recompute", [&o](const std::vector<std::string>& words) { o.recompute = parseRecompute(words); },
         "Activations to recompute in the backward instead of keeping them: module names (`blocks`: each of its layers), full "
         "(whole stages), or auto (no more than --memory-limit demands)")
      ->delimiter(',')
      ->option_text("none|full|auto|NAME,...");
  addChoice(
      sub, "--share", "auto|" + namesOf<Sharing>("|"), [&o](std::string_view name) { o.share = valueNamed<Sharing>(name); },
      "Parameters used by several stages: each updates a copy (replicate), or one updates and sends it (transmit) (default: auto, the "
      "faster "
      "one)");
  declareOptimizerState(sub, o.optimizer, o.zero1, "; a run may use another");
  sub.add_option("--loss", o.loss, "Loss: cross_entropy, mse, sum or output:NAME (default: the model's own, otherwise cross_entropy)")
      ->option_text("LOSS");
  addMeasureOptions(sub, o.how);
}

}  // namespace

Command addPlan(CLI::App& app) {
  auto* sub = app.add_subcommand("plan", "Cut a model into stages and schedule it");
  auto options = std::make_shared<PlanArguments>();
  declareModel(*sub, options->plan.models, options->layers);
  declareStages(*sub, options->plan);
  declarePlanCosts(*sub, options->plan);
  sub->add_option("--out", options->out, "Write the plan here (JSON)")->option_text("FILE");
  sub->add_flag("--why-memory", options->whyMemory,
                "Explain each rank's peak: bytes by kind, stage and microbatch, their modules, and what would free how much for what time");
  addSensitivity(*sub, options->sensitivity);
  sub->add_flag("--json", options->json, "Print the prediction as JSON");
  sub->footer(
      "\nExamples:\n"
      "  pipewright plan gpt.pt2 --ranks 2 --microbatches 8 --out plan.json\n"
      "  pipewright plan gpt.pt2 --split blocks.2,blocks.5 --microbatches 8 --schedule gpipe\n"
      "  pipewright plan gpt.pt2 --ranks 8 --microbatches 32 --cluster h100-nvlink --precision bf16 --optimizer adamw --memory-limit 80GB "
      "--recompute auto\n"
      "  pipewright plan gpt.pt2 --ranks 2 --replicas 2 --microbatches 8 --recompute blocks --optimizer adamw\n"
      "  pipewright plan --layers layers.csv --ranks 4 --microbatches 16 --out plan.json");
  return [options] { return runPlan(*options); };
}

}  // namespace pw::cli
