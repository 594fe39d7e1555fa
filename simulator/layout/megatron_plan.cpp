#include "simulator/layout/megatron_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "schedules/lower.h"
#include "schedules/units.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/job/job_costs.h"
#include "simulator/job/memory.h"
#include "simulator/layout/best.h"
#include "simulator/layout/rules.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/excess.h"
#include "simulator/plan/layer_export.h"
#include "simulator/plan/plan_fits.h"
#include "simulator/report/metrics.h"
#include "simulator/runtime/runtime.h"
#include "simulator/step/posting.h"
#include "simulator/text/counted.h"

namespace pw {
namespace {

using Begins = std::vector<std::size_t>;

/// The plan's model as a chain of layers, and the place where each layer begins.
struct LayeredModel {
  LayerTable table;
  std::vector<std::size_t> nodes;
  std::size_t unit = 1;  ///< of places in a node of the graph: a layer of a job's stage may begin within one of its parts
};

LayeredModel layered(const Plan& plan, const ModelGraph& graph, std::optional<std::int64_t> layers) {
  if (isLayerChain(graph)) {
    LayeredModel model{tableOf(graph), {}};
    if (isOfJob(model.table) && layers) {
      model.table = withLayers(model.table, *layers);
      model.unit = model.table.layers.size();
      for (std::size_t k = 0; k < model.unit; ++k) model.nodes.push_back(k * graph.nodes.size());
      return model;
    }
    requireLayersOfModel(model.table, "Megatron-LM");
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) model.nodes.push_back(i);
    return model;
  }
  LayeredModel model{layersOf(plan, graph), {0}};
  for (const SplitPoint& point : splitPoints(graph, bindBatch(graph, plan.microbatchSize))) model.nodes.push_back(point.begin.index());
  return model;
}

/// Where a node of the plan is among the blocks: the block that it begins, or that it is within.
struct Place {
  std::size_t position = 0;
  bool inside = false;
};

Place placeOf(const std::vector<LayoutBlock>& blocks, const LayeredModel& model, NodeId begin) {
  const std::size_t node = begin.index() * model.unit;
  const auto layer = static_cast<std::size_t>(std::ranges::upper_bound(model.nodes, node) - model.nodes.begin()) - 1;
  const auto block = std::ranges::upper_bound(blocks, layer, {}, &LayoutBlock::begin) - 1;
  return {static_cast<std::size_t>(block - blocks.begin()), model.nodes[layer] != node || layer != block->begin};
}

/// Why the plan's schedule is not one that Megatron runs; empty: it is.
std::string unlike(const Plan& plan, const LayoutShape& shape) {
  const Schedule& schedule = plan.schedule;
  const PlacementKind kind = kindOf(schedule.placement, shapeOf(schedule));
  if (kind != PlacementKind::Loop) return fmt::format("places stages as {}, and Megatron as a loop", nameOf(kind));
  if (computeOnly(schedule).rows == computeOnly(lower(megatronSchedule(shape))).rows) return "";
  const bool splits = std::ranges::any_of(schedule.rows, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& a) { return a.kind == ActionKind::BackwardWeight; });
  });
  return splits ? "computes the weights' part of the backward on its own (zero bubble), which Megatron does not"
                : "has another order, and Megatron does not read orders";
}

/// Groups of microbatches that Megatron's interleaved schedule takes: as many as ranks, else the first number that leaves no short rest.
std::optional<int> groupFor(int ranks, int chunks, int microbatches) {
  for (int group = ranks; group <= microbatches; ++group) {
    if (!refusalOfMicrobatches(ranks, chunks, microbatches, group)) return group;
  }
  return std::nullopt;
}

