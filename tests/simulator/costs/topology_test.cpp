#include "simulator/costs/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "schedules/error.h"
#include "simulator/costs/cluster.h"
#include "simulator/costs/profile.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

/// Nodes of four ranks each, 1 µs inside and 5 µs between them.
Topology nodesOfFour() {
  Topology topology;
  topology.sameNode = {1'000, 1e9};
  topology.network = {5'000, 5e8};
  topology.ranksPerNode = 4;
  return topology;
}

/// Random ranks and links.
Topology randomTopology(std::mt19937_64& random, int ranks) {
  Topology topology = nodesOfFour();
  topology.ranksPerNode = static_cast<int>(draw(random, 1, 5));
  for (int r = 0; r < ranks; ++r) {
    topology.ranks.push_back({1 / static_cast<double>(draw(random, 1, 3)), draw(random, 0, 2) == 0 ? Bytes{0} : draw<Bytes>(random, 1, 100),
                              static_cast<int>(draw(random, 0, 2))});
  }
  for (int l = 0; l < 3; ++l) {
    const int a = static_cast<int>(draw(random, 0, ranks - 2)), b = static_cast<int>(draw(random, a + 1, ranks - 1));
    const RankLink link{JobRank(a), JobRank(b), {draw<Ns>(random, 0, 20'000), 1e8}};
    const auto joinsThem = [&](const RankLink& other) { return other.a == link.a && other.b == link.b; };
    if (std::ranges::none_of(topology.links, joinsThem)) topology.links.push_back(link);
  }
  return topology;
}

TEST(Topology, LinksFollowTheNodes) {
  const Topology topology = nodesOfFour();
  EXPECT_EQ(linkBetween(topology, JobRank(2), JobRank(2)), LinkSpec());
  EXPECT_EQ(linkBetween(topology, JobRank(0), JobRank(3)), topology.sameNode);
  EXPECT_EQ(linkBetween(topology, JobRank(3), JobRank(4)), topology.network);
  EXPECT_EQ(linkBetween(topology, JobRank(7), JobRank(4)), topology.sameNode);
}

TEST(Topology, ListedRanksAndLinksComeFirst) {
  Topology topology = nodesOfFour();
  topology.ranks = {{1, 0, 0}, {0.5, 0, 1}, {1, 0, 1}};
  topology.links = {{JobRank(2), JobRank(1), {7, 0}}};
  EXPECT_EQ(linkBetween(topology, JobRank(0), JobRank(1)), topology.network);
  EXPECT_EQ(linkBetween(topology, JobRank(1), JobRank(2)).latency, 7) << "in both directions";
}

TEST(Topology, SaysWhatIsNotTheSameEverywhere) {
  Topology topology = nodesOfFour();
  EXPECT_EQ(heterogeneityText(topology, 4), "");
  EXPECT_EQ(heterogeneityText(topology, 5), "on 2 nodes");
  topology.ranks = {{1, 0, 0}, {0.8, Bytes(40'000'000'000), 0}};
  topology.links = {{JobRank(0), JobRank(1), {}}};
  EXPECT_EQ(heterogeneityText(topology, 2), "rank 1 at 0.8 times the speed, rank 1 with 37.3 GiB, 1 link of its own");
}

TEST(Topology, OfSomeRanksHasTheirSpeedsNodesAndLinks) {
  Topology topology = nodesOfFour();
  topology.ranks = {{0.1, 0, 0}, {1, 5, 0}, {0.5, 0, 1}};
  topology.links = {{JobRank(0), JobRank(1), {7, 0}}, {JobRank(2), JobRank(1), {9, 0}}};
  const Topology two = topologyOf(topology, {JobRank(2), JobRank(1)});
  EXPECT_EQ(two.ranks, (std::vector<RankSpec>{{0.5, 0, 1}, {1, 5, 0}}));
  EXPECT_EQ(two.links, (std::vector<RankLink>{{JobRank(0), JobRank(1), {9, 0}}}));
  EXPECT_EQ(linkBetween(topologyOf(nodesOfFour(), {JobRank(1), JobRank(6)}), JobRank(0), JobRank(1)), topology.network);
}

/// The definitions, replica by replica.
TEST(PipelineTopology, TakesTheSlowestReplicaAtEachPlace) {
  std::mt19937_64 random(3);
  for (int t = 0; t < 200; ++t) {
    const int ranks = static_cast<int>(draw(random, 2, 5)), replicas = static_cast<int>(draw(random, 1, 4));
    Topology topology = randomTopology(random, ranks * replicas);
    if (t % 2 == 0) topology.ranks.clear(), topology.links.clear();  // nodes one after the other
    const Replicas place{ranks};
    const PipelineTopology pipeline(topology, place, replicas);
    for (int a = 0; a < ranks; ++a) {
      double slowness = 0;
      Bytes memory = 0;
      for (int d = 0; d < replicas; ++d) {
        const JobRank rank = place.jobRank(d, Rank(a));
        slowness = std::max(slowness, topology.ranks.empty() ? 1 : 1 / topology.ranks[rank.index()].speed);
        const Bytes own = topology.ranks.empty() ? 0 : topology.ranks[rank.index()].memoryBytes;
        if (own > 0) memory = memory == 0 ? own : std::min(memory, own);
      }
      EXPECT_EQ(pipeline.speeds(Rank(a)), (std::vector{RankSpeed{-1, slowness}}));
      EXPECT_EQ(pipeline.memory(Rank(a)), memory);
      for (int b = 0; b < ranks; ++b) {
        if (a == b) continue;
        const Bytes bytes = draw<Bytes>(random, 0, 5'000);
        Ns slowest = 0;
        for (int d = 0; d < replicas; ++d) {
          const LinkSpec& link = linkBetween(topology, place.jobRank(d, Rank(a)), place.jobRank(d, Rank(b)));
          slowest = std::max(slowest, link.latency + transferTime(link, bytes));
        }
        const auto message = pipeline.message(Rank(a), Rank(b), bytes);
        EXPECT_EQ(message.latency + message.transfer, slowest);
      }
      // A ring over the rank's copies in all replicas.
      Ns hop = 0;
      for (int d = 0; d < replicas && replicas > 1; ++d) {
        const LinkSpec& link = linkBetween(topology, place.jobRank(d, Rank(a)), place.jobRank((d + 1) % replicas, Rank(a)));
        hop = std::max(hop, link.latency + transferTime(link, 100));
      }
      const LinkSpec found = pipeline.ringHop({Rank(a)}, 100);
      if (replicas > 1) {
        EXPECT_EQ(found.latency + transferTime(found, 100), hop);
      }
    }
  }
}

TEST(PipelineTopology, KnowsWhichRanksAreAlike) {
  Topology topology = nodesOfFour();
  EXPECT_FALSE(PipelineTopology(topology, {8}, 1).orderMatters()) << "nodes one after the other";
  topology.ranks.assign(4, {1, 0, 0});
  EXPECT_FALSE(PipelineTopology(topology, {4}, 1).orderMatters());
  topology.ranks[2].speed = 0.5;
  const PipelineTopology slow(topology, {4}, 1);
  EXPECT_TRUE(slow.orderMatters());
  EXPECT_TRUE(slow.areAlike(Rank(0), Rank(3)));
  EXPECT_FALSE(slow.areAlike(Rank(0), Rank(2)));
  topology.links = {{JobRank(0), JobRank(1), {9, 0}}};
  const PipelineTopology linked(topology, {4}, 1);
  EXPECT_TRUE(linked.areAlike(Rank(0), Rank(1))) << "the ends of the link";
  EXPECT_FALSE(linked.areAlike(Rank(0), Rank(3)));
  Topology rings = nodesOfFour();  // two replicas of two ranks; that of rank 0 sums its gradients over a link of its own
  rings.links = {{JobRank(0), JobRank(2), {9, 0}}};
  EXPECT_FALSE(PipelineTopology(rings, {2}, 2).areAlike(Rank(0), Rank(1)));
  EXPECT_TRUE(PipelineTopology(rings, {2}, 2).orderMatters());
}

TEST(Topology, SurvivesClustersAndProfiles) {
  std::mt19937_64 random(4);
  for (int t = 0; t < 50; ++t) {
    Cluster cluster;
    cluster.name = "rack";
    cluster.memoryBytes = 1;
    cluster.topology = t == 0 ? nodesOfFour() : randomTopology(random, 7);
    EXPECT_EQ(parseCluster(toJson(cluster), "rack.json"), cluster);
    Profile profile;
    profile.topology = cluster.topology;
    EXPECT_EQ(parseProfile(toJson(profile), "profile.json"), profile);
  }
  Profile measured;
  measured.topology.sameNode = {3, 1e9};
  EXPECT_EQ(toJson(measured).find("topology"), std::string::npos) << "one link alone is written as before";
}

}  // namespace
}  // namespace pw::test
