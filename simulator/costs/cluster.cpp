#include "simulator/costs/cluster.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <Eigen/Dense>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "simulator/text/json_part.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kVersion = 1;
/// Largest values accepted: no hardware comes near them, and results computed from them fit into 64 bits.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
constexpr std::int64_t kMostLatency = 1'000'000'000'000;  ///< [ns]
constexpr std::int64_t kMostRanksPerNode = 4096;
constexpr double kMostRate = 1e24, kMostFlops = 1e30;

Json linkJson(const LinkSpec& link) {
  return {{"latency_ns", link.latency}, {"bytes_per_s", link.bytesPerSecond}, {"duplex", link.duplex}};
}

/// A number from 0 to `most`.
double numberIn(const JsonPart& part, double most) {
  const auto number = part.as<double>();
  if (!std::isfinite(number) || number < 0) part.fail("is not a number of 0 or more");
  if (number > most) part.fail(fmt::format("is {:g}, more than {:g}", number, most));
  return number;
}

/// Bytes or operations per second; 0 where nothing is known.
double rateIn(const JsonPart& part) {
  const double rate = numberIn(part, kMostRate);
  if (rate > 0 && rate < 1) part.fail(fmt::format("is {:g}; use 0, or 1 per second or more", rate));
  return rate;
}

LinkSpec linkIn(const JsonPart& link) {
  return {link["latency_ns"].within(0, kMostLatency), rateIn(link["bytes_per_s"]), link["duplex"].as<bool>()};
}

std::vector<std::pair<double, double>> efficiencyIn(const JsonPart& table) {
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

}  // namespace

Ns transferTime(const LinkSpec& link, Bytes bytes) {
  if (link.bytesPerSecond <= 0 || bytes <= 0) return 0;
  return nsOf(static_cast<double>(bytes) / link.bytesPerSecond * 1e9, "a message");
}

std::string toJson(const Cluster& cluster) {
  Json peaks = Json::object();
  for (const auto& [dtype, flops] : cluster.peakFlops) peaks[dtype] = flops;
  Json efficiency = Json::array();
  for (const auto& [size, fraction] : cluster.efficiency) efficiency.push_back(Json::array({size, fraction}));
  Json json;
  json["version"] = kVersion;
  json["name"] = cluster.name;
  json["source"] = cluster.source;
  json["device"] = {{"name", cluster.deviceName}, {"memory_bytes", cluster.memoryBytes},
                    {"peak_flops", peaks},        {"memory_bytes_per_s", cluster.memoryBytesPerSecond},
                    {"efficiency", efficiency},   {"launch_overhead_ns", cluster.launchOverhead}};
  json["ranks_per_node"] = cluster.ranksPerNode;
  json["links"] = {
      {"same_device", linkJson(cluster.sameDevice)}, {"same_node", linkJson(cluster.sameNode)}, {"network", linkJson(cluster.network)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Cluster parseCluster(std::string_view json, const std::string& source) {
  const JsonDocument document{source, "cluster", "resources/clusters has examples"};
  const Json root = document.parse(json);
  const JsonPart part(root, document);
  if (!root.is_object()) part.fail("is not a JSON object");
  const std::int64_t version = part["version"].within(1, std::numeric_limits<std::int64_t>::max());
  if (version > kVersion) {
    throw UsageError(fmt::format("the cluster {} has version {}, and this Pipewright reads clusters up to version {}; update it", source,
                                 version, kVersion));
  }
  Cluster cluster;
  cluster.name = part["name"].as<std::string>();
  cluster.source = part["source"].as<std::string>();
  const JsonPart device = part["device"];
  cluster.deviceName = device["name"].as<std::string>();
  cluster.memoryBytes = device["memory_bytes"].within(1, kMostBytes);
  const JsonPart peaks = device["peak_flops"];
  for (const std::string& dtype : peaks.keys()) cluster.peakFlops[dtype] = rateIn(peaks[dtype]);
  cluster.memoryBytesPerSecond = rateIn(device["memory_bytes_per_s"]);
  cluster.efficiency = efficiencyIn(device["efficiency"]);
  cluster.launchOverhead = device["launch_overhead_ns"].within(0, kMostLatency);
  cluster.ranksPerNode = part["ranks_per_node"].within<int>(1, kMostRanksPerNode);
  const JsonPart links = part["links"];
  cluster.sameDevice = linkIn(links["same_device"]);
  cluster.sameNode = linkIn(links["same_node"]);
  cluster.network = linkIn(links["network"]);
  return cluster;
}

const LinkSpec& linkBetween(const Cluster& cluster, Rank a, Rank b) {
  if (a == b) return cluster.sameDevice;
  return a.value / cluster.ranksPerNode == b.value / cluster.ranksPerNode ? cluster.sameNode : cluster.network;
}

LinkSpec fitLink(const std::vector<std::pair<Bytes, Ns>>& oneWayTimes) {
  const bool differ =
      std::any_of(oneWayTimes.begin(), oneWayTimes.end(), [&](const auto& t) { return t.first != oneWayTimes.front().first; });
  if (!differ) throw UsageError("a link is fitted to times of at least two different message sizes; measure another size");
  // Minimises Σ ((latency + perByte · n − t) / t)². Sizes are scaled to 1 so that both columns have like magnitudes.
  const auto count = static_cast<Eigen::Index>(oneWayTimes.size());
  double largest = 1;
  for (const auto& [bytes, time] : oneWayTimes) largest = std::max(largest, static_cast<double>(bytes));
  Eigen::MatrixXd a(count, 2);
  const Eigen::VectorXd ones = Eigen::VectorXd::Ones(count);
  for (Eigen::Index i = 0; i < count; ++i) {
    const auto& [bytes, time] = oneWayTimes[static_cast<std::size_t>(i)];
    const double t = static_cast<double>(std::max<Ns>(1, time));
    a(i, 0) = 1 / t;
    a(i, 1) = static_cast<double>(bytes) / largest / t;
  }
  const Eigen::Vector2d both = a.colPivHouseholderQr().solve(ones);
  double latency = both(0);
  double perLargest = both(1);
  // The sum is convex, so where the free optimum has a negative part the best allowed one has 0 there: the other is fitted alone.
  if (latency < 0) {
    latency = 0;
    perLargest = a.col(1).dot(ones) / a.col(1).squaredNorm();
  } else if (perLargest < 0) {
    perLargest = 0;
    latency = a.col(0).dot(ones) / a.col(0).squaredNorm();
  }
  return {static_cast<Ns>(std::llround(latency)), perLargest > 0 ? largest / perLargest * 1e9 : 0.0, true};
}

}  // namespace pw
