#include "backends/host/environment.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(Environment, DefaultsAreSetAndTheUsersOwnStand) {
  ::setenv("PW_TEST_OWN", "mine", 1);
  setDefaultVariables(std::array<EnvironmentVariable, 3>{{{"PW_TEST_OWN", "ours"}, {"PW_TEST_NEW", "a=b"}, {"PW_TEST_EMPTY", ""}}});
  EXPECT_STREQ(std::getenv("PW_TEST_OWN"), "mine");
  EXPECT_STREQ(std::getenv("PW_TEST_NEW"), "a=b");
  EXPECT_STREQ(std::getenv("PW_TEST_EMPTY"), "");
  EXPECT_EQ(std::getenv("PW_TEST_NE"), nullptr);
}

TEST(Environment, AVariableIsReplacedAndTheSystemsOwnCallsStillWork) {
  setVariable("PW_TEST_REPLACED", "one");
  setVariable("PW_TEST_REPLACED", "two");
  EXPECT_STREQ(std::getenv("PW_TEST_REPLACED"), "two");
  ::setenv("PW_TEST_REPLACED", "three", 1);
  EXPECT_STREQ(std::getenv("PW_TEST_REPLACED"), "three");
  ::unsetenv("PW_TEST_REPLACED");
  EXPECT_EQ(std::getenv("PW_TEST_REPLACED"), nullptr);
  EXPECT_NE(std::getenv("PATH"), nullptr);
}

// With setenv(3) this ends in a segmentation fault: it frees the list that other threads walk through.
TEST(Environment, IsReadByThreadsWhileDefaultsAreSet) {
  std::atomic<bool> isDone = false;
  std::atomic<int> missed = 0;
  ::setenv("PW_TEST_STEADY", "here", 1);
  {
    const auto read = [&] {
      while (!isDone)
        missed += static_cast<int>(std::getenv("PW_TEST_STEADY") == nullptr) + static_cast<int>(std::getenv("X_TLS") != nullptr);
    };
    const std::jthread one(read), two(read);
    for (int i = 0; i < 500; ++i) setDefaultVariables(std::array<EnvironmentVariable, 1>{{{"PW_TEST_" + std::to_string(i), "x"}}});
    isDone = true;
  }
  EXPECT_EQ(missed, 0);
  EXPECT_STREQ(std::getenv("PW_TEST_499"), "x");
}

}  // namespace
}  // namespace pw
