// Replicas with splits of their own: prices against those of each pipeline by itself, and the choice of splits against all choices.

#include "simulator/plan/replica_prices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "backends/resources/resources.h"
#include "schedules/generate.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/model/state_changes.h"
#include "simulator/partition/model_costs.h"
#include "simulator/partition/partition.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/excess.h"
#include "simulator/plan/plan_fits.h"
#include "simulator/plan/possible.h"
#include "simulator/plan/setting.h"
#include "simulator/report/metrics.h"
#include "simulator/search/replica_splits.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/simulate.h"
#include "tests/support/graph_builder.h"
#include "tests/support/mutate.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

ModelGraph sample(const std::string& name) { return loadModel({PW_SOURCE_DIR "/resources/models/" + name + ".pt2"}); }

Profile profileFor(const ModelGraph& graph, const std::vector<double>& speeds) {
  Profile profile = estimate(graph, 2, loadCluster("h100-nvlink"));
  for (const double speed : speeds) profile.topology.ranks.push_back({speed, 0, 0});
  return profile;
}

PlanRequest requestFor(const std::string& schedule, int replicas) {
  PlanRequest request;
  request.schedule = schedule;
  request.ranks = 2;
  request.microbatches = 8;
  request.replicas = replicas;
  request.microbatch = 2;
  return request;
}

Schedule rowsOf(const PlanRequest& request) {
  return planRows(generate(request.schedule, {2, 2 * generatorOf(request.schedule).chunks, request.microbatches}), request.replicas);
}

Ns stepOf(const Schedule& rows, const CostTable& costs) { return metricsOf(simulate(rows, costs)).step; }

std::vector<NodeId> randomBegins(std::mt19937_64& random, const std::vector<SplitPoint>& points, std::size_t count) {
  std::set<NodeId> begins;
  while (begins.size() < count)
    begins.insert(points[static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(points.size()) - 1))].begin);
  return {begins.begin(), begins.end()};
}

TEST(ReplicaPrices, OfTheSameSplitsOnEqualRanksAreThoseOfAllReplicasTogether) {
  for (const char* name : {"gpt_small", "resnet18_narrow"}) {
    const ModelGraph graph = sample(name);
    const Profile profile = profileFor(graph, {1, 1, 1, 1, 1, 1});
    const auto points = splitPoints(graph, bindBatch(graph, 2));
    ModelCosts model(graph, profile, 2);
    std::mt19937_64 random(11);
    for (const char* schedule : {"1f1b", "zbv", "interleaved-1f1b"}) {
      SCOPED_TRACE(std::string(name) + ", " + schedule);
      PlanRequest request = requestFor(schedule, 3);
      request.begins = randomBegins(random, points, rowsOf(request).placement.stages() - 1);
      const Schedule rows = rowsOf(request);
      CompiledRows compiled(rows);
      const Priced together = tryPrice(request, model, compiled).orThrow();
      request.replicaBegins.assign(3, request.begins);
      const Priced apart = tryPrice(request, model, compiled).orThrow();
      for (const ReplicaCut& cut : apart.cuts.value().replicas) {
        EXPECT_EQ(cut.costs, together.costs);
        EXPECT_EQ(cut.partition, together.partition);
      }
      EXPECT_EQ(apart.cuts->summed.size(), rows.placement.stages());
    }
  }
}

