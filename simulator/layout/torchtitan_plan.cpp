#include "simulator/layout/torchtitan_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/lower.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/job/job_costs.h"
#include "simulator/layout/blocks.h"
#include "simulator/model/batch.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/split.h"
#include "simulator/plan/plan_fits.h"
#include "simulator/plan/planner.h"

namespace pw {
namespace {

using Modules = std::vector<std::vector<std::string>>;

struct Name {
  std::string text;
  bool numbered = false;
};

/// The outermost numbered module of a path, else its first part; nothing for operators of the model itself.
std::optional<Name> nameOf(std::string_view path) {
  if (const auto numbered = numberedModule(path)) return Name{*numbered, true};
  const std::string first(path.substr(0, path.find_first_of(".:")));
  if (first.empty() || first.starts_with('@')) return std::nullopt;
  return Name{first, false};
}

std::vector<std::optional<Name>> namesOf(const ModelGraph& graph) {
  std::vector<std::optional<Name>> names;
  if (isLayerChain(graph)) {
    for (const Layer& layer : tableOf(graph).layers) {
      const std::optional<Name> module = nameOf(layer.module);
      names.push_back(module && module->numbered ? module : nameOf(layer.name));
    }
    return names;
  }
  for (const Node& node : graph.nodes) names.push_back(node.modules.empty() ? std::nullopt : nameOf(node.modules.back().path));
  return names;
}

/// By node: whether a stage that begins there cuts a numbered module, some of whose operators come before and some from there on, whatever
/// is between them.
std::vector<bool> cutsInside(const std::vector<std::optional<Name>>& names) {
  std::map<std::string, std::pair<std::size_t, std::size_t>> ends;  // first and last node
  for (std::size_t n = 0; n < names.size(); ++n) {
    if (names[n] && names[n]->numbered) ends.try_emplace(names[n]->text, n, n).first->second.second = n;
  }
  std::vector<int> changes(names.size() + 1);  // by node: how many more modules a cut there is inside of than one before
  for (const auto& [module, range] : ends) ++changes[range.first + 1], --changes[range.second + 1];
  std::vector<bool> inside(names.size());
  int modules = 0;
  for (std::size_t n = 0; n < names.size(); ++n) {
    modules += changes[n];
    inside[n] = modules > 0;
  }
  return inside;
}

/// Where the plan's stages could begin without cutting a numbered module, each at the nearest such place, as words for `--split`; empty
/// where two of them would begin at one place.
std::string wholeSplits(const Plan& plan, const ModelGraph& graph, const std::vector<std::optional<Name>>& names) {
  const std::vector<bool> inside = cutsInside(names);
  const auto isInside = [&](std::size_t n) { return n < names.size() && inside[n]; };
  std::vector<NodeId> begins;
  for (std::size_t s = 1; s < plan.partition.stages.size(); ++s) {
    const std::size_t at = plan.partition.stages[s].begin.index();
    std::size_t before = at, after = at;
    while (isInside(before)) --before;
    while (isInside(after)) ++after;
    const std::size_t nearest = before > 0 && at - before <= after - at ? before : after;
    if (nearest >= names.size() || (!begins.empty() && nearest <= begins.back().index())) return {};
    begins.emplace_back(nearest);
  }
  return fmt::format("{}", fmt::join(splitNames(splitPoints(graph, bindBatch(graph, plan.microbatchSize)), begins), ","));
}

Modules modulesOf(const Plan& plan, const ModelGraph& graph, const std::vector<std::optional<Name>>& names) {
  Modules modules;
  std::map<std::string, std::size_t> stageOf;
  for (std::size_t s = 0; s < plan.partition.stages.size(); ++s) {
    std::vector<std::string>& own = modules.emplace_back();
    for (NodeId n = plan.partition.stages[s].begin; n < plan.partition.stages[s].end; n = NodeId(n.value + 1)) {
      const std::optional<Name>& name = names[n.index()];
      if (!name || std::ranges::find(own, name->text) != own.end()) continue;
      const auto [first, isNew] = stageOf.emplace(name->text, s);
      if (!isNew && name->numbered) {
        const std::string splits = wholeSplits(plan, graph, names);
        throw UsageError(fmt::format("stage {} begins inside {}, and torchtitan places whole modules; plan {}", s, name->text,
                                     splits.empty() ? "fewer stages" : "with --split " + splits));
      }
      if (isNew) own.push_back(name->text);
    }
  }
  return modules;
}

/// The layers of a plan of a job's stages, whose parts are the nodes of the graph; stages begin at the nearest layer.
Modules modulesOfJob(const Plan& plan, const ModelGraph& graph, std::int64_t layers, std::vector<std::string>& notes) {
  static_cast<void>(withLayers(tableOf(graph), layers));  // for what it refuses
  const auto parts = static_cast<std::int64_t>(graph.nodes.size());
  notes.emplace_back(kLayersAlike);
  std::vector<std::int64_t> begins;
  for (std::size_t s = 0; s < plan.partition.stages.size(); ++s) {
    const std::int64_t at = plan.partition.stages[s].begin.value * layers, nearest = (at + parts / 2) / parts;
    if (at % parts != 0)
      notes.push_back(fmt::format("Stage {} begins inside layers.{}, and torchtitan places whole layers; here before layers.{}.", s,
                                  at / parts, nearest));
    if (!begins.empty() && nearest <= begins.back())
      throw UsageError(fmt::format("stages {} and {} both begin nearest to layers.{}; plan fewer stages for {} layers", s - 1, s,
                                   begins.back(), layers));
    begins.push_back(nearest);
  }
  begins.push_back(layers);
  Modules modules;
  for (std::size_t s = 0; s + 1 < begins.size(); ++s) {
    std::vector<std::string>& own = modules.emplace_back();
    for (std::int64_t k = begins[s]; k < begins[s + 1]; ++k) own.push_back(fmt::format("layers.{}", k));
    if (own.empty()) throw UsageError(fmt::format("stage {} holds no whole layer of {}; plan fewer stages", s, layers));
  }
  modules.front().insert(modules.front().begin(), "tok_embeddings");
  modules.back().insert(modules.back().end(), {"norm", "lm_head"});
  return modules;
}

bool isTorchtitans(const Modules& modules) {
  bool embedding = false, layers = false;
  for (const auto& stage : modules) {
    for (const std::string& name : stage) {
      embedding = embedding || name == "tok_embeddings";
      layers = layers || name.starts_with("layers.");
    }
  }
  return embedding && layers;
}

/// The numbered modules as layers.0, layers.1, …; what is before them as the embedding, what is after them as norm and head.
Modules translated(const Modules& modules, const std::set<std::string>& numbered) {
  Modules result;
  int next = 0;
  for (const auto& stage : modules) {
    std::vector<std::string>& own = result.emplace_back();
    for (const std::string& name : stage) {
      if (numbered.contains(name)) own.push_back(fmt::format("layers.{}", next++));
    }
  }
  result.front().insert(result.front().begin(), "tok_embeddings");
  result.back().insert(result.back().end(), {"norm", "lm_head"});
  return result;
}

/// Which of torchtitan's schedules has the plan's placement; with a CSV that is all that its name decides.
std::string placementName(const Plan& plan) {
  const Shape shape = shapeOf(plan.schedule);
  const PlacementKind kind = kindOf(plan.schedule.placement, shape);
  const int chunks = shape.stages / std::max(1, shape.ranks);
  if (kind == PlacementKind::Loop) return chunks == 1 ? "1F1B" : "Interleaved1F1B";
  if (kind == PlacementKind::V) return "ZBVZeroBubble";
  throw UsageError(fmt::format("{} places stages as {}, and torchtitan as a loop or a V; plan with another schedule", plan.schedule.name,
                               pw::nameOf(kind)));
}

/// What other versions call these settings. `length`: tokens of a sample; 0: not known.
std::string commentOf(const Plan& plan, std::int64_t length, UnknownOfJob unknown) {
  const auto tokens = [&](std::int64_t samples) {
    return length > 0 && !unknown.samples ? fmt::format("={}", samples * length) : std::string();
  };
  return fmt::format(
      "# Names of torchtitan 0.3. In 0.2 the head is \"output\" instead of \"lm_head\". After 0.3 sizes are in tokens:\n"
      "# num_pp_microbatches={} instead of pipeline_parallel_microbatch_size, num_tokens_per_microbatch_per_dp_rank{} instead of\n"
      "# local_batch_size, num_tokens_per_train_step{} instead of global_batch_size, max_context_length{} instead of seq_len.\n",
      plan.schedule.microbatches, tokens(plan.microbatchSize),
      tokens(std::int64_t{plan.replicas} * plan.schedule.microbatches * plan.microbatchSize), tokens(1));
}

void addNotes(TorchtitanPlan& result, const Plan& plan, UnknownOfJob unknown) {
  const auto recomputes = [](const StageSpec& stage) { return !stage.checkpoints.empty(); };
  if (std::ranges::any_of(plan.partition.stages, recomputes))
    result.notes.emplace_back("The plan recomputes activations in some stages; torchtitan's activation_checkpoint decides for all alike.");
  if (plan.profile.computing.precision == DType::Float16)
    result.notes.emplace_back("The plan computes in float16, which torchtitan's mixed_precision_param does not have.");
  if (plan.profile.computing.precision == DType::Float8)
    result.notes.emplace_back("The plan computes matrix products in float8: turn on torchtitan's float8 conversion of linear layers, too.");
  if (std::string text = unknownText(plan, unknown, "pipeline_parallel_microbatch_size", "local_batch_size", "global_batch_size");
      !text.empty())
    result.notes.push_back(std::move(text));
  if (plan.optimizer && !unknown.optimizer)
    result.notes.push_back(fmt::format("The plan updates with {}{}; these lines leave the optimizer to torchtitan's own settings.",
                                       factsOf(plan.optimizer->update.kind).className,
                                       plan.optimizer->zero1 ? " whose state is sharded over the replicas" : ""));
  const std::int64_t samples = std::int64_t{plan.replicas} * plan.schedule.microbatches * plan.microbatchSize;
  if (plan.batch != samples)
    result.notes.push_back(
        fmt::format("The plan's batch of {} makes microbatches of different sizes; here a step has {} samples.", plan.batch, samples));
}

/// Names stand bare in arguments and in Python.
void requirePlainName(const std::string& name) {
  const auto isPlain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  if (name.empty() || !std::ranges::all_of(name, isPlain))
    throw UsageError(fmt::format("the module {} has a name that is no path of Python attributes; rename it", name));
}

}  // namespace

TorchtitanPlan torchtitanPlan(const Plan& plan, const ModelGraph& graph, std::optional<std::int64_t> layers) {
  requireFits(plan, graph);
  requireSameSplits(plan, "torchtitan");
  requireJobFor(layers, graph);
  if (isLayerChain(graph) && !layers) requireLayersOfModel(tableOf(graph), "torchtitan");
  const int ranks = shapeOf(plan.schedule).ranks;
  if (ranks < 2) throw UsageError("torchtitan's pipelining needs two ranks or more, and the plan has one; plan with --ranks 2");
  if (!trains(plan.schedule))
    throw UsageError(fmt::format("{} has no backward, and torchtitan trains; export another plan", plan.schedule.name));
  if (const auto& shared = plan.partition.shared; !shared.empty())
    throw UsageError(
        fmt::format("parameter {} is used in several stages ({} to {}), and torchtitan splits no model with tied weights; untie it",
                    shared.front().name, shared.front().stages.front().value, shared.front().stages.back().value));
  TorchtitanPlan result;
  const std::string name = placementName(plan);
  const std::vector<std::optional<Name>> names = namesOf(graph);
  result.modules = layers ? modulesOfJob(plan, graph, *layers, result.notes) : modulesOf(plan, graph, names);
  if (!layers && !isTorchtitans(result.modules)) {
    std::set<std::string> numbered;
    for (const auto& of : names) {
      if (of && of->numbered) numbered.insert(of->text);
    }
    if (numbered.empty())
      throw UsageError(fmt::format("{} has no numbered modules (layers.0, layers.1, …) that torchtitan could place", plan.modelName));
    result.modules = translated(result.modules, numbered);
    result.notes.push_back(
        fmt::format("The modules of {} are given the names that torchtitan's models have, in their order; check them.", plan.modelName));
  }
  for (const auto& stage : result.modules) {
    for (const std::string& module : stage) requirePlainName(module);
  }
  result.schedule = toCsv(computeOnly(plan.schedule));
  const std::int64_t local = plan.schedule.microbatches * plan.microbatchSize;
  std::vector<std::string> parts, lists;
  for (const auto& stage : result.modules) {
    parts.push_back(fmt::format("{}", fmt::join(stage, ",")));
    lists.push_back(fmt::format("[\"{}\"]", fmt::join(stage, "\", \"")));
  }
  result.arguments = {fmt::format("--parallelism.pipeline_parallel_degree {}", ranks),
                      fmt::format("--parallelism.pipeline_parallel_schedule {}", name),
                      fmt::format("--parallelism.module_fqns_per_model_part {}", fmt::join(parts, " ")),
                      fmt::format("--parallelism.data_parallel_replicate_degree {}", plan.replicas)};
  const UnknownOfJob unknown = unknownOf(plan, layers.has_value());
  const DType precision = plan.profile.computing.precision;
  const bool lower = precision == DType::BFloat16 || precision == DType::Float8;
  const char* parameters = lower ? "bfloat16" : "float32";
  std::string microbatch, training;
  if (!unknown.samples) {
    result.arguments.insert(result.arguments.begin() + 2,
                            fmt::format("--parallelism.pipeline_parallel_microbatch_size {}", plan.microbatchSize));
    result.arguments.push_back(fmt::format("--training.local_batch_size {}", local));
    result.arguments.push_back(fmt::format("--training.global_batch_size {}", local * plan.replicas));
    microbatch = fmt::format("    pipeline_parallel_microbatch_size={},\n", plan.microbatchSize);
    training = fmt::format("    local_batch_size={},\n    global_batch_size={},\n", local, local * plan.replicas);
  }
  const std::int64_t length = isLayerChain(graph) ? 0 : tokensPerSample(graph);
  if (length > 0) {
    result.arguments.push_back(fmt::format("--training.seq_len {}", length));
    training += fmt::format("    seq_len={},\n", length);
  } else {
    result.notes.emplace_back("The length of a sequence is not known: set training.seq_len.");
  }
  if (!layers || lower) {  // which no trace shows
    result.arguments.push_back(fmt::format("--training.mixed_precision_param {}", parameters));
    training += fmt::format("    mixed_precision_param=\"{}\",\n", parameters);
  }
  result.python = commentOf(plan, length, unknown);
  result.python += fmt::format(
      "parallelism=ParallelismConfig(\n    pipeline_parallel_degree={},\n    pipeline_parallel_schedule=\"{}\",\n"
      "    pipeline_parallel_schedule_csv=\"schedule.csv\",\n{}"
      "    module_fqns_per_model_part=[\n        {},\n    ],\n    data_parallel_replicate_degree={},\n),\n",
      ranks, name, microbatch, fmt::join(lists, ",\n        "), plan.replicas);
  if (!training.empty()) result.python += fmt::format("training=TrainingConfig(\n{}),\n", training);
  addNotes(result, plan, unknown);
  return result;
}

}  // namespace pw
