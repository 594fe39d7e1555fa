#include "simulator/plan/plan.h"
#include "simulator/partition/stage_costs.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/plan/plan_fits.h"
#include "simulator/plan/planner.h"
#include "simulator/report/metrics.h"
#include "simulator/step/cost_table.h"
#include "tests/support/graph_builder.h"
#include "tests/support/mutate.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

const Bindings kBindings{{"b", 2}};

/// Three stages: a tied table in the first and last, a buffer, a constant, a mask computed again, and a value that skips a stage.
ModelGraph model() {
  GraphBuilder b;
  const ValueId x = b.input("x"), table = b.parameter("table", "s"), w = b.parameter("w"), head = b.parameter("head", "s");
  const ValueId mask = b.op("add", {b.buffer("buffer"), b.constant("constant")}, "mask");  // 0
  const ValueId h = b.op("linear", {x, table}, "h");                                       // 1
  const ValueId m = b.op("linear", {h, w}, "m");                                           // 2
  const ValueId l = b.op("linear", {m, head}, "l");                                        // 3
  return b.done(b.op("addcmul", {l, h, mask}, "y"));                                       // 4
}

Profile profile() {
  Profile p;
  p.microbatch = 2;
  p.nodes = {{5, 0, 0, 0, 0, 0}, {10, 20, 0, 0, 100, 0}, {30, 61, 0, 0, 200, 0}, {40, 80, 0, 0, 300, 0}, {1, 2, 0, 0, 50, 0}};
  p.loss = {7, 9, 0, 0, 11, 0};
  p.actionOverhead = 1000;
  p.optimizerNsPerByte = 0.5;
  p.topology.sameNode = {100, 1e9};  // a byte takes 1 ns
  return p;
}

Plan plan() {
  Plan p;
  p.modelFiles = {"/models/hand.pt2"};
  p.modelName = "hand";
  p.microbatchSize = 2;
  p.batch = 7;
  p.loss = parseLoss("mse");
  p.partition = cutGraph(model(), {NodeId(2), NodeId(3)}, kBindings, nullptr);
  p.splitNames = {"@m", "@l"};
  p.schedule = lower(generate("1f1b", {3, 3, 4}));
  p.costs = costTable(model(), p.partition, profile(), p.schedule.placement);
  p.costs.microbatchScale = {1, 1, 1, 0.5};
  p.profile = profile();
  return p;
}

TEST(PlanJson, ComesBackAsItWas) {
  ASSERT_FALSE(plan().partition.stages[2].recomputed.empty());
  ASSERT_FALSE(plan().partition.shared.empty());
  EXPECT_EQ(parsePlan(toJson(plan()), "plan.json"), plan());
}

TEST(PlanJson, KeepsReplicasCheckpointsSharingAndReductions) {
  Plan p = plan();
  p.replicas = 2;
  p.batch = 14;
  p.partition.stages[0].checkpoints = {{NodeId(0), NodeId(1)}, {NodeId(1), NodeId(2)}};
  p.partition.shared[0].sharing = Sharing::Transmit;
  p.schedule = withReductions(p.schedule);
  p.costs = costTable(model(), p.partition, profile(), p.schedule.placement, p.replicas);
  EXPECT_GT(p.costs.stages[1].reduce, 0);
  EXPECT_EQ(parsePlan(toJson(p), "plan.json"), p);
  EXPECT_EQ(worldSize(p), 6);
}

TEST(PlanJson, KeepsTheModelsFingerprint) {
  Plan p = plan();
  p.fingerprint = fingerprintOf(model());
  EXPECT_EQ(parsePlan(toJson(p), "plan.json"), p);
  EXPECT_EQ(Json::parse(toJson(p))["model_fingerprint"]["digest"], p.fingerprint.digest);
}

