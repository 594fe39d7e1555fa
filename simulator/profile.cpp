#include "simulator/profile.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr int kVersion = 1;
using Json = nlohmann::ordered_json;

Json costJson(const NodeCost& c) { return Json::array({c.forward, c.backward, c.forwardSpread, c.backwardSpread, c.saved, c.flops}); }

NodeCost costOf(const Json& j) {
  return {j.at(0).get<Ns>(), j.at(1).get<Ns>(), j.at(2).get<Ns>(), j.at(3).get<Ns>(), j.at(4).get<Bytes>(), j.at(5).get<double>()};
}

}  // namespace

std::string toJson(const Profile& p) {
  Json j{{"format", "pipewright-profile"}, {"version", kVersion}, {"model", p.model}, {"microbatch", p.microbatch},
         {"ranks_at_once", p.ranksAtOnce}, {"threads", p.threads}, {"estimated", p.estimated},
         {"machine", {{"host", p.machine.host}, {"processor", p.machine.processor}, {"cores", p.machine.cores}, {"device", p.machine.device}}},
         {"link", {{"latency_ns", p.link.latency}, {"bytes_per_s", p.link.bytesPerSecond}, {"duplex", p.link.duplex}}},
         {"action_overhead_ns", p.actionOverhead}, {"optimizer_ns_per_byte", p.optimizerNsPerByte}, {"loss", costJson(p.loss)},
         {"node_fields", {"forward_ns", "backward_ns", "forward_spread_ns", "backward_spread_ns", "saved_bytes", "flops"}}};
  Json nodes = Json::array();
  for (const NodeCost& node : p.nodes) nodes.push_back(costJson(node));
  j["nodes"] = std::move(nodes);
  return j.dump(1);
}

Profile parseProfile(std::string_view text, const std::string& source) {
  try {
    const Json j = Json::parse(text);
    if (j.at("format") != "pipewright-profile") throw UsageError(fmt::format("{} is not a Pipewright profile; write one with `pipewright profile`.", source));
    if (j.at("version").get<int>() > kVersion) throw UsageError(fmt::format("{} is a profile of version {}, newer than this program reads ({}); update Pipewright.", source, j.at("version").get<int>(), kVersion));
    Profile p;
    p.model = j.at("model").get<std::string>();
    p.microbatch = j.at("microbatch").get<std::int64_t>();
    p.ranksAtOnce = j.at("ranks_at_once").get<int>();
    p.threads = j.at("threads").get<int>();
    p.estimated = j.at("estimated").get<bool>();
    const Json& m = j.at("machine");
    p.machine = {m.at("host").get<std::string>(), m.at("processor").get<std::string>(), m.at("cores").get<int>(), m.at("device").get<std::string>()};
    p.link = {j.at("link").at("latency_ns").get<Ns>(), j.at("link").at("bytes_per_s").get<double>(), j.at("link").at("duplex").get<bool>()};
    p.actionOverhead = j.at("action_overhead_ns").get<Ns>();
    p.optimizerNsPerByte = j.at("optimizer_ns_per_byte").get<double>();
    p.loss = costOf(j.at("loss"));
    for (const Json& node : j.at("nodes")) p.nodes.push_back(costOf(node));
    return p;
  } catch (const Json::exception& e) {
    throw UsageError(fmt::format("{} is not a usable profile ({}); profile the model again.", source, e.what()));
  }
}

CostSums::CostSums(const Profile& profile) : prefix_(1) {
  for (const NodeCost& node : profile.nodes) {
    NodeCost sum = prefix_.back();
    sum.forward += node.forward;
    sum.backward += node.backward;
    sum.saved += node.saved;
    sum.flops += node.flops;
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
  return cost;
}

}  // namespace pw
