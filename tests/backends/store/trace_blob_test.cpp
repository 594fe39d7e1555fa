#include "backends/store/trace_blob.h"

#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/error.h"

namespace pw {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Trace smallTrace() {
  return {2,
          {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 0, 1'000},
           {Rank(0), SpanKind::SendForward, Stage(0), Microbatch(0), Rank(1), Bytes{1} << 40, 1'000, Ns(4'000'000'000)},
           {Rank(1), SpanKind::Optimizer, Stage(1), Microbatch(-1), Rank(1), 0, Ns(4'000'000'000), Ns(4'000'000'001)}},
          {{Rank(1), 17, Bytes(123'456'789'012)}}};
}

std::string errorOf(const std::string& blob) {
  try {
    (void)parseBlob(blob, "step 3 of run 7");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TraceBlob, ATraceComesBackAsItWas) {
  EXPECT_EQ(parseBlob(toBlob(smallTrace()), "x"), smallTrace());
  EXPECT_EQ(parseBlob(toBlob(Trace{}), "x"), Trace{});
}

TEST(TraceBlob, TakesTheBytesItsDescriptionSays) {
  const std::string blob = toBlob(smallTrace());
  EXPECT_EQ(blob.size(), 28U + 3 * 44 + 20);
  EXPECT_EQ(blob.substr(0, 12), std::string("PWTR\1\0\0\0\2\0\0\0", 12));
}

TEST(TraceBlob, EveryTruncationAndExtensionIsRefused) {
  const std::string blob = toBlob(smallTrace());
  for (std::size_t size = 0; size < blob.size(); ++size) {
    EXPECT_THAT(errorOf(blob.substr(0, size)), AllOf(HasSubstr("step 3 of run 7"), HasSubstr("damaged"))) << size;
  }
  EXPECT_THAT(errorOf(blob + 'x'), HasSubstr("damaged"));
}

TEST(TraceBlob, CountsThatOverflowAllocateNothing) {
  // 2^64 / 44 spans and then some: multiplied out without care they come to the bytes that are there.
  std::string blob = toBlob(Trace{});
  blob.replace(12, 8, 8, '\xff');
  EXPECT_THAT(errorOf(blob), HasSubstr("damaged"));
  blob.replace(20, 8, 8, '\xff');
  EXPECT_THAT(errorOf(blob), HasSubstr("damaged"));
}

TEST(TraceBlob, ANewerFormatIsNamed) {
  std::string blob = toBlob(smallTrace());
  blob[4] = 2;
  EXPECT_THAT(errorOf(blob), AllOf(HasSubstr("format 2"), HasSubstr("update")));
}

TEST(TraceBlob, IdsAndTimesOutOfRangeAreRefused) {
  const std::vector<std::function<void(Trace&)>> faults{
      [](Trace& t) { t.spans[0].rank = Rank(2); },
      [](Trace& t) { t.spans[0].rank = Rank(-1); },
      [](Trace& t) { t.spans[1].peer = Rank(2); },
      [](Trace& t) { t.spans[1].kind = static_cast<SpanKind>(static_cast<int>(SpanKind::Store) + 1); },
      [](Trace& t) { t.spans[2].stage = Stage(-2); },
      [](Trace& t) { t.spans[0].microbatch = Microbatch(-2); },
      [](Trace& t) { t.spans[0].start = Ns(INT64_MIN); },
      [](Trace& t) { t.spans[0].end = Ns(INT64_MAX); },
      [](Trace& t) { t.memory[0].rank = Rank(2); },
      [](Trace& t) { t.memory[0].time = Ns(INT64_MAX); },
      [](Trace& t) { t.ranks = -1; },
      [](Trace& t) { t.ranks = 0; },
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    Trace trace = smallTrace();
    faults[i](trace);
    EXPECT_THAT(errorOf(toBlob(trace)), HasSubstr("damaged")) << "fault " << i;
  }
}

TEST(TraceBlob, RandomDamageGivesATraceOrAnError) {
  constexpr unsigned kSeed = 20240501;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const std::string whole = toBlob(smallTrace());
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string blob = whole;
    for (int changes = 0; changes < 3; ++changes) blob[random() % blob.size()] = static_cast<char>(random() & 0xff);
    refused += errorOf(blob).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
}

TEST(TraceBlob, TheDurationRunsFromFirstStartToLastEnd) {
  EXPECT_EQ(durationOf(smallTrace()), 4'000'000'001);
  EXPECT_EQ(durationOf(Trace{}), 0);
  EXPECT_EQ(durationOf(Trace{1, {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 5, 9}}, {}}), 4);
}

}  // namespace
}  // namespace pw