void addFlags(MegatronPlan& megatron, const Plan& plan, const LayoutShape& shape, UnknownOfJob unknown) {
  std::vector<std::string>& flags = megatron.flags;
  const auto add = [&](std::string flag) { flags.push_back(std::move(flag)); };
  add(fmt::format("--pipeline-model-parallel-size {}", shape.ranks));
  add(fmt::format("--pipeline-model-parallel-layout \"{}\"", toString(megatron.layout)));
  add(fmt::format("--num-layers {}", megatron.layout.count(LayoutLayer::Transformer)));
  if (const std::size_t mtp = megatron.layout.count(LayoutLayer::Mtp); mtp > 0) add(fmt::format("--mtp-num-layers {}", mtp));
  if (shape.chunks > 1 && shape.group != 0 && shape.group != shape.ranks)
    add(fmt::format("--microbatch-group-size-per-virtual-pipeline-stage {}", shape.group));
  if (!unknown.samples) add(fmt::format("--micro-batch-size {}", plan.microbatchSize));
  const std::int64_t samples = plan.microbatchSize * shape.microbatches * plan.replicas;
  if (!unknown.samples) add(fmt::format("--global-batch-size {}", samples));
  if (plan.batch != samples)
    megatron.notes.push_back(
        fmt::format("The plan's batch of {} makes microbatches of different sizes; here a step has {} samples.", plan.batch, samples));
  if (plan.replicas > 1) add("--overlap-grad-reduce");  // the plan's reductions run while ranks compute
  if (plan.profile.computing.precision == DType::BFloat16) add("--bf16");
  if (plan.profile.computing.precision == DType::Float16) add("--fp16");
  if (plan.profile.computing.precision == DType::Float8) {
    add("--bf16");
    add("--fp8-format hybrid");
  }
  if (std::string text = unknownText(plan, unknown, "--micro-batch-size", "", "--global-batch-size"); !text.empty())
    megatron.notes.push_back(std::move(text));
  if (plan.optimizer && !unknown.optimizer) {
    const OptimizerSpec& update = plan.optimizer->update;
    const OptimizerFacts facts = factsOf(update.kind);
    if (facts.megatron.empty())
      megatron.notes.push_back(fmt::format("Megatron has no {}; --optimizer is left to you.", facts.className));
    else
      add(fmt::format("--optimizer {}", facts.megatron));
    if (update.kind == OptimizerSpec::Kind::Sgd) {
      add(fmt::format("--sgd-momentum {}", update.momentum));
      megatron.notes.emplace_back(
          "The plan counts SGD, which `pipewright plan` takes without --optimizer; Megatron's own default is Adam: plan with --optimizer "
          "adamw if the job uses that.");
    }
    const bool isAdam = update.kind == OptimizerSpec::Kind::Adam || update.kind == OptimizerSpec::Kind::AdamW;
    if (plan.optimizer->zero1 && isAdam) add("--use-distributed-optimizer");
    if (plan.optimizer->zero1 && !isAdam)
      megatron.notes.push_back(
          "Megatron's distributed optimizer takes Adam only: --use-distributed-optimizer, the plan's ZeRO-1, is left out, and each "
          "replica keeps the whole state.");
  }
}

/// How many stages recompute some of their nodes.
std::size_t recomputingStages(const Plan& plan) {
  return static_cast<std::size_t>(
      std::ranges::count_if(plan.partition.stages, [](const StageSpec& stage) { return !stage.checkpoints.empty(); }));
}

/// Whether most of the model is recomputed, so that Megatron's full recomputation is nearest.
bool recomputesAll(const Plan& plan) {
  std::size_t whole = 0;
  for (const StageSpec& stage : plan.partition.stages) {
    int nodes = 0;
    for (const NodeRange& range : stage.checkpoints) nodes += range.end.value - range.begin.value;
    whole += 2 * nodes > stage.end.value - stage.begin.value ? 1U : 0U;
  }
  return recomputingStages(plan) > 0 && 2 * whole >= plan.partition.stages.size();
}

void addRecompute(MegatronPlan& megatron, const Plan& plan) {
  const std::size_t some = recomputingStages(plan);
  if (some == 0) return;
  if (recomputesAll(plan)) {
    for (const char* flag : {"--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"})
      megatron.flags.emplace_back(flag);
    megatron.notes.emplace_back(
        "Megatron recomputes every transformer layer on its own, the same on all stages; the plan's stages may keep more.");
  } else {
    megatron.flags.emplace_back("--recompute-granularity selective");
    megatron.notes.push_back(fmt::format(
        "The plan recomputes in {} of {} stages; Megatron decides for all alike, and selective recomputation, of attention's core in every "
        "layer, is the nearest to that. {}",
        some, plan.partition.stages.size(),
        megatron.exact ? "The predicted step counts what the plan recomputes instead, and memory nothing recomputed."
                       : "The predicted step and memory count nothing recomputed: Megatron's step is longer, and it needs less."));
  }
}

