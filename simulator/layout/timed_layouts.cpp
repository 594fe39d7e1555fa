#include "simulator/layout/timed_layouts.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/layout/rules.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/step/posting.h"
#include "simulator/step/recost.h"

namespace pw {
namespace {

bool has(const std::vector<LayoutBlock>& blocks, LayoutLayer letter) {
  return std::ranges::find(blocks, letter, &LayoutBlock::letter) != blocks.end();
}

/// The table with layers that do nothing, `around` each block; `nodeOf`: where each block begins, and its end.
LayerTable padded(const LayerTable& table, const std::vector<LayoutBlock>& blocks, std::size_t around, std::vector<std::size_t>& nodeOf) {
  LayerTable result = emptyLike(table);
  const auto pad = [&](const Layer& like) {
    for (std::size_t i = 0; i < around; ++i) {
      Layer layer;
      layer.name = fmt::format("nothing {}", result.layers.size());
      layer.output = like.output;
      layer.sent = like.sent;
      result.layers.push_back(std::move(layer));
    }
  };
  for (const LayoutBlock& block : blocks) {
    pad(table.layers[block.begin > 0 ? block.begin - 1 : 0]);
    nodeOf.push_back(result.layers.size());
    for (std::size_t i = block.begin; i < block.end; ++i) result.layers.push_back(table.layers[i]);
  }
  pad(table.layers.back());
  nodeOf.push_back(result.layers.size());
  return result;
}

/// Costs whose programs have the same steps whichever stages are empty, so that few are compiled. Where a stage has nothing to reduce, its
/// reduction then takes no time and delays nothing: it follows an action of its rank, and those before it follow earlier ones.
CostTable withAllReductions(CostTable costs) {
  for (StageCost& stage : costs.stages) stage.reduce = std::max<Ns>(stage.reduce, 1);
  return costs;
}

/// The ranks and links of these costs. Costs of a rank's own are of other nodes than a padded table's: they count by how fast it computes
/// the whole model.
Topology topologyOf(const Profile& costs) {
  Topology topology = costs.topology;
  for (std::size_t r = 0; r < topology.ranks.size(); ++r) {
    if (!topology.ranks[r].own.costs) continue;
    topology.ranks[r].speed = speedOf(costs, JobRank(r));
    topology.ranks[r].own = {};
  }
  return topology;
}

}  // namespace

Schedule megatronSchedule(const LayoutShape& shape) {
  if (const auto refusal = refusalOfMicrobatches(shape.ranks, shape.chunks, shape.microbatches, shape.group)) throw UsageError(*refusal);
  const Shape of{shape.ranks, shape.stages(), shape.microbatches};
  return shape.chunks == 1 ? generate("1f1b", of) : interleavedWithGroups(of, shape.group > 0 ? shape.group : shape.ranks);
}

TimedLayouts::TimedLayouts(const LayerTable& table, const Profile& costs, const LayoutShape& shape, const PlanRequest& like)
    : shape_(shape), blocks_(blocksOf(table)) {
  const auto stages = static_cast<std::size_t>(shape.stages());
  graph_ = chainOf(padded(table, blocks_, stages, nodeOf_), table.name);
  profile_ = profileOf(graph_);
  profile_.topology = topologyOf(costs);
  profile_.optimizerNsPerByte = costs.optimizerNsPerByte;
  request_ = like;
  request_.ranks = shape.ranks;
  request_.microbatch = table.microbatch;
  request_.microbatches = shape.microbatches;
  request_.rankOrder.clear();
  rows_ = planRows(megatronSchedule(shape), like.replicas);
  megatron_ = megatronRows(rows_);
  model_ = std::make_unique<ModelCosts>(graph_, profile_, request_.microbatch);
  sameSpeed_ = stageSpeeds(profile_, rows_.placement, like.replicas).empty();
  compiled_ = std::make_unique<CompiledRows>(rows_);
  const auto isMtp = [](const LayoutBlock& block) { return block.letter == LayoutLayer::Mtp; };
  firstMtp_ = static_cast<std::size_t>(std::ranges::find_if(blocks_, isMtp) - blocks_.begin());
  endMtp_ = firstMtp_ + static_cast<std::size_t>(std::ranges::count_if(blocks_, isMtp));
  const std::size_t from = has(blocks_, LayoutLayer::Embedding) ? 1 : 0, to = blocks_.size() - (has(blocks_, LayoutLayer::Loss) ? 1 : 0);
  for (std::size_t k = from; k <= to; ++k) {
    if (k <= firstMtp_ || k >= endMtp_) places_.push_back(k);
  }
  work_.push_back(0);
  for (const LayoutBlock& block : blocks_) {
    Ns sum = work_.back();
    for (std::size_t i = block.begin; i < block.end; ++i) sum += table.layers[i].forward + table.layers[i].input + table.layers[i].weight;
    work_.push_back(sum);
  }
}

bool TimedLayouts::allows(const std::vector<std::size_t>& begins) const {
  if (firstMtp_ == endMtp_) return true;
  const auto stage = std::ranges::upper_bound(begins, firstMtp_) - begins.begin();
  return stage >= shape_.stages() - shape_.ranks;
}

std::optional<TimedLayouts::Times> TimedLayouts::timesWithin(const std::vector<std::size_t>& begins, Ns most) {
  request_.begins.clear();
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::size_t after = static_cast<std::size_t>(std::ranges::upper_bound(begins, begins[i]) - begins.begin()) - i - 1;
    const std::size_t node = nodeOf_[begins[i]];  // the end of the table has layers that do nothing after it, others before them
    request_.begins.emplace_back(begins[i] < blocks_.size() ? node - after : node - after - 1);
  }
  CostTable costs = price(request_, *model_, *compiled_).costs;
  addOptimizerState(costs, stateCopies(request_.optimizer), optimizerShards(request_, rows_.placement));
  const CostTable structure = withAllReductions(costs);
  if (!ideal_ || !sameStructure(rows_, structure, Sending::Overlapped, *ideal_)) {
    ideal_ = compile(rows_, structure);
    ++compilations_;
  }
  setTimes(rows_, costs, *ideal_);
  execute(*ideal_, times_);
  if (stepOf(rows_, costs, *ideal_, times_) > most) return std::nullopt;
  if (!posted_ || !sameStructure(megatron_.rows, structure, Sending::Posted, *posted_)) {
    PostedProgram posted = compile(megatron_.rows, structure, megatron_.posting);
    if (!posted.stuck.empty()) throw UsageError(posted.stuck.front().message);
    posted_ = std::move(posted.program);
    ++compilations_;
  }
  setTimes(megatron_.rows, costs, *posted_);
  execute(*posted_, times_);
  Times result;
  result.peaks = compiled_->peaks(structure);
  result.makespan = makespanOf(*posted_, posted_->duration, times_);
  result.step = stepOf(megatron_.rows, costs, *posted_, times_);
  return result;
}

