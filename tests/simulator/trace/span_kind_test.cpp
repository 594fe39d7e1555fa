#include "simulator/trace/span_kind.h"

#include <set>

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(SpanKinds, EachHasLettersOfItsOwnByWhichItIsFound) {
  std::set<std::string_view> letters;
  for (std::size_t k = 0; k < kSpanKinds; ++k) {
    const auto kind = static_cast<SpanKind>(k);
    EXPECT_TRUE(letters.insert(nameOf(kind)).second) << nameOf(kind);
    EXPECT_EQ(valueNamed<SpanKind>(nameOf(kind)), kind);
  }
  EXPECT_EQ(letters.count("?"), 0U) << "a kind has no letters";
}

TEST(SpanKinds, OtherLettersNameNone) {
  for (const char* const letters : {"", "f", "FB", "RECV_F", "?", "SEND_F "})
    EXPECT_EQ(valueNamed<SpanKind>(letters), std::nullopt) << letters;
}

}  // namespace
}  // namespace pw
