// What a job's own steps, and other jobs, say of predictions from its times.
#include <gtest/gtest.h>

#include <cmath>

#include "schedules/error.h"
#include "simulator/job/held_out.h"
#include "simulator/job/job_json.h"
#include "simulator/job/recover.h"
#include "tests/support/jobs.h"

namespace pw::test {
namespace {

constexpr double kPrior = 0.04;

Trace stepOfLength(double factor, const std::string& schedule = "1f1b") {
  const auto times = [&](double time) { return std::vector<Ns>(2, Ns(std::llround(factor * time))); };
  return pipeline(schedule, 4, times(1000), times(2000));
}

Job jobOfLengths(const std::vector<double>& factors, const std::string& schedule = "1f1b") {
  std::vector<Trace> steps;
  for (const double factor : factors) steps.push_back(stepOfLength(factor, schedule));
  return jobOf(jobOfSteps(std::move(steps)));
}

TEST(HeldOut, HalvesPredictEachOther) {
  // The first half predicts 1 where 1.1 was measured, the second 1.1 where 1 was.
  const Job job = jobOfLengths({1, 1, 1.1, 1.1});
  const double up = 0.1, down = 0.1 / 1.1;
  const double expected = std::sqrt((2 * up * up + 2 * down * down) / 4);
  ASSERT_TRUE(heldOutDeviation(job));
  EXPECT_NEAR(*heldOutDeviation(job), expected, 1e-9);
  EXPECT_EQ(uncertaintyOf(job, job.schedule), (Uncertainty{*heldOutDeviation(job), 0}));
  const Schedule other = generate("gpipe", {2, 2, 4});
  ASSERT_TRUE(uncertaintyOf(job, other));
  EXPECT_NEAR(uncertaintyOf(job, other)->deviation, std::hypot(kPrior, expected), 1e-9);
  EXPECT_EQ(uncertaintyOf(job, other), uncertaintyOfOthers(job));
}

TEST(HeldOut, OfEqualStepsIsNothingButThePriorOfOtherSchedules) {
  const Job job = jobOfLengths({1, 1, 1});
  EXPECT_EQ(heldOutDeviation(job), 0.0);
  EXPECT_EQ(uncertaintyOfOthers(job), (Uncertainty{kPrior, 0}));
}

TEST(HeldOut, NeedsTwoMeasuredSteps) {
  const Job one = jobOfLengths({1});
  EXPECT_EQ(heldOutDeviation(one), std::nullopt);
  EXPECT_EQ(uncertaintyOf(one, one.schedule), std::nullopt);
  EXPECT_EQ(uncertaintyOfOthers(one), std::nullopt);
  EXPECT_THROW((void)calibrateJob(one, {}), UsageError);
  Job predicted = jobOfLengths({1, 1.1});
  predicted.times = TimesOf::Predicted;
  EXPECT_EQ(uncertaintyOfOthers(predicted), std::nullopt);
  EXPECT_THROW((void)calibrateJob(predicted, {}), UsageError);
}

TEST(HeldOut, OtherJobsShowHowFarOffTheirPredictionsAre) {
  const Job job = jobOfLengths({1, 1});
  // GPipe of the same times takes as long; one that is slower by a tenth is off by that.
  const std::vector<Job> others{jobOfLengths({1, 1}, "gpipe"), jobOfLengths({1.1}, "gpipe")};
  const JobCalibration result = calibrateJob(job, others);
  ASSERT_EQ(result.others.size(), 2U);
  EXPECT_EQ(result.others[0].predicted, result.others[0].measured);
  EXPECT_NEAR(result.others[1].error, 0.1, 1e-9);
  ASSERT_TRUE(result.job.uncertainty);
  EXPECT_EQ(result.job.uncertainty->runs, 3);
  EXPECT_NEAR(result.job.uncertainty->deviation, std::sqrt((2 * kPrior * kPrior + 0.1 * 0.1) / (2 + 2)), 1e-9);
  EXPECT_EQ(uncertaintyOfOthers(result.job)->runs, 3);
  EXPECT_EQ(parseJob(toJson(result.job), "job.json"), result.job) << "it is kept in the job's file";
}

TEST(HeldOut, RefusesJobsThatAreFartherOffThanAJobCanHold) {
  const Job job = jobOfLengths({1, 1});
  const auto deviationOf = [&](double factor) {
    return calibrateJob(job, std::vector<Job>{jobOfLengths({factor})}).job.uncertainty->deviation;  // (factor - 1) / sqrt(3)
  };
  EXPECT_LT(deviationOf(1700), kMostDeviation);
  EXPECT_THROW((void)deviationOf(1800), UsageError);
}

}  // namespace
}  // namespace pw::test
