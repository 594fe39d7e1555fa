// Custom operators, sizes that depend on data and costs nobody knows, as users meet them.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/app/cli/job.h"

namespace pw::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

std::string archive(const std::string& name) { return PW_SOURCE_DIR "/tests/data/" + name + ".pt2"; }

/// Two ranks, estimated, so that nothing is measured.
Words planWords(const std::string& model, const std::string& out, int ranks = 2) {
  return {"plan",   archive(model), "--ranks",   std::to_string(ranks), "--microbatches", "2",
          "--loss", "mse",          "--cluster", "h100-nvlink",         "--out",          out};
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(CustomOperators, AreRefusedByNameUntilTheirLibraryIsGivenWhichThePlanKeeps) {
  const Folder folder;
  const std::string plan = folder.file("plan.json"), with2 = folder.file("with.json"), with1 = folder.file("one.json");
  const Outcome estimated = finish(planWords("custom", plan));
  ASSERT_EQ(estimated.status, 0);
  EXPECT_THAT(estimated.err, HasSubstr("torch.ops.pipewright_test.scaled_square.default is not LibTorch's own"));
  const Outcome refused = finish({"run", plan, "--steps", "1"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("torch.ops.pipewright_test.scaled_square.default"));
  EXPECT_THAT(refused.err, HasSubstr("--load-library"));

  const Outcome complete = finish(with(planWords("custom", with2), {"--load-library", PW_TEST_OPS}));
  ASSERT_EQ(complete.status, 0);
  EXPECT_EQ(complete.err, "");
  ASSERT_EQ(finish(with(planWords("custom", with1, 1), {"--load-library", PW_TEST_OPS})).status, 0);
  EXPECT_EQ(Json::parse(contentOf(with2)).at("libraries"), Json::array({PW_TEST_OPS}));
  const Outcome two = finish({"run", with2, "--steps", "3", "--verify", "--json"}), one = finish({"run", with1, "--steps", "3", "--json"});
  ASSERT_EQ(two.status, 0) << two.err;
  ASSERT_EQ(one.status, 0) << one.err;
  const auto losses = [](const Outcome& outcome) { return Json::parse(outcome.out).at("losses").get<std::vector<double>>(); };
  EXPECT_THAT(losses(two), testing::Pointwise(testing::DoubleNear(1e-6), losses(one)));
  EXPECT_EQ(finish({"run", plan, "--steps", "1", "--load-library", PW_TEST_OPS}).status, 0) << "given to the run alone";

  const Outcome absent = finish({"run", plan, "--load-library", folder.file("none.so")});
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.err, HasSubstr("none.so is not a file"));
}

TEST(CustomOperators, AreMeasuredAndListedAsNotCounted) {
  const Folder folder;
  const std::string profile = folder.file("profile.json");
  const Outcome measured = finish({"profile", archive("custom"), "--loss", "mse", "--load-library", PW_TEST_OPS, "--out", profile});
  ASSERT_EQ(measured.status, 0) << measured.err;
  const Outcome inspected = finish({"inspect", archive("custom"), "--json"});
  const Json listed = Json::parse(inspected.out).at("not_counted");
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].at("op"), "torch.ops.pipewright_test.scaled_square.default");
  EXPECT_EQ(listed[0].at("count"), 2);
  const Outcome estimated = finish(planWords("custom", folder.file("plan.json")));
  EXPECT_THAT(estimated.out, HasSubstr("not counted: 2 × torch.ops.pipewright_test.scaled_square.default"));
  EXPECT_THAT(estimated.out, HasSubstr("incomplete"));
}

TEST(SizesThatDependOnData, AreProfiledPlannedAndRunAndExpertsAreCounted) {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  const Outcome measured = finish({"profile", archive("experts"), "--loss", "mse", "--out", folder.file("profile.json")});
  EXPECT_EQ(measured.status, 0) << measured.err;
  const Json inspected = Json::parse(finish({"inspect", archive("experts"), "--microbatch", "4", "--json"}).out);
  for (const Json& module : inspected.at("modules")) {
    // 4 · 3 tokens go to 2 of 3 experts each: 8 to every expert, of two products of 8 × 16.
    if (module.at("path") == "blocks.0.experts.1") {
      EXPECT_EQ(module.at("forward_flops"), 2.0 * 8 * 8 * 16 * 2);
    }
  }
  ASSERT_EQ(finish(planWords("experts", plan)).status, 0);
  const Outcome ran = finish({"run", plan, "--steps", "2", "--verify", "--json"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  const Outcome refused = finish(with(planWords("experts", plan), {"--split", "blocks.0.experts.1.down"}));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("data-dependent"));
}

TEST(ComplexParameters, AreVerifiedBitForBitAndTheirOptimizerStateIsResumed) {
  const Folder folder;
  const std::string plan = folder.file("plan.json"), half = folder.file("half.pt");
  ASSERT_EQ(finish(planWords("complex_weights", plan)).status, 0);
  const Words adam{"run", plan, "--optimizer", "adamw", "--lr", "0.01", "--json"};
  const auto losses = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? Json::parse(outcome.out).at("losses").get<std::vector<double>>() : std::vector<double>();
  };
  const std::vector<double> whole = losses(finish(with(adam, {"--steps", "4", "--verify"})));
  static_cast<void>(losses(finish(with(adam, {"--steps", "2", "--save", half}))));
  const std::vector<double> rest = losses(finish(with(adam, {"--steps", "2", "--resume", half})));
  ASSERT_EQ(whole.size(), 4U);
  EXPECT_THAT(rest, testing::ElementsAre(testing::DoubleNear(whole[2], 1e-7), testing::DoubleNear(whole[3], 1e-7)));
}

}  // namespace
}  // namespace pw::test
