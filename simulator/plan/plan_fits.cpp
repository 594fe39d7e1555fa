#include "simulator/plan/plan_fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "schedules/error.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/stage_cutter.h"
#include "simulator/plan/replica_prices.h"

namespace pw {
namespace {

void requireFits(const Partition& partition, const ModelGraph& graph, const std::function<void(const std::string&)>& fail) {
  const auto checkIndices = [&](const std::vector<std::size_t>& indices, const std::vector<StateTensor>& tensors, std::string_view kind) {
    for (const std::size_t i : indices) {
      if (i >= tensors.size()) fail(fmt::format("it has no {} {}", kind, i));
    }
  };
  const auto nodes = static_cast<std::size_t>(partition.stages.empty() ? 0 : partition.stages.back().end.value);
  if (nodes != graph.nodes.size()) fail(fmt::format("it has {} operators instead of {}", graph.nodes.size(), nodes));
  for (const StageSpec& stage : partition.stages) {
    checkIndices(stage.parameters, graph.parameters, "parameter");
    checkIndices(stage.buffers, graph.buffers, "buffer");
    checkIndices(stage.constants, graph.constants, "constant");
    for (const ValueId v : stage.modelInputs) {
      if (std::find(graph.inputs.begin(), graph.inputs.end(), v) == graph.inputs.end())
        fail(fmt::format("value {} is not one of its inputs", v.value));
    }
  }
  for (const Transfer& t : partition.transfers) {
    const bool exists =
        t.value.index() < graph.values.size() && graph.value(t.value).origin == ValueOrigin::Node && graph.value(t.value).tensor;
    const StageSpec& from = partition.stages[t.from.index()];
    if (!exists || graph.value(t.value).producer < from.begin || graph.value(t.value).producer >= from.end) {
      fail(fmt::format("stage {} does not compute value {}", t.from.value, t.value.value));
    }
  }
  for (const SharedParameter& r : partition.shared) {
    for (const Stage s : r.stages) {
      const auto& held = partition.stages[s.index()].parameters;
      if (std::none_of(held.begin(), held.end(), [&](std::size_t p) { return storageOf(graph.parameters[p]) == r.storage; })) {
        fail(fmt::format("stage {} has no parameter {}", s.value, r.name));
      }
    }
  }
}

/// That stages hold, receive and share what their operators need: all but where they begin, what they compute again, sizes, and how
/// parameters are shared follows from the graph.
void requireAsCut(const Partition& partition, const ModelGraph& graph, const StageCutter& cutter,
                  const std::function<void(const std::string&)>& fail) {
  const auto failAs = [&](const Impossible& no) { fail(no.why.substr(0, no.why.find_last_not_of('.') + 1)); };
  if (const auto no = cutter.obstacle(beginsOf(partition))) failAs(*no);
  std::vector<std::shared_ptr<const StageCut>> stages;
  for (std::size_t s = 0; s < partition.stages.size(); ++s) {
    const StageSpec& planned = partition.stages[s];
    const auto cut = cutter.stage({planned.begin, planned.end}, planned.recomputed, Stage(s));
    if (!cut) failAs(cut.refusal());
    const auto compare = [&](bool same, std::string_view what) {
      if (!same) fail(fmt::format("the {} of its stage {} are not those that the stage's operators read", what, s));
    };
    compare(planned.modelInputs == cut->spec.modelInputs, "inputs");
    compare(planned.parameters == cut->spec.parameters, "parameters");
    compare(planned.buffers == cut->spec.buffers, "buffers");
    compare(planned.constants == cut->spec.constants, "constants");
    stages.push_back(std::make_shared<const StageCut>(*cut));
  }
  Partition expected = cutter.join(stages);
  if (expected.transfers.size() != partition.transfers.size()) fail("its transfers are not those that its stages need");
  for (std::size_t i = 0; i < expected.transfers.size(); ++i) {
    Transfer planned = partition.transfers[i];
    planned.bytes = expected.transfers[i].bytes;
    if (planned == expected.transfers[i]) continue;
    fail(fmt::format("its transfer {} should be value {} ({}) from stage {} to stage {} {} gradient", i, expected.transfers[i].value.value,
                     graph.value(expected.transfers[i].value).name, expected.transfers[i].from.value, expected.transfers[i].to.value,
                     expected.transfers[i].gradient ? "with a" : "without a"));
  }
  if (expected.shared.size() != partition.shared.size()) fail("its shared parameters are not those that several of its stages read");
  for (std::size_t i = 0; i < expected.shared.size(); ++i) {
    SharedParameter planned = partition.shared[i];
    planned.bytes = expected.shared[i].bytes;
    planned.sharing = expected.shared[i].sharing;
    if (!(planned == expected.shared[i])) fail(fmt::format("stages share parameter {} otherwise than it says", expected.shared[i].name));
  }
}

}  // namespace

void requireFits(const Plan& plan, const ModelGraph& graph) {
  const auto fail = [&](const std::string& what) {
    throw UsageError(
        fmt::format("The plan for {} was not made for this model, {}: {}; plan it again, or name the right archive with --model.",
                    plan.modelName, graph.name, what));
  };
  if (const std::string difference = differenceTo(plan.fingerprint, graph); !difference.empty()) fail(difference);
  const StageCutter cutter(graph, bindBatch(graph, plan.microbatchSize), nullptr);
  const auto requireAllOf = [&](const Partition& partition) {
    requireFits(partition, graph, fail);
    requireAsCut(partition, graph, cutter, fail);
  };
  requireAllOf(plan.partition);
  if (!plan.cuts) return;
  for (const ReplicaCut& cut : plan.cuts->replicas) requireAllOf(cut.partition);
  if (plan.cuts->summed != summedParameters(graph, plan.cuts->replicas)) fail("its replicas' gradients are not summed as they are cut");
}

}  // namespace pw
