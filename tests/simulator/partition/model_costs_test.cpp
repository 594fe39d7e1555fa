// Partitions and costs kept by range against those worked out anew, on sample models; balances against the plain dynamic program.

#include "simulator/partition/model_costs.h"
#include "simulator/costs/estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include <fmt/format.h>

#include "backends/resources/resources.h"
#include "schedules/generate.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/balancer.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/planner.h"
#include "simulator/step/compiled_rows.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

ModelGraph sample(const std::string& name) { return loadModel({PW_SOURCE_DIR "/resources/models/" + name + ".pt2"}); }

/// So many begins of split points, ascending.
std::vector<NodeId> randomBegins(std::mt19937_64& random, const std::vector<SplitPoint>& points, std::size_t count) {
  std::set<NodeId> begins;
  while (begins.size() < std::min(count, points.size()))
    begins.insert(points[static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(points.size()) - 1))].begin);
  return {begins.begin(), begins.end()};
}

TEST(ModelCosts, AreThoseOfEachCutByItself) {
  for (const char* name : {"gpt_small", "resnet18_narrow"}) {
    SCOPED_TRACE(name);
    const ModelGraph graph = sample(name);
    const Profile profile = estimate(graph, exportedBatch(graph), loadCluster("h100-nvlink"));
    const auto points = splitPoints(graph, bindBatch(graph, profile.microbatch));
    ModelCosts kept(graph, profile, profile.microbatch);
    std::mt19937_64 random(4);
    const Placement placement = loopPlacement({2, 4, 1});
    for (int i = 0; i < 12; ++i) {
      const std::vector<NodeId> begins = randomBegins(random, points, 3);
      Partition partition = kept.cut(begins).orThrow();
      EXPECT_EQ(partition, cutGraph(graph, begins, bindBatch(graph, profile.microbatch), &profile));
      for (StageSpec& stage : partition.stages) {
        if (oneIn(random, 2)) stage.checkpoints = {{stage.begin, stage.end}};
      }
      EXPECT_EQ(kept.costTable(partition, placement, 2), costTable(graph, partition, profile, placement, 2));
    }
  }
}

/// The backward holds what it computes from; a mask or cosines that were sent are gone, and are computed again with the rest.
TEST(ModelCosts, CountOfARecomputedFirstStageItsInputsAndTheOutputsThatHaveGradients) {
  int withoutGradient = 0;
  for (const char* name : {"hf_llama", "hf_bert", "gpt_small"}) {
    SCOPED_TRACE(name);
    const ModelGraph graph = sample(name);
    Profile profile = estimate(graph, exportedBatch(graph), loadCluster("cpu-workstation"));
    for (NodeCost& node : profile.nodes) node.forward += 1'000'000'000;  // so that nothing is computed again instead of sent
    ModelCosts model(graph, profile, profile.microbatch);
    for (const SplitPoint& point : splitPoints(graph, bindBatch(graph, profile.microbatch))) {
      Partition partition = model.cut({point.begin}).orThrow();
      StageSpec& first = partition.stages.front();
      first.checkpoints = {{first.begin, first.end}};
      const StageCost cost = model.costTable(partition, loopPlacement({2, 2, 1}), 1).stages.front();
      Bytes kept = cost.dataBytes;
      bool hasViews = false;  // which are in the memory of what they show
      for (const Transfer& t : partition.transfers) {
        hasViews = hasViews || viewedBases(graph)[t.value.index()] != t.value;
        kept += t.gradient ? t.bytes : 0;
      }
      if (hasViews) continue;
      EXPECT_EQ(cost.activationBytes, kept) << point.name;
      withoutGradient += static_cast<int>(std::ranges::count(partition.transfers, false, &Transfer::gradient));
    }
  }
  EXPECT_GT(withoutGradient, 0);
}

