#include "simulator/layout/blocks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/job/job_costs.h"
#include "simulator/model/graph_facts.h"
#include "simulator/text/counted.h"
#include "simulator/text/digits.h"

namespace pw {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

template <std::size_t N>
bool hasAny(std::string_view path, const std::array<std::string_view, N>& words) {
  const std::string text = lower(path);
  return std::ranges::any_of(words, [&](std::string_view word) { return text.find(word) != std::string::npos; });
}
bool looksLikeEmbedding(std::string_view path) { return hasAny(path, std::to_array<std::string_view>({"emb", "wte", "wpe", "start"})); }
bool looksLikeEnd(std::string_view path) {
  return hasAny(path, std::to_array<std::string_view>({"head", "loss", "norm", "logits", "output", "unembed"}));
}

std::optional<std::string> numberedModuleOf(const Layer& layer) {
  if (std::optional<std::string> of = numberedModule(layer.module)) return of;
  return numberedModule(layer.name);
}

bool isMtp(const Layer& layer) { return hasAny(layer.module + "." + layer.name, std::to_array<std::string_view>({"mtp"})); }

/// Where a model numbers modules of a list (`layers.3`), a module whose own name ends in a number (`fc1`, but `layer1`) is none of them,
/// unless such a list is within it (`layer1.0`). Nothing is left of the others' names.
void keepBlocks(const LayerTable& table, std::vector<std::optional<std::string>>& names) {
  std::set<std::string_view> lists;  // names that are a block of a list, or hold a list
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!names[i]) continue;
    const std::string& name = *names[i];
    const std::string& path = table.layers[i].module.starts_with(name) ? table.layers[i].module : table.layers[i].name;
    for (std::size_t begin = name.find_last_of(".:") + 1; begin < path.size();) {
      const std::size_t end = std::min(path.find_first_of(".:", begin), path.size());
      if (isDigits(std::string_view(path).substr(begin, end - begin))) lists.insert(name);
      begin = end + 1;
    }
  }
  if (lists.empty()) return;
  std::vector<bool> goes(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) goes[i] = names[i] && !lists.contains(*names[i]);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (goes[i]) names[i].reset();
  }
}

/// What of each layer names its t; nothing: it has none of its own.
std::vector<std::optional<std::string>> blockNames(const LayerTable& table) {
  std::vector<std::optional<std::string>> names;
  for (const Layer& layer : table.layers) names.push_back(numberedModuleOf(layer));
  const bool none = std::ranges::none_of(names, [](const auto& name) { return name.has_value(); });
  if (!none) {
    keepBlocks(table, names);
    return names;
  }
  std::size_t end = table.layers.size(), begin = 0;
  while (end > 1 && looksLikeEnd(table.layers[end - 1].name)) --end;
  if (end > 1 && looksLikeEmbedding(table.layers[0].name)) begin = 1;
  for (std::size_t i = begin; i < end; ++i) names[i] = table.layers[i].name;
  return names;
}

Layer passing(const Layer& like, std::string name) {
  Layer layer;
  layer.name = std::move(name);
  layer.output = like.output;
  layer.sent = like.sent;
  return layer;
}

/// The layers of the next block of that letter, moving `next` past it; nothing where the table has none for an E or L.
std::optional<LayoutBlock> take(const std::vector<LayoutBlock>& blocks, std::size_t& next, LayoutLayer letter) {
  if (next < blocks.size() && blocks[next].letter == letter) return blocks[next++];
  return std::nullopt;
}

void requireSame(const std::vector<LayoutBlock>& blocks, const Layout& layout, const LayerTable& table) {
  const auto compare = [&](LayoutLayer letter, std::string_view what) {
    const auto has = std::ranges::count(blocks, letter, &LayoutBlock::letter);
    const auto wanted = static_cast<std::ptrdiff_t>(layout.count(letter));
    if (has != wanted)
      throw UsageError(fmt::format("layer table {} has {} and the layout {} {}; give a table and a layout of the same model", table.name,
                                   counted(has, what), wanted, letterOf(letter)));
  };
  compare(LayoutLayer::Transformer, "transformer layer");
  compare(LayoutLayer::Mtp, "MTP layer");
  for (const LayoutBlock& block : blocks) {
    if (layout.count(block.letter) == 0)
      throw UsageError(fmt::format("layer {} of table {} is what {} stands for, which the layout does not have; add it", block.name,
                                   table.name, letterOf(block.letter)));
  }
}

}  // namespace

