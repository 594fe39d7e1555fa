#include "simulator/costs/cluster.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "simulator/costs/topology_json.h"
#include "simulator/text/json_part.h"

namespace pw {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kClusterVersion = 1;
/// Largest values accepted: no hardware comes near them, and results computed from them fit into 64 bits.
constexpr std::int64_t kMostRanksPerNode = 4096;
constexpr double kMostFlops = 1e30;

using Efficiency = std::vector<std::pair<double, double>>;
constexpr const char* kDefault = "default";
constexpr std::array<std::string_view, 6> kPrecisions{"fp64", "fp32", "tf32", "bf16", "fp16", "fp8"};

Efficiency tableIn(const JsonPart& table) {
  std::vector<std::pair<double, double>> points;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const JsonPart row = table[i];
    if (row.size() != 2) row.fail("is not [FLOPs, fraction]");
    const double size = numberIn(row[0], kMostFlops);
    const double fraction = numberIn(row[1], 1);
    if (size <= 0 || fraction <= 0) row.fail("has a size that is not positive or a fraction outside (0, 1]");
    if (!points.empty() && size <= points.back().first) table.fail("is not ordered by ascending FLOPs");
    points.emplace_back(size, fraction);
  }
  return points;
}

/// One table for all precisions, or one for each.
std::map<std::string, Efficiency> efficiencyIn(const JsonPart& part) {
  if (!part.json().is_object()) return {{kDefault, tableIn(part)}};
  std::map<std::string, Efficiency> tables;
  for (const std::string& dtype : part.keys()) tables[dtype] = tableIn(part[dtype]);
  return tables;
}

Json tableJson(const Efficiency& table) {
  Json rows = Json::array();
  for (const auto& [size, fraction] : table) rows.push_back(Json::array({size, fraction}));
  return rows;
}

Json efficiencyJson(const std::map<std::string, Efficiency>& tables) {
  if (tables.size() == 1 && tables.begin()->first == kDefault) return tableJson(tables.begin()->second);
  Json json = Json::object();
  for (const auto& [dtype, table] : tables) json[dtype] = tableJson(table);
  return json;
}

}  // namespace

