#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "simulator/costs/cluster.h"
#include "simulator/costs/profile.h"
#include "simulator/model/loss.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// Costs of a model at one microbatch size.
struct SizedProfile {
  std::shared_ptr<const Profile> profile;
  bool scaled = false;  ///< measured at another size and scaled
};

/// Gives the costs at a microbatch size [samples]. Called once for each size, on the thread that searches.
using ProfileSource = std::function<SizedProfile(std::int64_t microbatch)>;

/// Costs estimated for a cluster at any size (`estimate`). Keeps references to graph and cluster.
[[nodiscard]] ProfileSource estimatedProfiles(const ModelGraph& graph, const Cluster& cluster, DType precision = DType::Unknown,
                                              Attention attention = Attention::AsTraced, const std::optional<Loss>& loss = std::nullopt);

/// Measured costs: those of the requested size if there are any, otherwise those of the nearest size (by ratio; ties: the smaller), scaled.
[[nodiscard]] ProfileSource measuredProfiles(std::vector<std::shared_ptr<const Profile>> profiles);

}  // namespace pw
