#include "simulator/costs/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/support/graph_builder.h"
#include "tests/support/mutate.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

Profile example() {
  Profile p;
  p.model = "small";
  p.microbatch = 4;
  p.ranksAtOnce = 2;
  p.threads = 3;
  p.estimated = true;
  p.machine = {"host", "a processor", 8, "cuda"};
  p.computing = {.onGpu = true, .precision = DType::BFloat16, .tf32 = true, .graphs = true};
  p.nodes = {{10, 20, 1, 2, 100, 1.5e9, 8, 70, 90, 110, -130, 5}, {30, 0, 0, 0, -40, 0}, {5, 7, 3, 4, 60, 0.1}};
  p.loss = {1, 2, 3, 4, 5, 6};
  p.actionOverhead = 11;
  p.optimizerNsPerByte = 0.125;
  p.topology.sameNode = {1000, 2.5e9};
  p.processBytes = 1000;
  p.loads = {{"aten.linear", 600, {NodeId(0), NodeId(2)}}, {"loss", 400, {}}};
  return p;
}

TEST(ProfileJson, ComesBackAsItWas) {
  EXPECT_EQ(parseProfile(toJson(example()), "p.json"), example());
  EXPECT_EQ(parseProfile(toJson(example()), "p.json").nodes[2].flops, 0.1) << "to the last bit";
}

std::string errorWith(const std::string& pointer, const nlohmann::json& value) {
  nlohmann::json json = nlohmann::json::parse(toJson(example()));
  json[nlohmann::json::json_pointer(pointer)] = value;
  return usageErrorOf([&] { static_cast<void>(parseProfile(json.dump(), "p.json")); });
}

TEST(ProfileJson, KeepsHowUncertainPredictionsAre) {
  Profile profile = example();
  for (const Uncertainty& good : {Uncertainty{0.03, 4}, {0.03, 0}, {0.03, 2, true}}) {  // of past runs, a job's own steps, jobs
    profile.uncertainty = good;
    EXPECT_EQ(parseProfile(toJson(profile), "p.json"), profile);
  }
  for (const Uncertainty& bad : {Uncertainty{-0.1, 4}, {2000, 4}, {0.1, -1}}) {
    profile.uncertainty = bad;
    EXPECT_THROW((void)parseProfile(toJson(profile), "p.json"), UsageError);
  }
}

TEST(ProfileJson, RefusesLoadsThatCannotBe) {
  EXPECT_THAT(errorWith("/operator_loads/1/bytes", 401), testing::HasSubstr("its operators load more than the process holds"));
  EXPECT_THAT(errorWith("/process_bytes", 0), testing::HasSubstr("its operators load more than the process holds"));
  EXPECT_THAT(errorWith("/operator_loads/0/nodes/1", 3), testing::HasSubstr("an operator load names a node that it does not have"));
  EXPECT_THAT(errorWith("/operator_loads/0/nodes/0", -1), testing::HasSubstr("an operator load names a node that it does not have"));
}

TEST(ProfileJson, OlderFilesLoadWithoutWeightsAndMemory) {
  nlohmann::json json = nlohmann::json::parse(toJson(example()));
  json.erase("computing");
  EXPECT_EQ(parseProfile(json.dump(), "p.json").computing, Computing());
  json["nodes"][0] = {10, 20, 1, 2, 100, 1.5e9};
  EXPECT_EQ(parseProfile(json.dump(), "p.json").nodes[0], (NodeCost{10, 20, 1, 2, 100, 1.5e9}));
}

