#include "simulator/layout/best.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "simulator/costs/layer_chain.h"
#include "simulator/layout/blocks.h"
#include "simulator/layout/rules.h"
#include "simulator/runtime/runtime.h"
#include "simulator/step/execute.h"
#include "simulator/step/posting.h"

namespace pw {
namespace {

Layer layer(const std::string& name, Ns forward, Ns input, Ns weight) {
  Layer of;
  of.name = name;
  of.forward = forward;
  of.input = input;
  of.weight = weight;
  of.sent = 0;
  return of;
}

/// The step of a layout by way of its string and `layOut`: a chain of exactly its stages, priced and simulated from the beginning, as
/// Megatron posts its messages.
Ns stepOf(const LayerTable& table, const Layout& layout, const LayoutShape& shape, const Topology& links = {}, int replicas = 1) {
  const LaidOutTable laidOut = layOut(table, parseLayout(toString(layout)));
  const ModelGraph graph = chainOf(laidOut.table, "table");
  PlanRequest request;
  for (const std::size_t begin : laidOut.begins) request.begins.emplace_back(begin);
  request.replicas = replicas;
  Profile profile = profileOf(graph);
  profile.topology = links;
  const Schedule rows = planRows(megatronSchedule(shape), replicas);
  const CostTable costs = price(request, graph, profile, rows).costs;
  const RuntimeRows megatron = megatronRows(rows);
  const Program program = compile(megatron.rows, costs, megatron.posting).program;
  Times times;
  execute(program, times);
  return pw::stepOf(megatron.rows, costs, program, times);
}

/// All ways to cut the letters into so many stages, empty ones included.
void cuts(const std::string& letters, int stages, std::size_t from, Layout& layout, std::vector<Layout>& all) {
  const auto letter = [](char c) {
    return c == 'E' ? LayoutLayer::Embedding : c == 't' ? LayoutLayer::Transformer : c == 'm' ? LayoutLayer::Mtp : LayoutLayer::Loss;
  };
  for (std::size_t end = stages == 1 ? letters.size() : from; end <= letters.size(); ++end) {
    layout.stages.emplace_back();
    for (std::size_t i = from; i < end; ++i) layout.stages.back().push_back(letter(letters[i]));
    if (stages == 1)
      all.push_back(layout);
    else
      cuts(letters, stages - 1, end, layout, all);
    layout.stages.pop_back();
  }
}

struct Case {
  LayerTable table;
  LayoutShape shape;
  std::string letters;
};

Case randomCase(std::mt19937& random) {
  const auto up = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  const auto time = [&](int least, int most) { return Ns(up(least, most)); };
  Case c;
  c.shape = {up(2, 3), up(1, 2), 0};
  c.shape.microbatches = c.shape.ranks * up(1, 2);
  c.table.name = "random";
  c.table.microbatch = 1;
  c.table.actionOverhead = time(0, 1);
  const bool embedding = up(0, 1) == 1, loss = up(0, 1) == 1;
  const int mtp = up(0, 3) / 3;
  if (embedding) c.table.layers.push_back(layer("embedding", time(0, 9), time(0, 9), time(0, 9)));
  c.letters = "E";
  for (int i = 0, n = up(2, 6); i < n; ++i, c.letters += 't')
    c.table.layers.push_back(layer("blocks." + std::to_string(i), time(1, 9), time(0, 9), time(0, 9)));
  for (int i = 0; i < mtp; ++i, c.letters += 'm')
    c.table.layers.push_back(layer("mtp." + std::to_string(i), time(1, 9), time(0, 9), time(0, 9)));
  if (loss) c.table.layers.push_back(layer("head", time(0, 20), time(0, 20), time(0, 20)));
  c.letters += 'L';
  for (Layer& of : c.table.layers) of.sent = time(0, 3);
  return c;
}

// 200 cases here; PW_LAYOUTS=10000 for as many as that.
TEST(BestLayout, IsTheOneThatBruteForceFinds) {
  const char* wanted = std::getenv("PW_LAYOUTS");
  const int cases = wanted != nullptr ? std::atoi(wanted) : 200;
  std::mt19937 random(3);
  for (int i = 0; i < cases; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Case c = randomCase(random);
    std::vector<Layout> all;
    Layout none;
    cuts(c.letters, c.shape.stages(), 0, none, all);
    Ns best = std::numeric_limits<Ns>::max();
    double valid = 0;
    for (const Layout& layout : all) {
      const bool ends = !layout.stages.front().empty() && !layout.stages.back().empty();  // E and L where Megatron builds them
      if (!ends || !problemsOf(layout, {c.shape.ranks}).empty()) continue;
      ++valid;
      best = std::min(best, stepOf(c.table, layout, c.shape));
    }
    TimedLayouts layouts(c.table, {}, c.shape, {});
    const BestLayout found = bestLayout(layouts, c.shape);
    ASSERT_TRUE(found.all);
    ASSERT_EQ(found.times.step, best) << c.letters << ", " << toString(layouts.layoutOf(found.begins));
    ASSERT_TRUE(problemsOf(layouts.layoutOf(found.begins), {c.shape.ranks}).empty());
    ASSERT_EQ(stepOf(c.table, layouts.layoutOf(found.begins), c.shape), best);
    if (c.letters.find('m') == std::string::npos) {
      ASSERT_EQ(found.layouts, valid);
    }
  }
}

/// Expects of all layouts of three layers on four stages the times that these links have.
void expectTimesOfAll(TimedLayouts& layouts, const LayerTable& table, const LayoutShape& shape, const Topology& links, int replicas) {
  int timed = 0;
  const std::vector<std::size_t>& places = layouts.places();
  for (const std::size_t a : places) {
    for (const std::size_t b : places) {
      for (const std::size_t c : places) {
        if (a > b || b > c) continue;
        const Layout layout = layouts.layoutOf({a, b, c});
        ++timed;
        EXPECT_EQ(layouts.times({a, b, c}).step, stepOf(table, layout, shape, links, replicas)) << toString(layout);
      }
    }
  }
  EXPECT_EQ(timed, 20);  // of four places three, with repetition
}

// Three layers on four stages, two replicas: whichever stage is empty has no gradients to sum, and its reduction takes no time.
TEST(TimedLayouts, CompileOnceWhicheverStagesAreEmpty) {
  LayerTable table{"few", 1, 0, 0, {}};
  for (int i = 0; i < 3; ++i) {
    table.layers.push_back(layer("blocks." + std::to_string(i), Ns(3 + i), 2, Ns(1 + i)));
    table.layers.back().parameters = Bytes(40 * (1 + i));
    table.layers.back().sent = 1;
  }
  Topology links;
  links.sameNode = {7, 1e9};
  const LayoutShape shape{2, 2, 4};
  PlanRequest like;
  like.replicas = 2;
  Profile costs;
  costs.topology = links;
  TimedLayouts layouts(table, costs, shape, like);
  expectTimesOfAll(layouts, table, shape, links, like.replicas);
  EXPECT_EQ(layouts.compilations(), 2);
}

/// A rank whose own profile takes three times as long everywhere is one of a third of the speed, in all layouts.
TEST(TimedLayouts, TakeRanksWithCostsOfTheirOwnAsFastAsTheseAre) {
  LayerTable table{"few", 1, 0, 0, {}};
  for (int i = 0; i < 3; ++i) table.layers.push_back(layer("blocks." + std::to_string(i), Ns(3 + i), 2, Ns(1 + i)));
  Profile costs = profileOf(chainOf(table, "table")), slow = costs;
  for (NodeCost& node : slow.nodes) {
    for (Ns* time : {&node.forward, &node.backward, &node.weight}) *time *= 3;
  }
  Topology slower;
  slower.ranks = {{}, {1.0 / 3}};
  costs.topology.ranks = {{}, {}};
  costs.topology.ranks[1].own = {"slow.json", std::make_shared<const Profile>(slow)};
  const LayoutShape shape{2, 2, 4};
  TimedLayouts layouts(table, costs, shape, {});
  expectTimesOfAll(layouts, table, shape, slower, 1);
}

// 64 equal layers on 8 ranks, two chunks each: four in every stage take M V (f + b) and a bubble of (R − 1) (f + b); all ranks together
// cannot be faster than their work, and the last one starts after a microbatch's forward through at least one stage.
TEST(BestLayout, IsNoLongerThanTheEvenOne) {
  LayerTable table{"equal", 1, 0, 0, {}};
  for (int i = 0; i < 64; ++i) table.layers.push_back(layer("blocks." + std::to_string(i), 1, 1, 1));
  const LayoutShape shape{8, 2, 16};
  TimedLayouts layouts(table, {}, shape, {});
  const BestLayout found = bestLayout(layouts, shape);
  EXPECT_FALSE(found.all);
  EXPECT_LE(found.times.makespan, (16 * 2 + 7) * 4 * 3);
  EXPECT_GT(found.times.makespan, 16 * 64 * 3 / 8);
  EXPECT_EQ(stepOf(table, layouts.layoutOf(found.begins), shape), found.times.step);
}

// The head takes as long as three layers: 1F1B of 13 equal shares on 4 ranks cannot be even, but no rank needs more than 4.
TEST(BestLayout, LeavesRoomForTheHead) {
  LayerTable table{"head", 1, 0, 0, {}};
  for (int i = 0; i < 13; ++i) table.layers.push_back(layer("blocks." + std::to_string(i), 1, 1, 1));
  table.layers.push_back(layer("head", 3, 3, 3));
  const LayoutShape shape{4, 1, 16};
  TimedLayouts layouts(table, {}, shape, {});
  const BestLayout found = bestLayout(layouts, shape);
  EXPECT_TRUE(found.all);
  EXPECT_EQ(toString(layouts.layoutOf(found.begins)), "Et*4|t*4|t*4|tL");
  EXPECT_EQ(found.times.makespan, (16 + 3) * 4 * 3);
}

// A quarter of the layers is slower. With four stages on each rank as many layers in each give all ranks the same work, which the cut that
// is even by work does not lead to by single moves.
TEST(BestLayout, IsNoLongerThanAsManyLayersInEachStage) {
  LayerTable table{"uneven", 1, 0, 0, {}};
  for (int i = 0; i < 32; ++i) {
    const Ns time(i / 8 == 2 ? 162 : 125);
    table.layers.push_back(layer("blocks." + std::to_string(i), time, time, time));
    table.layers.back().sent = 20;
  }
  const LayoutShape shape{4, 4, 8};
  TimedLayouts layouts(table, {}, shape, {});
  std::vector<std::size_t> even;
  for (std::size_t s = 1; s < 16; ++s) even.push_back(2 * s);
  const BestLayout found = bestLayout(layouts, shape);
  EXPECT_FALSE(found.all);
  EXPECT_LE(found.times.step, layouts.times(even).step);
}

// Too many layouts to look at all: the search begins at the even cut, which has the MTP layer too early for Megatron.
TEST(BestLayout, MovesTheMtpLayerIntoTheLastStageOfARank) {
  LayerTable table{"mtp", 1, 0, 0, {}};
  table.layers.push_back(layer("embedding", 0, 0, 0));
  for (int i = 0; i < 16; ++i) table.layers.push_back(layer("blocks." + std::to_string(i), 1, 1, 1));
  table.layers.push_back(layer("mtp.0", 1, 1, 1));
  table.layers.push_back(layer("head", 8, 8, 8));
  const LayoutShape shape{4, 4, 16};
  TimedLayouts layouts(table, {}, shape, {});
  const BestLayout found = bestLayout(layouts, shape);
  EXPECT_FALSE(found.all);
  EXPECT_TRUE(problemsOf(layouts.layoutOf(found.begins), {shape.ranks}).empty());
}

TEST(LayoutBlocks, MakeTheLayoutOfAModelThatIsCut) {
  LayerTable table{"halves", 1, 0, 0, {}};
  for (const char* name : {"embed", "blocks.0.a", "blocks.0.b", "blocks.1.a", "blocks.1.b", "blocks.2.a", "blocks.2.b"})
    table.layers.push_back(layer(name, 1, 1, 1));
  const std::vector<LayoutBlock> blocks = blocksOf(chainOf(table, "table"));
  const CutLayout whole = layoutOf(blocks, {NodeId(3), NodeId(5)});
  EXPECT_EQ(toString(whole.layout), "Et|t|tL");
  EXPECT_EQ(whole.inside, "");
  const CutLayout cut = layoutOf(blocks, {NodeId(3), NodeId(6)});
  EXPECT_EQ(cut.inside, "blocks.2");
  EXPECT_EQ(cut.stage, Stage(2));
  EXPECT_EQ(toString(layoutOf(blocks, {NodeId(1)}).layout), "E|t*3L");
  EXPECT_EQ(toString(layoutOf(blocks, {}).layout), "Et*3L");
}

TEST(LayoutBlocks, AreTheNumberedLayersOfATable) {
  const auto letters = [](const std::vector<std::string>& names) {
    LayerTable table{"names", 1, 0, 0, {}};
    for (const std::string& name : names) table.layers.push_back(layer(name, 1, 1, 1));
    std::string text;
    for (const LayoutBlock& block : blocksOf(table)) text += letterOf(block.letter) + std::to_string(block.end - block.begin);
    return text;
  };
  EXPECT_EQ(letters({"embedding", "blocks.0", "blocks.1", "lm_head"}), "E1t1t1L1");
  EXPECT_EQ(letters({"start", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp", "ln_f", "lm_head"}), "E1t2t2L2");
  EXPECT_EQ(letters({"layer 1", "layer 2", "layer 3"}), "t1t1t1");
  EXPECT_EQ(letters({"a", "b", "c"}), "t1t1t1");
  EXPECT_EQ(letters({"emb", "a", "b", "final_norm", "loss"}), "E1t1t1L2");
  EXPECT_EQ(letters({"embedding", "layers.0", "@add_1", "layers.1", "mtp.0", "head"}), "E1t2t1m1L1");
  EXPECT_EQ(letters({"head"}), "t1");
  EXPECT_EQ(letters({"embed", "fc1", "layers.0.fc1", "layers.0.fc2", "layers.1.fc1", "pool1", "lm_head"}), "E2t2t1L2");
  EXPECT_EQ(
      letters({"encoder.layers.encoder_layer_0.ln_1", "encoder.layers.encoder_layer_0.mlp.0", "encoder.layers.encoder_layer_1.mlp.0"}),
      "t2t1");
  EXPECT_EQ(letters({"conv1", "bn1", "layer1.0.conv1", "layer1.1.conv1", "layer2.0.conv1", "fc"}), "E2t2t1L1");
}

}  // namespace
}  // namespace pw
