#include "backends/messages/tags.h"

#include <gtest/gtest.h>

#include "schedules/error.h"

namespace pw {
namespace {

// That the ranges do not overlap is asserted where they stand.
TEST(Tags, OfAPlanStayInItsRange) {
  EXPECT_NO_THROW(requirePlanTags(kPlanTags.end()));
  EXPECT_THROW(requirePlanTags(std::uint64_t{kPlanTags.end()} + 1), UsageError);
  EXPECT_THROW(requirePlanTags(std::uint64_t{1} << 40U), UsageError);
}

}  // namespace
}  // namespace pw
