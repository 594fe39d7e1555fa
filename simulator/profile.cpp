#include "simulator/profile.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr int kVersion = 1;
using Json = nlohmann::ordered_json;

Json costJson(const NodeCost& c) { return Json::array({c.forward, c.backward, c.forwardSpread, c.backwardSpread, c.saved, c.flops}); }

/// The number as it stands: `get` would cut off what is too large or not whole.
template <class Int>
Int integer(const Json& j) {
  const bool fits = j.is_number_unsigned() ? std::in_range<Int>(j.get<std::uint64_t>()) : j.is_number_integer() && std::in_range<Int>(j.get<std::int64_t>());
  if (!fits) throw Json::out_of_range::create(406, "not a whole number in range: " + j.dump(), &j);
  return j.get<Int>();
}

NodeCost costOf(const Json& j) {
  return {integer<Ns>(j.at(0)), integer<Ns>(j.at(1)), integer<Ns>(j.at(2)), integer<Ns>(j.at(3)), integer<Bytes>(j.at(4)), j.at(5).get<double>()};
}

void checkConsistent(const Profile& p, const std::string& source) {
  const auto fail = [&](std::string_view what) { throw UsageError(fmt::format("{} is not a usable profile: {}; profile the model again.", source, what)); };
  if (p.microbatch < 1 || p.ranksAtOnce < 1 || p.threads < 1) fail("microbatch, ranks or threads are less than 1");
  if (p.actionOverhead < 0 || p.link.latency < 0) fail("a time is negative");
  if (!(p.optimizerNsPerByte >= 0) || !(p.link.bytesPerSecond >= 0)) fail("a rate is negative");
  constexpr double kMost = 4e18;  // less than 2^62: a plan adds two such sums
  double sum = static_cast<double>(p.actionOverhead) + static_cast<double>(p.link.latency);
  const auto add = [&](const NodeCost& c) {
    if (c.forward < 0 || c.backward < 0 || c.forwardSpread < 0 || c.backwardSpread < 0 || !(c.flops >= 0)) fail("a cost is negative");
    sum += static_cast<double>(c.forward) + static_cast<double>(c.backward) + std::abs(static_cast<double>(c.saved));
  };
  add(p.loss);
  for (const NodeCost& node : p.nodes) add(node);
  if (sum > kMost) fail("its times or sizes are too large to add up");
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
  return j.dump(1, ' ', false, Json::error_handler_t::replace);
}

Profile parseProfile(std::string_view text, const std::string& source) {
  try {
    const Json j = Json::parse(text);
    if (j.at("format") != "pipewright-profile") throw UsageError(fmt::format("{} is not a Pipewright profile; write one with `pipewright profile`.", source));
    if (integer<int>(j.at("version")) > kVersion) throw UsageError(fmt::format("{} is a profile of version {}, newer than this program reads ({}); update Pipewright.", source, integer<int>(j.at("version")), kVersion));
    Profile p;
    p.model = j.at("model").get<std::string>();
    p.microbatch = integer<std::int64_t>(j.at("microbatch"));
    p.ranksAtOnce = integer<int>(j.at("ranks_at_once"));
    p.threads = integer<int>(j.at("threads"));
    p.estimated = j.at("estimated").get<bool>();
    const Json& m = j.at("machine");
    p.machine = {m.at("host").get<std::string>(), m.at("processor").get<std::string>(), integer<int>(m.at("cores")), m.at("device").get<std::string>()};
    p.link = {integer<Ns>(j.at("link").at("latency_ns")), j.at("link").at("bytes_per_s").get<double>(), j.at("link").at("duplex").get<bool>()};
    p.actionOverhead = integer<Ns>(j.at("action_overhead_ns"));
    p.optimizerNsPerByte = j.at("optimizer_ns_per_byte").get<double>();
    p.loss = costOf(j.at("loss"));
    for (const Json& node : j.at("nodes")) p.nodes.push_back(costOf(node));
    checkConsistent(p, source);
    return p;
  } catch (const Json::exception& e) {
    throw UsageError(fmt::format("{} is not a usable profile ({}); profile the model again.", source, e.what()));
  }
}

std::string sourceOf(const Profile& p) {
  if (p.estimated) return "estimated for " + p.machine.device;
  return fmt::format("measured on {} ({}), {} process{} at once, {} thread{} each", p.machine.host, p.machine.processor, p.ranksAtOnce,
                     p.ranksAtOnce == 1 ? "" : "es", p.threads, p.threads == 1 ? "" : "s");
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