TEST(PlanJson, KeepsTheOptimizerThatItAccountsFor) {
  for (const OptimizerFacts& facts : kOptimizers) {
    for (const double momentum : {0.0, 0.75}) {
      if (momentum > 0 && !facts.hasMomentum) continue;
      Plan p = plan();
      p.optimizer = PlannedOptimizer{plannedOptimizer(std::string(facts.name), momentum), momentum > 0};
      EXPECT_EQ(parsePlan(toJson(p), "plan.json"), p) << facts.name;
      Json json = Json::parse(toJson(p));
      json["optimizer"].erase("momentum");  // as older versions wrote it
      const Plan old = parsePlan(json.dump(), "plan.json");
      EXPECT_EQ(old.optimizer->update.kind, facts.kind);
      EXPECT_EQ(stateCopies(old.optimizer->update), stateCopies(p.optimizer->update)) << facts.name;
    }
  }
  Json json = Json::parse(toJson(plan()));
  const auto refused = [&](const Json& optimizer, const char* why) {
    json["optimizer"] = optimizer;
    try {
      static_cast<void>(parsePlan(json.dump(), "plan.json"));
      ADD_FAILURE() << optimizer;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  refused({{"name", "lion"}, {"state_copies", 1}, {"zero1", false}}, "its optimizer is unknown");
  refused({{"name", "adam"}, {"state_copies", 3}, {"zero1", false}}, "contradicts itself");
  refused({{"name", "adam"}, {"momentum", 0.5}, {"state_copies", 3}, {"zero1", false}}, "contradicts itself");
  refused({{"name", "sgd"}, {"momentum", -1}, {"state_copies", 1}, {"zero1", false}}, "contradicts itself");
}

TEST(PlanJson, RunsInCyclesOnlyWhereItsRowsDo) {
  Plan p = plan();
  p.schedule = lower(generate("lockstep", {3, 3, 4}));
  EXPECT_TRUE(parsePlan(toJson(p), "plan.json").schedule.lockstep);
  Json json = Json::parse(toJson(plan()));
  json["schedule"]["lockstep"] = true;  // 1F1B: rank 0 does F3 after B0
  try {
    static_cast<void>(parsePlan(json.dump(), "plan.json"));
    FAIL() << "1F1B has no cycles";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("does not run in cycles"), std::string::npos) << error.what();
  }
}

TEST(PlanJson, KeepsHowGoodItsOrderIs) {
  Plan p = plan();
  p.certificate = Certificate{StepClock::Flush, 120, 100, "annealing", {Stage(1)}};
  Json json = Json::parse(toJson(p));
  EXPECT_EQ(json["certificate"]["optimal"], false);
  EXPECT_EQ(parsePlan(json.dump(), "plan.json"), p);
  const auto refused = [&](const char* key, const Json& value) {
    Json damaged = json;
    damaged["certificate"][key] = value;
    EXPECT_THROW(static_cast<void>(parsePlan(damaged.dump(), "plan.json")), UsageError) << damaged["certificate"];
  };
  refused("objective", "step");
  refused("time_ns", 99);
  refused("lower_bound_ns", 121);
  refused("lower_bound_ns", -1);
  refused("recomputed_stages", Json::array({p.partition.stages.size()}));
}

TEST(ProcessBytes, AreWithoutWhatNoStageOfTheRankLoads) {
  Plan p = plan();
  EXPECT_TRUE(processBytes(p).empty()) << "not measured";
  p.profile.processBytes = 1000;
  p.profile.loads = {{"linear", 400, {NodeId(1), NodeId(2), NodeId(3)}},
                     {"linear", 200, {NodeId(3)}},
                     {"addcmul", 50, {NodeId(4)}},
                     {"add", 8, {NodeId(0)}},
                     {"loss", 30, {}}};
  constexpr Bytes kRunning = 2 * 1024 * 1024;
  EXPECT_EQ(processBytes(p), (std::vector<Bytes>{720 + kRunning, 712 + kRunning, 1000 + kRunning}))
      << "linear is on all ranks, and add again on the last";
  p.schedule = lower(generate("zbv", {2, 4, 4}));  // ends on the first rank
  p.partition = cutGraph(model(), {NodeId(1), NodeId(3), NodeId(4)}, kBindings, nullptr);
  EXPECT_EQ(processBytes(p), (std::vector<Bytes>{400 + kRunning, 912 + kRunning}));
}

TEST(PlanJson, OlderPlansLoadWithoutTheLaterKeys) {
  Json json = Json::parse(toJson(plan()));
  json.erase("replicas");
  json["partition"]["replicated"][0].erase("sharing");
  for (Json& cost : json["costs"]["stages"]) {
    for (const char* key :
         {"reduce_ns", "updated_bytes", "fixed_bytes", "data_bytes", "freed_by_input_bytes", "added_by_input_bytes",
          "shared_for_weight_bytes", "forward_peak_bytes", "backward_peak_bytes", "input_peak_bytes", "weight_peak_bytes"}) {
      cost.erase(key);
    }
  }
  const Plan old = parsePlan(json.dump(), "plan.json");
  EXPECT_EQ(old.replicas, 1);
  EXPECT_EQ(old.costs.stages[0].updatedBytes, 64) << "all gradients";
  EXPECT_EQ(old.costs.stages[0].forwardPeak, 0);
}

TEST(PlanJson, KeepsOneRankAndEveryGenerator) {
  for (const Generator& generator : generators()) {
    for (const int stages : {1, 2, 3}) {
      Plan p;
      p.batch = 4;
      std::vector<NodeId> begins;
      for (int s = 1; s < stages; ++s) begins.emplace_back(s);
      p.partition = cutGraph(chain(3), begins, kBindings, nullptr);
      p.splitNames.resize(begins.size());
      if (generator.refusal({stages, stages, 4})) continue;
      p.schedule = lower(generator.generate({stages, stages, 4}));
      p.costs = syntheticTable(
          {.forward = {10}, .backward = {20}, .backwardInput = {}, .backwardWeight = {}, .latency = 1, .transfer = 1, .overlap = {}},
          stages);
      EXPECT_EQ(parsePlan(toJson(p), "plan.json"), p) << generator.name;
    }
  }
}

std::string errorWith(const std::string& pointer, const Json& value) {
  Json json = Json::parse(toJson(plan()));
  json[Json::json_pointer(pointer)] = value;
  return usageErrorOf([&] { static_cast<void>(parsePlan(json.dump(), "plan.json")); });
}

void expectRefused(const std::string& pointer, const Json& value, const std::string& part) {
  const std::string error = errorWith(pointer, value);
  EXPECT_NE(error.find(part), std::string::npos) << pointer << " = " << value << ": " << error;
  EXPECT_NE(error.find("plan.json"), std::string::npos) << error;
}

TEST(PlanJson, IsRefusedWhenItIsNoPlanOrNewer) {
  expectRefused("/format", "pipewright-profile", "is not a Pipewright plan");
  expectRefused("/version", 2, "version 2, newer than this program reads (1)");
  expectRefused("/partition", Json(), "plan.json is not a usable plan: it lacks `partition.stages`; plan the model again.");
  expectRefused("/schedule/csv", "0F0,0X0\r\n", "plan.json");
  expectRefused("/schedule/microbatches", 5, "says 5 microbatches and its schedule has 4");
}

TEST(PlanJson, SaysInWordsWhatIsMissingOrOfAnotherType) {
  const Json whole = Json::parse(toJson(plan()));
  for (const auto& [key, value] : whole.items()) {
    if (key == "estimated" || key == "replicas") continue;  // for readers, as the profile has it; 1 in older plans
    Json json = whole;
    json.erase(key);
    EXPECT_EQ(usageErrorOf([&] { static_cast<void>(parsePlan(json.dump(), "plan.json")); }),
              "plan.json is not a usable plan: it lacks `" + key + "`; plan the model again.");
  }
  expectRefused("/batch", "four", "`batch` is not an integer in range;");
  expectRefused("/loss", 3, "`loss` is not a string;");
  expectRefused("/splits", "blocks.1", "`splits` is not a list;");
  expectRefused("/partition/transfers/0/gradient", 1, "`partition.transfers[0].gradient` is not true or false;");
  expectRefused("/costs/microbatch_scale", {true}, "`costs.microbatch_scale[0]` is not a number;");
  expectRefused("/profile/threads", "two", "The profile in plan.json is not a usable profile: `threads` is not an integer in range;");
  EXPECT_EQ(usageErrorOf([] { static_cast<void>(parsePlan("[1]", "plan.json")); }),
            "plan.json is not a usable plan: it lacks `format`; plan the model again.");
}

TEST(PlanJson, IsRefusedWhenItsPartsDoNotFit) {
  expectRefused("/partition/stages", Json::array(), "has no stages");
  expectRefused("/partition/stages/1/begin", 3, "do not follow one another");
  expectRefused("/partition/stages/0/end", 0, "do not follow one another");
  expectRefused("/partition/stages/2/recomputed", {3}, "not before it");
  expectRefused("/partition/stages/2/recomputed", {-1}, "not before it");
  expectRefused("/partition/stages/2/recomputed", {1, 0}, "not before it");
  expectRefused("/partition/stages/0/model_inputs", {-1}, "does not exist");
  expectRefused("/partition/stages/0/parameters", {-1}, "not an integer in range: -1");
  expectRefused("/partition/transfers/0/to", 3, "do not exist");
  expectRefused("/partition/transfers/0/to", 0, "do not exist");
  expectRefused("/partition/transfers/0/to", 4294967297LL, "not an integer in range");
  expectRefused("/partition/transfers/0/value", -1, "negative value");
  expectRefused("/partition/replicated/0/stages", {0, 3}, "do not exist");
  expectRefused("/partition/replicated/0/stages", {0, 0}, "do not exist");
  expectRefused("/partition/replicated/0/stages", {0}, "do not exist");
  expectRefused("/profile/nodes", {{1, 2, 3, 4, 5, 6.0}}, "profile is of another model");
  expectRefused("/partition/replicated/0/sharing", "borrow", "not replicate or transmit");
  expectRefused("/partition/stages/1/checkpoints", {{{"begin", 1}, {"end", 3}}}, "checkpoints are not ranges of its nodes");
  expectRefused("/partition/stages/1/checkpoints", {{{"begin", 2}, {"end", 2}}}, "checkpoints are not ranges of its nodes");
  expectRefused("/partition/stages/1/checkpoints", {{{"begin", 2}, {"end", 4}}}, "checkpoints are not ranges of its nodes");
  expectRefused("/partition/stages/1/checkpoints", {{{"begin", 2}, {"end", 3}}, {{"begin", 2}, {"end", 3}}},
                "checkpoints are not ranges of its nodes");
  expectRefused("/replicas", 0, "it has 0 replicas; there are 1 to 1024");
  expectRefused("/replicas", 1025, "it has 1025 replicas; there are 1 to 1024");
  expectRefused("/replicas", 2, "smaller than its number of microbatches");  // 7 samples in 8
  expectRefused("/splits", {"one"}, "does not name where each stage begins");
  expectRefused("/batch", 3, "smaller than its number of microbatches");
  expectRefused("/microbatch_size", 0, "smaller than its number of microbatches");
}

TEST(PlanJson, IsRefusedWhenItsCostsCannotBeSimulated) {
  expectRefused("/costs/stages/1/forward_ns", -1, "negative");
  expectRefused("/costs/stages/1/forward_ns", 1e300, "not an integer in range");
  expectRefused("/costs/stages/1/forward_ns", std::numeric_limits<Ns>::max(), "too large to add up");
  expectRefused("/costs/stages/1/activation_bytes", std::numeric_limits<Bytes>::max() / 4, "too large to add up");
  expectRefused("/costs/stages/1/backward_peak_bytes", std::numeric_limits<Bytes>::max() / 4, "too large to add up");
  expectRefused("/costs/stages/1/reduce_ns", std::numeric_limits<Ns>::max(), "too large to add up");
  for (const std::string key : {"reduce_ns", "fixed_bytes", "data_bytes", "updated_bytes", "added_by_input_bytes", "forward_peak_bytes",
                                "input_peak_bytes", "weight_peak_bytes"}) {
    expectRefused("/costs/stages/1/" + key, -1, "negative");
  }
  expectRefused("/costs/stages/1/updated_bytes", 65, "updates more than its parameters");
  expectRefused("/costs/messages/0/from", 7, "names stage 7");
  expectRefused("/costs/messages/0/latency_ns", -5, "negative");
  expectRefused("/costs/microbatch_scale", {1.0}, "scale");
  expectRefused("/costs/microbatch_scale", {1, 1, 1, -1}, "negative");
  expectRefused("/costs/microbatch_scale", {1, 1, 1, 1e300}, "too large to add up");
}

TEST(PlanJson, SurvivesDamageWithAUsageErrorAtMost) {
  constexpr std::uint64_t kSeed = 20264;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const std::string text = toJson(plan());
  const ModelGraph graph = model();
  int refused = 0, simulated = 0;
  for (int i = 0; i < 5000; ++i) {
    Plan damaged;
    try {
      damaged = parsePlan(mutate(text, random), "plan.json");
      requireFits(damaged, graph);
    } catch (const UsageError&) {
      ++refused;
      continue;
    }
    try {
      EXPECT_GE(metricsOf(simulate(damaged.schedule, damaged.costs)).step, 0);
      ++simulated;
    } catch (const Error&) {  // deadlocks, by the order of its actions
    }
  }
  EXPECT_GT(refused, 2500) << "most damage is seen";
  EXPECT_GT(simulated, 100) << "not all is refused";
}

void expectNoFit(const std::function<void(Plan&)>& change, const std::string& part) {
  Plan p = plan();
  change(p);
  const std::string error = usageErrorOf([&] { requireFits(p, model()); });
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

TEST(RequireFits, TakesThePlanOfTheModelOnly) {
  EXPECT_NO_THROW(requireFits(plan(), model()));
  EXPECT_EQ(usageErrorOf([] { requireFits(plan(), chain(3)); }),
            "The plan for hand was not made for this model, hand: it has 3 operators instead of 5; plan it again, or name the right "
            "archive with --model.");
  expectNoFit([](Plan& p) { p.partition.stages[0].parameters = {3}; }, "no parameter 3");
  expectNoFit([](Plan& p) { p.partition.stages[0].buffers = {1}; }, "no buffer 1");
  expectNoFit([](Plan& p) { p.partition.stages[0].constants = {1}; }, "no constant 1");
  expectNoFit([](Plan& p) { p.partition.stages[0].modelInputs = {ValueId(1)}; }, "value 1 is not one of its inputs");
  expectNoFit([](Plan& p) { p.partition.transfers[0].value = ValueId(1000); }, "does not compute value 1000");
  expectNoFit([](Plan& p) { p.partition.transfers[0].value = ValueId(0); }, "does not compute value 0");
  expectNoFit([](Plan& p) { p.partition.transfers[0].value = model().nodes[3].outputs[0]; }, "stage 0 does not compute");
  expectNoFit([](Plan& p) { p.partition.shared[0].storage = "?"; }, "no parameter table");
}

TEST(RequireFits, RefusesAPlanThatIsNoCutOfTheModel) {
  ASSERT_TRUE(plan().partition.transfers[0].gradient);
  expectNoFit([](Plan& p) { p.partition.transfers[0].gradient = false; }, "with a gradient; plan it again");
  expectNoFit([](Plan& p) { p.partition.transfers.clear(); }, "its transfers are not those that its stages need");
  expectNoFit([](Plan& p) { p.partition.shared.clear(); }, "its shared parameters are not those that several of its stages read");
  expectNoFit([](Plan& p) { p.partition.stages[1].parameters.pop_back(); }, "the parameters of its stage 1 are not those that the stage's");
  expectNoFit([](Plan& p) { p.partition.stages[0].modelInputs.clear(); }, "the inputs of its stage 0 are not those");
  expectNoFit([](Plan& p) { p.partition.stages[1].recomputed = {NodeId(0), NodeId(1)}; }, "Stage 1 cannot compute operator");
  Plan sent = plan();
  sent.partition.transfers[0].bytes *= 2;
  for (SharedParameter& shared : sent.partition.shared) shared.sharing = Sharing::Transmit;
  EXPECT_NO_THROW(requireFits(sent, model())) << "sizes and how parameters are shared are the plan's";
}

TEST(MicrobatchSizes, AreAsEqualAsPossibleLargerFirst) {
  EXPECT_EQ(microbatchSizes(7, 4), (std::vector<std::int64_t>{2, 2, 2, 1}));
  EXPECT_EQ(microbatchSizes(8, 4), (std::vector<std::int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(microbatchSizes(10, 4), (std::vector<std::int64_t>{3, 3, 2, 2}));
  for (int m = 1; m <= 9; ++m) {
    const auto sizes = microbatchSizes(9, m);
    EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), 9);
    EXPECT_LE(sizes.front() - sizes.back(), 1);
  }
}

TEST(CostTable, SumsNodesRecomputedNodesAndTheLoss) {
  const CostTable costs = plan().costs;
  ASSERT_EQ(costs.stages.size(), 3U);
  // Node times above plus 1000 for the action; a value of [2, 4] floats is 32 bytes, a parameter of [4, 4] is 64 and takes 0.5 ns a byte.
  const StageCost first = costs.stages[0], middle = costs.stages[1], last = costs.stages[2];
  // The first keeps its input of 32 bytes; received gradients are the most that a backward has above what was kept. All parameters are
  // trained; a buffer and a constant of 16 bytes are read for the mask, in the first stage and again in the last.
  const Bytes kept = 300 + 50 + 11 + 2 * 32;
  EXPECT_EQ(first, (StageCost{5 + 10 + 1000, 20 + 1000, 510, 510, 32, 64, 64, 0, 132, 0, 0, 132, 64, 64, 0, 64, 32, 32, 0}));
  EXPECT_EQ(middle, (StageCost{30 + 1000, 61 + 1000, 530, 531, 32, 64, 64, 0, 232, 0, 0, 232, 32, 32, 0, 64, 0, 0, 0}));
  EXPECT_EQ(last, (StageCost{40 + 1 + 5 + 7 + 1000, 80 + 2 + 9 + 1000, 545, 546, 32, 64, 64, 0, kept, 0, 0, kept, 0, 0, 0, 64, 32, 0, 0}));
  EXPECT_EQ(costs.messages, (std::vector<MessageCost>{{Stage(0), Stage(1), false, 32, 100, 32},
                                                      {Stage(1), Stage(0), true, 32, 100, 32},
                                                      {Stage(0), Stage(2), false, 32, 100, 32},
                                                      {Stage(2), Stage(0), true, 32, 100, 32},
                                                      {Stage(1), Stage(2), false, 32, 100, 32},
                                                      {Stage(2), Stage(1), true, 32, 100, 32}}));
  EXPECT_EQ(costs.reduceTime, 100 + 64) << "one message of the table between the two ranks that hold it";
}

TEST(CostTable, MessagesAndSumsWithinARankAreFree) {
  const CostTable costs = costTable(model(), plan().partition, profile(), {.rankOfStage = {Rank(0), Rank(1), Rank(0)}});
  EXPECT_EQ(costs.reduceTime, 0);
  EXPECT_EQ(costs.messages[2], (MessageCost{Stage(0), Stage(2), false, 32, 0, 0}));
  EXPECT_EQ(costs.messages[0], (MessageCost{Stage(0), Stage(1), false, 32, 100, 32}));
}

TEST(CostTable, SendsNoGradientWhereNoneComesBack) {
  GraphBuilder b;
  const ValueId x = b.input("x");
  const ValueId frozen = b.op("linear", {x, b.parameter("frozen", "", false)}, "h");
  const ModelGraph graph = b.done(b.op("linear", {frozen, b.parameter("w")}, "y"));
  Profile p = profile();
  p.nodes.resize(2);
  const Partition partition = cutGraph(graph, {NodeId(1)}, kBindings, &p);
  EXPECT_EQ(costTable(graph, partition, p, {.rankOfStage = {Rank(0), Rank(1)}}).messages,
            (std::vector<MessageCost>{{Stage(0), Stage(1), false, 32, 100, 32}}));
}

TEST(DefaultMicrobatches, HoldAllSamplesOfTheBatch) {
  EXPECT_EQ(defaultMicrobatches(2, 1, 10, 4), 3) << "of 4, 3 and 3";
  EXPECT_EQ(defaultMicrobatches(2, 2, 10, 2), 3) << "of a replica's 5";
  EXPECT_EQ(defaultMicrobatches(2, 1, 8, 4), 2);
  EXPECT_EQ(defaultMicrobatches(2, 1, 3, 4), 1);
}

}  // namespace
}  // namespace pw::test
