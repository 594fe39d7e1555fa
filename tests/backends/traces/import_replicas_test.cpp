// Replicas on Gloo that wait for a slower one: DDP within its last backward, FSDP in the schedule's reductions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/traces/import.h"
#include "simulator/job/explain_job.h"
#include "simulator/job/recover.h"
#include "tests/support/folder.h"

namespace pw {
namespace {

using Json = nlohmann::json;

constexpr double kMs = 1000;  ///< of the file's µs
constexpr int kSteps = 3, kSchedule = 1, kGloo = 2;

/// A rank's recording; times in ms.
class Recording {
 public:
  void add(const std::string& name, const char* category, int thread, double start, double end) {
    events_.push_back(
        {{"ph", "X"}, {"name", name}, {"cat", category}, {"pid", 1}, {"tid", thread}, {"ts", start * kMs}, {"dur", (end - start) * kMs}});
  }
  /// An action, whose operators take its time up to `busy`.
  void act(const std::string& name, double start, double busy, double end) {
    add("PP:" + name, "user_annotation", kSchedule, start, end);
    add("aten::mm", "cpu_op", kSchedule, start, busy);
  }
  [[nodiscard]] std::string text() const { return Json{{"schemaVersion", 1}, {"traceEvents", events_}}.dump(); }

 private:
  Json events_ = Json::array();
};

Job jobOf(const std::vector<Recording>& ranks) {
  const test::Folder folder;
  for (std::size_t r = 0; r < ranks.size(); ++r) (void)folder.with("rank" + std::to_string(r) + ".json", ranks[r].text());
  return jobOf(measuredOf(importTrace({folder.file("")}).value()));
}

constexpr int kMicrobatches = 4;

/// A stage with DDP, F of `forward` and B of `2 forward`; the last backward reduces until `reduced`, and copies 0.5 ms then.
Recording ddp(double forward, double reduced) {
  Recording rank;
  for (int step = 0; step < kSteps; ++step) {
    double t = 100.0 * step;
    const double until = t + reduced;
    for (int m = 0; m < kMicrobatches; ++m) {
      rank.act("0F" + std::to_string(m), t, t + forward, t + forward);
      const double begin = t + forward, busy = begin + 2 * forward;
      t = m + 1 < kMicrobatches ? busy : until + 0.5;
      rank.act("0B" + std::to_string(m), begin, busy, t);
      if (m + 1 < kMicrobatches) continue;
      rank.add("gloo:all_reduce", "user_annotation", kGloo, busy, until);
      rank.add("aten::copy_", "cpu_op", kSchedule, until, t);
    }
    rank.add("Optimizer.step#SGD.step", "user_annotation", kSchedule, t, t + 0.1);
  }
  return rank;
}

TEST(ReplicasOnGloo, WaitInTheLastBackwardForTheSlowerReplica) {
  // 4 × (2 + 4) = 24 ms of work against 4 × (3 + 6) = 36 ms, and 1 ms of all-reduce.
  const Job job = jobOf({ddp(2, 37), ddp(3, 37)});
  ASSERT_EQ(job.replicas, 2);
  const JobShape shape(job);
  for (const JobStep& step : job.steps) {
    EXPECT_EQ(step.actions[shape.slotsOfCopy() - 1], 4'000'000);
    EXPECT_EQ(step.actions[2 * shape.slotsOfCopy() - 1], 6'000'000);
    EXPECT_EQ(step.step, 37'600'000);
  }
  const JobExplanation explained = explainJob(shape, job);
  for (const Ns replayed : explained.slowdowns.replayedSteps) EXPECT_EQ(replayed, 37'600'000);
  // All equally fast: 4 × 7.5 ms, and 1.6 ms of reduction and optimizer; the healthy worker makes that no longer.
  EXPECT_EQ(explained.slowdowns.ideal, 31'600'000);
  EXPECT_NEAR(explained.slowdowns.byWorker[0].slowdown, 1, 1e-6);
  EXPECT_NEAR(explained.slowdowns.byWorker[1].slowdown, 37.6 / 31.6, 1e-6);
}

/// Stages 0 and 1 of FSDP on one rank, F of `forward` and B of `2 forward`; their reductions end at `reduced`.
Recording fsdp(double forward, const std::vector<double>& reduced) {
  Recording rank;
  for (int step = 0; step < kSteps; ++step) {
    const double begin = 100.0 * step;
    double t = begin;
    const auto act = [&](const std::string& name, double time) {
      rank.act(name, t, t + time, t + time);
      t += time;
    };
    for (const char* name : {"0F0", "0F1", "1F0", "1F1"}) act(name, forward);
    for (const int stage : {1, 0}) {
      for (int m = 0; m < 2; ++m) act(std::to_string(stage) + "B" + std::to_string(m), 2 * forward);
      const double until = begin + reduced[static_cast<std::size_t>(1 - stage)];
      rank.add("PP:" + std::to_string(stage) + "REDUCE_GRAD", "user_annotation", kSchedule, t, until);
      rank.add("gloo:reduce_scatter", "user_annotation", kGloo, t, until);
      t = until;
    }
    rank.add("Optimizer.step#SGD.step", "user_annotation", kSchedule, t, t + 0.1);
  }
  return rank;
}

TEST(ReplicasOnGloo, HoldTheirRowsForReductionsAmidThem) {
  // The slower one comes to its first reduction at 4 × 2 + 2 × 4 = 16 ms, to the second 1 + 8 ms later; each takes 1 ms.
  const Job job = jobOf({fsdp(1, {17, 26}), fsdp(2, {17, 26})});
  ASSERT_EQ(job.operations.size(), 3U);
  EXPECT_EQ(job.operations[0].after, std::vector<std::int32_t>{6});
  EXPECT_TRUE(job.operations[0].blocks);
  const JobShape shape(job);
  const JobExplanation explained = explainJob(shape, job);
  for (std::size_t k = 0; k < job.steps.size(); ++k) {
    EXPECT_EQ(explained.slowdowns.replayedSteps[k], 26'100'000);
    EXPECT_EQ(job.steps[k].step, 26'100'000);
  }
  EXPECT_EQ(explained.usual.start[6], 17'000'000);  // the first backward after it, also on the healthy replica
  EXPECT_TRUE(explained.stalls.empty());
  Ns path = 0;
  for (const auto& [kind, time] : explained.path.byKind) path += time;
  EXPECT_EQ(path, explained.usual.step);
  EXPECT_EQ(explained.path.byKind.at("REDUCE_GRAD"), 2'000'000);
}

/// FSDP on two stages of one rank: the first forward of each begins when its gathered parameters are there, and copies them for 1 ms.
TEST(ReplicasOnGloo, WaitForGatheredParametersBeforeTheFirstForward) {
  const auto recording = [](double forward, double gathered) {
    Recording rank;
    for (int step = 0; step < kSteps; ++step) {
      double t = 100.0 * step;
      rank.add("gloo:all_gather", "user_annotation", kGloo, t, t + gathered - 1);
      for (const char* name : {"0F0", "0F1", "0F2", "1F0", "1F1", "1F2", "1B0", "1B1", "1B2", "0B0", "0B1", "0B2"}) {
        const std::string action = name;
        const bool isFirst = action[1] == 'F' && action[2] == '0';
        const double gather = !isFirst ? 0 : action[0] == '0' ? gathered : 1;
        if (isFirst) rank.add("FSDP::all_gather_copy_out", "user_annotation", kSchedule, t, t + gather);
        const double time = gather + (action[1] == 'B' ? 2 : 1) * forward;
        rank.act(action, t, t + time, t + time);
        t += time;
      }
      rank.add("Optimizer.step#SGD.step", "user_annotation", kSchedule, t, t + 0.1);
    }
    return rank;
  };
  const Job job = jobOf({recording(2, 5), recording(2, 5)});
  ASSERT_EQ(job.steps.size(), static_cast<std::size_t>(kSteps));
  std::vector<std::string> names;
  for (const JobOperation& operation : job.operations) names.push_back(operation.name);
  EXPECT_THAT(names, testing::ElementsAre("UNSHARD", "UNSHARD 2", "OPTIMIZER"));
  EXPECT_EQ(job.operations[0].group, OperationGroup::Replicas);
  EXPECT_EQ(job.operations[1].after, std::vector<std::int32_t>{3});
  for (const JobStep& step : job.steps) {
    for (std::size_t s = 0; s < 6; ++s) EXPECT_EQ(step.actions[s], 2'000'000) << s;  // all forwards alike
    EXPECT_EQ(step.step, 42'100'000);                                                // 6 × 2 + 6 × 4 + 5 + 1 + 0.1 ms
  }
}

/// DDP has no reduction where torch's schedule labels one: it is in the last backward.
TEST(ReplicasOnGloo, ReductionsWithoutACollectiveAreNone) {
  const auto recording = [](double forward) {
    Recording rank = ddp(forward, 37);
    for (int step = 0; step < kSteps; ++step)
      rank.add("PP:0REDUCE_GRAD", "user_annotation", kSchedule, 100.0 * step + 37.5, 100.0 * step + 37.5);
    return rank;
  };
  const Job job = jobOf({recording(2), recording(3)});
  std::vector<std::string> names;
  for (const JobOperation& operation : job.operations) names.push_back(operation.name);
  EXPECT_THAT(names, testing::ElementsAre("REDUCE_GRAD", "OPTIMIZER"));
}

}  // namespace
}  // namespace pw
