#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/costs/estimate.h"
#include "simulator/search/profiles.h"
#include "simulator/search/search.h"

namespace pw {
namespace {

constexpr double kMost = 4e18;

NodeCost scaledCost(NodeCost cost, double by) {
  const auto scale = [by](auto&... quantities) {
    for (std::int64_t* number : {&quantities.value...}) {
      const double product = static_cast<double>(*number) * by;
      if (std::abs(product) > kMost) throw UsageError("costs scaled to this microbatch size are too large; use smaller microbatches");
      *number = std::llround(product);
    }
  };
  scale(cost.forward, cost.backward, cost.forwardSpread, cost.backwardSpread, cost.weight);
  scale(cost.saved, cost.heldForWeight, cost.forwardPeak, cost.backwardPeak, cost.backwardChange, cost.weightPeak, cost.inputPeak);
  cost.weight = std::min(cost.weight, cost.backward);
  cost.flops *= by;
  return cost;
}

}  // namespace

Profile scaledProfile(const Profile& profile, std::int64_t microbatch) {
  Profile scaled = profile;
  const double by = static_cast<double>(microbatch) / static_cast<double>(profile.microbatch);
  for (NodeCost& node : scaled.nodes) node = scaledCost(node, by);
  scaled.loss = scaledCost(scaled.loss, by);
  scaled.microbatch = microbatch;
  scaled.estimated = true;
  scaled.machine.device = fmt::format("{}, from costs at microbatch {}", profile.machine.device, profile.microbatch);
  return scaled;
}

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
