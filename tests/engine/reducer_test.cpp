// Sums of gradients among holders: stages, replicas, both ranks of a bidirectional placement. Numbers are not integers: equal bits on all
// holders are then no accident.
#include "engine/reducer.h"
#include "backends/messages/in_memory_communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/collective_communicator.h"
#include "tests/support/number_stage.h"

namespace pw {
namespace {

using test::CollectiveCommunicator;
using test::NumberStage;
using Asked = CollectiveCommunicator::Asked;

/// What the transport has for sums.
enum class Offers { Messages, Collectives, CollectivesOfOtherTypes };

constexpr double kScale = 0.25;

struct Case {
  std::string name;
  Placement placement;
  int replicas = 1;
  std::vector<std::vector<int>> shared;  ///< stages of each shared parameter
  bool transmit = false, shard = false;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

Plan planOf(const Case& c, int ranks) {
  Schedule schedule{"by hand", 2, c.placement, {}};
  schedule.rows.resize(static_cast<std::size_t>(ranks));
  Plan plan = test::chainPlan(schedule, {}, c.replicas);
  for (const auto& stages : c.shared) {
    SharedParameter shared;
    shared.name = shared.storage = "w" + std::to_string(plan.partition.shared.size());
    for (const int s : stages) shared.stages.emplace_back(s);
    shared.sharing = c.transmit ? Sharing::Transmit : Sharing::Replicate;
    plan.partition.shared.push_back(shared);
  }
  return plan;
}

/// Who holds a parameter: a stage's own (−1), or a shared one.
using Owner = std::pair<int, int>;  // stage or −1, shared or −1

struct Outcome {
  std::map<Owner, std::vector<std::vector<double>>> gradients, values;  ///< of every copy
  std::map<Owner, std::vector<double>> sums;                            ///< expected
  std::vector<double> norms;
  std::map<Owner, int> updated;           ///< elements, over all copies
  std::vector<std::vector<Asked>> asked;  ///< collectives, by rank
};

Outcome reduce(const Case& c, int ranks, std::uint64_t seed, bool early, bool everywhere = false, Offers offers = Offers::Messages) {
  const Plan plan = planOf(c, ranks);
  test::NumberJob job = test::prepareJob(plan);
  Outcome outcome;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto ownerOf = [](NumberStage& stage, std::size_t group) {
    const auto shared = stage.groups().at(group).shared;
    return shared ? Owner{-1, static_cast<int>(*shared)} : Owner{stage.stage().value, -1};
  };
  for (auto& rank : job.stages) {
    for (auto& [s, stage] : rank) {
      for (std::size_t g = 0; g < stage->groups().size(); ++g) {
        auto& sum = outcome.sums[ownerOf(*stage, g)];
        sum.resize(NumberStage::kElements);
        for (std::size_t i = 0; i < NumberStage::kElements; ++i) sum[i] += stage->gradients(g)[i] = uniform(random);
      }
    }
  }
  auto communicators = inMemoryCommunicators(worldSize(plan), std::chrono::seconds(20));
  std::vector<CollectiveCommunicator*> combining;
  for (auto& communicator : communicators) {
    if (offers == Offers::Messages) continue;
    auto wrapper = std::make_unique<CollectiveCommunicator>(std::move(communicator), offers == Offers::Collectives);
    combining.push_back(wrapper.get());
    communicator = std::move(wrapper);
  }
  outcome.norms.resize(communicators.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < communicators.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        std::map<Stage, StageModule*> stages;
        for (const auto& [s, stage] : job.stages[r]) stages[s] = stage.get();
        FlightRecord flights;
        StepTimes times(hostDevice());
        Reducer reducer(plan, stages, *communicators[r], 1, {.shardOptimizer = c.shard}, flights, times);
        StepLog log;
        if (early) {
          for (auto it = stages.rbegin(); it != stages.rend(); ++it) reducer.start(it->first);
        }
        reducer.sum(log, everywhere);
        outcome.norms[r] = std::sqrt(reducer.allSum(reducer.squares()));
        reducer.update(kScale, log);
        communicators[r]->barrier();
      } catch (const std::exception& e) {
        job.errors[r] = e.what();
        communicators[r]->abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(job.firstError(), "");
  for (const auto* communicator : combining) outcome.asked.push_back(communicator->asked);
  for (auto& rank : job.stages) {
    for (auto& [s, stage] : rank) {
      for (const auto& range : stage->ranges) outcome.updated[ownerOf(*stage, range.group)] += static_cast<int>(range.last - range.first);
      EXPECT_EQ(stage->ranges.size(), stage->groups().size()) << "one optimizer step for each group";
      for (std::size_t g = 0; g < stage->groups().size(); ++g) {
        outcome.gradients[ownerOf(*stage, g)].push_back(stage->gradients(g));
        outcome.values[ownerOf(*stage, g)].push_back(stage->values(g));
      }
    }
  }
  return outcome;
}

int ranksOf(const Case& c) {
  int ranks = 0;
  for (const Rank r : c.placement.rankOfStage) ranks = std::max(ranks, r.value + 1);
  return ranks;
}

/// Whether a parameter is updated in pieces.
bool inPieces(const Case& c, const Owner& owner, std::size_t copies) {
  return copies > 1 && (c.shard || (c.transmit && owner.second >= 0));
}

void expectSummed(const Case& c, const Outcome& outcome) {
  double squares = 0;
  for (const auto& [owner, sum] : outcome.sums) {
    for (const double x : sum) squares += x * x;
    const auto& copies = outcome.values.at(owner);
    const bool pieces = inPieces(c, owner, copies.size());
    for (std::size_t k = 0; k < copies.size(); ++k) {
      EXPECT_EQ(copies[k], copies[0]) << "copies differ";
      if (!pieces) {
        EXPECT_EQ(outcome.gradients.at(owner)[k], outcome.gradients.at(owner)[0]);
      }
      for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(copies[k][i], 1 - 0.5 * kScale * sum[i], 1e-13);
    }
    EXPECT_EQ(outcome.updated.at(owner), NumberStage::kElements * (pieces ? 1 : static_cast<int>(copies.size())));
  }
  for (const double norm : outcome.norms) {
    EXPECT_NEAR(norm, std::sqrt(squares), 1e-12) << "each parameter counts once";
    EXPECT_EQ(norm, outcome.norms[0]) << "all ranks must scale alike";
  }
}

class Reducing : public testing::TestWithParam<Case> {};

TEST_P(Reducing, AllHoldersGetTheSameSumAndTheSameValues) {
  const Case& c = GetParam();
  const int ranks = ranksOf(c);
  for (const Offers offers : {Offers::Messages, Offers::Collectives, Offers::CollectivesOfOtherTypes}) {
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      for (const bool early : {false, true}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", transport " + std::to_string(static_cast<int>(offers)));
        const Outcome outcome = reduce(c, ranks, seed, early, false, offers);
        if (HasFailure()) return;
        expectSummed(c, outcome);
        const Outcome again = reduce(c, ranks, seed, !early, true, offers);
        for (const auto& [owner, copies] : again.gradients) {
          for (const auto& copy : copies) EXPECT_EQ(copy, copies[0]) << "all holders were to get the sums";
        }
        EXPECT_EQ(again.values, outcome.values) << "every run gives the same bits, whenever the sums began";
      }
    }
  }
}

/// The collectives that a rank may start, in any order: for each parameter it holds whose holders all update and have a rank each.
std::vector<Asked> allowed(const Case& c, int ranks, JobRank rank, bool everywhere) {
  std::vector<Asked> all;
  const auto add = [&](const std::vector<int>& stages, bool pieces) {
    std::vector<JobRank> group;
    for (const int s : stages) {
      for (int d = 0; d < c.replicas; ++d) {
        group.emplace_back(d * ranks + c.placement.rankOfStage.at(static_cast<std::size_t>(s)).value);
        if (!c.placement.bidirectional()) continue;
        const JobRank mirror(d * ranks + c.placement.mirrorOfStage.at(static_cast<std::size_t>(s)).value);
        if (mirror != group.back()) group.push_back(mirror);
      }
    }
    const std::set<JobRank> different(group.begin(), group.end());
    if (group.size() < 2 || different.size() < group.size() || !different.contains(rank)) return;
    std::ranges::sort(group);
    if (!pieces) return all.push_back({Collective::AllReduce, group});
    all.push_back({Collective::ReduceScatter, group});
    all.push_back({Collective::AllGather, group});
    if (everywhere) all.push_back({Collective::AllGather, group});
  };
  for (int s = 0; s < static_cast<int>(c.placement.stages()); ++s) add({s}, c.shard);
  for (const auto& stages : c.shared) {
    if (!c.transmit) add(stages, c.shard);  // else the first stage's holders alone update
  }
  return all;
}

TEST_P(Reducing, UsesCollectivesWhereAllHoldersUpdateAndHaveARankEach) {
  const Case& c = GetParam();
  const int ranks = ranksOf(c);
  const auto sorted = [](std::vector<Asked> asked) {
    std::ranges::sort(asked, {}, [](const Asked& a) { return std::pair(a.what, a.group); });
    return asked;
  };
  for (const bool everywhere : {false, true}) {
    const Outcome outcome = reduce(c, ranks, 7, false, everywhere, Offers::Collectives);
    for (std::size_t r = 0; r < outcome.asked.size(); ++r)
      EXPECT_EQ(sorted(outcome.asked[r]), sorted(allowed(c, ranks, JobRank(r), everywhere))) << "rank " << r;
  }
}

std::vector<Case> cases() {
  const Placement loop = loopPlacement({3, 3, 2}), v = wavePlacement({2, 4, 2}), both = bidirectionalPlacement({4, 4, 2});
  const Placement middle{{Rank(0), Rank(1), Rank(2)}, {Rank(2), Rank(1), Rank(0)}, Microbatch(1)};  // both replicas of stage 1 on rank 1
  std::vector<Case> all;
  for (const bool shard : {false, true}) {
    for (const bool transmit : {false, true}) {
      const std::string end = std::string(shard ? "_sharded" : "") + (transmit ? "_transmit" : "");
      all.push_back({"loop" + end, loop, 1, {{0, 2}}, transmit, shard});
      all.push_back({"replicas" + end, loop, 3, {{0, 2}, {0, 1, 2}}, transmit, shard});
      all.push_back({"chunks_of_one_rank" + end, v, 1, {{0, 3}, {0, 1, 2, 3}, {1, 2}}, transmit, shard});
      all.push_back({"chunks_and_replicas" + end, v, 2, {{0, 3}, {0, 1, 2, 3}}, transmit, shard});
      all.push_back({"bidirectional" + end, both, 1, {{0, 3}, {1, 2}}, transmit, shard});
      all.push_back({"bidirectional_replicas" + end, both, 2, {{0, 3}, {0, 1, 2, 3}}, transmit, shard});
      all.push_back({"both_directions_on_one_rank" + end, middle, 2, {{0, 1}}, transmit, shard});
      all.push_back({"alone" + end, loopPlacement({1, 1, 2}), 1, {}, transmit, shard});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Placements, Reducing, testing::ValuesIn(cases()), [](const auto& test) { return test.param.name; });

/// Which collectives two ranks, which both hold stages 0 and 1, had posted after their last REDUCE_GRAD, and in all.
struct Orders {
  std::vector<std::size_t> early;
  std::vector<std::vector<Asked>> all;
  std::string error;
};

Orders ordersOf(const std::vector<std::vector<int>>& reductions, const ReducerOptions& options, bool lockstep = false) {
  Plan plan = planOf({"", {{Rank(0), Rank(1)}, {Rank(1), Rank(0)}, Microbatch(1)}, 1, {}}, 2);
  plan.schedule.lockstep = lockstep;
  for (std::size_t r = 0; r < 2; ++r) {
    for (const int s : reductions[r]) plan.schedule.rows[r].push_back({Stage(s), ActionKind::ReduceGrad, Microbatch(-1)});
  }
  test::NumberJob job = test::prepareJob(plan);
  auto communicators = inMemoryCommunicators(2, std::chrono::seconds(20));
  Orders orders{std::vector<std::size_t>(2), std::vector<std::vector<Asked>>(2), {}};
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      CollectiveCommunicator communicator(std::move(communicators[r]));
      try {
        std::map<Stage, StageModule*> stages;
        for (const auto& [s, stage] : job.stages[r]) {
          stages[s] = stage.get();
          std::ranges::fill(stage->gradients(0), s.value + 1);
        }
        FlightRecord flights;
        StepTimes times(hostDevice());
        Reducer reducer(plan, stages, communicator, 1, options, flights, times);
        StepLog log;
        for (const int s : reductions[r]) reducer.start(Stage(s));
        orders.early[r] = communicator.asked.size();
        reducer.sum(log, false);
        for (const auto& [s, stage] : job.stages[r]) EXPECT_EQ(stage->gradients(0)[0], 2 * (s.value + 1));
        orders.all[r] = communicator.asked;
        communicator.barrier();
      } catch (const std::exception& e) {
        job.errors[r] = e.what();
        communicator.abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  orders.error = job.firstError();
  return orders;
}

TEST(OrderOfCollectives, IsThatOfTheRowsWhereTheyAgree) {
  const Orders orders = ordersOf({{1, 0}, {1, 0}}, {});
  EXPECT_EQ(orders.error, "");
  EXPECT_EQ(orders.early, (std::vector<std::size_t>{2, 2})) << "both begin beside what the rank computes";
}

TEST(OrderOfCollectives, IsTheSameOnAllRanksWhereRowsContradictEachOther) {
  const Orders orders = ordersOf({{1, 0}, {0, 1}}, {});
  EXPECT_EQ(orders.error, "");
  EXPECT_EQ(orders.early, (std::vector<std::size_t>{0, 0}));
  EXPECT_EQ(orders.all[0].size(), 2U);
}

TEST(OrderOfCollectives, IsKnownOnlyWhereAllHoldersHaveAReduceGrad) {
  const Orders orders = ordersOf({{1, 0}, {0}}, {});
  EXPECT_EQ(orders.error, "");
  EXPECT_EQ(orders.early, (std::vector<std::size_t>{1, 1})) << "stage 0 alone begins early";
}

TEST(OrderOfCollectives, IsNotThatOfTheRowsInReadyOrderAndBetweenBarriers) {
  EXPECT_EQ(ordersOf({{1, 0}, {1, 0}}, {.inRowOrder = false}).early, (std::vector<std::size_t>{0, 0}));
  EXPECT_EQ(ordersOf({{1, 0}, {1, 0}}, {}, true).early, (std::vector<std::size_t>{0, 0}));
}

}  // namespace
}  // namespace pw
