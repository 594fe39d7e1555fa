#include "simulator/partition/stage_costs.h"

#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

/// Two linear layers, one in each stage: 64 bytes of parameters, forward 10 ns, backward 20 ns.
struct Pair {
  ModelGraph graph = chain(2);
  Profile profile;

  Pair() {
    profile.microbatch = 2;
    profile.nodes.assign(2, {10, 20, 0, 0, 32, 0});
    profile.optimizerNsPerByte = 0.5;
    profile.topology.sameNode = {100, 1e9};
    profile.topology.network = {1'000, 1e8};
  }
  [[nodiscard]] CostTable costs(const Placement& placement, int replicas) const {
    const Partition partition = cutGraph(graph, {NodeId(1)}, {{"b", 2}}, nullptr);
    return costTable(graph, partition, profile, placement, replicas);
  }
};

const Placement kTwo = loopPlacement({2, 2, 1});

TEST(TopologyCosts, MessagesBetweenNodesTakeTheNetwork) {
  Pair pair;
  const auto inNode = pair.costs(kTwo, 1).messages.front();
  pair.profile.topology.ranksPerNode = 1;
  const auto between = pair.costs(kTwo, 1).messages.front();
  EXPECT_EQ(inNode.latency, 100);
  EXPECT_EQ(inNode.transfer, inNode.bytes.value);
  EXPECT_EQ(between.latency, 1'000);
  EXPECT_EQ(between.transfer, 10 * between.bytes.value);
}

TEST(TopologyCosts, RingsTakeTheirSlowestHop) {
  Pair pair;
  const Bytes bytes = pair.costs(kTwo, 1).stages[0].updatedBytes;
  // Four replicas of two ranks: 2 · 3 latencies, and 2 · 3 / 4 of the bytes.
  const auto ring = [&](const LinkSpec& hop) { return 6 * hop.latency + transferTime(hop, 6 * bytes / 4); };
  const LinkSpec inside = pair.profile.topology.sameNode, network = pair.profile.topology.network;
  EXPECT_EQ(pair.costs(kTwo, 4).stages[0].reduce, ring(inside)) << "all in one node";
  for (const int perNode : {1, 2, 4, 6}) {
    pair.profile.topology.ranksPerNode = perNode;
    EXPECT_EQ(pair.costs(kTwo, 4).stages[0].reduce, ring(network)) << perNode;
  }
  pair.profile.topology.ranksPerNode = 8;
  EXPECT_EQ(pair.costs(kTwo, 4).stages[0].reduce, ring(inside));
  pair.profile.topology.links = {{JobRank(6), JobRank(0), {50'000, 1e9}}};  // the ring's last hop, of stage 0 only
  EXPECT_EQ(pair.costs(kTwo, 4).stages[0].reduce, ring({50'000, 1e9}));
  EXPECT_EQ(pair.costs(kTwo, 4).stages[1].reduce, ring(inside));
}

TEST(TopologyCosts, StagesTakeAsLongAsOnTheSlowestReplica) {
  Pair pair;
  pair.profile.topology.ranks.assign(4, {});
  pair.profile.topology.ranks[2].speed = 0.5;  // rank 0 of replica 1
  const CostTable one = pair.costs(kTwo, 1), two = pair.costs(kTwo, 2);
  EXPECT_EQ(one.stages[0].forward, 10);
  EXPECT_EQ(two.stages[0].forward, 20);
  EXPECT_EQ(two.stages[0].backward, 40);
  EXPECT_EQ(two.stages[0].optimizer, 2 * one.stages[0].optimizer);
  EXPECT_EQ(two.stages[1].forward, 10);
  EXPECT_EQ(two.stages[0].activationBytes, one.stages[0].activationBytes);
}

/// 30 and 15 ns in place of 10 and 20; the update is four times as fast.
TEST(TopologyCosts, RanksWithTimesOfTheirOwnTakeThose) {
  Pair pair;
  auto own = std::make_shared<Profile>(pair.profile);
  own->nodes.assign(2, {30, 15, 0, 0, 999, 0});
  own->optimizerNsPerByte /= 4;
  pair.profile.topology.ranks.assign(4, {});
  pair.profile.topology.ranks[2].own = {"own.json", own};  // rank 0 of replica 1
  const CostTable one = pair.costs(kTwo, 1), two = pair.costs(kTwo, 2);
  EXPECT_EQ(one.stages[0].forward, 10);
  EXPECT_EQ(two.stages[0].forward, 30) << "of each action the slower replica";
  EXPECT_EQ(two.stages[0].backward, 20);
  EXPECT_EQ(two.stages[0].optimizer, one.stages[0].optimizer);
  EXPECT_EQ(two.stages[1].forward, 10);
  EXPECT_EQ(two.stages[0].activationBytes, one.stages[0].activationBytes) << "bytes are those of the profile";
  std::swap(pair.profile.topology.ranks[0], pair.profile.topology.ranks[2]);
  pair.profile.topology.ranks[0].speed = 2;
  EXPECT_EQ(pair.costs(kTwo, 1).stages[0].forward, 15);
  EXPECT_EQ(pair.costs(kTwo, 1).stages[0].optimizer, one.stages[0].optimizer / 8);
}

/// Both copies of a stage cross each boundary: on two links, which must be alike to have one time.
TEST(TopologyCosts, RefuseABidirectionalScheduleWhoseTwoWaysDiffer) {
  Pair pair;
  pair.graph = chain(4);
  pair.profile.nodes.assign(4, {10, 20, 0, 0, 32, 0});
  const Partition partition = cutGraph(pair.graph, {NodeId(1), NodeId(2), NodeId(3)}, {{"b", 2}}, nullptr);
  const Placement both = bidirectionalPlacement({4, 4, 4});
  const auto refusal = [&] { return usageErrorOf([&] { (void)costTable(pair.graph, partition, pair.profile, both, 1); }); };
  EXPECT_EQ(refusal(), "no error");
  pair.profile.topology.links = {{JobRank(1), JobRank(2), {50'000, 1e9}}};  // in the middle of both ways
  EXPECT_EQ(refusal(), "no error");
  pair.profile.topology.links = {{JobRank(2), JobRank(3), {50'000, 1e9}}};
  EXPECT_NE(refusal().find("Between stages 0 and 1, a bidirectional schedule uses the link of ranks 0 and 1 and that of ranks 3 and 2"),
            std::string::npos)
      << refusal();
  pair.profile.topology.links.clear();
  pair.profile.topology.ranksPerNode = 2;
  EXPECT_EQ(refusal(), "no error") << "the network is in the middle of both ways";
  pair.profile.topology.ranksPerNode = 3;
  EXPECT_NE(refusal(), "no error");
}

TEST(TopologyCosts, RefuseWhatCannotBeTold) {
  Pair pair;
  pair.profile.machine.host = "rack";
  pair.profile.topology.ranks.assign(2, {});
  EXPECT_EQ(pair.costs(bidirectionalPlacement({2, 2, 2}), 1).stages[0].forward, 10);
  pair.profile.topology.ranks[1].speed = 0.5;
  const auto refusal = [&](const Placement& placement, int replicas) -> std::string {
    try {
      static_cast<void>(pair.costs(placement, replicas));
    } catch (const UsageError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(refusal(bidirectionalPlacement({2, 2, 2}), 1),
            "Stage 0 of a bidirectional schedule is on the ranks 0 and 1, which differ in speed, and that is not predicted; use a schedule "
            "that keeps each stage on one rank.");
  EXPECT_EQ(refusal(kTwo, 1), "");
  EXPECT_EQ(refusal(kTwo, 2), "The cluster rack lists 2 ranks, and the job has 4; use fewer ranks or replicas, or list the others.");
}

}  // namespace
}  // namespace pw::test
