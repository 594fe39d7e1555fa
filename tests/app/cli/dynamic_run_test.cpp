// Runs without a schedule: the losses of the scheduled run, a stored trace, refusals, and the end of a rank.

#include <cmath>

#include <nlohmann/json.hpp>

#include "tests/app/cli/job.h"
#include "tests/support/trace_rules.h"
#include "tests/support/whole_run.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

Json dynamicRun(const std::string& plan, const Words& more) { return Json::parse(outputOf(plan, more)); }

class DynamicRun : public testing::TestWithParam<std::string> {};

TEST_P(DynamicRun, HasTheLossesOfTheScheduleAndIsStoredCompared) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4"}), store = folder.file("runs.db");
  const Words common{"--steps", "3", "--backend", GetParam(), "--store", store};
  const auto with = [&](const Words& more) {
    Words words = common;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Json scheduled = dynamicRun(plan, common), dynamic = dynamicRun(plan, with({"--backward", "dynamic", "--verify"}));
  EXPECT_EQ(dynamic["verification"]["equal"], true) << dynamic["verification"];
  ASSERT_EQ(dynamic["losses"].size(), 3U);
  for (std::size_t s = 0; s < 3; ++s) {
    const auto expected = scheduled["losses"][s].get<double>();
    EXPECT_NEAR(dynamic["losses"][s].get<double>(), expected, 1e-5 + 1e-5 * std::abs(expected));
  }

  const RunRecord run = wholeRun(store);
  EXPECT_EQ(run.facts.backward, Backward::Dynamic);
  EXPECT_EQ(wholeRun(store, RunId(1)).facts.backward, Backward::Schedule);
  ASSERT_EQ(run.steps.size(), 3U);
  for (const StepRecord& step : run.steps) {
    expectKeepsRules(step.measured);
    EXPECT_EQ(std::ranges::count_if(step.measured.spans, [](const Span& span) { return isCompute(span.kind); }), 2 * 2 * 4);
    EXPECT_EQ(std::ranges::count(step.measured.spans, SpanKind::SendBackward, &Span::kind), 4);
    EXPECT_EQ(std::ranges::count(step.measured.spans, SpanKind::Optimizer, &Span::kind), 2);
  }
  const std::string compared = finish({"compare", "--store", store}).out;
  EXPECT_NE(compared.find(GetParam() + ", dynamic backward"), std::string::npos) << compared;
  EXPECT_NE(compared.find("This run followed no schedule. By its plan's, the measured"), std::string::npos) << compared;
  EXPECT_EQ(Json::parse(finish({"compare", "--store", store, "--json"}).out)["unmatched"], 0);
  const Json runs = Json::parse(finish({"runs", "--store", store, "--json"}).out)["runs"];
  EXPECT_EQ(runs[0]["backward"], "schedule");
  EXPECT_EQ(runs[1]["backward"], "dynamic");
  EXPECT_NE(finish({"runs", "--store", store}).out.find("dynamic backward"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Transports, DynamicRun, testing::Values("ucx", "gloo"), [](const auto& one) { return one.param; });

TEST(DynamicRun, RefusesWhatItCannotDoBeforeAnyRankStarts) {
  const Folder folder;
  const Words sizes{"--ranks", "2", "--microbatches", "4"};
  const std::string plan = planned(folder, {"gpt_small"}, sizes);
  const auto refused = [&](const Words& more, const Words& parts) {
    Words words{"run", plan, "--backward", "dynamic"};
    words.insert(words.end(), more.begin(), more.end());
    expectRefusal(finish(words), 2, parts);
  };
  refused({"--synthetic"}, {"--backward dynamic calls the stages of a model", "--synthetic"});
  refused({"--eval"}, {"--eval runs none"});
  refused({"--precision", "bf16"}, {"not in bf16", "--precision traced"});
  refused({"--order", "ready"}, {"omit --order"});
  refused({"--find-nan"}, {"--find-nan"});
  Words recompute = sizes;
  recompute.insert(recompute.end(), {"--recompute", "full"});
  static_cast<void>(planned(folder, {"gpt_small"}, recompute));
  refused({}, {"this plan recomputes some", "--recompute"});
  static_cast<void>(planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4", "--schedule", "dualpipe"}));
  refused({}, {"two of each", "another schedule"});
}

TEST(DynamicRun, NamesTheRankThatWasKilled) {
  const Folder folder;
  for (const int victim : {0, 1}) {
    Job job({"run", planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4"}), "--steps", "1000000", "--progress", "json",
             "--json", "--backward", "dynamic"});
    const auto ranks = job.ranks(2);
    job.waitForTraining();
    ::kill(ranks.at(victim), SIGKILL);
    expectRefusal(job.wait(), 1, {"Rank " + std::to_string(victim) + " was ended by SIGKILL"});
    EXPECT_TRUE(job.leavesNone(std::chrono::milliseconds(0)));
  }
}

}  // namespace
}  // namespace pw::test
