#include "simulator/trace/span_kind.h"

#include <cstdint>
#include <optional>
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

TEST(SpanKinds, ThatAnActionHasSayWhatItsRankDoes) {
  for (int k = 0; k <= static_cast<int>(ActionKind::Idle); ++k) {
    const auto action = static_cast<ActionKind>(k);
    const std::optional<SpanKind> kind = spanKind(action);
    EXPECT_EQ(!kind, action == ActionKind::Unshard || action == ActionKind::Reshard || action == ActionKind::Idle) << k;
    if (!kind) continue;
    if (isCompute(action)) {
      EXPECT_EQ(*kind, static_cast<SpanKind>(k)) << "the first kinds of spans are those of actions";
    }
    EXPECT_EQ(isCompute(*kind), isCompute(action)) << nameOf(*kind);
    EXPECT_EQ(isWait(*kind), isSend(action) || isReceive(action)) << nameOf(*kind);
    EXPECT_FALSE(isMessage(*kind)) << "which is in flight, whatever its ends do";
  }
}

TEST(SpanKinds, AreOfOneSortAtMost) {
  int compute = 0, messages = 0, waits = 0;
  for (std::size_t k = 0; k < kSpanKinds; ++k) {
    const auto kind = static_cast<SpanKind>(k);
    EXPECT_LE(int{isCompute(kind)} + int{isMessage(kind)} + int{isWait(kind)}, 1) << nameOf(kind);
    compute += isCompute(kind) ? 1 : 0, messages += isMessage(kind) ? 1 : 0, waits += isWait(kind) ? 1 : 0;
  }
  EXPECT_EQ(compute, 4);
  EXPECT_EQ(messages, 2);
  EXPECT_EQ(waits, 2);
}

TEST(Traces, AreSummableWhereIdleTimeAndSpansAddUp) {
  constexpr std::int64_t kMost = 4'000'000'000'000'000'000;
  const auto oneSpan = [](int ranks, Ns start, Ns end) {
    Trace trace;
    trace.ranks = ranks;
    trace.spans.push_back({Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, start, end});
    return trace;
  };
  EXPECT_TRUE(isSummable({}));
  EXPECT_TRUE(isSummable(oneSpan(1, 0, Ns(kMost))));
  EXPECT_FALSE(isSummable(oneSpan(1, 0, Ns(kMost + kMost / 8))));
  EXPECT_TRUE(isSummable(oneSpan(8, 0, Ns(kMost / 8))));
  EXPECT_FALSE(isSummable(oneSpan(8, Ns(kMost / 7) - 1, Ns(kMost / 7)))) << "eight ranks are idle for so long";
  Trace overlapping = oneSpan(1, 0, Ns(kMost / 2));
  overlapping.spans.resize(3, overlapping.spans.front());
  EXPECT_FALSE(isSummable(overlapping)) << "three messages at a time";
}

}  // namespace
}  // namespace pw
