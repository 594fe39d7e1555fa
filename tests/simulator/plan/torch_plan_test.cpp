#include "simulator/plan/torch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

const Bindings kBindings{{"b", 2}};

/// Three linear layers, the first and last of them with one table.
ModelGraph model() {
  GraphBuilder b;
  const ValueId x = b.input("x"), table = b.parameter("table", "s"), w = b.parameter("w"), head = b.parameter("head", "s");
  const ValueId h = b.op("linear", {x, table}, "h");
  const ValueId m = b.op("linear", {h, w}, "m");
  return b.done(b.op("linear", {m, head}, "y"));
}

/// A stage for each layer: [1, 1, 1] on ranks as the schedule has them, with its sends and receives.
Plan plan(const Schedule& schedule) {
  Plan p;
  p.modelFiles = {"/models/hand.pt2"};
  p.modelName = "hand";
  p.microbatchSize = 2;
  p.batch = 2 * schedule.microbatches;
  p.loss = parseLoss("mse");
  p.partition = cutGraph(model(), {NodeId(1), NodeId(2)}, kBindings, nullptr);
  p.splitNames = {"@m", "@y"};
  p.schedule = lower(schedule);
  return p;
}

std::string refusal(const Plan& p, const ModelGraph& graph = model()) {
  try {
    (void)torchPlan(p, graph);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(TorchPlan, HoldsTheScheduleBeforeLoweringAndWhatTheScriptNeeds) {
  const Schedule schedule = generate("1f1b", {3, 3, 4});
  const TorchPlan exported = torchPlan(plan(schedule), model());
  EXPECT_EQ(exported.schedule, toCsv(schedule));
  EXPECT_TRUE(exported.notes.empty());
  Json settings = Json::parse(exported.settings);
  EXPECT_EQ(settings.at("optimizers").at("adamw"), "AdamW");
  EXPECT_EQ(settings.at("optimizers").size(), kOptimizers.size());
  settings.erase("optimizers");
  EXPECT_EQ(settings, Json::parse(R"({
    "model": "/models/hand.pt2", "schedule": "1f1b", "ranks": 3, "replicas": 1, "microbatches": 4, "microbatch": 2, "precision": "traced",
    "begins": ["m", "y"], "recomputed": [[], [], []], "split_points": ["@m", "@y"], "stage_to_rank": [0, 1, 2],
    "inputs": [{"name": "x", "dtype": "float32", "shape": [2, 4], "whole": false}],
    "loss": "mse", "loss_output": 0, "output_shape": [2, 4],
    "shared": [{"names": ["table", "head"], "stages": [0, 2]}]})"));
}

TEST(TorchPlan, TakesAnOutputOfTheModelAsItsLoss) {
  Plan p = plan(generate("1f1b", {3, 3, 4}));
  p.loss = parseLoss("output:y");
  EXPECT_EQ(Json::parse(torchPlan(p, model()).settings).at("loss"), "output");
  p.loss = parseLoss("output:z");
  EXPECT_THAT(refusal(p), HasSubstr("has no output z"));
}

TEST(TorchPlan, SaysWhatTorchDoesDifferently) {
  Plan p = plan(generate("1f1b", {3, 3, 4}));
  p.batch = 7;
  p.partition.stages[1].checkpoints = {{NodeId(1), NodeId(2)}};
  const TorchPlan exported = torchPlan(p, model());
  EXPECT_THAT(exported.notes, testing::ElementsAre(HasSubstr("recomputes activations"), HasSubstr("a step has 8 samples")));
}

TEST(TorchPlan, RefusesWhatTorchCannotRun) {
  Plan p = plan(generate("1f1b", {3, 3, 4}));
  p.modelFiles.emplace_back("/models/more.pt2");
  EXPECT_THAT(refusal(p), HasSubstr("exported in 2 archives"));
  Plan mirrored = plan(generate("1f1b", {3, 3, 4}));
  mirrored.schedule.placement.mirrorOfStage = {Rank(2), Rank(1), Rank(0)};
  mirrored.schedule.placement.firstMirrored = Microbatch(2);
  EXPECT_THAT(refusal(mirrored), HasSubstr("two replicas of each stage"));
  // h goes to the stages of m and of y; or past that of m to that of y alone.
  const auto skipping = [](bool alsoNext, const std::vector<NodeId>& begins, const Schedule& schedule) {
    GraphBuilder b;
    const ValueId x = b.input("x"), w = b.parameter("w"), v = b.parameter("v");
    const ValueId h = b.op("linear", {x, w}, "h"), k = b.op("linear", {x, v}, "k");
    const ValueId y = b.op("add.Tensor", {b.op("relu", {alsoNext ? h : k}, "m"), h}, "y");
    const ModelGraph graph = b.done(b.op("relu", {y}, "z"));
    Plan cut = plan(generate("1f1b", {3, 3, 4}));
    cut.partition = cutGraph(graph, begins, kBindings, nullptr);
    cut.splitNames = std::vector<std::string>(begins.size(), "@");
    cut.schedule = lower(schedule);
    return refusal(cut, graph);
  };
  const std::vector<NodeId> two{NodeId(2), NodeId(3)}, three{NodeId(2), NodeId(3), NodeId(4)};
  EXPECT_THAT(skipping(true, two, generate("1f1b", {3, 3, 4})), HasSubstr("h of hand goes from stage 0 to the stages 1 and 2"));
  EXPECT_EQ(skipping(false, two, generate("1f1b", {3, 3, 4})), "");
  EXPECT_THAT(skipping(false, three, generate("interleaved-1f1b", {2, 4, 4})),
              HasSubstr("h of hand goes from stage 0 past others to stage 2"));
  // Of what a layer computes, the largest elements' places cross the cut; and a graph of two branches.
  const auto cutAfter = [](const std::string& op, DType type, const Schedule& schedule) {
    GraphBuilder b;
    const ValueId x = b.input("x"), w = b.parameter("w"), v = b.parameter("v");
    const ValueId places = b.op(op, {b.op("linear", {x, w}, "h")}, "places", GraphBuilder::rows(type));
    const ModelGraph graph = b.done(b.op("add.Tensor", {b.op("embedding", {v, places}, "e"), x}, "y"));
    Plan cut = plan(generate("1f1b", {3, 3, 4}));
    cut.partition = cutGraph(graph, {NodeId(2)}, kBindings, nullptr);
    cut.splitNames = {"@"};
    cut.schedule = lower(schedule);
    return refusal(cut, graph);
  };
  EXPECT_THAT(cutAfter("argsort", DType::Int64, generate("1f1b", {2, 2, 4})),
              HasSubstr("value places of hand, of type int64, goes from stage 0 to stage 1, and torch.distributed.pipelining 2.11 sends "
                        "floating-point values only"));
  EXPECT_EQ(cutAfter("argsort", DType::Int64, generate("forward-only", {2, 2, 4})), "");
  // The first stage has the number of samples only.
  GraphBuilder sizes;
  const ValueId x = sizes.input("x"), n = sizes.op("sym_size", {x}, "n");
  ModelGraph counting = sizes.done(sizes.op("linear", {x, sizes.parameter("w")}, "y"));
  counting.values.at(n.index()).tensor.reset();
  Plan sized = plan(generate("1f1b", {2, 2, 4}));
  sized.partition = cutGraph(counting, {NodeId(1)}, kBindings, nullptr);
  sized.splitNames = {"@"};
  EXPECT_THAT(refusal(sized, counting), HasSubstr("stage 0 of hand computes sizes only, no tensor"));
  // A region in bfloat16, and one that turns the plan's own bfloat16 off; where the plan has none, the latter changes nothing.
  const auto region = [](bool enabled, DType precision) {
    GraphBuilder g;
    const ValueId in = g.op("relu", {g.input("x")}, "h"), inner = g.op("relu", {in}, "inner");
    g.graph().subgraphs.push_back({{inner}, {inner}, {}});
    g.call("torch.ops.higher_order.wrap_with_autocast",
           {{"", std::string("cpu")}, {"", ScalarTypeArg{DType::BFloat16}}, {"", enabled}, {"", true}, {"", GraphArg{0}}, {"", in}}, "r");
    const ModelGraph graph = g.done(g.op("linear", {in, g.parameter("w")}, "y"));
    Plan cut = plan(generate("1f1b", {2, 2, 4}));
    cut.partition = cutGraph(graph, {NodeId(1)}, kBindings, nullptr);
    cut.splitNames = {"@"};
    cut.profile.computing.precision = precision;
    return refusal(cut, graph);
  };
  EXPECT_THAT(region(true, DType::Unknown), HasSubstr("hand has an autocast region of its own"));
  EXPECT_THAT(region(false, DType::BFloat16), HasSubstr("hand has an autocast region of its own"));
  EXPECT_EQ(region(false, DType::Unknown), "");
  GraphBuilder other;
  EXPECT_NE(refusal(plan(generate("1f1b", {3, 3, 4})), other.done(other.input("x"))), "") << "another model";
}

}  // namespace
}  // namespace pw::test
