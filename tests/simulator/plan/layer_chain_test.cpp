// Plans of layer tables against a simulation and a count of memory written apart.
#include "simulator/costs/layer_chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <tuple>

#include "schedules/check.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/costs/estimate.h"
#include "simulator/partition/model_costs.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/made_order.h"
#include "simulator/plan/planner.h"
#include "simulator/report/metrics.h"
#include "simulator/search/orders.h"
#include "simulator/search/profiles.h"
#include "simulator/search/search.h"
#include "tests/support/all_splits.h"
#include "tests/support/counts.h"
#include "tests/support/order_reference.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

LayerTable randomTable(std::mt19937_64& random, int layers, bool sends) {
  LayerTable table{"random", draw(random, 1, 4), draw<Ns>(random, 0, 2), 0, {}};
  for (int i = 0; i < layers; ++i) {
    Layer layer{"layer" + std::to_string(i),
                draw<Ns>(random, 0, 9),
                draw<Ns>(random, 0, 9),
                draw<Ns>(random, 0, 9),
                draw<Bytes>(random, 0, 50),
                draw<Bytes>(random, 0, 20),
                0,
                draw<Bytes>(random, 0, 9),
                Layer::kByLink,
                ""};
    layer.afterInput = draw<Bytes>(random, 0, 25);
    if (sends) layer.sent = draw<Ns>(random, 0, 12);
    table.layers.push_back(layer);
  }
  return table;
}

/// What one split of a table takes.
struct Expected {
  Ns makespan = 0;
  std::vector<Bytes> peaks;

  bool operator==(const Expected&) const = default;
};

/// Executes the compute-only rows one action at a time: an action starts when its rank is free and what it needs has arrived `sent` after
/// the end of the action that made it, or at once on the same rank. Memory: what the table's words say, counted action by action.
class SlowPipeline {
 public:
  SlowPipeline(const LayerTable& table, const std::vector<NodeId>& begins, const Schedule& schedule, int stateCopies)
      : schedule_(schedule) {
    for (auto& row : schedule_.rows) std::erase_if(row, [](const Action& a) { return !isCompute(a.kind); });  // idle slots
    std::size_t layer = 0;
    for (std::size_t s = 0; s <= begins.size(); ++s) {
      Layer sum{};
      sum.sent = 0;
      overhead_ = table.actionOverhead;
      for (const std::size_t end = s < begins.size() ? begins[s].index() : table.layers.size(); layer < end; ++layer) {
        const Layer& one = table.layers[layer];
        sum.forward += one.forward;
        sum.input += one.input;
        sum.weight += one.weight;
        sum.parameters += one.parameters * (1 + stateCopies);
        sum.activations += one.activations;
        sum.afterInput += one.afterInput;
        sum.sent = std::max<Ns>(0, one.sent);  // of the last layer
      }
      stages_.push_back(sum);
    }
  }

