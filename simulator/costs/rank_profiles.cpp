#include "simulator/costs/rank_profiles.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/units.h"

namespace pw {
namespace {

constexpr auto kMost = static_cast<double>(kMostSum);

NodeCost scaledCost(NodeCost cost, double by) {
  const auto scale = [by](auto&... quantities) {
    for (std::int64_t* number : {&quantities.value...}) {
      const double product = static_cast<double>(*number) * by;
      if (std::abs(product) > kMost) throw UsageError("costs scaled to this microbatch size are too large; use smaller microbatches");
      *number = std::llround(product);
    }
  };
  scale(cost.forward, cost.backward, cost.forwardSpread, cost.backwardSpread, cost.weight);
  scale(cost.saved, cost.heldForWeight, cost.forwardPeak, cost.backwardPeak, cost.backwardChange, cost.weightPeak, cost.inputPeak,
        cost.inputChange);
  cost.weight = std::min(cost.weight, cost.backward);
  cost.flops *= by;
  return cost;
}

std::string precisionText(DType precision) {
  return precision == DType::Unknown ? "as traced" : fmt::format("in {}", precisionName(precision));
}

/// Of the whole model, forward and backward.
double timeOf(const Profile& profile) {
  double time = static_cast<double>(profile.loss.forward + profile.loss.backward);
  for (const NodeCost& node : profile.nodes) time += static_cast<double>(node.forward + node.backward);
  return time;
}

}  // namespace

void remakeRankProfiles(Topology& topology, const std::function<Profile(const RankProfile&, std::size_t)>& make) {
  std::map<std::string, std::shared_ptr<const Profile>> made;
  for (std::size_t r = 0; r < topology.ranks.size(); ++r) {
    RankProfile& own = topology.ranks[r].own;
    if (!own.exists()) continue;
    const auto [known, isNew] = made.try_emplace(own.file);
    if (isNew) known->second = std::make_shared<const Profile>(make(own, r));
    own.costs = known->second;
  }
}

bool operator==(const RankProfile& a, const RankProfile& b) {
  if (a.file != b.file || (a.costs == nullptr) != (b.costs == nullptr)) return false;
  return a.costs == b.costs || *a.costs == *b.costs;
}

Profile scaledProfile(const Profile& profile, std::int64_t microbatch) {
  Profile scaled = profile;
  const double by = static_cast<double>(microbatch) / static_cast<double>(profile.microbatch);
  for (NodeCost& node : scaled.nodes) node = scaledCost(node, by);
  scaled.loss = scaledCost(scaled.loss, by);
  if (scaled.backwardFlops) *scaled.backwardFlops *= by;
  remakeRankProfiles(scaled.topology, [&](const RankProfile& own, std::size_t) { return scaledProfile(*own.costs, microbatch); });
  scaled.microbatch = microbatch;
  scaled.estimated = true;
  scaled.machine.device = fmt::format("{}, from costs at microbatch {}", profile.machine.device, profile.microbatch);
  return scaled;
}

void placeOn(Profile& profile, const Cluster& cluster) {
  profile.topology = cluster.topology;
  profile.cluster = cluster.origin;
  remakeRankProfiles(profile.topology, [&](const RankProfile& own, std::size_t rank) {
    if (!own.costs) throw UsageError(fmt::format("The profile {} of rank {} was not read; name the cluster's file.", own.file, rank));
    if (own.costs->nodes.size() != profile.nodes.size() || own.costs->sent.empty() != profile.sent.empty()) {
      throw UsageError(fmt::format("{}, which rank {} of the cluster names, is not a profile of {}; profile this model on that device.",
                                   own.file, rank, profile.model));
    }
    if (own.costs->computing.precision != profile.computing.precision) {
      throw UsageError(
          fmt::format("{}, which rank {} of the cluster names, has the times {}, and the plan is {}; profile both the same way.", own.file,
                      rank, precisionText(own.costs->computing.precision), precisionText(profile.computing.precision)));
    }
    Profile costs = own.costs->microbatch == profile.microbatch ? *own.costs : scaledProfile(*own.costs, profile.microbatch);
    costs.topology = {};
    return costs;
  });
}

double speedOf(const Profile& profile, JobRank rank) {
  if (profile.topology.ranks.empty()) return 1;
  const RankSpec& spec = profile.topology.ranks.at(rank.index());
  if (!spec.own.costs) return spec.speed;
  const double own = timeOf(*spec.own.costs);
  return own > 0 ? spec.speed * timeOf(profile) / own : spec.speed;
}

std::string unusedRanksText(const Profile& profile, int ranks) {
  const std::size_t listed = profile.topology.ranks.size(), used = std::min(listed, static_cast<std::size_t>(ranks));
  if (used == 0 || used == listed) return {};
  std::vector<double> speeds;
  for (std::size_t r = 0; r < listed; ++r) speeds.push_back(speedOf(profile, JobRank(r)));
  const auto end = speeds.begin() + static_cast<std::ptrdiff_t>(used);
  const auto fastest = std::max_element(end, speeds.end()), slowest = std::min_element(speeds.begin(), end);
  if (*fastest <= *slowest) return {};
  return fmt::format("rank {} of the cluster is not used, and is faster than rank {}; list the ranks first that the job is to use",
                     fastest - speeds.begin(), slowest - speeds.begin());
}

}  // namespace pw
