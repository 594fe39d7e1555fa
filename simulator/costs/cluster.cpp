#include "simulator/costs/cluster.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <Eigen/Dense>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "simulator/text/json_text.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kVersion = 1;
/// Largest values accepted: no hardware comes near them, and results computed from them fit into 64 bits.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
constexpr std::int64_t kMostLatency = 1'000'000'000'000;  ///< [ns]
constexpr double kMostRate = 1e24, kMostFlops = 1e30;

Json linkJson(const LinkSpec& link) {
  return {{"latency_ns", link.latency}, {"bytes_per_s", link.bytesPerSecond}, {"duplex", link.duplex}};
}

/// Reads fields of one document; every error names the document and the field.
class Reader {
 public:
  explicit Reader(std::string source) : source_(std::move(source)) {}

  [[noreturn]] void fail(std::string_view field, std::string_view what) const {
    throw UsageError(fmt::format("cluster `{}`: field `{}` {}", source_, field, what));
  }
  const Json& field(const Json& object, const std::string& name) const {
    if (!object.is_object() || !object.contains(name)) fail(name, "is missing");
    return object.at(name);
  }
  std::string text(const Json& object, const std::string& name) const {
    const Json& value = field(object, name);
    if (!value.is_string()) fail(name, "is not a string");
    return value.get<std::string>();
  }
  double number(const Json& value, const std::string& name, double most) const {
    if (!value.is_number()) fail(name, "is not a number");
    const double result = value.get<double>();
    if (!std::isfinite(result) || result < 0) fail(name, "is not a number of 0 or more");
    if (result > most) fail(name, fmt::format("is {:g}, more than {:g}", result, most));
    return result;
  }
  /// Bytes or operations per second; 0 where nothing is known.
  double rate(const Json& value, const std::string& name) const {
    const double result = number(value, name, kMostRate);
    if (result > 0 && result < 1) fail(name, fmt::format("is {:g}; use 0, or 1 per second or more", result));
    return result;
  }
  std::int64_t integer(const Json& object, const std::string& name, std::int64_t least, std::int64_t most) const {
    const Json& value = field(object, name);
    // An unsigned value beyond int64 would wrap to a negative one here and be refused.
    if (!value.is_number_integer() || value.get<std::int64_t>() < least) fail(name, fmt::format("is not an integer of {} or more", least));
    if (value.get<std::int64_t>() > most) fail(name, fmt::format("is more than {}", most));
    return value.get<std::int64_t>();
  }
  LinkSpec link(const Json& links, const std::string& name) const {
    const Json& object = field(links, name);
    const Json& duplex = field(object, "duplex");
    if (!duplex.is_boolean()) fail("duplex", "is not true or false");
    return {integer(object, "latency_ns", 0, kMostLatency), rate(field(object, "bytes_per_s"), "bytes_per_s"), duplex.get<bool>()};
  }
  void version(const Json& json) const {
    const std::int64_t found = integer(json, "version", 1, std::numeric_limits<std::int64_t>::max());
    if (found > kVersion) {
      fail("version", fmt::format("is {}, and this Pipewright reads clusters up to version {}; update it", found, kVersion));
    }
  }

 private:
  std::string source_;
};

std::vector<std::pair<double, double>> efficiencyOf(const Reader& read, const Json& device) {
  const Json& table = read.field(device, "efficiency");
  if (!table.is_array()) read.fail("efficiency", "is not a list of [FLOPs, fraction]");
  std::vector<std::pair<double, double>> result;
  for (const Json& row : table) {
    if (!row.is_array() || row.size() != 2) read.fail("efficiency", "is not a list of [FLOPs, fraction]");
    const double size = read.number(row[0], "efficiency", kMostFlops);
    const double fraction = read.number(row[1], "efficiency", 1);
    if (size <= 0 || fraction <= 0 || fraction > 1) read.fail("efficiency", "has a size that is not positive or a fraction outside (0, 1]");
    if (!result.empty() && size <= result.back().first) read.fail("efficiency", "is not ordered by ascending FLOPs");
    result.emplace_back(size, fraction);
  }
  return result;
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
  const Reader read(source);
  const auto refuse = [&](const std::string& what) {
    throw UsageError(fmt::format("cluster `{}` is unusable: {}; see resources/clusters for examples", source, what));
  };
  const Json root = readJson<Json>(json, refuse);
  if (!root.is_object()) refuse("it is not a JSON object");
  read.version(root);
  Cluster cluster;
  cluster.name = read.text(root, "name");
  cluster.source = read.text(root, "source");
  const Json& device = read.field(root, "device");
  cluster.deviceName = read.text(device, "name");
  cluster.memoryBytes = read.integer(device, "memory_bytes", 1, kMostBytes);
  const Json& peaks = read.field(device, "peak_flops");
  if (!peaks.is_object()) read.fail("peak_flops", "is not an object from dtype to FLOP/s");
  for (const auto& [dtype, flops] : peaks.items()) cluster.peakFlops[dtype] = read.rate(flops, "peak_flops");
  cluster.memoryBytesPerSecond = read.rate(read.field(device, "memory_bytes_per_s"), "memory_bytes_per_s");
  cluster.efficiency = efficiencyOf(read, device);
  cluster.launchOverhead = read.integer(device, "launch_overhead_ns", 0, kMostLatency);
  cluster.ranksPerNode = static_cast<int>(read.integer(root, "ranks_per_node", 1, 4096));
  const Json& links = read.field(root, "links");
  cluster.sameDevice = read.link(links, "same_device");
  cluster.sameNode = read.link(links, "same_node");
  cluster.network = read.link(links, "network");
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
