#include "engine/processes/failure.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <stdexcept>

#include <gtest/gtest.h>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr const char* kCure = "; use smaller microbatches, more stages or a machine with more memory";

std::string causeOf(const std::string& text) { return pw::causeOf(std::runtime_error(text)); }

TEST(Cause, IsTheFirstLineWithoutPlacesInSources) {
  EXPECT_EQ(causeOf("no device\nException raised from f at g.cpp:7"), "no device");
  EXPECT_EQ(causeOf("[/pytorch/gloo/pair.cc:547] Connection closed"), "Connection closed");
  EXPECT_EQ(causeOf("shape [2, 3] at [enforce fail at TensorImpl.h:99] is wrong"), "shape [2, 3] at is wrong") << "other brackets stay";
  EXPECT_EQ(causeOf("an open [ bracket.cpp:1"), "an open [ bracket.cpp:1");
}

TEST(Cause, OfAFailedAllocationSaysWhoWantedHowMuch) {
  const std::string tried =
      "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 655360000 bytes.";
  EXPECT_EQ(causeOf("operator gelu in module mlp failed: " + tried),
            std::string("out of memory in operator gelu in module mlp, which requested 625 MiB more") + kCure);
  EXPECT_EQ(causeOf(tried), std::string("out of memory, for 625 MiB more") + kCure);
  EXPECT_EQ(pw::causeOf(std::bad_alloc()), std::string("out of memory") + kCure);
  EXPECT_EQ(causeOf("you have not enough memory, tried to allocate much"), std::string("out of memory") + kCure);
}

/// As main does it, after `closing`.
[[noreturn]] void fail(
    const std::exception& error, const std::function<void()>& closing = [] {}) {
  RankEnvironment environment;
  environment.rank = JobRank(3);
  const auto complain = [](std::string_view sentence, int status) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(sentence.size()), sentence.data());
    return status;
  };
  try {
    failRank(environment, error, complain);
  } catch (const RankFailed& failed) {
    closing();
    std::_Exit(failed.status);
  }
}

TEST(FailingRank, OfAnotherLauncherSaysWhichItIsAndEndsByItself) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(fail(Error("lost")), testing::ExitedWithCode(1), "^Rank 3: lost\n$");
  EXPECT_EXIT(fail(UsageError("no such loss")), testing::ExitedWithCode(2), "^Rank 3: no such loss\n$");
  EXPECT_EXIT(fail(Error("Rank 3 failed in step 1")), testing::ExitedWithCode(1), "^Rank 3 failed in step 1\n$");
}

TEST(FailingRank, EndsThoughItsConnectionsDoNotClose) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(fail(Error("lost"), [] { ::pause(); }), testing::ExitedWithCode(1), "^Rank 3: lost\n$");
}

TEST(EndedJob, ThrowsWhatEndedIt) {
  EXPECT_NO_THROW(throwUnlessOk({}));
  EXPECT_THROW(throwUnlessOk({false, JobRank(1), "Rank 1: no such loss", false, true}), UsageError);
  EXPECT_THROW(throwUnlessOk({false, JobRank(1), "Rank 1 was lost", false, false}), Error);
  EXPECT_THROW(throwUnlessOk({false, {}, "Interrupted by Ctrl-C", true}), Error);
}

}  // namespace
}  // namespace pw