TEST(ReplicaPrices, OfTheSameSplitsOnOtherRanksAreThoseOfTheSlowestReplica) {
  const ModelGraph graph = sample("gpt_small");
  Profile profile = profileFor(graph, {1, 0.5, 0.5, 1, 0.8, 0.7});
  profile.topology.links.push_back({JobRank(4), JobRank(5), {30'000, 1e10}});
  const auto points = splitPoints(graph, bindBatch(graph, 2));
  ModelCosts model(graph, profile, 2);
  std::mt19937_64 random(13);
  std::set<int> slowest;
  for (int i = 0; i < 12; ++i) {
    PlanRequest request = requestFor(i % 2 == 0 ? "1f1b" : "zbv", 3);
    request.begins = randomBegins(random, points, rowsOf(request).placement.stages() - 1);
    request.optimizer.kind = OptimizerSpec::Kind::AdamW;
    const Schedule rows = rowsOf(request);
    const auto stepWith = [&](CostTable costs) {
      addOptimizerState(costs, stateCopies(request.optimizer), 1);
      return stepOf(rows, costs);
    };
    CompiledRows compiled(rows);
    const Ns together = stepWith(tryPrice(request, model, compiled).orThrow().costs);
    std::vector<Ns> alone;
    for (int d = 0; d < 3; ++d) {  // the gradients' sums are those of all
      CostTable costs = model.costTable(model.cut(request.begins).orThrow(), rows.placement, 3);
      const OwnPipeline own = pipelineOf(request, profile, d);
      const CostTable ofOne =
          costTable(graph, cutGraph(graph, request.begins, bindBatch(graph, 2), nullptr), own.profile, rows.placement, 1);
      for (std::size_t s = 0; s < costs.stages.size(); ++s) {
        const Ns sum = costs.stages[s].reduce;
        costs.stages[s] = ofOne.stages[s];
        costs.stages[s].reduce = sum;
      }
      costs.messages = ofOne.messages;
      alone.push_back(stepWith(costs));
    }
    EXPECT_EQ(together, std::ranges::max(alone));
    slowest.insert(static_cast<int>(std::ranges::max_element(alone) - alone.begin()));
  }
  EXPECT_GE(slowest.size(), 2U) << "which one that is depends on the splits";
}

TEST(ReplicaPrices, AreThoseOfEachPipelineByItselfAndItsSums) {
  const ModelGraph graph = sample("gpt_small");
  const Profile profile = profileFor(graph, {1, 0.5, 0.25, 2});
  const auto points = splitPoints(graph, bindBatch(graph, 2));
  ModelCosts model(graph, profile, 2);
  std::mt19937_64 random(12);
  for (int i = 0; i < 10; ++i) {
    PlanRequest request = requestFor(i % 2 == 0 ? "1f1b" : "zbv", 2);
    const Schedule rows = rowsOf(request);
    CompiledRows compiled(rows);
    for (int d = 0; d < 2; ++d) request.replicaBegins.push_back(randomBegins(random, points, rows.placement.stages() - 1));
    const Priced priced = tryPrice(request, model, compiled).orThrow();
    const ReplicaCuts& cuts = priced.cuts.value();
    Bytes summed = 0;
    for (const SummedParameters& together : cuts.summed) summed += together.bytes;
    std::vector<Ns> steps;
    for (std::size_t d = 0; d < 2; ++d) {
      Profile alone = profile;
      alone.topology.ranks.assign(profile.topology.ranks.begin() + static_cast<std::ptrdiff_t>(2 * d),
                                  profile.topology.ranks.begin() + static_cast<std::ptrdiff_t>(2 * d + 2));
      CostTable expected = costTable(graph, cuts.replicas[d].partition, alone, rows.placement, 1);
      expected.stages.back().dataBytes += targetBytes(graph, request.loss, request.microbatch);
      Bytes gradients = 0;
      Ns sums = 0;
      for (std::size_t s = 0; s < expected.stages.size(); ++s) {
        gradients += expected.stages[s].gradientBytes;
        sums += std::exchange(expected.stages[s].reduce, cuts.replicas[d].costs.stages[s].reduce);
        EXPECT_GE(cuts.replicas[d].costs.stages[s].reduce, expected.stages[s].gradientBytes > 0 ? 1 : 0);
      }
      EXPECT_EQ(sums, 0) << "by itself it sums nothing";
      EXPECT_EQ(cuts.replicas[d].costs, expected);
      EXPECT_EQ(summed, gradients) << "each gradient is summed once";
      steps.push_back(stepOf(rows, cuts.replicas[d].costs));
    }
    EXPECT_EQ(stepOf(rows, priced.costs), std::ranges::max(steps));
    EXPECT_EQ(steps[static_cast<std::size_t>(cuts.shown)], std::ranges::max(steps));
  }
}

TEST(OwnSplits, OfTwoRanksAreTheFastestOfAllChoices) {
  const ModelGraph graph = sample("gpt_small");
  const auto points = splitPoints(graph, bindBatch(graph, 2));
  int found = 0;
  for (const std::vector<double>& speeds : {std::vector{1.0, 0.4, 0.4, 1.0}, std::vector{1.0, 1.0, 1.0, 0.5},
                                            std::vector{2.0, 1.0, 1.0, 3.0}, std::vector{1.0, 1.0, 1.0, 1.0}}) {
    const Profile profile = profileFor(graph, speeds);
    ModelCosts model(graph, profile, 2);
    PlanRequest request = requestFor("gpipe", 2);
    request.begins = balancedFor(request, graph, profile, 2, Balance::Time);
    const Schedule rows = rowsOf(request);
    CompiledRows compiled(rows);
    const Ns common = stepOf(rows, tryPrice(request, model, compiled).orThrow().costs);
    Ns best = common;
    for (const SplitPoint& first : points) {
      for (const SplitPoint& second : points) {
        PlanRequest tried = request;
        tried.replicaBegins = {{first.begin}, {second.begin}};
        if (const Answer<Priced> priced = tryPrice(tried, model, compiled)) best = std::min(best, stepOf(rows, priced->costs));
      }
    }
    const auto own = ownSplits(request, model, rows, common);
    if (!own) {
      EXPECT_LE(static_cast<double>(common), 1.03 * static_cast<double>(best));
      continue;
    }
    ++found;
    EXPECT_LT(own->step, common);
    EXPECT_LE(static_cast<double>(own->step), 1.03 * static_cast<double>(best)) << "balanced by time, which a step is nearly";
  }
  EXPECT_GE(found, 2);
}

TEST(OwnSplits, AreNotGivenWhereReplicasAreAlikeOrDoNotFit) {
  const ModelGraph graph = sample("gpt_small");
  PlanRequest request = requestFor("1f1b", 2);
  const Schedule rows = rowsOf(request);
  const Profile alike = profileFor(graph, {1, 0.5, 1, 0.5});
  ModelCosts model(graph, alike, 2);
  request.begins = balancedFor(request, graph, alike, 2, Balance::Time);
  EXPECT_FALSE(ownSplits(request, model, rows, Ns(1'000'000'000)));
  Profile small = profileFor(graph, {1, 0.5, 0.5, 1});
  ModelCosts roomy(graph, small, 2);
  EXPECT_TRUE(ownSplits(request, roomy, rows, Ns(1'000'000'000)));
  small.topology.ranks[3].memoryBytes = 1000;
  ModelCosts cramped(graph, small, 2);
  EXPECT_FALSE(ownSplits(request, cramped, rows, Ns(1'000'000'000))) << "rank 3 holds nothing";
}

TEST(OwnSplits, FitWhereTheSameSplitsForAllDoNot) {
  const ModelGraph graph = sample("gpt_small");
  PlanRequest request = requestFor("1f1b", 2);
  const Schedule rows = rowsOf(request);
  Profile profile = profileFor(graph, {1, 1, 1, 1});
  request.begins = balancedFor(request, graph, profile, 2, Balance::Time);
  ModelCosts roomy(graph, profile, 2);
  CompiledRows compiled(rows);
  const std::vector<Bytes> peaks = compiled.peaks(tryPrice(request, roomy, compiled).orThrow().costs);
  const Bytes little = std::ranges::max(peaks) / 2;
  profile.topology.ranks[0].memoryBytes = profile.topology.ranks[3].memoryBytes = little;
  ModelCosts model(graph, profile, 2);
  EXPECT_GT(excessOf(peaks, memoryLimits(request, profile, 2)), 0);
  const auto own = ownSplits(request, model, rows, std::nullopt);
  ASSERT_TRUE(own);
  EXPECT_FALSE(replicaAboveLimit(own->request, profile, rows, own->priced.cuts.value()));
  EXPECT_NE(own->request.replicaBegins[0], own->request.replicaBegins[1]);
}

/// The tied embedding's optimizer state has room on two ranks of replica 0, but not of replica 1.
TEST(ReplicaPrices, KeepSharedParametersEqualInTheWayThatFitsEveryReplica) {
  const ModelGraph graph = sample("hf_gpt2");
  Profile profile = profileFor(graph, {1, 1, 1, 1});
  PlanRequest request = requestFor("1f1b", 2);
  request.optimizer.kind = OptimizerSpec::Kind::AdamW;
  const Schedule rows = rowsOf(request);
  request.begins = balancedFor(request, graph, profile, 2, Balance::Time);
  request.replicaBegins.assign(2, request.begins);
  CompiledRows compiled(rows);
  const auto peaksWith = [&](std::optional<Sharing> sharing) {
    PlanRequest with = request;
    with.sharing = sharing;
    ModelCosts model(graph, profile, 2);
    CostTable costs = tryPrice(with, model, compiled).orThrow().costs;
    addOptimizerState(costs, stateCopies(request.optimizer), 1);
    return compiled.peaks(costs);
  };
  const std::vector<Bytes> most = peaksWith(Sharing::Replicate), least = peaksWith(Sharing::Transmit);
  const std::size_t roomier = most[0] > least[0] ? 0 : 1;
  ASSERT_GT(most[roomier], least[roomier]);
  EXPECT_EQ(peaksWith(std::nullopt), most);
  profile.topology.ranks[2 + roomier].memoryBytes = least[roomier];
  ModelCosts model(graph, profile, 2);
  const Priced priced = tryPrice(request, model, compiled).orThrow();
  EXPECT_FALSE(replicaAboveLimit(request, profile, rows, priced.cuts.value()));
  EXPECT_EQ(priced.sharing.front().sharing, Sharing::Transmit);
  EXPECT_EQ(priced.cuts->replicas[0].partition.shared, priced.cuts->replicas[1].partition.shared);
}

TEST(ReplicaPrices, AreRefusedWhereGradientsCouldNotBeSummed) {
  const ModelGraph graph = sample("hf_gpt2");
  const Profile profile = profileFor(graph, {1, 1, 1, 1});
  const auto points = splitPoints(graph, bindBatch(graph, 2));
  ModelCosts model(graph, profile, 2);
  const auto refusalOf = [&](PlanRequest request) {
    const Schedule rows = planRows(generate(request.schedule, {2, 2 * generatorOf(request.schedule).chunks, 8}), 2);
    CompiledRows compiled(rows);
    const Answer<Priced> priced = tryPrice(request, model, compiled);
    return priced ? std::string() : priced.refusal().why;
  };
  PlanRequest request = requestFor("chimera", 2);
  request.replicaBegins = {{points[3].begin}, {points[4].begin}};
  EXPECT_EQ(refusalOf(request),
            "chimera has each stage on two ranks, so all replicas have the same splits; choose another schedule, or the same splits for "
            "all replicas.");
  request.schedule = "1f1b";
  request.replicaBegins = {{points[3].begin}};
  EXPECT_EQ(refusalOf(request), "There are splits of 1 replicas, and 2 replicas; give each its own, or all the same.");
  request.replicaBegins = {{points[3].begin}, {points[4].begin}};
  EXPECT_EQ(refusalOf(request), "");
}

/// Each copy would move batch norm's statistics by half of the microbatches.
TEST(Price, OfTwoCopiesOfAStageIsRefusedForModelsThatChangeBuffers) {
  for (const auto& [name, changes] : {std::pair("resnet18_narrow", true), {"gpt_small", false}}) {
    const ModelGraph graph = sample(name);
    const Profile profile = profileFor(graph, {1, 1});
    ModelCosts model(graph, profile, 2);
    for (const auto& [schedule, copies] : {std::pair("dualpipe", true), {"chimera", true}, {"1f1b", false}, {"zbv", false}}) {
      PlanRequest request = requestFor(schedule, 1);
      request.begins = balancedFor(request, graph, profile, 2 * generatorOf(schedule).chunks, Balance::Time);
      const Schedule rows = rowsOf(request);
      CompiledRows compiled(rows);
      const Answer<Priced> priced = tryPrice(request, model, compiled);
      ASSERT_EQ(static_cast<bool>(priced), !(changes && copies)) << name << ' ' << schedule;
      if (priced) continue;
      EXPECT_EQ(
          priced.refusal().why,
          "resnet18_narrow changes bn1.num_batches_tracked in training, and this schedule keeps two copies of each stage, each of which "
          "would change its own by half of the microbatches; use a schedule that keeps each stage on one rank, such as 1f1b or zbv.");
    }
  }
}

/// As nn.Embedding(max_norm=1.0) is traced: each replica would shorten the rows that its own samples select.
TEST(Price, OfReplicasIsRefusedForModelsThatChangeParameters) {
  test::GraphBuilder g;
  const ValueId tokens = g.input("tokens"), weight = g.parameter("weight");
  const ValueId alias = g.call("detach", {{"self", weight}}, "alias");
  g.call("embedding_renorm_", {{"self", alias}, {"indices", tokens}, {"max_norm", 1.0}, {"norm_type", 2.0}}, "shortened");
  const ModelGraph graph = g.done(g.call("embedding", {{"weight", weight}, {"indices", tokens}}, "y"));
  const Placement placement = generate("1f1b", {1, 1, 2}).placement;
  EXPECT_FALSE(obstacleToCopies(graph, placement, firstChangedState(graph), nullptr));
  const auto no = obstacleToCopies(graph, placement, firstChangedState(graph), parameterChangedByInputs(graph));
  ASSERT_TRUE(no);
  EXPECT_NE(no->why.find("changes the parameter weight in its forward"), std::string::npos) << no->why;
}

/// As `with torch.no_grad(): self.weight.clamp_(-1, 1)`: copies that are equal stay equal.
TEST(Price, OfReplicasIsNotRefusedForAParameterThatChangesAlikeEverywhere) {
  test::GraphBuilder g;
  const ValueId x = g.input("x"), weight = g.parameter("weight");
  const ValueId clamped = g.call("clamp_", {{"self", weight}, {"min", -1.0}, {"max", 1.0}}, "clamped");
  const ModelGraph graph = g.done(g.call("linear", {{"input", x}, {"weight", clamped}}, "y"));
  EXPECT_EQ(changedStates(graph).size(), 1U);
  EXPECT_EQ(parameterChangedByInputs(graph), nullptr);
}

Plan planWithCuts(const ModelGraph& graph) {
  const Profile profile = profileFor(graph, {1, 0.4, 0.4, 1});
  ModelCosts model(graph, profile, 2);
  PlanRequest request = requestFor("zbv", 2);
  const Schedule rows = rowsOf(request);
  request.begins = balancedFor(request, graph, profile, 4, Balance::Time);
  const auto own = ownSplits(request, model, rows, Ns(1'000'000'000));
  return planOf(own.value().request, graph, profile, rows, own->priced, splitPoints(graph, bindBatch(graph, 2)));
}

TEST(ReplicaCuts, AreKeptInPlansAndCheckedWithThem) {
  const ModelGraph graph = sample("gpt_small");
  const Plan plan = planWithCuts(graph);
  const std::string text = toJson(plan);
  const Plan read = parsePlan(text, "plan.json");
  EXPECT_EQ(read, plan);
  EXPECT_NO_THROW(requireFits(read, graph));
  const Plan second = ofReplica(plan, 1);
  EXPECT_EQ(second.partition, plan.cuts->replicas[1].partition);
  EXPECT_EQ(second.costs, plan.cuts->replicas[1].costs);
  EXPECT_EQ(beginsOf(second.partition).size(), second.splitNames.size());
  Plan wrong = plan;
  std::swap(wrong.cuts->summed.front(), wrong.cuts->summed.back());
  EXPECT_NE(usageErrorOf([&] { requireFits(wrong, graph); }).find("are not summed as they are cut"), std::string::npos);
  wrong = plan;
  wrong.cuts->replicas.pop_back();
  EXPECT_NE(usageErrorOf([&] { static_cast<void>(parsePlan(toJson(wrong), "plan.json")); }).find("how each replica is cut"),
            std::string::npos);
  EXPECT_EQ(usageErrorOf([&] { requireSameSplits(plan, "torchtitan"); }),
            "torchtitan cuts all replicas alike, and in this plan each has splits of its own; plan with --same-splits");
}

TEST(ReplicaCuts, SurviveDamageWithAUsageErrorAtMost) {
  constexpr std::uint64_t kSeed = 11264;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const ModelGraph graph = sample("gpt_small");
  const std::string text = toJson(planWithCuts(graph)), key = "\"replica_cuts\"";
  const std::size_t at = text.find(key), end = text.find("\"model_fingerprint\"");
  ASSERT_LT(at, end);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    try {
      const Plan damaged = parsePlan(text.substr(0, at) + mutate(text.substr(at, end - at), random) + text.substr(end), "plan.json");
      requireFits(damaged, graph);
      for (int d = 0; d < damaged.replicas; ++d) EXPECT_FALSE(ofReplica(damaged, d).partition.stages.empty());
    } catch (const UsageError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500) << "most damage is seen";
}

}  // namespace
}  // namespace pw::test
