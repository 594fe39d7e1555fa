// Steps that are handed on from a thread of their own while training continues.
#include "engine/run/recorder.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/error.h"

namespace pw {
namespace {

std::vector<StepLog> logsOf(int step, std::size_t spans = 1) {
  StepLog log;
  for (std::size_t i = 0; i < spans; ++i) {
    const auto at = static_cast<std::int64_t>(10 * i);
    log.spans.push_back(
        {Rank(0), SpanKind::Forward, Stage(0), Microbatch(static_cast<std::int32_t>(i)), Rank(0), 0, Ns(at), Ns(at + step + 1)});
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

/// A disk that hangs when it gets a step from `from` on, until told to continue.
struct HangingDisk {
  explicit HangingDisk(int first) : from(first) {}
  const int from;
  std::promise<void> mayContinue;
  std::shared_future<void> continues = mayContinue.get_future().share();
  std::atomic<int> last = -1;

  void take(std::span<const StepRecord> steps) {
    if (steps.back().step >= from) continues.wait();
    last = steps.back().step;
  }
};

constexpr std::chrono::milliseconds kShort{200};

TEST(RunRecorder, WaitsForADiskThatHangsNoLongerThanItsDeadlineAndSaysWhatIsKept) {
  const auto disk = std::make_shared<HangingDisk>(1);
  std::vector<std::string> told;
  RunRecorder recorder(
      1, [disk](std::span<const StepRecord> steps) { disk->take(steps); }, [&](const std::string& why) { told.push_back(why); },
      {.name = "runs.db", .deadline = kShort});
  recorder.add(0, logsOf(0));
  while (disk->last < 0) std::this_thread::yield();
  for (int step = 1; step < 100; ++step) recorder.add(step, logsOf(step, 10'000));  // far more than may wait
  ASSERT_EQ(told, std::vector<std::string>{"runs.db has not taken a step for 0.2 s (its disk or network hangs): steps up to 0 are kept, "
                                           "and later ones are not"});
  try {
    recorder.finish();
    FAIL() << "it must say so in the end";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), told.front());
  }
  EXPECT_TRUE(recorder.hangs());
  disk->mayContinue.set_value();
}

TEST(RunRecorder, LeavesADiskThatHangsAtTheEndWithAllThatItUses) {
  const auto disk = std::make_shared<HangingDisk>(0);
  const std::weak_ptr<int> used = [&] {
    auto mine = std::make_shared<int>(0);
    const std::weak_ptr<int> watched = mine;
    RunRecorder recorder(1,
                         [disk, mine = std::move(mine)](std::span<const StepRecord> steps) {
                           disk->take(steps);
                           ++*mine;
                         },
                         kSilent, {.name = "runs.db", .deadline = kShort});
    recorder.add(0, logsOf(0));
    return watched;
  }();  // the recorder is gone after its deadline
  EXPECT_FALSE(used.expired()) << "while the disk hangs";
  disk->mayContinue.set_value();
  while (!used.expired()) std::this_thread::yield();  // its thread ends by itself
  EXPECT_EQ(disk->last, 0);
}

TEST(RunRecorder, WaitsForASlowDiskAsLongAsItKeepsSteps) {
  constexpr std::chrono::milliseconds kSlow{25}, kLong{1000};  // two or three steps at once: more than the deadline for all
  std::vector<int> kept;
  RunRecorder recorder(
      1,
      [&](std::span<const StepRecord> steps) {
        std::this_thread::sleep_for(kSlow);
        for (const StepRecord& step : steps) kept.push_back(step.step);
      },
      [](const std::string& why) { ADD_FAILURE() << why; }, {.name = "runs.db", .deadline = kLong});
  for (int step = 0; step < 100; ++step) recorder.add(step, logsOf(step, 10'000));
  recorder.finish();
  EXPECT_EQ(kept.size(), 100U);
  EXPECT_FALSE(recorder.hangs());
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
