#include "backends/messages/tags.h"

#include <gtest/gtest.h>

#include "schedules/error.h"

namespace pw {
namespace {

// That the ranges do not overlap is asserted where they stand.
TEST(Tags, StayInTheirRange) {
  for (const TagRange& range : {kPlanTags, kOutputTags}) {
    EXPECT_NO_THROW(requireTags(range, range.count));
    EXPECT_THROW(requireTags(range, std::uint64_t{range.count} + 1), UsageError);
    EXPECT_THROW(requireTags(range, std::uint64_t{1} << 40U), UsageError);
  }
}

}  // namespace
}  // namespace pw
