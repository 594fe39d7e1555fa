#include "simulator/costs/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/costs/cluster_name.h"
#include "simulator/costs/profile_check.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/costs/topology_json.h"
#include "simulator/text/json_part.h"
#include "simulator/text/json_text.h"

namespace pw {
namespace {

constexpr int kVersion = 1;
constexpr std::int64_t kMostProcessBytes = std::int64_t{1} << 60;
constexpr double kLongestOverhead = 1e15;  ///< [ns]: times the ranks of a collective it stays within 64 bits
using Json = nlohmann::ordered_json;

Json costJson(const NodeCost& c) {
  Json json = Json::array({c.forward, c.backward, c.forwardSpread, c.backwardSpread, c.saved, c.flops, c.weight, c.heldForWeight,
                           c.forwardPeak, c.backwardPeak, c.backwardChange, c.weightPeak, c.inputPeak, c.inputChange});
  if (c.optimizer != 0) json.push_back(c.optimizer);
  return json;
}

NodeCost costOf(const JsonPart& j) {
  NodeCost c{j[0].as<Ns>(), j[1].as<Ns>(), j[2].as<Ns>(), j[3].as<Ns>(), j[4].as<Bytes>(), j[5].as<double>()};
  if (j.size() == 6) return c;  // written before weights and memory were measured
  c.weight = j[6].as<Ns>();
  c.heldForWeight = j[7].as<Bytes>();
  c.forwardPeak = j[8].as<Bytes>();
  c.backwardPeak = j[9].as<Bytes>();
  c.backwardChange = j[10].as<Bytes>();
  c.weightPeak = j[11].as<Bytes>();
  c.inputPeak = j.size() > 12 ? j[12].as<Bytes>() : c.backwardPeak;
  c.inputChange = j.size() > 13 ? j[13].as<Bytes>() : c.backwardChange + c.heldForWeight;
  if (j.size() > 14) c.optimizer = j[14].as<Ns>();
  return c;
}

Json computingJson(const Computing& c) {
  return {{"on_gpu", c.onGpu}, {"precision", precisionName(c.precision)}, {"tf32", c.tf32}, {"graphs", c.graphs}};
}

/// What a profile of one node with one link does not have; empty where there is nothing of it.
Json nodesJson(const Topology& topology) {
  Json j = Json::object();
  if (topology.ranksPerNode > 0) j["ranks_per_node"] = topology.ranksPerNode;
  if (topology.network != LinkSpec{}) j["network"] = linkJson(topology.network);
  if (!topology.ranks.empty()) j["ranks"] = ranksJson(topology);
  if (!topology.links.empty()) j["between"] = rankLinksJson(topology.links);
  return j;
}

Topology topologyIn(const JsonPart& profile) {
  constexpr std::int64_t kMostRanksPerNode = 1 << 20;
  Topology topology;
  const JsonPart link = profile["link"];
  requireDuplex(link);
  topology.sameNode = {link["latency_ns"].as<Ns>(), link["bytes_per_s"].as<double>()};
  if (!profile.has("topology")) return topology;
  const JsonPart j = profile["topology"];
  if (j.has("ranks_per_node")) topology.ranksPerNode = j["ranks_per_node"].within<int>(1, kMostRanksPerNode);
  if (j.has("network")) topology.network = linkIn(j["network"]);
  if (j.has("ranks")) topology.ranks = ranksIn(j["ranks"], topology);
  if (j.has("between")) topology.links = rankLinksIn(j["between"], topology.ranks.size());
  return topology;
}

Computing computingOf(const JsonPart& j, const JsonDocument& document) {
  const auto precision = precisionNamed(j["precision"].as<std::string>());
  if (!precision) document.fail("computing.precision is not traced, bf16, fp16 or fp8");
  return {j["on_gpu"].as<bool>(), *precision, j["tf32"].as<bool>(), j["graphs"].as<bool>()};
}

Uncertainty uncertaintyOf(const JsonPart& j) {
  constexpr int kMostRuns = 1 << 30;
  const auto deviation = j["deviation"].as<double>();
  if (!(deviation >= 0 && deviation <= 1000)) j["deviation"].fail("is not from 0 to 1000");
  return {deviation, j["runs"].within<int>(0, kMostRuns), j.has("of_jobs") && j["of_jobs"].as<bool>()};
}

OperatorLoad loadOf(const JsonPart& j) {
  return {j["name"].as<std::string>(), j["bytes"].within<Bytes>(0, kMostProcessBytes), j["nodes"].listOf<NodeId>()};
}

bool isSummable(const Profile& p) {
  constexpr auto kMost = static_cast<double>(kMostSum);
  double sum = static_cast<double>(p.actionOverhead) + static_cast<double>(p.topology.sameNode.latency);
  const auto add = [&](const NodeCost& c) {
    for (const Ns time : {c.forward, c.backward, c.optimizer}) sum += std::abs(static_cast<double>(time));
    for (const Bytes bytes :
         {c.saved, c.heldForWeight, c.forwardPeak, c.backwardPeak, c.backwardChange, c.weightPeak, c.inputPeak, c.inputChange})
      sum += std::abs(static_cast<double>(bytes));
  };
  add(p.loss);
  for (const NodeCost& node : p.nodes) add(node);
  for (const Ns time : p.sent) sum += static_cast<double>(std::max<Ns>(0, time));
  return sum <= kMost;
}

void checkConsistent(const Profile& p, const JsonDocument& document) {
  const auto fail = [&](std::string_view what) { document.fail(what); };
  if (p.microbatch < 1 || p.ranksAtOnce < 1 || p.threads < 1) fail("microbatch, ranks or threads are less than 1");
  if (p.actionOverhead < 0 || p.sendOverhead < 0 || p.topology.sameNode.latency < 0) fail("a time is negative");
  if (!(p.backwardFlops.value_or(0) >= 0)) fail("backward_flops is negative");
  if (!(p.optimizerNsPerByte >= 0) || !(p.topology.sameNode.bytesPerSecond >= 0)) fail("a rate is negative");
  if (static_cast<double>(std::max({p.actionOverhead, p.sendOverhead, p.topology.sameNode.latency})) > kLongestOverhead)
    fail("an overhead or latency is longer than ten days");
  const auto check = [&](const NodeCost& c) {
    if (c.forward < 0 || c.backward < 0 || c.forwardSpread < 0 || c.backwardSpread < 0 || !(c.flops >= 0)) fail("a cost is negative");
    if (c.weight < 0 || c.heldForWeight < 0 || c.forwardPeak < 0 || c.backwardPeak < 0 || c.weightPeak < 0 || c.inputPeak < 0 ||
        c.optimizer < 0)
      fail("a cost is negative");
    if (c.weight > c.backward) fail("a weight's backward is longer than the whole");
  };
  if (!p.computing.onGpu && (p.computing.tf32 || p.computing.graphs)) fail("TF32 and CUDA graphs need a GPU");
  check(p.loss);
  for (const NodeCost& node : p.nodes) check(node);
  if (!p.sent.empty() && p.sent.size() != p.nodes.size()) fail("it has times of messages for another number of layers");
  if (std::ranges::any_of(p.sent, [](Ns time) { return time < -1; })) fail("a time of a message is negative");
  Bytes loaded = 0;
  for (const OperatorLoad& load : p.loads) {
    if (load.bytes > p.processBytes - loaded) fail("its operators load more than the process holds");
    loaded += load.bytes;
    if (std::ranges::any_of(load.nodes, [&](NodeId node) { return node.value < 0 || node.index() >= p.nodes.size(); }))
      fail("an operator load names a node that it does not have");
  }
  if (!isSummable(p)) fail("its times or sizes are too large to add up");
}

}  // namespace

std::string_view precisionName(DType precision) {
  return precision == DType::BFloat16 ? "bf16" : precision == DType::Float16 ? "fp16" : precision == DType::Float8 ? "fp8" : "traced";
}

std::optional<DType> precisionNamed(std::string_view name) {
  for (const DType precision : {DType::Unknown, DType::BFloat16, DType::Float16, DType::Float8}) {
    if (name == precisionName(precision)) return precision;
  }
  return std::nullopt;
}

std::string computingText(const Computing& c) {
  const std::string precision = c.precision == DType::Unknown ? "as traced" : fmt::format("in {}", precisionName(c.precision));
  return fmt::format("on {} {}{}{}", c.onGpu ? "GPUs" : "CPUs", precision, c.tf32 ? " with TF32" : "",
                     c.onGpu && !c.graphs ? " operator by operator" : "");
}

std::string toJson(const Profile& p) {
  Json j{
      {"format", "pipewright-profile"},
      {"version", kVersion},
      {"model", p.model},
      {"microbatch", p.microbatch},
      {"ranks_at_once", p.ranksAtOnce},
      {"threads", p.threads},
      {"estimated", p.estimated},
      {"machine", {{"host", p.machine.host}, {"processor", p.machine.processor}, {"cores", p.machine.cores}, {"device", p.machine.device}}},
      {"computing", computingJson(p.computing)},
      {"link", linkJson(p.topology.sameNode)},
      {"peak_flops", p.peakFlops},
      {"action_overhead_ns", p.actionOverhead},
      {"optimizer_ns_per_byte", p.optimizerNsPerByte},
      {"loss", costJson(p.loss)},
      {"node_fields",
       {"forward_ns", "backward_ns", "forward_spread_ns", "backward_spread_ns", "saved_bytes", "flops", "weight_ns",
        "held_for_weight_bytes", "forward_peak_bytes", "backward_peak_bytes", "backward_change_bytes", "weight_peak_bytes",
        "input_peak_bytes", "input_change_bytes"}}};
  Json nodes = Json::array();
  for (const NodeCost& node : p.nodes) nodes.push_back(costJson(node));
  j["nodes"] = std::move(nodes);
  if (p.backwardFlops) j["backward_flops"] = *p.backwardFlops;
  if (p.sendOverhead != 0) j["send_overhead_ns"] = p.sendOverhead;
  if (!p.sent.empty()) j["sent_ns"] = p.sent;
  if (p.uncertainty) j["uncertainty"] = {{"deviation", p.uncertainty->deviation}, {"runs", p.uncertainty->runs}};
  if (p.uncertainty && p.uncertainty->ofJobs) j["uncertainty"]["of_jobs"] = true;
  if (!p.cluster.empty()) j["cluster"] = clusterNameJson(p.cluster);
  if (p.processBytes > 0) j["process_bytes"] = p.processBytes;
  for (const OperatorLoad& load : p.loads) {
    Json users = Json::array();
    for (const NodeId node : load.nodes) users.push_back(node.value);
    j["operator_loads"].push_back({{"name", load.name}, {"bytes", load.bytes}, {"nodes", std::move(users)}});
  }
  if (p.attention != Attention::AsTraced) j["attention"] = nameOf(p.attention);
  if (Json topology = nodesJson(p.topology); !topology.empty()) j["topology"] = std::move(topology);
  for (const RankSpec& rank : p.topology.ranks) {
    if (rank.own.costs && !j["rank_profiles"].contains(rank.own.file)) j["rank_profiles"][rank.own.file] = ownJson(toJson(*rank.own.costs));
  }
  return j.dump(1, ' ', false, Json::error_handler_t::replace);
}

void requireSummable(const Profile& profile, std::string_view what) {
  if (!isSummable(profile))
    throw UsageError(fmt::format(
        "{} has times or sizes that are too large to add up; check the model's sizes and the values they were computed from", what));
}

namespace {

/// The costs that ranks have of their own, from beside the profile's.
void readRankProfiles(const JsonPart& j, const std::string& source, Profile& profile) {
  std::map<std::string, std::shared_ptr<const Profile>> read;
  if (j.has("rank_profiles")) {
    const JsonPart all = j["rank_profiles"];
    for (const std::string& file : all.keys()) {
      const JsonPart part = all[file];
      if (part.has("rank_profiles")) part.fail("has profiles of ranks");
      read[file] = std::make_shared<const Profile>(parseProfile(part.json().dump(), fmt::format("{} in {}", file, source)));
      const Profile& costs = *read[file];
      if (costs.nodes.size() != profile.nodes.size() || costs.sent.empty() != profile.sent.empty() ||
          costs.microbatch != profile.microbatch)
        part.fail("is of another model or microbatch size");
    }
  }
  for (RankSpec& rank : profile.topology.ranks) {
    if (!rank.own.exists()) continue;
    const auto found = read.find(rank.own.file);
    if (found == read.end())
      throw UsageError(fmt::format("{} names the profile {} for a rank, and does not contain it.", source, rank.own.file));
    rank.own.costs = found->second;
  }
}

}  // namespace

Profile parseProfile(std::string_view text, const std::string& source) {
  const JsonDocument document{source, "profile"};
  const Json json = document.parse(text);
  const JsonPart j(json, document);
  if (j["format"].json() != "pipewright-profile")
    throw UsageError(fmt::format("{} is not a Pipewright profile; create one with `pipewright profile`.", source));
  const int version = j["version"].as<int>();
  if (version > kVersion)
    throw UsageError(
        fmt::format("{} is a profile of version {}, newer than this program reads ({}); update Pipewright.", source, version, kVersion));
  Profile p;
  p.model = j["model"].as<std::string>();
  p.microbatch = j["microbatch"].as<std::int64_t>();
  p.ranksAtOnce = j["ranks_at_once"].as<int>();
  p.threads = j["threads"].as<int>();
  p.estimated = j["estimated"].as<bool>();
  const JsonPart m = j["machine"];
  p.machine = {m["host"].as<std::string>(), m["processor"].as<std::string>(), m["cores"].as<int>(), m["device"].as<std::string>()};
  if (json.contains("computing")) p.computing = computingOf(j["computing"], document);
  p.topology = topologyIn(j);
  if (j.has("attention")) {
    const auto attention = valueNamed<Attention>(j["attention"].as<std::string>());
    if (!attention) j["attention"].fail("is not traced, fused or unfused");
    p.attention = *attention;
  }
  if (j.has("cluster")) p.cluster = clusterNameIn(j["cluster"], source);
  if (j.has("process_bytes")) p.processBytes = j["process_bytes"].within<Bytes>(0, kMostProcessBytes);
  if (j.has("operator_loads")) p.loads = j["operator_loads"].list(loadOf);
  if (j.has("peak_flops")) p.peakFlops = rateIn(j["peak_flops"]);
  if (j.has("backward_flops")) p.backwardFlops = j["backward_flops"].as<double>();
  p.actionOverhead = j["action_overhead_ns"].as<Ns>();
  if (j.has("send_overhead_ns")) p.sendOverhead = j["send_overhead_ns"].as<Ns>();
  p.optimizerNsPerByte = j["optimizer_ns_per_byte"].as<double>();
  p.loss = costOf(j["loss"]);
  p.nodes = j["nodes"].list(costOf);
  if (j.has("sent_ns")) p.sent = j["sent_ns"].listOf<Ns>();
  if (j.has("uncertainty")) p.uncertainty = uncertaintyOf(j["uncertainty"]);
  checkConsistent(p, document);
  readRankProfiles(j, source, p);
  return p;
}

std::string sourceOf(const Profile& p, int ranks) {
  if (!p.sent.empty()) {
    const bool hasLink = p.topology.sameNode.latency > 0 || p.topology.sameNode.bytesPerSecond > 0;
    return hasLink ? fmt::format("of the layer table, links of {}", p.machine.host)
                   : "of the layer table; messages take no time where it gives none";
  }
  std::string text =
      p.estimated ? "estimated for " + p.machine.device : fmt::format("measured on {} ({})", p.machine.host, p.machine.processor);
  const bool isMeasured = !p.estimated;
  if (isMeasured && (p.ranksAtOnce > 1 || !p.computing.onGpu))
    text += fmt::format(", {} process{} at once", p.ranksAtOnce, p.ranksAtOnce == 1 ? "" : "es");
  if (isMeasured && !p.computing.onGpu) text += fmt::format(", {} thread{} each", p.threads, p.threads == 1 ? "" : "s");
  if (p.computing.precision != DType::Unknown) text += fmt::format(", in {}", precisionName(p.computing.precision));
  if (p.attention != Attention::AsTraced) text += fmt::format(", attention {}", nameOf(p.attention));
  if (p.computing.tf32) text += ", with TF32";
  if (p.computing.onGpu && !p.computing.graphs) text += ", operator by operator";
  if (isMeasured && ranks > 1 && p.topology.sameNode.latency == 0 && p.topology.sameNode.bytesPerSecond == 0)
    text += "; messages take no time, because no link was measured";
  return text;
}

double modelFlops(const Profile& profile, std::int64_t samples, bool trains) {
  double flops = 0;
  for (const NodeCost& node : profile.nodes) flops += node.flops;
  if (trains) flops += profile.backwardFlops.value_or(2 * flops);
  return flops / static_cast<double>(profile.microbatch) * static_cast<double>(samples);
}

double flopUtilisation(const Profile& profile, std::int64_t samples, Ns step, int ranks) {
  if (profile.peakFlops <= 0 || step <= 0) return 0;
  double devices = 0;
  for (JobRank rank(0); rank.value < ranks; ++rank.value) {
    const RankSpec* const spec = profile.topology.ranks.empty() ? nullptr : &profile.topology.ranks.at(rank.index());
    const bool knowsPeak = spec != nullptr && spec->own.costs && spec->own.costs->peakFlops > 0;
    devices += knowsPeak ? spec->speed * spec->own.costs->peakFlops / profile.peakFlops : speedOf(profile, rank);
  }
  return modelFlops(profile, samples, true) / (devices * profile.peakFlops * static_cast<double>(step) * 1e-9);
}

CostSums::CostSums(const Profile& profile) : prefix_(1) {
  for (const NodeCost& node : profile.nodes) {
    NodeCost sum = prefix_.back();
    sum.forward += node.forward;
    sum.backward += node.backward;
    sum.saved += node.saved;
    sum.flops += node.flops;
    sum.weight += node.weight;
    sum.heldForWeight += node.heldForWeight;
    sum.backwardChange += node.backwardChange;
    sum.optimizer += node.optimizer;
    prefix_.push_back(sum);
  }
}

NodeCost CostSums::range(NodeId begin, NodeId end) const {
  const NodeCost& a = prefix_.at(begin.index());
  const NodeCost& b = prefix_.at(end.index());
  NodeCost cost;
  cost.forward = b.forward - a.forward;
  cost.backward = b.backward - a.backward;
  cost.saved = b.saved - a.saved;
  cost.flops = b.flops - a.flops;
  cost.weight = b.weight - a.weight;
  cost.heldForWeight = b.heldForWeight - a.heldForWeight;
  cost.backwardChange = b.backwardChange - a.backwardChange;
  cost.optimizer = b.optimizer - a.optimizer;
  return cost;
}

}  // namespace pw
