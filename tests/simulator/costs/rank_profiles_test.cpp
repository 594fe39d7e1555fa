#include "simulator/costs/rank_profiles.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/error.h"
#include "simulator/costs/cluster.h"
#include "simulator/costs/profile.h"

namespace pw {
namespace {

Profile profileOfTwo(std::vector<Ns> forwards) {
  Profile profile;
  profile.model = "two";
  profile.microbatch = 4;
  for (const Ns forward : forwards) {
    NodeCost cost;
    cost.forward = forward;
    cost.saved = 8;
    profile.nodes.push_back(cost);
  }
  return profile;
}

/// Four ranks: the last two have costs of their own, the last is slower.
Cluster rackWith(const Profile& own) {
  Cluster cluster;
  cluster.name = cluster.origin = "rack";
  cluster.topology.ranks.assign(4, {});
  const auto costs = std::make_shared<const Profile>(own);
  cluster.topology.ranks[2].own = cluster.topology.ranks[3].own = {"/rack/own.json", costs};
  cluster.topology.ranks[3].speed = 0.5;
  return cluster;
}

std::string refusalOf(const auto& act) {
  try {
    act();
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

TEST(RankProfiles, ArePlacedAtTheProfilesMicrobatchSize) {
  Profile profile = profileOfTwo({10, 30}), own = profileOfTwo({4, 6});
  own.microbatch = 2;
  own.topology.sameNode = {7, 1e9};
  placeOn(profile, rackWith(own));
  const auto& ranks = profile.topology.ranks;
  ASSERT_TRUE(ranks[2].own.costs);
  EXPECT_EQ(ranks[2].own.costs->nodes[1].forward, 12);
  EXPECT_EQ(ranks[2].own.costs->microbatch, 4);
  EXPECT_EQ(ranks[2].own.costs->topology, Topology()) << "the cluster says where ranks are";
  EXPECT_EQ(ranks[2].own.costs, ranks[3].own.costs) << "held once";
  EXPECT_FALSE(ranks[0].own.costs);
  EXPECT_FALSE(allAtFullSpeed(profile.topology));
  const Profile twice = scaledProfile(profile, 8);
  EXPECT_EQ(twice.topology.ranks[3].own.costs->nodes[1].forward, 24);
}

TEST(RankProfiles, OfAnotherModelOrUnreadAreRefused) {
  Profile profile = profileOfTwo({10, 30});
  EXPECT_EQ(refusalOf([&] {
              placeOn(profile, rackWith(profileOfTwo({1, 2, 3})));
            }),
            "/rack/own.json, which rank 2 of the cluster names, is not a profile of two; profile this model on that device.");
  Profile layers = profile;
  layers.sent.assign(2, 0);
  EXPECT_NE(refusalOf([&] { placeOn(layers, rackWith(profile)); }).find("is not a profile of two"), std::string::npos);
  Profile half = profile;
  half.computing.precision = DType::BFloat16;
  EXPECT_EQ(
      refusalOf([&] { placeOn(profile, rackWith(half)); }),
      "/rack/own.json, which rank 2 of the cluster names, has the times in bf16, and the plan is as traced; profile both the same way.");
  Cluster unread = rackWith(profile);
  for (RankSpec& rank : unread.topology.ranks) rank.own.costs = nullptr;
  EXPECT_EQ(refusalOf([&] { placeOn(profile, unread); }), "The profile /rack/own.json of rank 2 was not read; name the cluster's file.");
}

TEST(RankProfiles, AreWrittenWithTheProfileAndReadAgain) {
  Profile profile = profileOfTwo({10, 30});
  placeOn(profile, rackWith(profileOfTwo({4, 6})));
  const std::string text = toJson(profile);
  const Profile again = parseProfile(text, "p.json");
  EXPECT_EQ(again, profile);
  EXPECT_EQ(again.topology.ranks[2].own.costs, again.topology.ranks[3].own.costs) << "held once";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return refusalOf([&] { static_cast<void>(parseProfile(changed, "p.json")); });
  };
  EXPECT_EQ(with("\"rank_profiles\"", "\"others\""), "p.json names the profile /rack/own.json for a rank, and does not contain it.");
  EXPECT_NE(with("\"microbatch\": 4", "\"microbatch\": 5").find("is of another model or microbatch size"), std::string::npos);
  Profile nested = *profile.topology.ranks[2].own.costs;
  nested.topology = profile.topology;
  profile.topology.ranks[2].own.costs = profile.topology.ranks[3].own.costs = std::make_shared<const Profile>(nested);
  EXPECT_NE(refusalOf([&] { static_cast<void>(parseProfile(toJson(profile), "p.json")); }).find("has profiles of ranks"),
            std::string::npos);
}

TEST(RankProfiles, GiveTheSpeedOfTheWholeModel) {
  Profile profile = profileOfTwo({10, 30});
  EXPECT_EQ(speedOf(profile, JobRank(9)), 1);
  placeOn(profile, rackWith(profileOfTwo({4, 6})));
  EXPECT_EQ(speedOf(profile, JobRank(0)), 1);
  EXPECT_EQ(speedOf(profile, JobRank(2)), 4);
  EXPECT_EQ(speedOf(profile, JobRank(3)), 2);
  EXPECT_EQ(unusedRanksText(profile, 2),
            "rank 2 of the cluster is not used, and is faster than rank 0; list the ranks first that the job is to use");
  EXPECT_EQ(unusedRanksText(profile, 4), "");
  EXPECT_EQ(heterogeneityText(profile.topology, 4),
            "rank 2 with the times of own.json, rank 3 with the times of own.json, rank 3 at 0.5 times the speed");
}

TEST(RankProfiles, AFasterRankThatIsNotUsedIsSaid) {
  Profile profile = profileOfTwo({10, 30});
  auto& ranks = profile.topology.ranks;
  EXPECT_EQ(unusedRanksText(profile, 2), "") << "all are alike";
  ranks = {{0.1, 0, 0}, {1, 0, 0}, {1, 0, 0}, {0.5, 0, 0}};
  const std::string cure = " of the cluster is not used, and is faster than rank 0; list the ranks first that the job is to use";
  EXPECT_EQ(unusedRanksText(profile, 2), "rank 2" + cure);
  EXPECT_EQ(unusedRanksText(profile, 3), "rank 3" + cure);
  EXPECT_EQ(unusedRanksText(profile, 4), "");
  std::swap(ranks[0], ranks[3]);
  EXPECT_EQ(unusedRanksText(profile, 3), "") << "the slowest is the one left out";
}

}  // namespace
}  // namespace pw
