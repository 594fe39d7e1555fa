#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/ids.h"

namespace pw {

/// A connection between two ranks: a message of n bytes arrives `latency` + n / bytesPerSecond after it starts, and
/// holds the channel for n / bytesPerSecond.
struct LinkSpec {
  Ns latency = 0;
  double bytesPerSecond = 0;  ///< 0: transfers cost nothing but the latency
  bool duplex = true;

  bool operator==(const LinkSpec&) const = default;
};

/// How long `bytes` hold the channel: n / bytesPerSecond to the nearest ns, without the latency; 0 for a free link.
[[nodiscard]] Ns transferTime(const LinkSpec& link, Bytes bytes);

/// Hardware a plan is made for: a device and three kinds of links (format: resources/docs/formats.md).
struct Cluster {
  std::string name;
  std::string source;  ///< where the figures come from
  std::string deviceName;
  Bytes memoryBytes = 0;
  std::map<std::string, double> peakFlops;  ///< by dtype name: fp32, tf32, bf16, fp16
  double memoryBytesPerSecond = 0;
  std::vector<std::pair<double, double>> efficiency;  ///< (FLOPs of a kernel, fraction of peak), ascending; interpolated in log size
  Ns launchOverhead = 0;
  int ranksPerNode = 1;
  LinkSpec sameDevice, sameNode, network;

  bool operator==(const Cluster&) const = default;
};

[[nodiscard]] std::string toJson(const Cluster& cluster);
/// Throws UsageError for text that is not a cluster or has a newer version; `source` names the text in errors.
[[nodiscard]] Cluster parseCluster(std::string_view json, const std::string& source);

/// The link between two ranks placed `ranksPerNode` to a node; a rank and itself have the same device.
[[nodiscard]] const LinkSpec& linkBetween(const Cluster& cluster, Rank a, Rank b);

/// Least-squares fit of latency and bandwidth to measured one-way times. Needs two different sizes. Relative residuals are
/// minimised, so that small messages count as much as large ones; neither result is negative (exact for the two unknowns).
/// Throws UsageError without two different sizes.
[[nodiscard]] LinkSpec fitLink(const std::vector<std::pair<Bytes, Ns>>& oneWayTimes);

}  // namespace pw
