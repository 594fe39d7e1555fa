#include "simulator/costs/topology_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace pw {
namespace {

using Json = nlohmann::ordered_json;

/// Largest values accepted: no hardware comes near them, and results computed from them fit into 64 bits.
constexpr double kMostRate = 1e24;
constexpr double kLeastSpeed = 1e-3, kMostSpeed = 1e3;
constexpr std::int64_t kMostRanks = 1 << 20;

/// The node of a rank that names none: as without a list.
int usualNode(const Topology& topology, std::size_t rank) {
  return topology.ranksPerNode > 0 ? static_cast<int>(rank) / topology.ranksPerNode : 0;
}

}  // namespace

Json linkJson(const LinkSpec& link) { return {{"latency_ns", link.latency}, {"bytes_per_s", link.bytesPerSecond}, {"duplex", true}}; }

void requireDuplex(const JsonPart& link) {
  if (!link["duplex"].as<bool>()) link["duplex"].fail("is false, and links that serve one direction at a time are not simulated; use true");
}

double numberIn(const JsonPart& part, double most) {
  const auto number = part.as<double>();
  if (!std::isfinite(number) || number < 0) part.fail("is not a number of 0 or more");
  if (number > most) part.fail(fmt::format("is {:g}, more than {:g}", number, most));
  return number;
}

double rateIn(const JsonPart& part) {
  const double rate = numberIn(part, kMostRate);
  if (rate > 0 && rate < 1) part.fail(fmt::format("is {:g}; use 0, or 1 per second or more", rate));
  return rate;
}

void requireMembers(const JsonPart& part, std::initializer_list<std::string_view> known) {
  for (const std::string& key : part.keys()) {
    if (std::ranges::find(known, key) == known.end())
      part.fail(fmt::format("has the unknown member {}; it takes {}", key, fmt::join(known, ", ")));
  }
}

LinkSpec linkIn(const JsonPart& link) {
  requireDuplex(link);
  return {link["latency_ns"].within<Ns>(0, kMostLatency), rateIn(link["bytes_per_s"])};
}

Json ranksJson(const Topology& topology) {
  Json list = Json::array();
  for (std::size_t r = 0; r < topology.ranks.size(); ++r) {
    const RankSpec& rank = topology.ranks[r];
    Json entry = Json::object();
    if (rank.own.exists()) entry["profile"] = rank.own.file;
    if (rank.speed != 1) entry["speed"] = rank.speed;
    if (rank.memoryBytes > 0) entry["memory_bytes"] = rank.memoryBytes;
    if (rank.node != usualNode(topology, r)) entry["node"] = rank.node;
    Json last = list.empty() ? Json() : list.back();
    const std::int64_t count = last.is_object() ? last.value("count", std::int64_t{1}) : 0;
    if (last.is_object()) last.erase("count");
    if (count > 0 && last == entry) {
      list.back()["count"] = count + 1;
    } else {
      list.push_back(std::move(entry));
    }
  }
  return list;
}

std::vector<RankSpec> ranksIn(const JsonPart& list, const Topology& topology) {
  std::vector<RankSpec> ranks;
  for (std::size_t i = 0, entries = list.size(); i < entries; ++i) {
    const JsonPart entry = list[i];
    requireMembers(entry, {"speed", "profile", "memory_bytes", "node", "count"});
    RankSpec rank;
    if (entry.has("speed")) rank.speed = numberIn(entry["speed"], kMostSpeed);
    if (rank.speed < kLeastSpeed) entry["speed"].fail(fmt::format("is {:g}, less than {:g}", rank.speed, kLeastSpeed));
    if (entry.has("profile")) rank.own.file = entry["profile"].as<std::string>();
    if (entry.has("profile") && !rank.own.exists()) entry["profile"].fail("names no file");
    if (entry.has("memory_bytes")) rank.memoryBytes = entry["memory_bytes"].within<Bytes>(1, kMostBytes);
    const auto count = entry.has("count") ? entry["count"].within(1, kMostRanks) : 1;
    if (static_cast<std::int64_t>(ranks.size()) + count > kMostRanks) list.fail(fmt::format("has more than {} ranks", kMostRanks));
    for (std::int64_t n = 0; n < count; ++n) {
      rank.node = entry.has("node") ? entry["node"].within<int>(0, kMostRanks) : usualNode(topology, ranks.size());
      ranks.push_back(rank);
    }
  }
  return ranks;
}

Json rankLinksJson(const std::vector<RankLink>& links) {
  Json list = Json::array();
  for (const RankLink& link : links) {
    Json entry = linkJson(link.link);
    entry["ranks"] = {link.a.value, link.b.value};
    list.push_back(std::move(entry));
  }
  return list;
}

std::vector<RankLink> rankLinksIn(const JsonPart& list, std::size_t ranks) {
  const std::int64_t last = ranks > 0 ? static_cast<std::int64_t>(ranks) - 1 : kMostRanks;
  std::set<std::pair<JobRank, JobRank>> known;
  return list.list([&](const JsonPart& entry) {
    requireMembers(entry, {"ranks", "latency_ns", "bytes_per_s", "duplex"});
    const JsonPart ends = entry["ranks"];
    if (ends.size() != 2) ends.fail("does not name two ranks");
    const JobRank a(ends[0].within<int>(0, last)), b(ends[1].within<int>(0, last));
    if (a == b) ends.fail("names the same rank twice");
    if (!known.insert(std::minmax(a, b)).second) ends.fail("names two ranks whose link has been given");
    return RankLink{a, b, linkIn(entry)};
  });
}

}  // namespace pw
