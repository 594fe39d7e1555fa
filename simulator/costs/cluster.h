#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulator/costs/topology.h"

namespace pw {

/// Hardware a plan is made for: a device, and where its ranks are and how they are connected (format: resources/docs/formats.md).
struct Cluster {
  std::string name;
  std::string source;  ///< where the figures come from
  /// How to load it again (`loadCluster`): a preset's name or a file's path, with links, or the cluster's own text (cluster_name.h); empty:
  /// unknown.
  std::string origin = {};
  std::string deviceName;
  std::string cudaName = {};  ///< what CUDA and NVIDIA's driver call that device; empty: it is none of theirs, or unknown
  Bytes memoryBytes = 0;
  std::map<std::string, double> peakFlops;  ///< by dtype name: fp64, fp32, tf32, bf16, fp16, fp8
  double memoryBytesPerSecond = 0;          ///< peak
  double memoryEfficiency = 1;              ///< the part of it that kernels bound by memory reach
  /// (FLOPs of a kernel, fraction of peak), ascending, interpolated in log size; by dtype name, or `default` for all others.
  std::map<std::string, std::vector<std::pair<double, double>>> efficiency;
  Ns launchOverhead = 0;
  LinkSpec sameDevice;
  Topology topology;

  bool operator==(const Cluster&) const = default;
};

/// The fraction of the dtype's peak that a kernel of so many FLOPs reaches; 1 without a table.
[[nodiscard]] double efficiencyAt(const Cluster& cluster, const std::string& dtype, double flops);

[[nodiscard]] std::string toJson(const Cluster& cluster);
/// Throws UsageError for text that is not a cluster or has a newer version; `source` names the text in errors.
[[nodiscard]] Cluster parseCluster(std::string_view json, const std::string& source);

/// A link that can replace one of a cluster: `infiniband-400` between nodes, `nvlink-4` inside them.
struct NamedLink {
  std::string name;
  bool betweenNodes = false;
  LinkSpec link;
  std::string source;

  bool operator==(const NamedLink&) const = default;
};

/// The links of a file such as resources/links.json. Throws UsageError for text that is not one.
[[nodiscard]] std::vector<NamedLink> parseLinks(std::string_view json, const std::string& source);

/// The cluster with another link between or inside its nodes, called `NAME+LINK`.
[[nodiscard]] Cluster withLink(Cluster cluster, const NamedLink& link);

}  // namespace pw
