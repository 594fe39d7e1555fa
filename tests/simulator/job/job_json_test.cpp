// Jobs as JSON: what is written is read back, and damaged files are refused in one sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "simulator/job/explain_job.h"
#include "simulator/job/explain_job_json.h"
#include "simulator/job/job_costs.h"
#include "simulator/job/job_json.h"
#include "simulator/job/recover.h"
#include "tests/support/hostile.h"
#include "tests/support/jobs.h"

namespace pw::test {
namespace {

using testing::HasSubstr;

Job job() {
  MeasuredJob measured{"a \"job\""};
  measured.replicas = 2;
  for (int k = 0; k < 3; ++k) {
    MeasuredStep step{"step " + std::to_string(k), {}, {}};
    for (int copy = 0; copy < 2; ++copy) addCopy(step.trace, pipeline("1f1b", 3, {100, 110 + Ns(k)}, {200, 210}, 10), copy);
    normalize(step.trace);
    for (int w = 0; w < 4; ++w) {
      step.operations.push_back({JobRank(w), "params-all-gather", -40, -20});
      step.operations.push_back({JobRank(w), "grads-reduce-scatter", 1400, 1450});
      step.operations.push_back({JobRank(w), "optimizer-clip-main-grad", 1450, 1460});
    }
    measured.steps.push_back(step);
  }
  return jobOf(measured);
}

std::string refusal(const nlohmann::ordered_json& json) {
  try {
    (void)parseJob(json.dump(), "job.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(JobJson, RoundTrips) {
  const Job made = job();
  ASSERT_EQ(made.operations.size(), 3U);
  EXPECT_EQ(made.operations[0].name, "params-all-gather");
  EXPECT_EQ(made.operations[0].after, (std::vector<std::int32_t>{0, 0}));
  const std::string text = toJson(made);
  EXPECT_EQ(parseJob(text, "job.json"), made);
  EXPECT_EQ(toJson(parseJob(text, "job.json")), text);
}

/// Files of before it was known that rows hold for operations meant that those which block come before all rows.
TEST(JobJson, ARowHoldsWithinOnlyWhereTheFileSaysSo) {
  Job made = job();
  JobOperation& operation = made.operations[0];
  operation.blocks = operation.holdsMessage = true;
  operation.after = {1, 0};
  const std::string text = toJson(made);
  EXPECT_EQ(parseJob(text, "job.json"), made);
  nlohmann::ordered_json older = nlohmann::ordered_json::parse(text);
  ASSERT_EQ(older["operations"][0].erase("holds_row"), 1U);
  EXPECT_EQ(parseJob(older.dump(), "job.json").operations[0].after, (std::vector<std::int32_t>{0, 0}));
}

TEST(JobJson, SaysWhereItsTimesComeFrom) {
  for (const TimesOf times : {TimesOf::Measured, TimesOf::Rehearsed, TimesOf::Predicted}) {
    Job made = job();
    made.times = times;
    EXPECT_EQ(parseJob(toJson(made), "job.json").times, times);
  }
  auto older = nlohmann::ordered_json::parse(toJson(job()));
  EXPECT_EQ(older["times"], "measured");
  older.erase("times");
  EXPECT_EQ(parseJob(older.dump(), "job.json").times, TimesOf::Measured);
  older["times"] = "guessed";
  EXPECT_THAT(refusal(older), HasSubstr("is none of measured, rehearsed, predicted"));
}

TEST(JobJson, NamesThePlaceOfWhatIsWrong) {
  const auto good = nlohmann::ordered_json::parse(toJson(job()));
  EXPECT_EQ(refusal(good), "");
  auto json = good;
  json["version"] = 2;
  EXPECT_THAT(refusal(json), HasSubstr("it has version 2, this program reads 1"));
  json = good;
  json["steps"][1]["actions_ns"].erase(0);
  EXPECT_THAT(refusal(json), HasSubstr("`steps[1].actions_ns` has 23 numbers, not 24"));
  json = good;
  json["steps"][0]["waits_ns"][2] = -2;
  EXPECT_THAT(refusal(json), HasSubstr("`steps[0].waits_ns` holds something other than times from -1"));
  json = good;
  json["operations"][1]["group"] = "some";
  EXPECT_THAT(refusal(json), HasSubstr("`operations[1].group` is none of alone, replicas, ends, all"));
  json = good;
  json["rows"][0] = "0F0,0F1,0F2,0B1,0B2";
  EXPECT_THAT(refusal(json), HasSubstr("`rows` cannot run"));
  json = good;
  json["replicas"] = 3;
  EXPECT_THAT(refusal(json), HasSubstr("`steps[0].actions_ns` has 24 numbers, not 36"));
  json = good;
  json["steps"] = nlohmann::ordered_json::array();
  EXPECT_THAT(refusal(json), HasSubstr("`steps` is empty"));
}

TEST(JobJson, KeepsTheStepsOfARange) {
  EXPECT_EQ(withSteps(job(), 1, 2).steps.size(), 2U);
  EXPECT_EQ(withSteps(job(), 1, 1).steps.front().name, "step 1");
  EXPECT_THROW((void)withSteps(job(), 7, 9), UsageError);
}

TEST(JobJson, DamagedFilesAreRefusedOrUsed) {
  const std::string text = toJson(job());
  const Survived survived = survive(
      "job", mutations(1500), [&](std::mt19937_64& random) { return damaged(text, random); },
      [](const std::string& damagedText) {
        const Job read = parseJob(damagedText, "job.json");
        const JobShape shape(read);
        (void)explanationJson(shape, read, explainJob(shape, read));
        (void)layersOf(read);
        if (trains(read.schedule)) (void)timesFor(read, generate("1f1b", {5, 5, 5}));
        EXPECT_EQ(parseJob(toJson(read), "again"), read);
      });
  EXPECT_GT(survived.refused, 0U);
  EXPECT_GT(survived.accepted, 0U);
}

}  // namespace
}  // namespace pw::test
