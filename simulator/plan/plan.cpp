#include "simulator/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "schedules/csv.h"
#include "schedules/error.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/plan_check.h"
#include "simulator/plan/replica_prices.h"
#include "simulator/plan/sharing.h"
#include "simulator/text/json_part.h"
#include "simulator/text/json_text.h"

namespace pw {
template <class Tag>
void to_json(nlohmann::ordered_json& j, const Id<Tag>& id) {  // NOLINT(readability-identifier-naming): the library looks for it
  j = id.value;
}

namespace {

constexpr int kVersion = 1;
using Json = nlohmann::ordered_json;

Json stageJson(const StageSpec& s) {
  Json j{{"begin", s.begin},           {"end", s.end},         {"recomputed", s.recomputed}, {"model_inputs", s.modelInputs},
         {"parameters", s.parameters}, {"buffers", s.buffers}, {"constants", s.constants}};
  for (const NodeRange& range : s.checkpoints) j["checkpoints"].push_back({{"begin", range.begin}, {"end", range.end}});
  return j;
}

StageSpec stageOf(const JsonPart& j) {
  StageSpec s;
  s.begin = j["begin"].as<NodeId>();
  s.end = j["end"].as<NodeId>();
  s.recomputed = j["recomputed"].listOf<NodeId>();
  s.modelInputs = j["model_inputs"].listOf<ValueId>();
  s.parameters = j["parameters"].listOf<std::size_t>();
  s.buffers = j["buffers"].listOf<std::size_t>();
  s.constants = j["constants"].listOf<std::size_t>();
  if (j.json().contains("checkpoints")) {
    s.checkpoints = j["checkpoints"].list([](const JsonPart& r) { return NodeRange{r["begin"].as<NodeId>(), r["end"].as<NodeId>()}; });
  }
  return s;
}

Json costJson(const StageCost& c) {
  return {{"forward_ns", c.forward},
          {"backward_ns", c.backward},
          {"input_ns", c.backwardInput},
          {"weight_ns", c.backwardWeight},
          {"optimizer_ns", c.optimizer},
          {"reduce_ns", c.reduce},
          {"parameter_bytes", c.parameterBytes},
          {"gradient_bytes", c.gradientBytes},
          {"optimizer_bytes", c.optimizerBytes},
          {"updated_bytes", c.updatedBytes},
          {"fixed_bytes", c.fixedBytes},
          {"data_bytes", c.dataBytes},
          {"activation_bytes", c.activationBytes},
          {"freed_by_input_bytes", c.freedByInput},
          {"added_by_input_bytes", c.addedByInput},
          {"shared_for_weight_bytes", c.sharedForWeight},
          {"forward_peak_bytes", c.forwardPeak},
          {"backward_peak_bytes", c.backwardPeak},
          {"input_peak_bytes", c.inputPeak},
          {"weight_peak_bytes", c.weightPeak}};
}

StageCost costOf(const JsonPart& j) {
  StageCost c;
  c.forward = j["forward_ns"].as<Ns>();
  c.backward = j["backward_ns"].as<Ns>();
  c.backwardInput = j["input_ns"].as<Ns>();
  c.backwardWeight = j["weight_ns"].as<Ns>();
  c.optimizer = j["optimizer_ns"].as<Ns>();
  c.parameterBytes = j["parameter_bytes"].as<Bytes>();
  c.gradientBytes = j["gradient_bytes"].as<Bytes>();
  c.optimizerBytes = j["optimizer_bytes"].as<Bytes>();
  c.activationBytes = j["activation_bytes"].as<Bytes>();
  const auto later = [&](const char* key, auto& value) {  // absent in older plans
    if (j.json().contains(key)) value = j[key].as<std::remove_cvref_t<decltype(value)>>();
  };
  c.updatedBytes = c.gradientBytes;
  later("reduce_ns", c.reduce);
  later("updated_bytes", c.updatedBytes);
  later("fixed_bytes", c.fixedBytes);
  later("data_bytes", c.dataBytes);
  later("freed_by_input_bytes", c.freedByInput);
  later("added_by_input_bytes", c.addedByInput);
  later("shared_for_weight_bytes", c.sharedForWeight);
  later("forward_peak_bytes", c.forwardPeak);
  later("backward_peak_bytes", c.backwardPeak);
  later("input_peak_bytes", c.inputPeak);
  later("weight_peak_bytes", c.weightPeak);
  return c;
}

Json partitionJson(const Partition& p) {
  Json j{{"stages", Json::array()}, {"transfers", Json::array()}, {"replicated", Json::array()}};
  for (const StageSpec& stage : p.stages) j["stages"].push_back(stageJson(stage));
  for (const Transfer& t : p.transfers) {
    j["transfers"].push_back({{"value", t.value}, {"from", t.from}, {"to", t.to}, {"gradient", t.gradient}, {"bytes", t.bytes}});
  }
  for (const SharedParameter& r : p.shared) {
    j["replicated"].push_back(
        {{"name", r.name}, {"storage", r.storage}, {"stages", r.stages}, {"bytes", r.bytes}, {"sharing", nameOf(r.sharing)}});
  }
  return j;
}

Sharing sharingOf(const JsonPart& shared, const JsonDocument& document) {
  if (!shared.json().contains("sharing")) return Sharing::Replicate;
  const auto text = shared["sharing"].as<std::string>();
  if (const auto sharing = valueNamed<Sharing>(text)) return *sharing;
  document.fail(fmt::format("the sharing of a parameter is `{}`, not replicate or transmit", text));
}

Partition partitionOf(const JsonPart& j, const JsonDocument& document) {
  Partition p;
  p.stages = j["stages"].list(stageOf);
  p.transfers = j["transfers"].list([](const JsonPart& t) {
    return Transfer{t["value"].as<ValueId>(), t["from"].as<Stage>(), t["to"].as<Stage>(), t["gradient"].as<bool>(), t["bytes"].as<Bytes>()};
  });
  p.shared = j["replicated"].list([&](const JsonPart& r) {
    return SharedParameter{r["name"].as<std::string>(), r["storage"].as<std::string>(), r["stages"].listOf<Stage>(), r["bytes"].as<Bytes>(),
                           sharingOf(r, document)};
  });
  return p;
}

Json tableJson(const CostTable& t) {
  Json j{{"stages", Json::array()}, {"messages", Json::array()}, {"reduce_ns", t.reduceTime}, {"microbatch_scale", t.microbatchScale}};
  if (!t.overlap.empty()) j["overlap_ns"] = t.overlap;
  for (const StageCost& cost : t.stages) j["stages"].push_back(costJson(cost));
  for (const MessageCost& m : t.messages) {
    j["messages"].push_back({{"from", m.from},
                             {"to", m.to},
                             {"backward", m.backward},
                             {"bytes", m.bytes},
                             {"latency_ns", m.latency},
                             {"transfer_ns", m.transfer}});
  }
  return j;
}

CostTable tableOf(const JsonPart& j) {
  CostTable t;
  t.stages = j["stages"].list(costOf);
  t.messages = j["messages"].list([](const JsonPart& m) {
    return MessageCost{m["from"].as<Stage>(),  m["to"].as<Stage>(),      m["backward"].as<bool>(),
                       m["bytes"].as<Bytes>(), m["latency_ns"].as<Ns>(), m["transfer_ns"].as<Ns>()};
  });
  t.reduceTime = j["reduce_ns"].as<Ns>();
  t.microbatchScale = j["microbatch_scale"].listOf<double>();
  if (j.json().contains("overlap_ns")) t.overlap = j["overlap_ns"].listOf<Ns>();
  return t;
}

Json cutsJson(const ReplicaCuts& cuts) {
  Json j{{"shown", cuts.shown}, {"replicas", Json::array()}, {"summed", Json::array()}};
  for (const ReplicaCut& cut : cuts.replicas)
    j["replicas"].push_back({{"splits", cut.splitNames}, {"partition", partitionJson(cut.partition)}, {"costs", tableJson(cut.costs)}});
  for (const SummedParameters& together : cuts.summed) j["summed"].push_back({{"stages", together.stages}, {"bytes", together.bytes}});
  return j;
}

ReplicaCuts cutsOf(const JsonPart& j, const JsonDocument& document) {
  ReplicaCuts cuts;
  cuts.shown = j["shown"].as<int>();
  cuts.replicas = j["replicas"].list([&](const JsonPart& cut) {
    return ReplicaCut{partitionOf(cut["partition"], document), cut["splits"].listOf<std::string>(), tableOf(cut["costs"])};
  });
  cuts.summed = j["summed"].list([](const JsonPart& together) {
    return SummedParameters{together["stages"].listOf<Stage>(), together["bytes"].as<Bytes>()};
  });
  return cuts;
}

}  // namespace

std::string toJson(const Plan& plan) {
  Json j{{"format", "pipewright-plan"},
         {"version", kVersion},
         {"model", plan.modelName},
         {"model_files", plan.modelFiles},
         {"microbatch_size", plan.microbatchSize},
         {"batch", plan.batch},
         {"replicas", plan.replicas},
         {"loss", toString(plan.loss)},
         {"estimated", plan.profile.estimated},
         {"splits", plan.splitNames},
         {"schedule",
          {{"name", plan.schedule.name},
           {"microbatches", plan.schedule.microbatches},
           {"lockstep", plan.schedule.lockstep},
           {"csv", toCsv(plan.schedule)}}},
         {"partition", partitionJson(plan.partition)},
         {"costs", tableJson(plan.costs)},
         {"profile", ownJson(toJson(plan.profile))}};
  if (!plan.libraries.empty()) j["libraries"] = plan.libraries;
  const ModelFingerprint& print = plan.fingerprint;
  if (plan.optimizer) {
    const OptimizerSpec& update = plan.optimizer->update;
    j["optimizer"] = {{"name", nameOf(update.kind)},
                      {"momentum", update.momentum},
                      {"state_copies", stateCopies(update)},
                      {"zero1", plan.optimizer->zero1}};
  }
  if (plan.cuts) j["replica_cuts"] = cutsJson(*plan.cuts);
  if (plan.certificate) j["certificate"] = ownJson(toJson(*plan.certificate));
  if (!print.digest.empty())
    j["model_fingerprint"] = {{"digest", print.digest}, {"tensors", print.tensors}, {"operators", print.operators}};
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

/// Plans of older versions say only how many copies of parameters the state is; then a momentum is as large as most people's.
PlannedOptimizer optimizerIn(const JsonPart& j, const JsonDocument& document) {
  constexpr double kUsualMomentum = 0.9;
  const auto kind = valueNamed<OptimizerSpec::Kind>(j["name"].as<std::string>());
  if (!kind) document.fail(fmt::format("its optimizer is unknown; known are {}", optimizerNames(", ")));
  PlannedOptimizer optimizer{{}, j["zero1"].as<bool>()};
  optimizer.update.kind = *kind;
  const int copies = j["state_copies"].as<int>();
  if (j.json().contains("momentum")) {
    optimizer.update.momentum = j["momentum"].as<double>();
  } else if (factsOf(*kind).hasMomentum && copies > stateCopies(optimizer.update)) {
    optimizer.update.momentum = kUsualMomentum;
  }
  const double momentum = optimizer.update.momentum;
  if (!(momentum >= 0 && momentum <= 1) || (momentum > 0 && !factsOf(*kind).hasMomentum) || copies != stateCopies(optimizer.update))
    document.fail("its optimizer contradicts itself");
  return optimizer;
}

/// `gap` and `optimal` follow from the times.
Certificate certificateIn(const JsonPart& json, int stages) {
  Certificate certificate;
  const auto clock = valueNamed<StepClock>(json["objective"].as<std::string>());
  if (!clock) json["objective"].fail("is neither flush nor window");
  certificate.clock = *clock;
  certificate.time = json["time_ns"].within<Ns>(0, std::numeric_limits<std::int64_t>::max());
  certificate.lowerBound = json["lower_bound_ns"].within<Ns>(0, certificate.time.value);
  certificate.foundBy = json["found_by"].as<std::string>();
  certificate.recomputed =
      json["recomputed_stages"].list([&](const JsonPart& stage) { return Stage(stage.within<std::int32_t>(0, stages - 1)); });
  return certificate;
}

ModelFingerprint fingerprintIn(const JsonPart& j, const JsonDocument& document) {
  if (!j.json().contains("model_fingerprint")) return {};
  const JsonPart print = j["model_fingerprint"];
  if (print["digest"].as<std::string>().empty()) document.fail("its model's fingerprint is empty");
  return {print["digest"].as<std::string>(), print["tensors"].listOf<std::string>(), print["operators"].as<std::string>()};
}

}  // namespace

Plan parsePlan(std::string_view text, const std::string& source) {
  const JsonDocument document{source, "plan"};
  const Json json = document.parse(text);
  const JsonPart j(json, document);
  if (j["format"].json() != "pipewright-plan")
    throw UsageError(fmt::format("{} is not a Pipewright plan; create one with `pipewright plan`.", source));
  const int version = j["version"].as<int>();
  if (version > kVersion)
    throw UsageError(
        fmt::format("{} is a plan of version {}, newer than this program reads ({}); update Pipewright.", source, version, kVersion));
  Plan plan;
  plan.modelName = j["model"].as<std::string>();
  plan.modelFiles = j["model_files"].listOf<std::string>();
  plan.fingerprint = fingerprintIn(j, document);
  if (j.json().contains("libraries")) plan.libraries = j["libraries"].listOf<std::string>();
  plan.microbatchSize = j["microbatch_size"].as<std::int64_t>();
  plan.batch = j["batch"].as<std::int64_t>();
  if (j.json().contains("replicas")) plan.replicas = j["replicas"].as<int>();
  const Answer<Loss> loss = tryLoss(j["loss"].as<std::string>());
  if (!loss) document.fail(loss.refusal().why);
  plan.loss = *loss;
  if (j.json().contains("optimizer")) plan.optimizer = optimizerIn(j["optimizer"], document);
  plan.profile = parseProfile(j["profile"].json().dump(), "The profile in " + source);
  plan.splitNames = j["splits"].listOf<std::string>();
  const JsonPart schedule = j["schedule"];
  plan.schedule = parseCsv(schedule["csv"].as<std::string>(), schedule["name"].as<std::string>(), source);
  plan.schedule.lockstep = schedule.json().contains("lockstep") && schedule["lockstep"].as<bool>();
  const int microbatches = schedule["microbatches"].as<int>();
  if (microbatches != plan.schedule.microbatches) {
    throw UsageError(fmt::format("{} says {} microbatches and its schedule has {}; plan the model again.", source, microbatches,
                                 plan.schedule.microbatches));
  }
  plan.partition = partitionOf(j["partition"], document);
  plan.costs = tableOf(j["costs"]);
  if (j.json().contains("replica_cuts")) plan.cuts = cutsOf(j["replica_cuts"], document);
  requireConsistent(plan, [&](const std::string& what) { document.fail(what); });
  if (j.json().contains("certificate")) plan.certificate = certificateIn(j["certificate"], static_cast<int>(plan.partition.stages.size()));
  return plan;
}

Plan ofReplica(Plan plan, int replica) {
  if (!plan.cuts) return plan;
  const ReplicaCut& cut = plan.cuts->replicas.at(static_cast<std::size_t>(replica));
  plan.partition = cut.partition;
  plan.splitNames = cut.splitNames;
  plan.costs = cut.costs;
  plan.cuts->shown = replica;
  return plan;
}

void requireSameSplits(const Plan& plan, std::string_view tool) {
  if (plan.cuts)
    throw UsageError(fmt::format("{} cuts all replicas alike, and in this plan each has splits of its own; plan with --same-splits", tool));
}

const CostTable& replicaCosts(const Plan& plan, int replica) {
  return plan.cuts ? plan.cuts->replicas.at(static_cast<std::size_t>(replica)).costs : plan.costs;
}

std::size_t summedWith(const ReplicaCuts& cuts, std::size_t parameter) {
  std::vector<Stage> stages;
  for (const ReplicaCut& cut : cuts.replicas) {
    const auto& all = cut.partition.stages;
    const auto holds = [&](const StageSpec& stage) { return std::ranges::count(stage.parameters, parameter) > 0; };
    stages.emplace_back(static_cast<std::size_t>(std::ranges::find_if(all, holds) - all.begin()));
  }
  const auto found = std::ranges::find(cuts.summed, stages, &SummedParameters::stages);
  if (found == cuts.summed.end())
    throw UsageError(
        fmt::format("The plan does not say with what the gradient of parameter {} is summed; plan the model again.", parameter));
  return static_cast<std::size_t>(found - cuts.summed.begin());
}

CostTable costsWithOptimizer(const Plan& plan) {
  CostTable costs = plan.costs;
  if (!plan.optimizer) return costs;
  const int shards = optimizerShards(plan.optimizer->zero1, plan.replicas, plan.schedule.placement);
  addOptimizerState(costs, stateCopies(plan.optimizer->update), shards);
  return costs;
}

namespace {

/// Of a process that runs stages, beside what one that measures them holds: code and buffers of the executor and its messages (measured on
/// x86-64: 1.1 MiB of code, 0.4 to 3 MiB of shared memory by which messages have passed before the peak, less 0.5 MiB that only measuring
/// needs).
constexpr Bytes kRunningBytes = 2 * 1024 * 1024;

}  // namespace

std::vector<Bytes> processBytes(const Plan& plan) {
  if (plan.profile.processBytes == 0) return {};
  const std::vector<StageSpec>& stages = plan.partition.stages;
  const auto has = [](const StageSpec& stage, NodeId node) {
    return (stage.begin <= node && node < stage.end) || std::ranges::find(stage.recomputed, node) != stage.recomputed.end();
  };
  const auto uses = [&](Rank rank, const OperatorLoad& load) {
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (!plan.schedule.placement.holds(rank, Stage(s))) continue;
      if (load.nodes.empty() && s + 1 == stages.size()) return true;
      if (std::ranges::any_of(load.nodes, [&](NodeId node) { return has(stages[s], node); })) return true;
    }
    return false;
  };
  std::vector<Bytes> held(plan.schedule.rows.size(), plan.profile.processBytes + kRunningBytes);
  for (std::size_t r = 0; r < held.size(); ++r) {
    for (const OperatorLoad& load : plan.profile.loads) {
      if (!uses(Rank(r), load)) held[r] -= load.bytes;
    }
  }
  return held;
}

double flopUtilisation(const Plan& plan, Ns step) {
  return trains(plan.schedule) ? flopUtilisation(plan.profile, plan.batch, step, worldSize(plan)) : 0;
}

std::vector<std::int64_t> microbatchSizes(std::int64_t batch, int microbatches) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(microbatches), batch / microbatches);
  for (std::size_t m = 0; m < static_cast<std::size_t>(batch % microbatches); ++m) ++sizes[m];
  return sizes;
}

}  // namespace pw
