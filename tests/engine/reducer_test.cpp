// Sums of gradients among holders: stages, replicas, both ranks of a bidirectional placement. Numbers are not integers: equal bits on all
// holders are then no accident.
#include "engine/reducer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/number_stage.h"

namespace pw {
namespace {

using test::NumberStage;

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
  std::map<Owner, int> updated;                                         ///< elements, over all copies
};

Outcome reduce(const Case& c, int ranks, std::uint64_t seed, bool early, bool everywhere = false) {
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
  outcome.norms.resize(communicators.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < communicators.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        std::map<Stage, StageModule*> stages;
        for (const auto& [s, stage] : job.stages[r]) stages[s] = stage.get();
        Reducer reducer(plan, stages, *communicators[r], 1, c.shard);
        StepLog log;
        if (early) {
          for (auto it = stages.rbegin(); it != stages.rend(); ++it) reducer.start(it->first);
        }
        reducer.sum(log, everywhere);
        outcome.norms[r] = reducer.norm();
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

class Reducing : public testing::TestWithParam<Case> {};

TEST_P(Reducing, AllHoldersGetTheSameSumAndTheSameValues) {
  const Case& c = GetParam();
  int ranks = 0;
  for (const Rank r : c.placement.rankOfStage) ranks = std::max(ranks, r.value + 1);
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    for (const bool early : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const Outcome outcome = reduce(c, ranks, seed, early);
      if (HasFailure()) return;
      double squares = 0;
      for (const auto& [owner, sum] : outcome.sums) {
        for (const double x : sum) squares += x * x;
        const auto& copies = outcome.values.at(owner);
        const bool pieces = copies.size() > 1 && (c.shard || (c.transmit && owner.second >= 0));
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
      const Outcome again = reduce(c, ranks, seed, !early, true);
      for (const auto& [owner, copies] : again.gradients) {
        for (const auto& copy : copies) EXPECT_EQ(copy, copies[0]) << "all holders were to get the sums";
      }
      EXPECT_EQ(again.values, outcome.values) << "every run gives the same bits, whenever the sums began";
    }
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

}  // namespace
}  // namespace pw