  Expected run() {
    Expected expected;
    for (std::size_t r = 0; r < schedule_.rows.size(); ++r) {
      Bytes now = 0;
      for (std::size_t s = 0; s < stages_.size(); ++s) now += rankOf(s) == r ? stages_[s].parameters : 0;
      Bytes most = now;
      for (const Action& a : schedule_.rows[r]) {
        const Layer& stage = stages_[a.stage.index()];
        if (a.kind == ActionKind::Forward) now += stage.activations;
        most = std::max(most, now);
        if (a.kind == ActionKind::Backward) now -= stage.activations;
        if (a.kind == ActionKind::BackwardInput) now += stage.afterInput - stage.activations;
        most = std::max(most, now);
        if (a.kind == ActionKind::BackwardWeight) now -= stage.afterInput;
      }
      expected.peaks.push_back(most);
    }
    std::vector<std::size_t> next(schedule_.rows.size(), 0);
    std::vector<Ns> free(schedule_.rows.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < next.size(); ++r) {
        if (next[r] == schedule_.rows[r].size()) continue;
        const Action& a = schedule_.rows[r][next[r]];
        const auto ready = readyAt(a);
        if (!ready) continue;
        free[r] = std::max(free[r], *ready) + durationOf(a);
        ends_[{a.kind == ActionKind::Forward, a.kind == ActionKind::BackwardWeight, a.stage.index(), a.microbatch.index()}] = free[r];
        expected.makespan = std::max(expected.makespan, free[r]);
        ++next[r];
        moved = true;
      }
    }
    for (std::size_t r = 0; r < next.size(); ++r) EXPECT_EQ(next[r], schedule_.rows[r].size());
    return expected;
  }

 private:
  [[nodiscard]] std::size_t rankOf(std::size_t stage) const { return schedule_.placement.rankOfStage[stage].index(); }
  [[nodiscard]] Ns durationOf(const Action& a) const {
    const Layer& stage = stages_[a.stage.index()];
    if (a.kind == ActionKind::Forward) return overhead_ + stage.forward;
    if (a.kind == ActionKind::Backward) return overhead_ + stage.input + stage.weight;
    return overhead_ + (a.kind == ActionKind::BackwardInput ? stage.input : stage.weight);
  }
  /// When what the action needs from another stage is there; nothing if that has not been done.
  [[nodiscard]] std::optional<Ns> readyAt(const Action& a) const {
    const std::size_t s = a.stage.index();
    const bool forward = a.kind == ActionKind::Forward;
    if (a.kind == ActionKind::BackwardWeight || (forward ? s == 0 : s + 1 == stages_.size())) return Ns{0};
    const std::size_t other = forward ? s - 1 : s + 1;
    const auto found = ends_.find({forward, false, other, a.microbatch.index()});
    if (found == ends_.end()) return std::nullopt;
    return found->second + (rankOf(s) == rankOf(other) ? 0 : stages_[std::min(s, other)].sent);
  }

  Schedule schedule_;
  std::vector<Layer> stages_;
  Ns overhead_ = 0;
  std::map<std::tuple<bool, bool, std::size_t, std::size_t>, Ns> ends_;  ///< whether F, whether W, stage, microbatch
};

Expected planned(const ModelGraph& chain, const Profile& profile, const std::vector<NodeId>& begins, const Schedule& schedule,
                 OptimizerSpec::Kind optimizer) {
  PlanRequest request;
  request.microbatch = profile.microbatch;
  request.begins = begins;
  request.optimizer.kind = optimizer;
  const Schedule rows = planRows(schedule, 1);
  CostTable costs = price(request, chain, profile, rows).costs;
  addOptimizerState(costs, stateCopies(request.optimizer), 1);
  const Metrics metrics = metricsOf(simulate(rows, costs));
  Expected expected{metrics.makespan, {}};
  for (const RankMetrics& rank : metrics.ranks) expected.peaks.push_back(rank.peakBytes);
  return expected;
}

struct Case {
  const char* schedule;
  int ranks, stages, microbatches;
};

TEST(LayerChain, EverySplitTakesExactlyTheTimeAndMemoryOfTheTable) {
  std::mt19937_64 random(11);
  for (const Case& c : {Case{"1f1b", 2, 2, 3},
                        {"1f1b", 3, 3, 4},
                        {"gpipe", 3, 3, 4},
                        {"zb-h1", 2, 2, 5},
                        {"zb-h1", 3, 3, 4},
                        {"interleaved-1f1b", 2, 4, 4},
                        {"zbv", 2, 4, 5}}) {
    const Schedule schedule = generate(c.schedule, {c.ranks, c.stages, c.microbatches});
    for (int t = 0; t < 12; ++t) {
      const LayerTable table = randomTable(random, c.stages + t % 4, t % 3 != 0);
      SCOPED_TRACE(std::string(c.schedule) + ", table " + std::to_string(t) + "\n" + toJson(table));
      const ModelGraph chain = chainOf(table, "/t.json");
      const Profile profile = profileOf(chain);
      for (const std::vector<NodeId>& begins : allBegins(static_cast<int>(table.layers.size()), c.stages)) {
        for (const auto kind : {OptimizerSpec::Kind::Sgd, OptimizerSpec::Kind::AdamW}) {
          const Expected expected = SlowPipeline(table, begins, schedule, kind == OptimizerSpec::Kind::AdamW ? 2 : 0).run();
          const Expected found = planned(chain, profile, begins, schedule, kind);
          ASSERT_EQ(found.makespan, expected.makespan);
          ASSERT_EQ(found.peaks, expected.peaks);
        }
      }
    }
  }
}