Ns TimedLayouts::bound(const std::vector<std::size_t>& begins) const {
  const auto ranks = static_cast<std::size_t>(shape_.ranks), stages = static_cast<std::size_t>(shape_.stages());
  const auto at = [&](std::size_t stage) { return stage == 0 ? 0 : stage > begins.size() ? blocks_.size() : begins[stage - 1]; };
  if (!sameSpeed_) return 0;
  Ns most = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    Ns work = 0;
    for (std::size_t s = r; s < stages; s += ranks) work += work_[at(s + 1)] - work_[at(s)];
    most = std::max(most, shape_.microbatches * work + work_[at(r)]);
  }
  return most;
}

Layout TimedLayouts::layoutOf(const std::vector<std::size_t>& begins) const {
  Layout layout;
  const auto stages = static_cast<std::size_t>(shape_.stages());
  std::size_t next = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    std::vector<LayoutLayer>& stage = layout.stages.emplace_back();
    if (s == 0 && !has(blocks_, LayoutLayer::Embedding)) stage.push_back(LayoutLayer::Embedding);
    for (const std::size_t end = s < begins.size() ? begins[s] : blocks_.size(); next < end; ++next) stage.push_back(blocks_[next].letter);
    if (s + 1 == stages && !has(blocks_, LayoutLayer::Loss)) stage.push_back(LayoutLayer::Loss);
  }
  return layout;
}

}  // namespace pw