std::string toJson(const Cluster& cluster) {
  Json peaks = Json::object();
  for (const auto& [dtype, flops] : cluster.peakFlops) peaks[dtype] = flops;
  Json json;
  json["version"] = kClusterVersion;
  json["name"] = cluster.name;
  json["source"] = cluster.source;
  json["device"] = {{"name", cluster.deviceName},
                    {"memory_bytes", cluster.memoryBytes},
                    {"peak_flops", peaks},
                    {"memory_bytes_per_s", cluster.memoryBytesPerSecond},
                    {"efficiency", efficiencyJson(cluster.efficiency)},
                    {"launch_overhead_ns", cluster.launchOverhead}};
  if (!cluster.cudaName.empty()) json["device"]["cuda_name"] = cluster.cudaName;
  if (cluster.memoryEfficiency != 1) json["device"]["memory_efficiency"] = cluster.memoryEfficiency;
  const Topology& topology = cluster.topology;
  json["ranks_per_node"] = topology.ranksPerNode;
  json["links"] = {
      {"same_device", linkJson(cluster.sameDevice)}, {"same_node", linkJson(topology.sameNode)}, {"network", linkJson(topology.network)}};
  if (!topology.links.empty()) json["links"]["between"] = rankLinksJson(topology.links);
  if (!topology.ranks.empty()) json["ranks"] = ranksJson(topology);
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Cluster parseCluster(std::string_view json, const std::string& source) {
  const JsonDocument document{source, "cluster", "resources/clusters has examples"};
  const Json root = document.parse(json);
  const JsonPart part(root, document);
  if (!root.is_object()) part.fail("is not a JSON object");
  const std::int64_t version = part["version"].within(1, std::numeric_limits<std::int64_t>::max());
  if (version > kClusterVersion) {
    throw UsageError(fmt::format("the cluster {} has version {}, and this Pipewright reads clusters up to version {}; update it", source,
                                 version, kClusterVersion));
  }
  requireMembers(part, {"version", "name", "source", "device", "ranks_per_node", "links", "ranks"});
  Cluster cluster;
  cluster.name = part["name"].as<std::string>();
  cluster.source = part["source"].as<std::string>();
  const JsonPart device = part["device"];
  requireMembers(device, {"name", "cuda_name", "memory_bytes", "peak_flops", "memory_bytes_per_s", "memory_efficiency", "efficiency",
                          "launch_overhead_ns"});
  cluster.deviceName = device["name"].as<std::string>();
  if (device.has("cuda_name")) cluster.cudaName = device["cuda_name"].as<std::string>();
  cluster.memoryBytes = device["memory_bytes"].within<Bytes>(1, kMostBytes);
  const JsonPart peaks = device["peak_flops"];
  for (const std::string& dtype : peaks.keys()) {
    if (std::ranges::find(kPrecisions, dtype) == kPrecisions.end())
      peaks.fail(fmt::format("has {}; precisions are {}", dtype, fmt::join(kPrecisions, ", ")));
    cluster.peakFlops[dtype] = rateIn(peaks[dtype]);
  }
  cluster.memoryBytesPerSecond = rateIn(device["memory_bytes_per_s"]);
  if (device.has("memory_efficiency")) cluster.memoryEfficiency = numberIn(device["memory_efficiency"], 1);
  if (cluster.memoryEfficiency <= 0) device["memory_efficiency"].fail("is not a fraction above 0");
  cluster.efficiency = efficiencyIn(device["efficiency"]);
  for (const auto& [dtype, table] : cluster.efficiency) {
    if (dtype != kDefault && !cluster.peakFlops.contains(dtype))
      device["efficiency"].fail(fmt::format("has {}, of which there is no peak", dtype));
  }
  cluster.launchOverhead = device["launch_overhead_ns"].within<Ns>(0, kMostLatency);
  Topology& topology = cluster.topology;
  topology.ranksPerNode = part["ranks_per_node"].within<int>(1, kMostRanksPerNode);
  if (part.has("ranks")) topology.ranks = ranksIn(part["ranks"], topology);
  const JsonPart links = part["links"];
  cluster.sameDevice = linkIn(links["same_device"]);
  topology.sameNode = linkIn(links["same_node"]);
  topology.network = linkIn(links["network"]);
  requireMembers(links, {"same_device", "same_node", "network", "between"});
  for (const char* const key : {"same_device", "same_node", "network"}) requireMembers(links[key], {"latency_ns", "bytes_per_s", "duplex"});
  if (links.has("between")) topology.links = rankLinksIn(links["between"], topology.ranks.size());
  return cluster;
}

double efficiencyAt(const Cluster& cluster, const std::string& dtype, double flops) {
  auto found = cluster.efficiency.find(dtype);
  if (found == cluster.efficiency.end()) found = cluster.efficiency.find(kDefault);
  if (found == cluster.efficiency.end() || found->second.empty()) return 1;
  const Efficiency& table = found->second;
  if (flops <= table.front().first) return table.front().second;
  for (std::size_t i = 1; i < table.size(); ++i) {
    if (flops > table[i].first) continue;
    const double t = (std::log(flops) - std::log(table[i - 1].first)) / (std::log(table[i].first) - std::log(table[i - 1].first));
    return table[i - 1].second + t * (table[i].second - table[i - 1].second);
  }
  return table.back().second;
}

std::vector<NamedLink> parseLinks(std::string_view json, const std::string& source) {
  const JsonDocument document{source, "list of links", "resources/links.json is an example"};
  const Json root = document.parse(json);
  const JsonPart part(root, document);
  if (part["version"].within(1, std::numeric_limits<std::int64_t>::max()) > kClusterVersion)
    throw UsageError(fmt::format("{} is newer than this Pipewright reads; update it", source));
  std::vector<NamedLink> links;
  const JsonPart list = part["links"];
  for (const std::string& name : list.keys()) {
    const JsonPart link = list[name];
    const auto connects = link["connects"].as<std::string>();
    if (connects != "network" && connects != "same_node") link["connects"].fail("is neither network nor same_node");
    links.push_back({name, connects == "network", linkIn(link), link["source"].as<std::string>()});
  }
  return links;
}

Cluster withLink(Cluster cluster, const NamedLink& link) {
  (link.betweenNodes ? cluster.topology.network : cluster.topology.sameNode) = link.link;
  cluster.name += "+" + link.name;
  if (!cluster.origin.empty()) cluster.origin += "+" + link.name;
  cluster.source += fmt::format(" {}: {}.", link.name, link.source);
  return cluster;
}

}  // namespace pw