/// The predicted step of the plan, with its optimizer's state.
Ns stepOfPlan(const Plan& plan) { return metricsOf(simulate(plan.schedule, costsWithOptimizer(plan))).step; }

/// That of an exact plan as Megatron posts its messages.
Ns megatronStepOf(const Plan& plan) {
  const CostTable costs = costsWithOptimizer(plan);
  const RuntimeRows megatron = megatronRows(plan.schedule);
  const PostedProgram posted = compile(megatron.rows, costs, megatron.posting);
  if (!posted.stuck.empty()) throw UsageError(posted.stuck.front().message);
  Times times;
  execute(posted.program, times);
  return stepOf(megatron.rows, costs, posted.program, times);
}

/// Every transformer layer of the table recomputed on its own, from its input alone. Returns their names.
RecomputeModules recomputeLayers(LayerTable& table) {
  RecomputeModules modules;
  for (const LayoutBlock& block : blocksOf(table)) {
    if (block.letter != LayoutLayer::Transformer && block.letter != LayoutLayer::Mtp) continue;
    modules.names.push_back(block.name);
    for (std::size_t i = block.begin; i < block.end; ++i) {
      Layer& layer = table.layers[i];
      layer.module = block.name;
      layer.kept = i == block.begin && i > 0 ? std::min(layer.activations, table.layers[i - 1].output) : Bytes{0};
    }
  }
  return modules;
}

PlanRequest requestLike(const Plan& plan, Bytes memoryLimit) {
  PlanRequest request;
  request.ranks = shapeOf(plan.schedule).ranks;
  request.replicas = plan.replicas;
  request.memoryLimit = memoryLimit;
  if (plan.optimizer) {
    request.optimizer = plan.optimizer->update;
    request.zero1 = plan.optimizer->zero1;
  }
  return request;
}

/// Ranks, chunks and groups that Megatron can have for the plan's ranks and stages.
LayoutShape shapeFor(const Plan& plan, std::vector<std::string>& notes) {
  const Shape shape = shapeOf(plan.schedule);
  LayoutShape of{shape.ranks, std::max(1, shape.stages / shape.ranks), shape.microbatches, 0};
  if (of.chunks > 1 && shape.ranks == 1) of.chunks = 1;
  if (of.chunks == 1) return of;
  const std::optional<int> group = groupFor(of.ranks, of.chunks, of.microbatches);
  if (group) {
    of.group = *group == of.ranks ? 0 : *group;
  } else {
    notes.push_back(
        fmt::format("Megatron's interleaved schedule needs at least as many microbatches as ranks, {}, and the plan has {}; it is "
                    "exported with one stage on each rank.",
                    of.ranks, of.microbatches));
    of.chunks = 1;
  }
  return of;
}

/// Where the plan's stages begin among the blocks; nothing where Megatron cannot cut at one of them.
std::optional<Begins> ownBegins(const Plan& plan, const LayeredModel& model, const TimedLayouts& layouts) {
  Begins begins;
  for (std::size_t s = 1; s < plan.partition.stages.size(); ++s) {
    const Place place = placeOf(layouts.blocks(), model, plan.partition.stages[s].begin);
    begins.push_back(place.position);
    if (place.inside || !std::ranges::binary_search(layouts.places(), place.position)) return std::nullopt;
  }
  return layouts.allows(begins) ? std::optional(begins) : std::nullopt;
}

