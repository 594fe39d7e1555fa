#include <algorithm>
#include <cmath>

#include "schedules/error.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/search/profiles.h"
#include "simulator/search/search.h"

namespace pw {

ProfileSource estimatedProfiles(const ModelGraph& graph, const Cluster& cluster, DType precision, Attention attention,
                                const std::optional<Loss>& loss) {
  return [&graph, &cluster, precision, attention, loss](std::int64_t microbatch) {
    return SizedProfile{std::make_shared<Profile>(estimate(graph, microbatch, cluster, precision, attention, loss)), false};
  };
}

ProfileSource measuredProfiles(std::vector<std::shared_ptr<const Profile>> profiles) {
  if (profiles.empty()) throw UsageError("No profile was given; create one with `pipewright profile`.");
  return [profiles = std::move(profiles)](std::int64_t microbatch) {
    const auto distance = [&](const std::shared_ptr<const Profile>& p) {
      return std::abs(std::log(static_cast<double>(p->microbatch) / static_cast<double>(microbatch)));
    };
    const auto& nearest = *std::ranges::min_element(profiles, [&](const auto& a, const auto& b) {
      return distance(a) != distance(b) ? distance(a) < distance(b) : a->microbatch < b->microbatch;
    });
    if (nearest->microbatch == microbatch) return SizedProfile{nearest, false};
    return SizedProfile{std::make_shared<Profile>(scaledProfile(*nearest, microbatch)), true};
  };
}

}  // namespace pw
