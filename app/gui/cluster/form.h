#pragma once

#include <QString>
#include <cstdint>
#include <vector>

#include "simulator/costs/cluster.h"

namespace pw::gui {

/// A link as it is typed.
struct LinkForm {
  QString latency, bandwidth;

  bool operator==(const LinkForm&) const = default;
};

/// Devices that are not as the others: one row of a table. An empty field: as the others.
struct DeviceForm {
  QString devices;  ///< `3`, `0-3, 8`
  QString speed, memory;

  bool operator==(const DeviceForm&) const = default;
};

/// A cluster as it is typed: what people edit of one. A value.
struct ClusterForm {
  QString name;
  int nodes = 0;  ///< 0: as many as a plan needs
  int devicesPerNode = 1;
  QString memory;
  LinkForm sameNode, network;
  std::vector<DeviceForm> devices;

  bool operator==(const ClusterForm&) const = default;
};

enum class ClusterField : std::uint8_t { Name, Nodes, Memory, NodeLatency, NodeBandwidth, NetworkLatency, NetworkBandwidth, Devices };

/// Why a field cannot be used, in one sentence that names it and the cure.
struct FieldProblem {
  ClusterField field = ClusterField::Name;
  int row = -1, column = -1;  ///< of `Devices`
  QString sentence;
};

/// The form that shows a cluster.
[[nodiscard]] ClusterForm formOf(const Cluster& cluster);

/// What of a cluster its form does not show, one sentence that says what becomes of it; empty: nothing.
[[nodiscard]] QString hiddenIn(const Cluster& cluster);

struct ReadForm {
  Cluster cluster;  ///< without an origin; fields with a problem are as in the cluster that the form was made of
  std::vector<FieldProblem> problems;
};
/// The cluster that a form of `base` describes. What the form does not show, and what was not changed in it, is exactly as in `base`;
/// its `source` says so where something was changed. Cost: linear in the devices.
[[nodiscard]] ReadForm readForm(const ClusterForm& form, const Cluster& base);

/// Whether two clusters make the same predictions.
[[nodiscard]] bool haveSameFigures(const Cluster& a, const Cluster& b);

}  // namespace pw::gui