/// A note for each stage that begins elsewhere than in the plan.
void noteMoves(const Plan& plan, const LayeredModel& model, const TimedLayouts& layouts, const Begins& begins, MegatronPlan& megatron) {
  const std::vector<LayoutBlock>& blocks = layouts.blocks();
  for (std::size_t s = 1; s < plan.partition.stages.size(); ++s) {
    const Place place = placeOf(blocks, model, plan.partition.stages[s].begin);
    const std::size_t to = begins[s - 1];
    if (!place.inside && place.position == to) continue;
    const LayoutBlock& block = blocks[place.position];
    const std::string_view why = !place.inside                            ? ""
                                 : block.letter == LayoutLayer::Loss      ? " and what follows, all of which is one L"
                                 : block.letter == LayoutLayer::Embedding ? " and what follows, all of which is one E"
                                                                          : ", which Megatron does not split";
    megatron.notes.push_back(fmt::format("Stage {} begins {} {}{}; here {}.", s, place.inside ? "inside" : "before", block.name, why,
                                         to < blocks.size() ? "before " + blocks[to].name : "after " + blocks.back().name));
  }
}

/// The first rank that needs more than its limit.
std::optional<std::size_t> rankOver(const std::vector<Bytes>& peaks, const std::vector<Bytes>& limits) {
  for (std::size_t r = 0; r < limits.size(); ++r) {
    if (excessOf(peaks[r], limits[r]) > 0) return r;
  }
  return std::nullopt;
}

/// `rank 0 needs 300 B of its 250 B`.
std::string needText(std::size_t rank, const std::vector<Bytes>& peaks, const std::vector<Bytes>& limits) {
  return fmt::format("rank {} needs {} of its {}", rank, formatSize(peaks[rank]), formatSize(limits[rank]));
}

/// Encoders and decoders are lists of their own, between which Megatron's layout has no border.
std::optional<std::string> listsNote(const std::vector<LayoutBlock>& blocks) {
  std::vector<std::string> lists;
  for (const LayoutBlock& block : blocks) {
    const std::size_t dot = block.name.rfind('.');
    if (block.letter != LayoutLayer::Transformer || dot == std::string::npos) continue;
    std::string list = block.name.substr(0, dot);
    if (lists.empty() || lists.back() != list) lists.push_back(std::move(list));
  }
  if (lists.size() < 2) return std::nullopt;
  constexpr std::size_t kNamed = 4;
  return fmt::format(
      "The layers are of {} lists ({}{}), and Megatron's of one: this layout is for a model whose layers all take what the one "
      "before gives, not for an encoder and a decoder.",
      lists.size(), fmt::join(lists.begin(), lists.begin() + static_cast<std::ptrdiff_t>(std::min(kNamed, lists.size())), ", "),
      lists.size() > kNamed ? ", …" : "");
}

}  // namespace