TEST(ProfileJson, IsRefusedInOneSentenceThatNamesTheFile) {
  const auto contains = [](const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  contains(errorWith("/format", "pipewright-plan"), "p.json is not a Pipewright profile");
  contains(errorWith("/version", 2), "version 2, newer than this program reads (1)");
  contains(errorWith("/microbatch", 0), "less than 1");
  contains(errorWith("/microbatch", 2.5), "not an integer in range: 2.5");
  contains(errorWith("/threads", 1LL << 32), "not an integer in range");
  contains(errorWith("/nodes/0/0", -1), "a cost is negative");
  contains(errorWith("/computing/on_gpu", false), "TF32 and CUDA graphs need a GPU");
  contains(errorWith("/computing/precision", "bf8"), "computing.precision is not traced, bf16, fp16 or fp8");
  for (const int field : {6, 7, 8, 9, 11}) contains(errorWith("/nodes/0/" + std::to_string(field), -1), "a cost is negative");
  contains(errorWith("/nodes/0/6", 21), "a weight's backward is longer than the whole");
  contains(errorWith("/nodes/0/10", std::numeric_limits<Bytes>::min()), "too large to add up");
  contains(errorWith("/nodes/0", nlohmann::json::array({1, 2, 3, 4, 5, 6.0, 0})), "it lacks `nodes[0][7]`");
  contains(errorWith("/nodes/0/0", 1e300), "not an integer in range");
  contains(errorWith("/nodes/0/0", std::numeric_limits<std::uint64_t>::max()), "not an integer in range");
  contains(errorWith("/nodes/1/0", std::numeric_limits<Ns>::max()), "too large to add up");
  contains(errorWith("/nodes/1/4", std::numeric_limits<Bytes>::min()), "too large to add up");
  contains(errorWith("/link/bytes_per_s", -1.0), "a rate is negative");
  contains(errorWith("/link/latency_ns", -1), "a time is negative");
  contains(errorWith("/nodes/0", nlohmann::json::array({1, 2})),
           "p.json is not a usable profile: it lacks `nodes[0][2]`; profile the model again.");
  contains(errorWith("/machine", "here"), "it lacks `machine.host`;");
  contains(errorWith("/estimated", "no"), "`estimated` is not true or false;");
  contains(usageErrorOf([] { static_cast<void>(parseProfile("{", "p.json")); }), "p.json is not a usable profile");
}

TEST(ProfileJson, SurvivesDamageWithAUsageErrorAtMost) {
  constexpr std::uint64_t kSeed = 20263;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const std::string text = toJson(example());
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    try {
      const Profile profile = parseProfile(mutate(text, random), "p.json");
      const NodeCost all = CostSums(profile).range(NodeId(0), NodeId(profile.nodes.size()));
      EXPECT_GE(all.forward, 0);
    } catch (const UsageError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2500) << "most damage is seen";
}

TEST(ProfileWords, SayWhereTimesComeFrom) {
  Profile p = example();
  EXPECT_EQ(sourceOf(p, 4), "estimated for cuda, in bf16, with TF32") << "from costs that were measured so";
  p.estimated = false;
  EXPECT_EQ(sourceOf(p, 4), "measured on host (a processor), 2 processes at once, in bf16, with TF32");
  p.ranksAtOnce = 1;
  p.computing = {.onGpu = true, .precision = DType::Float16, .tf32 = false, .graphs = false};
  p.topology.sameNode = {};
  EXPECT_EQ(sourceOf(p), "measured on host (a processor), in fp16, operator by operator");
  EXPECT_EQ(sourceOf(p, 2),
            "measured on host (a processor), in fp16, operator by operator; messages take no time, because no link was measured");
  p.computing = {};
  EXPECT_EQ(sourceOf(p), "measured on host (a processor), 1 process at once, 3 threads each");
}

TEST(CostSums, GiveTheCostOfAnyRange) {
  const CostSums sums(example());
  EXPECT_EQ(sums.range(NodeId(0), NodeId(3)), (NodeCost{45, 27, 0, 0, 120, 1.5e9 + 0.1, 8, 70, 0, 0, -130, 0}));
  EXPECT_EQ(sums.range(NodeId(1), NodeId(3)).forward, 35);
  EXPECT_EQ(sums.range(NodeId(1), NodeId(2)).saved, -40);
  EXPECT_EQ(sums.range(NodeId(2), NodeId(2)), NodeCost{});
  EXPECT_EQ(CostSums(Profile{}).range(NodeId(0), NodeId(0)), NodeCost{});
}

}  // namespace
}  // namespace pw::test