void requireLayersOfModel(const LayerTable& table, std::string_view tool) {
  if (!isOfJob(table)) return;
  throw UsageError(
      fmt::format("the times of {} are of a job's stages, and do not say where {} can cut between layers; say how many the model has with "
                  "--num-layers, if all stages of the job hold equally many, or plan a table of the model's layers instead (plan --layers)",
                  table.name, tool));
}

void requireJobFor(const std::optional<std::int64_t>& layers, const ModelGraph& graph) {
  if (layers && !(isLayerChain(graph) && isOfJob(tableOf(graph))))
    throw UsageError(fmt::format("{} has layers of its own; omit --num-layers, which is for the stages of a job", graph.name));
}

LayerTable withLayers(const LayerTable& ofJob, std::int64_t layers) {
  const auto stages = static_cast<std::int64_t>(ofJob.layers.size()) / kPartsOfStage;
  if (layers < 1 || layers > static_cast<std::int64_t>(kMostLayers) || layers % stages != 0)
    throw UsageError(
        fmt::format("{} layers are not equally many in each of the {} of {}; give a number that {} divides, or a table of "
                    "the model's layers",
                    layers, counted(stages, "stage"), ofJob.name, stages));
  const std::int64_t each = layers / stages;
  LayerTable table = emptyLike(ofJob);
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const auto first = ofJob.layers.begin() + stage * kPartsOfStage, last = first + kPartsOfStage;
    const auto sumOf = [&](auto member) {
      auto sum = (*first).*member;
      for (auto part = first + 1; part != last; ++part) sum += (*part).*member;
      return sum;
    };
    for (std::int64_t k = 0; k < each; ++k) {
      // Rounded, so that all layers of a stage together take as long as it.
      const auto shareOf = [&](auto member) {
        const auto sum = sumOf(member);
        using Number = decltype(sumOf(member));
        return sum / each + (k < (sum % each).value ? Number{1} : Number{0});
      };
      Layer& layer = table.layers.emplace_back();
      layer.name = layer.module = fmt::format("layers.{}", stage * each + k);
      layer.forward = shareOf(&Layer::forward);
      layer.input = shareOf(&Layer::input);
      layer.weight = shareOf(&Layer::weight);
      layer.optimizer = shareOf(&Layer::optimizer);
      layer.parameters = shareOf(&Layer::parameters);
      layer.activations = shareOf(&Layer::activations);
      layer.afterInput = shareOf(&Layer::afterInput);
      layer.output = first->output;
      layer.sent = k + 1 == each ? (last - 1)->sent : first->sent;
    }
  }
  return table;
}

std::optional<std::string> numberedModule(std::string_view path) {
  if (path.starts_with('@')) return std::nullopt;  // a node, whose number is no layer's
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find_first_of(".:", begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (!part.empty() && std::isdigit(static_cast<unsigned char>(part.back())) != 0 && !looksLikeEmbedding(part) && !looksLikeEnd(part))
      return std::string(path.substr(0, end));
    begin = end + 1;
  }
  return std::nullopt;
}

std::vector<LayoutBlock> blocksOf(const LayerTable& table) {
  const std::vector<std::optional<std::string>> names = blockNames(table);
  std::vector<LayoutBlock> blocks;
  std::size_t last = 0;  // after the last layer with a name of its own
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i]) last = i + 1;
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Layer& layer = table.layers[i];
    LayoutLayer letter = isMtp(layer) ? LayoutLayer::Mtp : LayoutLayer::Transformer;
    std::string name = names[i] ? *names[i] : layer.name;
    const bool inside = !blocks.empty() && i < last && !names[i] && letter != LayoutLayer::Mtp;
    if (!names[i] && letter != LayoutLayer::Mtp && !inside) letter = i < last ? LayoutLayer::Embedding : LayoutLayer::Loss;
    const bool same = inside || (!blocks.empty() && blocks.back().letter == letter &&
                                 (blocks.back().name == name || letter == LayoutLayer::Embedding || letter == LayoutLayer::Loss));
    if (same)
      blocks.back().end = i + 1;
    else
      blocks.push_back({letter, i, i + 1, std::move(name)});
  }
  return blocks;
}