TEST(LayerChain, SearchFindsTheBestOfAllSplitsThatFit) {
  std::mt19937_64 random(23);
  int limited = 0;
  constexpr int kChains = 2'000;
  for (int t = 0; t < kChains; ++t) {
    const LayerTable table = randomTable(random, 8, true);
    const ModelGraph chain = chainOf(table, "/t.json");
    constexpr std::array<const char*, 4> kFamilies{"1f1b", "zb-h1", "gpipe", "zb-h2"};
    const Schedule schedule = generate(kFamilies[static_cast<std::size_t>(t) % 4], {3, 3, 5});
    std::vector<std::pair<Bytes, Ns>> all;  // peak and makespan of each split
    for (const std::vector<NodeId>& begins : allBegins(8, 3)) {
      const Expected expected = SlowPipeline(table, begins, schedule, 0).run();
      all.emplace_back(*std::ranges::max_element(expected.peaks), expected.makespan);
    }
    std::vector<Bytes> peaks;
    peaks.reserve(all.size());
    for (const auto& [peak, makespan] : all) peaks.push_back(peak);
    std::ranges::sort(peaks);
    SearchSpace space;
    space.base.ranks = 3;
    space.base.memoryLimit = t % 3 == 0 ? 0 : peaks[static_cast<std::size_t>(t) % 5];  // hard: few splits fit
    space.microbatches = {5};
    space.schedules = {schedule.name};
    space.recompute = false;
    const Candidate best = searchPlans(chain, measuredProfiles({std::make_shared<Profile>(profileOf(chain))}), space).candidates.front();
    Ns fastest = -1;
    for (const auto& [peak, makespan] : all) {
      if (space.base.memoryLimit > 0 && peak > space.base.memoryLimit) continue;
      fastest = fastest < 0 ? makespan : std::min(fastest, makespan);
    }
    EXPECT_TRUE(best.fits()) << t;
    EXPECT_EQ(best.makespan, fastest) << t << "\n" << toJson(table);
    limited += best.fits() && space.base.memoryLimit > 0 ? 1 : 0;
  }
  EXPECT_EQ(limited, kChains - (kChains + 2) / 3);
}

