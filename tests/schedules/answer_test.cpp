#include "schedules/answer.h"

#include <gtest/gtest.h>

#include <memory>

namespace pw {
namespace {

Answer<std::unique_ptr<int>> half(int number) {
  if (number % 2 != 0) return Impossible{"It is odd; use an even number."};
  return std::make_unique<int>(number / 2);
}

TEST(Answers, AreAValueOrTheReasonThatThereIsNone) {
  auto some = half(8);
  ASSERT_TRUE(some);
  EXPECT_EQ(**some, 4);
  const std::unique_ptr<int> taken = *std::move(some);
  EXPECT_EQ(*taken, 4);
  const auto none = half(7);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.refusal(), Impossible{"It is odd; use an even number."});
}

TEST(Answers, ThrowTheReasonForCallersThatCannotContinue) {
  EXPECT_EQ(*half(8).orThrow(), 4);
  try {
    static_cast<void>(half(7).orThrow());
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "It is odd; use an even number.");
  }
}

}  // namespace
}  // namespace pw
