#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "simulator/costs/cluster.h"
#include "simulator/costs/profile.h"

namespace pw {

/// Ranks and links of a cluster, whatever times they are beside. Costs that its ranks have of their own (`RankProfile`) are scaled to the
/// profile's microbatch size. Throws UsageError where those were not read, or are of another model.
void placeOn(Profile& profile, const Cluster& cluster);

/// Sets the costs of ranks that have some of their own, of each file once: `make` is given the first rank that names it.
void remakeRankProfiles(Topology& topology, const std::function<Profile(const RankProfile& own, std::size_t rank)>& make);

/// Costs of another microbatch size, in proportion: times and bytes of nodes and loss, also of those that ranks have of their own; not the
/// overhead of an action. Small kernels do not get faster in proportion, so a scaled profile is too optimistic for small microbatches.
[[nodiscard]] Profile scaledProfile(const Profile& profile, std::int64_t microbatch);

/// How fast a rank computes the whole model, relative to the profile's costs. Throws std::out_of_range for a rank beyond `Topology::ranks`,
/// where there are any. Cost: linear in nodes where it has costs of its own.
[[nodiscard]] double speedOf(const Profile& profile, JobRank rank);

/// Of a job of so many ranks, which takes the first ones of the list: `rank 4 of the cluster is not used, and is faster than rank 0; list
/// the ranks first that the job is to use`; empty where no rank beyond them is faster than one of them.
[[nodiscard]] std::string unusedRanksText(const Profile& profile, int ranks);

}  // namespace pw