MegatronPlan megatronPlan(const Plan& plan, const ModelGraph& graph, std::optional<std::int64_t> layers, Bytes memoryLimit) {
  requireFits(plan, graph);
  requireSameSplits(plan, "Megatron-LM");
  if (!trains(plan.schedule))
    throw UsageError(fmt::format("{} has no backward, and Megatron's layout is for training; export another plan", plan.schedule.name));
  requireJobFor(layers, graph);
  if (memoryLimit > 0) requireMemory(graph);
  LayeredModel model = layered(plan, graph, layers);
  MegatronPlan megatron;
  if (layers) megatron.notes.emplace_back(kLayersAlike);
  LayoutShape shape = shapeFor(plan, megatron.notes);
  const bool sameShape = shape.stages() == static_cast<int>(plan.partition.stages.size());
  PlanRequest like = requestLike(plan, memoryLimit);
  if (recomputesAll(plan)) like.recompute = recomputeLayers(model.table);
  const std::vector<Bytes> limits = memoryLimits(like, plan.profile, static_cast<std::size_t>(shape.ranks));
  TimedLayouts layouts(model.table, plan.profile, shape, like);
  const auto transformers = std::ranges::count(layouts.blocks(), LayoutLayer::Transformer, &LayoutBlock::letter);
  if (transformers < shape.ranks)
    throw UsageError(fmt::format("{} has {}, fewer than ranks; Megatron's layout places whole layers, so plan for fewer ranks",
                                 plan.modelName, counted(transformers, "numbered layer")));
  if (auto note = listsNote(layouts.blocks())) megatron.notes.push_back(*std::move(note));
  const std::string other = unlike(plan, shape);
  megatron.exact = sameShape && other.empty();
  std::optional<Begins> own = megatron.exact ? ownBegins(plan, model, layouts) : std::nullopt;
  const BestLayout best = bestLayout(layouts, shape, limits, own);
  if (own && !rankOver(best.times.peaks, limits)) {
    const std::vector<Bytes> peaks = layouts.times(*own).peaks;
    if (const std::optional<std::size_t> over = rankOver(peaks, limits)) {
      megatron.notes.push_back(fmt::format("As the plan is cut, {}; exported with a layout that fits.", needText(*over, peaks, limits)));
      own.reset();
    }
  }
  const Begins begins = own ? *own : best.begins;
  if (megatron.exact && !own) noteMoves(plan, model, layouts, begins, megatron);
  megatron.exact = own.has_value();
  megatron.ranks = shape.ranks;
  megatron.chunks = shape.chunks;
  megatron.layout = layouts.layoutOf(begins);
  const TimedLayouts::Times times = layouts.times(begins);
  megatron.step = times.step;
  megatron.planStep = stepOfPlan(plan);
  if (!other.empty()) {
    megatron.notes.push_back(fmt::format("{} {}; exported as {}, with the layout of the shortest predicted step{}.", plan.schedule.name,
                                         other, shape.chunks > 1 ? "interleaved 1F1B" : "1F1B", best.all ? " of all" : " that was found"));
  } else if (best.times.step < megatron.step) {
    megatron.notes.push_back(fmt::format("The layout \"{}\" would take {} instead of {} (predicted).",
                                         toString(layouts.layoutOf(best.begins)), formatDuration(best.times.step),
                                         formatDuration(megatron.step)));
  }
  if (megatron.exact) megatron.step = megatronStepOf(plan);  // the chain of layers leaves out what a model sends past the next stage
  if (const std::optional<std::size_t> over = rankOver(times.peaks, limits)) {
    megatron.fits = false;
    megatron.notes.push_back(
        fmt::format("No layout fits: in {}, {}.", own ? "the plan's own" : "the nearest", needText(*over, times.peaks, limits)));
  }
  for (std::string& note : notesOf(megatron.layout, shape.ranks)) megatron.notes.push_back(std::move(note) + ".");
  addFlags(megatron, plan, shape, unknownOf(plan, layers.has_value()));
  addRecompute(megatron, plan);
  return megatron;
}

std::string toText(const MegatronPlan& megatron, const Plan& plan) {
  const auto comment = [](std::string sentence) {
    std::ranges::replace(sentence, '\n', ' ');
    return "# " + sentence + "\n";
  };
  std::string text = comment(fmt::format(
      "{} for Megatron-LM: {}, {}. Predicted step {} as Megatron posts its messages{}", plan.modelName,
      counted(megatron.ranks, "pipeline rank"),
      megatron.chunks == 1 ? "1F1B" : fmt::format("interleaved 1F1B, {} stages on each", megatron.chunks), formatDuration(megatron.step),
      megatron.step == megatron.planStep ? "." : fmt::format("; the plan's {}.", formatDuration(megatron.planStep))));
  for (const std::string& note : megatron.notes) text += comment(note);
  text += comment("In bash, source this file and pass \"${MEGATRON_ARGUMENTS[@]}\" to the training script.");
  text += "MEGATRON_ARGUMENTS=(\n";
  for (const std::string& flag : megatron.flags) text += flag + "\n";
  return text + ")\n";
}

std::string toJson(const MegatronPlan& megatron) {
  nlohmann::ordered_json json{{"layout", toString(megatron.layout)},
                              {"pipeline_model_parallel_size", megatron.ranks},
                              {"virtual_pipeline_model_parallel_size", megatron.chunks},
                              {"flags", megatron.flags},
                              {"notes", megatron.notes},
                              {"exact", megatron.exact},
                              {"fits", megatron.fits},
                              {"plan_step_ns", megatron.planStep},
                              {"step_ns", megatron.step}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace pw