/// The best of all cuts, each with an order made for it as long as the search makes them.
TEST(LayerChain, SearchFindsTheBestOfAllCutsWithOrdersOfTheirOwn) {
  std::mt19937_64 random(29);
  int limited = 0, cutElsewhere = 0;
  for (int t = 0; t < 12; ++t) {
    const LayerTable table = randomTable(random, 7, true);
    const ModelGraph chain = chainOf(table, "/t.json");
    const auto profile = std::make_shared<Profile>(profileOf(chain));
    SearchSpace space;
    space.base.ranks = 2 + t % 2;
    space.microbatches = {4};
    space.chunks = {1};
    space.recompute = false;
    space.orders = 1;
    space.schedules = {"auto"};
    PlanRequest request = space.base;
    request.microbatches = 4;
    request.schedule = "auto";
    request.microbatch = profile->microbatch;
    ModelCosts model(chain, *profile, profile->microbatch);
    const std::vector<std::vector<NodeId>> cuts = allBegins(7, request.ranks);
    if (t % 3 > 0) {  // a limit that hard: not every cut fits
      std::vector<Bytes> peaks;
      for (const auto& begins : cuts) {
        const Schedule schedule = generate("1f1b", {request.ranks, request.ranks, 4});
        const Expected plan = planned(chain, *profile, begins, schedule, OptimizerSpec::Kind::Sgd);
        peaks.push_back(*std::ranges::max_element(plan.peaks));
      }
      std::ranges::sort(peaks);
      request.memoryLimit = space.base.memoryLimit = peaks[peaks.size() / 4];
    }
    Ns best = -1;
    for (const auto& begins : cuts) {
      request.begins = begins;
      const MadeOrder made = makeOrder(request, model, request.ranks, {.seconds = kOrderSeconds});
      if (!made.certificate) continue;
      EXPECT_LE(orderBound(request, model, request.ranks), made.certificate->time);
      if (best < 0 || made.certificate->time < best) best = made.certificate->time;
    }
    const Candidate found = searchPlans(chain, measuredProfiles({profile}), space).candidates.front();
    EXPECT_EQ(found.fits(), best >= 0) << t;
    if (best < 0) continue;
    EXPECT_EQ(found.makespan, best) << t << "\n" << toJson(table);
    limited += space.base.memoryLimit > 0 ? 1 : 0;
    cutElsewhere += found.moves > 0 ? 1 : 0;
  }
  EXPECT_GT(limited, 4);
  EXPECT_GT(cutElsewhere, 1);
}

/// The least makespan of all cuts and all orders of split backwards on two ranks; nothing where none fits.
std::optional<Ns> leastOfAll(const LayerTable& table, int microbatches, Bytes limit) {
  std::array<std::vector<std::vector<Action>>, 2> rows;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    std::vector<Action> row;
    std::vector<int> done(static_cast<std::size_t>(microbatches), 0);
    allRows(row, done, {Stage(rank)}, microbatches, true, rows[rank]);
  }
  std::optional<Ns> least;
  for (const auto& first : rows[0]) {
    for (const auto& second : rows[1]) {
      const Schedule schedule{"all", microbatches, loopPlacement({2, 2, microbatches}), {first, second}, false};
      if (!check(schedule).empty()) continue;
      for (const std::vector<NodeId>& begins : allBegins(static_cast<int>(table.layers.size()), 2)) {
        const Expected expected = SlowPipeline(table, begins, schedule, 0).run();
        if (limit > 0 && *std::ranges::max_element(expected.peaks) > limit) continue;
        least = std::min(least.value_or(expected.makespan), expected.makespan);
      }
    }
  }
  return least;
}

TEST(LayerChain, SearchFindsTheBestOfAllCutsAndAllOrders) {
  std::mt19937_64 random(31);
  const int chains = static_cast<int>(countFrom("PW_ORDERS", 100));
  int limited = 0, impossible = 0;
  for (int t = 0; t < chains; ++t) {
    LayerTable table = randomTable(random, static_cast<int>(draw(random, 3, 6)), true);
    table.actionOverhead = 0;  // else a whole backward is faster than its parts, and those here are split
    for (Layer& layer : table.layers) layer.afterInput = std::min(layer.afterInput, layer.activations);
    const ModelGraph chain = chainOf(table, "/t.json");
    SearchSpace space;
    space.base.ranks = 2;
    space.microbatches = {t % 10 == 0 ? 3 : 2};
    space.chunks = {1};
    space.schedules = {"auto"};
    space.recompute = false;
    Bytes all = 0;
    for (const Layer& layer : table.layers) all += layer.parameters + layer.activations;
    if (t % 3 > 0) space.base.memoryLimit = std::max<Bytes>(1, draw<Bytes>(random, all / 2, all));
    const Candidate best = searchPlans(chain, measuredProfiles({std::make_shared<Profile>(profileOf(chain))}), space).candidates.front();
    const std::optional<Ns> least = leastOfAll(table, space.microbatches.front(), space.base.memoryLimit);
    ASSERT_EQ(best.fits(), least.has_value()) << t << "\n" << toJson(table);
    limited += least && space.base.memoryLimit > 0 ? 1 : 0;
    impossible += least ? 0 : 1;
    if (least) {
      EXPECT_EQ(best.makespan, *least) << t << ", limit " << space.base.memoryLimit << "\n" << toJson(table);
    }
  }
  EXPECT_GT(limited, chains / 4);
  EXPECT_GT(impossible, 0);
}