std::vector<LayoutBlock> blocksOf(const ModelGraph& graph) {
  if (isLayerChain(graph)) return blocksOf(tableOf(graph));
  LayerTable table;
  for (const Node& node : graph.nodes) table.layers.emplace_back().module = node.modules.empty() ? "" : node.modules.back().path;
  if (std::ranges::none_of(table.layers, [](const Layer& layer) { return numberedModule(layer.module).has_value(); })) return {};
  return blocksOf(table);
}

CutLayout layoutOf(const std::vector<LayoutBlock>& blocks, const std::vector<NodeId>& begins) {
  CutLayout result;
  const auto has = [&](LayoutLayer letter) { return std::ranges::find(blocks, letter, &LayoutBlock::letter) != blocks.end(); };
  std::size_t next = 0;
  for (std::size_t s = 0; s <= begins.size(); ++s) {
    std::vector<LayoutLayer>& stage = result.layout.stages.emplace_back();
    if (s == 0 && !has(LayoutLayer::Embedding)) stage.push_back(LayoutLayer::Embedding);
    for (; next < blocks.size() && (s == begins.size() || blocks[next].begin < begins[s].index()); ++next) {
      stage.push_back(blocks[next].letter);
      if (s == begins.size() || blocks[next].end <= begins[s].index() || !result.inside.empty()) continue;
      result.stage = Stage(s + 1);
      result.inside = blocks[next].name;
    }
    if (s == begins.size() && !has(LayoutLayer::Loss)) stage.push_back(LayoutLayer::Loss);
  }
  return result;
}

UnknownOfJob unknownOf(const Plan& plan, bool isOfJob) {
  const auto isUsual = [](const PlannedOptimizer& optimizer) { return optimizer.update == OptimizerSpec() && !optimizer.zero1; };
  return {isOfJob && plan.microbatchSize == 1, isOfJob && (!plan.optimizer || isUsual(*plan.optimizer))};
}

std::string unknownText(const Plan& plan, UnknownOfJob unknown, std::string_view microbatch, std::string_view local,
                        std::string_view batch) {
  std::string text;
  if (unknown.samples) {
    const std::string ofReplica = local.empty() ? "" : fmt::format("{} {} times as large, ", local, plan.schedule.microbatches);
    text = fmt::format("The job's traces do not say how many samples a microbatch has: give {}, {}and {} {} times as large.", microbatch,
                       ofReplica, batch, std::int64_t{plan.schedule.microbatches} * plan.replicas);
  }
  if (unknown.optimizer)
    text += fmt::format("{}The traces do not say which optimizer it is, which is left to you.", text.empty() ? "" : " ");
  return text;
}

LaidOutTable layOut(const LayerTable& table, const Layout& layout, bool endsWithin) {
  requireLayersOfModel(table, "Megatron-LM");
  const std::vector<LayoutBlock> blocks = blocksOf(table);
  requireSame(blocks, layout, table);
  LaidOutTable result{emptyLike(table), {}, {}};
  std::vector<Layer>& layers = result.table.layers;
  std::size_t next = 0;
  for (std::size_t s = 0; s < layout.stages.size(); ++s) {
    if (s > 0) result.begins.push_back(layers.size());
    const std::size_t before = layers.size();
    for (const LayoutLayer letter : layout.stages[s]) {
      const std::optional<LayoutBlock> block = take(blocks, next, letter);
      if (!block) {
        if (endsWithin && (letter == LayoutLayer::Embedding || letter == LayoutLayer::Loss)) continue;
        result.notes.push_back(fmt::format("table {} has no layer for {}: it takes no time", table.name, letterOf(letter)));
        continue;
      }
      for (std::size_t i = block->begin; i < block->end; ++i) layers.push_back(table.layers[i]);
    }
    if (layers.size() == before)
      layers.push_back(passing(layers.empty() ? table.layers.front() : layers.back(), fmt::format("nothing in stage {}", s)));
  }
  if (next < blocks.size())
    throw UsageError(fmt::format("layer {} of table {} comes where the layout has no {}; give a table in the order of the layout",
                                 blocks[next].name, table.name, letterOf(blocks[next].letter)));
  return result;
}

}  // namespace pw