TEST(ModelCosts, PriceAsManyPlansAsOne) {
  const ModelGraph graph = sample("gpt_small");
  const Profile profile = estimate(graph, 2, loadCluster("a100-nvlink"));
  const auto points = splitPoints(graph, bindBatch(graph, 2));
  ModelCosts model(graph, profile, 2);
  std::mt19937_64 random(5);
  for (const char* schedule : {"1f1b", "zbv", "dualpipe"}) {
    const Generator& family = generatorOf(schedule);
    const Schedule rows = planRows(generate(schedule, {2, 2 * family.chunks, 8}), 2);
    CompiledRows compiled(rows);
    for (int i = 0; i < 9; ++i) {
      PlanRequest request;
      request.schedule = schedule;
      request.replicas = 2;
      request.microbatch = 2;
      request.begins = randomBegins(random, points, static_cast<std::size_t>(2 * family.chunks - 1));
      request.optimizer.kind = OptimizerSpec::Kind::AdamW;
      request.recompute = parseRecompute({i % 3 == 0 ? "none" : i % 3 == 1 ? "full" : "auto"});
      request.memoryLimit = Bytes{1 << 20} * draw(random, 8, 60);
      SCOPED_TRACE(fmt::format("{} {}", schedule, i));
      EXPECT_EQ(price(request, model, compiled), price(request, graph, profile, rows));
    }
  }
}

/// The plain dynamic program over all positions: fewest crossing bytes with no stage above the lightest heaviest one and 1 %.
std::vector<NodeId> plainBalance(const std::vector<SplitPoint>& points, const std::vector<double>& weight, int stages) {
  std::vector<std::size_t> at{0};
  std::vector<Bytes> crossing{0};
  for (const SplitPoint& point : points) {
    at.push_back(point.begin.index());
    crossing.push_back(point.crossing);
  }
  at.push_back(weight.size());
  crossing.push_back(0);
  std::vector<double> prefix{0};
  for (const double w : weight) prefix.push_back(prefix.back() + w);
  const auto between = [&](std::size_t i, std::size_t j) { return prefix[at[j]] - prefix[at[i]]; };
  const std::size_t k = at.size();
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  std::vector<double> best(k, kInfinite);
  best[0] = 0;
  for (int s = 0; s < stages; ++s) {
    std::vector<double> next(k, kInfinite);
    for (std::size_t j = 1; j < k; ++j) {
      for (std::size_t i = 0; i < j; ++i) next[j] = std::min(next[j], std::max(best[i], between(i, j)));
    }
    best = next;
  }
  const double limit = best[k - 1] * 1.01 + 1e-9;
  std::vector<double> bytes(k, kInfinite);
  bytes[0] = 0;
  std::vector<std::vector<std::size_t>> from(static_cast<std::size_t>(stages), std::vector<std::size_t>(k, 0));
  for (auto& source : from) {
    std::vector<double> next(k, kInfinite);
    for (std::size_t j = 1; j < k; ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        const double sum = bytes[i] + static_cast<double>(crossing[i]);
        if (between(i, j) > limit || sum >= next[j]) continue;
        next[j] = sum;
        source[j] = i;
      }
    }
    bytes = next;
  }
  std::vector<NodeId> begins;
  std::size_t j = k - 1;
  for (std::size_t s = from.size(); s-- > 1;) begins.emplace_back(at[j = from[s][j]]);
  std::reverse(begins.begin(), begins.end());
  return begins;
}

TEST(Balancer, CutsAsThePlainDynamicProgramDoes) {
  const ModelGraph graph = chain(24);
  const auto points = splitPoints(graph, bindBatch(graph, 1));
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Profile profile;
    std::vector<double> weight;
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      NodeCost cost;
      cost.forward = oneIn(random, 4) ? 0 : draw<Ns>(random, 1, seed % 2 == 0 ? Ns{4} : Ns{1'000});  // many that weigh the same, or none
      profile.nodes.push_back(cost);
      weight.push_back(static_cast<double>(cost.forward));
    }
    const Balancer balancer(graph, profile);
    for (const int stages : {2, 3, 5, 8, 20})
      EXPECT_EQ(balancer.begins(stages, Balance::Time).orThrow(), plainBalance(points, weight, stages)) << stages;
  }
}

}  // namespace
}  // namespace pw::test