TEST(LayerChain, ClusterGivesTheTimeOfMessagesWithoutOne) {
  LayerTable table{"two", 1, 0, 0, {}};
  table.layers.push_back({"a", 10, 10, 10, 0, 0, 0, 3000, Layer::kByLink, ""});
  table.layers.push_back({"b", 10, 10, 10, 0, 0, 0, 0, Layer::kByLink, ""});
  Cluster cluster;
  cluster.topology.ranksPerNode = 2;
  cluster.topology.sameNode = {100, 1e9};  // 3 µs for 3,000 bytes
  const Schedule schedule = generate("gpipe", {2, 2, 1});
  const auto makespan = [&](const Profile& profile, const ModelGraph& chain) {
    return planned(chain, profile, {NodeId(1)}, schedule, OptimizerSpec::Kind::Sgd).makespan;
  };
  const ModelGraph free = chainOf(table, "/t.json");
  EXPECT_EQ(makespan(profileOf(free), free), 60);
  EXPECT_EQ(makespan(estimate(free, 1, cluster), free), 60 + 2 * (100 + 3000)) << "there and back";
  table.layers[0].sent = 7;
  const ModelGraph timed = chainOf(table, "/t.json");
  EXPECT_EQ(makespan(estimate(timed, 1, cluster), timed), 60 + 2 * 7) << "the table's own time comes first";
}

TEST(LayerChain, KeepsItsOwnTimeOfTheOptimizerOnACluster) {
  Cluster cluster;
  cluster.memoryBytesPerSecond = 1e12;
  cluster.memoryEfficiency = 1;
  LayerTable table{"one", 1, 0, 0, {}};
  table.layers.push_back({"a", 10, 10, 10, 8, 0, 0, 0, Layer::kByLink, ""});
  EXPECT_DOUBLE_EQ(estimate(chainOf(table, "/t.json"), 1, cluster).optimizerNsPerByte, 3e9 / 1e12);
  table.optimizerNsPerByte = 10;
  EXPECT_DOUBLE_EQ(estimate(chainOf(table, "/t.json"), 1, cluster).optimizerNsPerByte, 10);
}

TEST(LayerChain, SplitsHaveTheNamesOfLayersWhateverTheirModules) {
  LayerTable table{"named", 1, 0, 0, {}};
  for (const char* name : {"blocks.0", "blocks.1", "blocks.1:end", "@0", "head, last"}) {
    table.layers.push_back({name, 1, 1, 1, 0, 0, 0, 0, Layer::kByLink, name[0] == 'b' ? "blocks" : "tail.deep"});
  }
  const ModelGraph chain = chainOf(table, "/t.json");
  const std::vector<SplitPoint> points = splitPoints(chain, bindBatch(chain, 1));
  ASSERT_EQ(points.size(), 4U);
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(points[i].name, i == 3 ? "@4" : table.layers[i + 1].name) << "a comma separates names";
    EXPECT_EQ(findSplit(chain, points[i].name), NodeId(i + 1)) << points[i].name;
  }
}

TEST(LayerChain, CannotBeRecomputed) {
  std::mt19937_64 random(3);
  const ModelGraph chain = chainOf(randomTable(random, 4, false), "/t.json");
  const Profile profile = profileOf(chain);
  PlanRequest request;
  request.microbatch = profile.microbatch;
  request.begins = {NodeId(2)};
  request.recompute = RecomputeFull();
  EXPECT_THROW(static_cast<void>(price(request, chain, profile, planRows(generate("1f1b", {2, 2, 4}), 1))), UsageError);
}

}  // namespace
}  // namespace pw::test
