#include "simulator/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "schedules/csv.h"
#include "schedules/error.h"

namespace pw {

template <class Tag>
void to_json(nlohmann::ordered_json& j, const Id<Tag>& id) {
  j = id.value;
}
template <class Tag>
void from_json(const nlohmann::ordered_json& j, Id<Tag>& id) {
  id.value = j.get<std::int32_t>();
}

namespace {

constexpr int kVersion = 1;
using Json = nlohmann::ordered_json;

Json stageJson(const StageSpec& s) {
  return {{"begin", s.begin},           {"end", s.end},         {"recomputed", s.recomputed}, {"model_inputs", s.modelInputs},
          {"parameters", s.parameters}, {"buffers", s.buffers}, {"constants", s.constants}};
}

StageSpec stageOf(const Json& j) {
  StageSpec s;
  j.at("begin").get_to(s.begin);
  j.at("end").get_to(s.end);
  j.at("recomputed").get_to(s.recomputed);
  j.at("model_inputs").get_to(s.modelInputs);
  j.at("parameters").get_to(s.parameters);
  j.at("buffers").get_to(s.buffers);
  j.at("constants").get_to(s.constants);
  return s;
}

Json costJson(const StageCost& c) {
  return {{"forward_ns", c.forward},           {"backward_ns", c.backward},       {"input_ns", c.backwardInput},
          {"weight_ns", c.backwardWeight},     {"optimizer_ns", c.optimizer},     {"parameter_bytes", c.parameterBytes},
          {"gradient_bytes", c.gradientBytes}, {"optimizer_bytes", c.optimizerBytes}, {"activation_bytes", c.activationBytes}};
}

StageCost costOf(const Json& j) {
  StageCost c;
  j.at("forward_ns").get_to(c.forward);
  j.at("backward_ns").get_to(c.backward);
  j.at("input_ns").get_to(c.backwardInput);
  j.at("weight_ns").get_to(c.backwardWeight);
  j.at("optimizer_ns").get_to(c.optimizer);
  j.at("parameter_bytes").get_to(c.parameterBytes);
  j.at("gradient_bytes").get_to(c.gradientBytes);
  j.at("optimizer_bytes").get_to(c.optimizerBytes);
  j.at("activation_bytes").get_to(c.activationBytes);
  return c;
}

Json partitionJson(const Partition& p) {
  Json j{{"stages", Json::array()}, {"transfers", Json::array()}, {"replicated", Json::array()}};
  for (const StageSpec& stage : p.stages) j["stages"].push_back(stageJson(stage));
  for (const Transfer& t : p.transfers) {
    j["transfers"].push_back({{"value", t.value}, {"from", t.from}, {"to", t.to}, {"gradient", t.gradient}, {"bytes", t.bytes}});
  }
  for (const ReplicatedParameter& r : p.replicated) {
    j["replicated"].push_back({{"name", r.name}, {"storage", r.storage}, {"stages", r.stages}, {"bytes", r.bytes}});
  }
  return j;
}

Partition partitionOf(const Json& j) {
  Partition p;
  for (const Json& stage : j.at("stages")) p.stages.push_back(stageOf(stage));
  for (const Json& t : j.at("transfers")) {
    p.transfers.push_back({t.at("value").get<ValueId>(), t.at("from").get<Stage>(), t.at("to").get<Stage>(), t.at("gradient").get<bool>(),
                           t.at("bytes").get<Bytes>()});
  }
  for (const Json& r : j.at("replicated")) {
    p.replicated.push_back({r.at("name").get<std::string>(), r.at("storage").get<std::string>(), r.at("stages").get<std::vector<Stage>>(),
                            r.at("bytes").get<Bytes>()});
  }
  return p;
}

Json tableJson(const CostTable& t) {
  Json j{{"stages", Json::array()}, {"messages", Json::array()}, {"reduce_ns", t.reduceTime}, {"microbatch_scale", t.microbatchScale}};
  for (const StageCost& cost : t.stages) j["stages"].push_back(costJson(cost));
  for (const MessageCost& m : t.messages) {
    j["messages"].push_back({{"from", m.from}, {"to", m.to}, {"backward", m.backward}, {"bytes", m.bytes}, {"latency_ns", m.latency},
                             {"transfer_ns", m.transfer}});
  }
  return j;
}

CostTable tableOf(const Json& j) {
  CostTable t;
  for (const Json& cost : j.at("stages")) t.stages.push_back(costOf(cost));
  for (const Json& m : j.at("messages")) {
    t.messages.push_back({m.at("from").get<Stage>(), m.at("to").get<Stage>(), m.at("backward").get<bool>(), m.at("bytes").get<Bytes>(),
                          m.at("latency_ns").get<Ns>(), m.at("transfer_ns").get<Ns>()});
  }
  j.at("reduce_ns").get_to(t.reduceTime);
  j.at("microbatch_scale").get_to(t.microbatchScale);
  return t;
}

/// What a hostile or hand-edited file could break is checked here, so that nothing later indexes out of range.
void checkConsistent(const Plan& plan, const std::string& source) {
  const auto stages = static_cast<std::int32_t>(plan.partition.stages.size());
  const auto fail = [&](const std::string& what) { throw UsageError(fmt::format("{} is not a usable plan: {}; plan the model again.", source, what)); };
  const auto isStage = [&](Stage s) { return s.value >= 0 && s.value < stages; };
  if (stages == 0) fail("it has no stages");
  if (plan.schedule.rankOfStage.size() != plan.partition.stages.size()) fail("schedule and partition differ in their number of stages");
  if (plan.costs.stages.size() != plan.partition.stages.size()) fail("its costs are not for these stages");
  if (plan.microbatchSize < 1 || plan.batch < plan.schedule.microbatches) fail("the batch is smaller than its number of microbatches");
  NodeId end(0);
  for (const StageSpec& stage : plan.partition.stages) {
    if (stage.begin != end || stage.end <= stage.begin) fail("its stages do not follow one another");
    end = stage.end;
  }
  for (const Transfer& t : plan.partition.transfers) {
    if (!isStage(t.from) || !isStage(t.to) || t.from >= t.to) fail("a transfer names stages that do not exist");
  }
  for (const MessageCost& m : plan.costs.messages) {
    if (!isStage(m.from) || !isStage(m.to)) fail("a message names stages that do not exist");
  }
  for (const ReplicatedParameter& r : plan.partition.replicated) {
    for (const Stage s : r.stages) {
      if (!isStage(s)) fail("a shared parameter names stages that do not exist");
    }
  }
  if (!plan.costs.microbatchScale.empty() && static_cast<int>(plan.costs.microbatchScale.size()) != plan.schedule.microbatches) {
    fail("its microbatch scale is not for this number of microbatches");
  }
}

}  // namespace

std::string toJson(const Plan& plan) {
  const Json j{{"format", "pipewright-plan"},
               {"version", kVersion},
               {"model", plan.modelName},
               {"model_files", plan.modelFiles},
               {"microbatch_size", plan.microbatchSize},
               {"batch", plan.batch},
               {"loss", plan.loss},
               {"estimated", plan.estimated},
               {"cost_source", plan.costSource},
               {"splits", plan.splitNames},
               {"schedule", {{"name", plan.schedule.name}, {"microbatches", plan.schedule.microbatches}, {"csv", toCsv(plan.schedule)}}},
               {"partition", partitionJson(plan.partition)},
               {"costs", tableJson(plan.costs)}};
  return j.dump(1) + "\n";
}

Plan parsePlan(std::string_view text, const std::string& source) {
  try {
    const Json j = Json::parse(text);
    if (j.at("format") != "pipewright-plan") throw UsageError(fmt::format("{} is not a Pipewright plan; write one with `pipewright plan`.", source));
    if (j.at("version").get<int>() > kVersion) {
      throw UsageError(fmt::format("{} is a plan of version {}, newer than this program reads ({}); update Pipewright.", source, j.at("version").get<int>(), kVersion));
    }
    Plan plan;
    j.at("model").get_to(plan.modelName);
    j.at("model_files").get_to(plan.modelFiles);
    j.at("microbatch_size").get_to(plan.microbatchSize);
    j.at("batch").get_to(plan.batch);
    j.at("loss").get_to(plan.loss);
    j.at("estimated").get_to(plan.estimated);
    j.at("cost_source").get_to(plan.costSource);
    j.at("splits").get_to(plan.splitNames);
    plan.schedule = parseCsv(j.at("schedule").at("csv").get<std::string>(), j.at("schedule").at("name").get<std::string>(), source);
    if (j.at("schedule").at("microbatches").get<int>() != plan.schedule.microbatches) {
      throw UsageError(fmt::format("{} says {} microbatches and its schedule has {}; plan the model again.", source,
                                   j.at("schedule").at("microbatches").get<int>(), plan.schedule.microbatches));
    }
    plan.partition = partitionOf(j.at("partition"));
    plan.costs = tableOf(j.at("costs"));
    checkConsistent(plan, source);
    return plan;
  } catch (const Json::exception& e) {
    throw UsageError(fmt::format("{} is not a usable plan ({}); write one with `pipewright plan`.", source, e.what()));
  }
}

std::vector<std::int64_t> microbatchSizes(std::int64_t batch, int microbatches) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(microbatches), batch / microbatches);
  for (std::size_t m = 0; m < static_cast<std::size_t>(batch % microbatches); ++m) ++sizes[m];
  return sizes;
}

