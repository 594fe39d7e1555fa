#pragma once

#include <vector>

#include "backends/store/run_store.h"
#include "simulator/costs/cluster.h"

namespace pw::gui {

/// Whether a cluster's devices are CPUs, as far as their name says so: `AMD EPYC 9654, 96 cores`.
[[nodiscard]] bool isOfCpus(const Cluster& cluster);

/// The runs of a store that were computed on GPUs, and on CPUs.
class PastRuns {
 public:
  explicit PastRuns(const std::vector<RunSummary>& runs = {});

  /// Those that were computed on what the times are of. A run on CPUs says nothing of estimates for GPUs, though it may have been predicted
  /// from them; devices that are not named as CPUs count as GPUs.
  [[nodiscard]] const std::vector<RunSummary>& onLikeDevices(const Profile& profile, const Cluster& cluster) const;

 private:
  std::vector<RunSummary> onGpus_, onCpus_;
};

}  // namespace pw::gui
