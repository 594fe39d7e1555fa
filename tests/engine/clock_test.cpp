#include "engine/clock.h"
#include "backends/messages/in_memory_communicator.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace pw {
namespace {

constexpr Ns kHour(3'600'000'000'000);

/// Readings of ranks whose clocks are `offsets` ahead of one that moves 100 ns whenever any of them is read.
std::vector<ClockReading> compared(const std::vector<Ns>& offsets) {
  auto communicators = inMemoryCommunicators(static_cast<int>(offsets.size()), std::chrono::seconds(20));
  std::atomic<std::int64_t> time{0};
  std::vector<ClockReading> readings;
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < offsets.size(); ++r) {
    ranks.emplace_back([&, r] {
      const auto seen = compareClocks(*communicators[r], [&, r] { return Ns(time += 100) + offsets[r]; });
      if (r == 0)
        readings = seen;
      else
        EXPECT_TRUE(seen.empty());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return readings;
}

TEST(Clocks, ThatDifferByHoursAreFoundToDifferByThat) {
  const std::vector<ClockReading> readings = compared({7 * kHour, 7 * kHour + 5 * kHour, 7 * kHour - 6 * kHour + 1});
  ASSERT_EQ(readings.size(), 3U);
  EXPECT_EQ(readings[0], ClockReading{});
  // Read in turn at t, t + 100 and t + 200: the middle of the round trip is when the peer read its own.
  EXPECT_EQ(readings[1].offset, 5 * kHour);
  EXPECT_EQ(readings[2].offset, -6 * kHour + 1);
  for (const std::size_t r : {1U, 2U}) EXPECT_EQ(readings[r].roundTrip, 200);
}

TEST(Clocks, ThatAreOneStaySo) {
  // Seen at the very start or end of the round trip, one clock seems to differ by half of it.
  for (const Ns apparent : {Ns{0}, Ns{99}, Ns{-99}, Ns{100}, Ns{-100}}) EXPECT_EQ(compared({0, apparent}).at(1).offset, 0) << apparent;
  for (const Ns real : {Ns{101}, Ns{-101}}) EXPECT_EQ(compared({0, real}).at(1).offset, real) << "no round trip of 200 ns explains this";
}

TEST(Clocks, OfRealThreadsAreRightToHalfARoundTrip) {
  auto communicators = inMemoryCommunicators(2, std::chrono::seconds(20));
  std::thread peer([&] { static_cast<void>(compareClocks(*communicators[1], [] { return monotonicNow() + 9 * kHour; })); });
  const ClockReading reading = compareClocks(*communicators[0]).at(1);
  peer.join();
  EXPECT_LE(abs(reading.offset - 9 * kHour), reading.roundTrip / 2 + 1);
}

TEST(Times, BetweenTwoReadingsFollowTheDrift) {
  const ClockReading first{kHour, 1'000'000, 50}, last{2 * kHour, 2'000'000, 70};
  EXPECT_EQ(onOurClock(kHour, first, last), kHour - 1'000'000);
  EXPECT_EQ(onOurClock(kHour + kHour / 2, first, last), kHour + kHour / 2 - 1'500'000);
  EXPECT_EQ(onOurClock(2 * kHour, first, last), 2 * kHour - 2'000'000);
}

TEST(Times, OutsideTheReadingsTakeTheNearerOne) {
  const ClockReading first{1000, 10, 5}, last{2000, 20, 5};
  EXPECT_EQ(onOurClock(500, first, last), 490);
  EXPECT_EQ(onOurClock(3000, first, last), 2980);
  EXPECT_EQ(onOurClock(3000, last, last), 2980) << "a single reading";
  EXPECT_EQ(onOurClock(1500, {1000, 0, 5}, {2000, 0, 5}), 1500) << "ranks of one host";
}

}  // namespace
}  // namespace pw