namespace {

void addMessages(const Partition& partition, const Profile& profile, const std::vector<Rank>& rankOfStage, CostTable& table) {
  std::map<std::pair<Stage, Stage>, std::pair<Bytes, Bytes>> bytes;  // forward and backward
  for (const Transfer& t : partition.transfers) {
    auto& [forward, backward] = bytes[{t.from, t.to}];
    forward += t.bytes;
    if (t.gradient) backward += t.bytes;
  }
  for (const auto& [ends, size] : bytes) {
    const bool local = rankOfStage.at(ends.first.index()) == rankOfStage.at(ends.second.index());
    const auto add = [&](Stage from, Stage to, bool backward, Bytes n) {
      table.messages.push_back({from, to, backward, n, local ? 0 : profile.link.latency, local ? 0 : transferTime(profile.link, n)});
    };
    add(ends.first, ends.second, false, size.first);
    if (size.second > 0) add(ends.second, ends.first, true, size.second);
  }
}

}  // namespace

CostTable costTable(const ModelGraph& graph, const Partition& partition, const Profile& profile, const std::vector<Rank>& rankOfStage) {
  const CostSums sums(profile);
  CostTable table;
  for (std::size_t s = 0; s < partition.stages.size(); ++s) {
    const StageSpec& spec = partition.stages[s];
    NodeCost cost = sums.range(spec.begin, spec.end);
    for (const NodeId node : spec.recomputed) cost.forward += profile.nodes.at(node.index()).forward;
    StageCost stage;
    if (s + 1 == partition.stages.size()) {
      cost.forward += profile.loss.forward;
      cost.backward += profile.loss.backward;
      cost.saved += profile.loss.saved;
    }
    stage.forward = cost.forward + profile.actionOverhead;
    stage.backward = cost.backward + profile.actionOverhead;
    stage.backwardInput = stage.backward / 2;  // until I and W are measured apart
    stage.backwardWeight = stage.backward - stage.backwardInput;
    for (const std::size_t p : spec.parameters) stage.parameterBytes += bytesOf(*graph.value(graph.parameters.at(p).value).tensor, {});
    stage.gradientBytes = stage.parameterBytes;
    stage.optimizer = static_cast<Ns>(static_cast<double>(stage.parameterBytes) * profile.optimizerNsPerByte);
    stage.activationBytes = std::max<Bytes>(0, cost.saved);
    for (const Transfer& t : partition.transfers) {
      if (t.to == Stage(s)) stage.activationBytes += t.bytes;
    }
    table.stages.push_back(stage);
  }
  addMessages(partition, profile, rankOfStage, table);
  for (const ReplicatedParameter& r : partition.replicated) {
    table.reduceTime += profile.link.latency + static_cast<Ns>(r.stages.size() - 1) * transferTime(profile.link, r.bytes);
  }
  return table;
}

}  // namespace pw
