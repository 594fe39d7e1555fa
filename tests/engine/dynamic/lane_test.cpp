#include "engine/dynamic/lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::chrono::seconds kPatience{60};

TEST(Lane, DoesWhatCameInItsOrder) {
  Lane lane;
  std::string done;
  for (const char letter : {'a', 'b', 'c'}) lane.post([&done, letter] { done += letter; });
  lane.work([&] { return done.size() == 3; }, kPatience, {});
  EXPECT_EQ(done, "abc");
}

TEST(Lane, RunsACallOnItsOwnThreadAndGivesTheCallerWhatItThrows) {
  Lane lane;
  std::thread::id ran;
  bool ends = false;
  auto caller = std::async(std::launch::async, [&] {
    lane.call([&] { ran = std::this_thread::get_id(); }, kPatience);
    std::string problem;
    try {
      lane.call([] { throw UsageError("no"); }, kPatience);
    } catch (const UsageError& error) {
      problem = error.what();
    }
    lane.post([&] { ends = true; });
    return problem;
  });
  lane.work([&] { return ends; }, kPatience, [] {});
  EXPECT_EQ(caller.get(), "no");
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(Lane, EndsWithWhatAPostedTaskThrows) {
  Lane lane;
  lane.post([] { throw Error("rank 1 is lost"); });
  EXPECT_THROW(lane.work([] { return false; }, kPatience, [] {}), Error);
}

TEST(Lane, SaysThatNothingCame) {
  Lane lane;
  int glances = 0;
  try {
    lane.work([] { return false; }, std::chrono::milliseconds(120), [&] { ++glances; });
    ADD_FAILURE() << "it ended without anything to do";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("no call and no gradient came"));
  }
  EXPECT_GT(glances, 0);
}

TEST(Lane, FailsCallsThatWaitWhenItCloses) {
  Lane lane;
  auto waiting = std::async(std::launch::async, [&] { lane.call([] {}, kPatience); });
  lane.close();
  EXPECT_THROW(waiting.get(), Error);
  EXPECT_THROW(lane.call([] {}, kPatience), Error);
}

TEST(Lane, GivesUpACallThatDoesNotBeginInTimeAndNeverBeginsIt) {
  Lane lane;
  bool ran = false, ends = false;
  EXPECT_THROW(lane.call([&] { ran = true; }, std::chrono::milliseconds(20)), Error);
  lane.post([&] { ends = true; });
  lane.work([&] { return ends; }, kPatience, [] {});
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace pw
