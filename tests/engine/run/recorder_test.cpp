// Steps that are handed on from a thread of their own while training continues.
#include "engine/run/recorder.h"

#include <atomic>
#include <future>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/error.h"

namespace pw {
namespace {

std::vector<StepLog> logsOf(int step, std::size_t spans = 1) {
  StepLog log;
  for (std::size_t i = 0; i < spans; ++i) {
    const auto at = static_cast<Ns>(10 * i);
    log.spans.push_back({Rank(0), SpanKind::Forward, Stage(0), Microbatch(static_cast<std::int32_t>(i)), Rank(0), 0, at, at + step + 1});
  }
  log.loss = step;
  return {log};
}

const auto kSilent = [](const std::string&) {};

TEST(RunRecorder, HandsOnEveryStepInItsOrder) {
  std::vector<int> seen;
  RunRecorder recorder(
      1,
      [&](std::span<const StepRecord> steps) {
        for (const StepRecord& step : steps) {
          seen.push_back(step.step);
          EXPECT_EQ(step.loss, step.step);
          EXPECT_EQ(step.measured, joinTraces(logsOf(step.step), 1));
        }
      },
      kSilent);
  for (int step = 0; step < 1000; ++step) recorder.add(step, logsOf(step));
  recorder.finish();
  ASSERT_EQ(seen.size(), 1000U);
  for (int step = 0; step < 1000; ++step) EXPECT_EQ(seen[static_cast<std::size_t>(step)], step);
}

TEST(RunRecorder, HandsOnAStepWithoutWaitingForAnother) {
  std::promise<int> first;
  RunRecorder recorder(
      1, [&](std::span<const StepRecord> steps) { first.set_value(steps.front().step); }, kSilent);
  recorder.add(7, logsOf(7));
  EXPECT_EQ(first.get_future().get(), 7);  // the recorder is still open
}

TEST(RunRecorder, HandsOnWhatWaitsWhenTrainingFails) {
  std::size_t seen = 0;
  try {
    RunRecorder recorder(
        1, [&](std::span<const StepRecord> steps) { seen += steps.size(); }, kSilent);
    for (int step = 0; step < 5; ++step) recorder.add(step, logsOf(step));
    throw Error("the training fails");
  } catch (const Error&) {}
  EXPECT_EQ(seen, 5U);
}

TEST(RunRecorder, LetsTrainingGoOnWhenStepsCannotBeKept) {
  std::atomic<int> told = 0;
  RunRecorder recorder(
      1, [](std::span<const StepRecord>) { throw Error("no space"); },
      [&](const std::string& why) { told += why == "no space" ? 1 : 100; });
  for (int step = 0; step < 100; ++step) recorder.add(step, logsOf(step, 10'000));  // far more than may wait
  try {
    recorder.finish();
    FAIL() << "it must say so in the end";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "no space");
  }
  EXPECT_EQ(told, 1);
}

TEST(RunRecorder, LetsNoMoreWaitThanItsBound) {
  constexpr std::size_t kSpans = 1000;
  constexpr std::size_t kMost = RunRecorder::kMostWaiting / (kSpans * sizeof(Span)) + 1;  // the last may exceed the bound
  std::atomic<int> added = 0;
  int kept = 0;
  RunRecorder recorder(
      1,
      [&](std::span<const StepRecord> steps) {
        kept += static_cast<int>(steps.size());
        EXPECT_LE(steps.size(), kMost);
        EXPECT_LE(added, kept + static_cast<int>(kMost) + 1) << "of those that were added, all but what waits have come";
      },
      kSilent);
  for (int step = 0; step < 500; ++step) {
    recorder.add(step, logsOf(step, kSpans));
    ++added;
  }
  recorder.finish();
  EXPECT_EQ(kept, 500);
}

}  // namespace
}  // namespace pw
