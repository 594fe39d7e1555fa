#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/error.h"
#include "tests/support/channel_job.h"

namespace pw {

// The contract of message channels over every transport, as tests that run on each:
// INSTANTIATE_TEST_SUITE_P(Ucx, MessageChannelContract, testing::Values(...)).

struct TestedLink {
  std::string name;
  /// The links of a new job, by rank; each connects on a thread of its own.
  std::function<std::vector<LinkMaker>(int ranks)> newJob;
};
inline void PrintTo(const TestedLink& link, std::ostream* out) { *out << link.name; }

class MessageChannelContract : public testing::TestWithParam<TestedLink> {
 protected:
  static std::vector<LinkMaker> newJob(int ranks) { return GetParam().newJob(ranks); }
};

inline int numberIn(const ChannelMessage& message) { return std::stoi(message.head); }

TEST_P(MessageChannelContract, EachRankKnowsItsPlace) {
  ChannelJob job(newJob(3));
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(job[r].rank(), JobRank(r));
    EXPECT_EQ(job[r].size(), 3);
  }
  EXPECT_TRUE(job.close());
}

TEST_P(MessageChannelContract, MessagesOfEverySizeArriveAsTheyWereSent) {
  ChannelJob job(newJob(2));
  std::vector<ChannelMessage> sent{{"", {}}, {std::string(100'000, 'x'), {}}, {std::string("\0\n", 2), {partOf(0, 0)}}};
  std::size_t salt = 1;
  for (const std::size_t size : {1, 63, 8191, 8192, 8193, 32767, 32768, 1'048'577, 64 << 20})
    sent.push_back({"size " + std::to_string(size), {partOf(size, ++salt), partOf(size / 3, ++salt)}});
  sent.push_back({"many", std::vector<HeldBuffer>(1000, partOf(77, 5))});
  for (const ChannelMessage& message : sent) job[0].send(JobRank(1), message);
  const auto got = job.reports(1).waitForMessages(sent.size());
  ASSERT_EQ(got.size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(got[i].from, 0);
    EXPECT_TRUE(areEqual(got[i].message, sent[i])) << "message " << i << ", " << sent[i].head.substr(0, 20);
    for (const HeldBuffer& part : got[i].message.parts) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(part.buffer.data) % 64, 0U);
  }
  EXPECT_TRUE(job.close());
}

TEST_P(MessageChannelContract, LargeAndSmallMessagesOfAPairKeepTheirOrder) {
  constexpr int kMessages = 400;
  ChannelJob job(newJob(2));
  for (int i = 0; i < kMessages; ++i)
    job[0].send(JobRank(1), {std::to_string(i), {partOf(i % 7 == 0 ? 300'000 : i % 3 == 0 ? 9'000 : 10, static_cast<std::size_t>(i))}});
  const auto got = job.reports(1).waitForMessages(kMessages);
  ASSERT_EQ(got.size(), std::size_t{kMessages});
  for (int i = 0; i < kMessages; ++i) EXPECT_EQ(numberIn(got[static_cast<std::size_t>(i)].message), i);
  EXPECT_TRUE(job.close());
}

TEST_P(MessageChannelContract, ManyThreadsMaySendAndEachKeepsItsOrder) {
  constexpr int kThreads = 4, kEach = 500;
  ChannelJob job(newJob(2));
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) job[0].send(JobRank(1), {std::to_string(t * kEach + i), {}});
      });
    }
  }
  const auto got = job.reports(1).waitForMessages(kThreads * kEach);
  ASSERT_EQ(got.size(), std::size_t{kThreads * kEach});
  std::array<int, kThreads> next{};
  for (const auto& report : got) {
    const int number = numberIn(report.message);
    EXPECT_EQ(number % kEach, next[static_cast<std::size_t>(number / kEach)]++);
  }
  EXPECT_TRUE(job.close());
}

TEST_P(MessageChannelContract, EveryRankReachesEveryRankAndItself) {
  constexpr int kRanks = 4;
  ChannelJob job(newJob(kRanks));
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) job[from].send(JobRank(to), {std::to_string(from * kRanks + to), {partOf(20'000, 1)}});
  }
  for (int to = 0; to < kRanks; ++to) {
    std::vector<int> numbers, expected;
    for (const auto& report : job.reports(to).waitForMessages(kRanks)) {
      EXPECT_EQ(report.from, numberIn(report.message) / kRanks);
      numbers.push_back(numberIn(report.message));
    }
    for (int from = 0; from < kRanks; ++from) expected.push_back(from * kRanks + to);
    EXPECT_THAT(numbers, testing::UnorderedElementsAreArray(expected));
  }
  EXPECT_TRUE(job.close());
}

TEST_P(MessageChannelContract, AMessageToItselfIsACopyThatTheChannelsThreadDelivers) {
  ChannelJob job(newJob(1));
  const HeldBuffer part = partOf(50'000, 3);
  job[0].send(JobRank(0), {"self", {part}});
  const auto got = job.reports(0).waitForMessages(1);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_TRUE(areEqual(got[0].message, {"self", {part}}));
  EXPECT_NE(got[0].message.parts[0].buffer.data, part.buffer.data);
  EXPECT_NE(job.reports(0).threads()[0], std::this_thread::get_id());
  EXPECT_TRUE(job.close());
}

TEST_P(MessageChannelContract, TenThousandRandomMessagesArriveOnceAndInOrder) {
  constexpr int kRanks = 4, kMessages = 10'000;
  constexpr unsigned kSeed = 20'261;
  std::mt19937 random(kSeed);
  const auto upTo = [&](std::size_t most) { return random() % (most + 1); };
  // Per sender: the receivers and messages in order.
  std::vector<std::vector<std::pair<int, ChannelMessage>>> plan(kRanks);
  std::array<std::array<std::vector<const ChannelMessage*>, kRanks>, kRanks> expected;
  std::array<std::size_t, kRanks> counts{};
  for (int i = 0; i < kMessages; ++i) {
    ChannelMessage message{std::string(upTo(200), static_cast<char>('a' + i % 26)), {}};
    for (std::size_t parts = upTo(3); parts > 0; --parts)
      message.parts.push_back(partOf(i % 50 == 0 ? upTo(200'000) : upTo(2'000), static_cast<std::size_t>(i)));
    plan[upTo(kRanks - 1)].emplace_back(static_cast<int>(upTo(kRanks - 1)), std::move(message));
  }
  for (std::size_t from = 0; from < kRanks; ++from) {
    for (const auto& [to, message] : plan[from]) {
      expected[from][static_cast<std::size_t>(to)].push_back(&message);
      ++counts[static_cast<std::size_t>(to)];
    }
  }
  ChannelJob job(newJob(kRanks), {.window = {.messages = 64, .bytes = 1 << 20}});
  {
    std::vector<std::jthread> threads;
    for (int from = 0; from < kRanks; ++from) {
      threads.emplace_back([&, from] {
        for (const auto& [to, message] : plan[static_cast<std::size_t>(from)]) job[from].send(JobRank(to), message);
      });
    }
  }
  for (std::size_t to = 0; to < kRanks; ++to) {
    const auto got = job.reports(static_cast<int>(to)).waitForMessages(counts[to]);
    ASSERT_EQ(got.size(), counts[to]) << "seed " << kSeed;
    std::array<std::size_t, kRanks> next{};
    for (const auto& report : got) {
      const auto from = static_cast<std::size_t>(report.from);
      ASSERT_LT(next[from], expected[from][to].size());
      ASSERT_TRUE(areEqual(report.message, *expected[from][to][next[from]]))
          << "message " << next[from] << " from " << from << " to " << to;
      ++next[from];
    }
  }
  EXPECT_TRUE(job.close());
}

TEST_P(MessageChannelContract, AClosingRankDeliversWhatItHasSent) {
  constexpr std::size_t kMessages = 300;
  ChannelJob job(newJob(2), {.window = {.messages = 16}});
  for (std::size_t i = 0; i < kMessages; ++i) job[0].send(JobRank(1), {std::to_string(i), {partOf(40'000, i)}});
  EXPECT_TRUE(job[0].close(kPatience));
  EXPECT_EQ(job.reports(1).waitForMessages(0).size(), kMessages);
  EXPECT_THAT(job.reports(1).waitForLosses(1), testing::ElementsAre(testing::Pair(0, testing::HasSubstr("rank 0 left"))));
  EXPECT_TRUE(job.reports(0).waitForLosses(0).empty());
}

TEST_P(MessageChannelContract, ClosingWhileThreadsSendEndsAndDeliversABeginning) {
  ChannelJob job(newJob(2));
  std::atomic<bool> closed = false;
  std::jthread sender([&] {
    for (int i = 0; !closed; ++i) {
      job[0].send(JobRank(1), {std::to_string(i), {partOf(5'000, 1)}});
      if (i % 100 == 0) std::this_thread::yield();
    }
  });
  EXPECT_EQ(job.reports(1).waitForMessages(50).size() >= 50, true);
  EXPECT_TRUE(job[0].close(kPatience));
  closed = true;
  sender.join();
  job[0].send(JobRank(1), {"after the end", {}});
  const auto got = job.reports(1).waitForMessages(50);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(numberIn(got[i].message), static_cast<int>(i));
}

TEST_P(MessageChannelContract, ARankThatEndsIsReportedOnceAndTheOthersGoOn) {
  ChannelJob job(newJob(3));
  job.end(1);
  for (const int r : {0, 2})
    EXPECT_THAT(job.reports(r).waitForLosses(1), testing::ElementsAre(testing::Pair(1, testing::HasSubstr("rank 1"))));
  job[0].send(JobRank(1), {"into the void", {partOf(100'000, 1)}});
  job[0].send(JobRank(2), {"still here", {partOf(100'000, 2)}});
  EXPECT_EQ(job.reports(2).waitForMessages(1).size(), 1U);
  EXPECT_TRUE(job.close());
  for (const int r : {0, 2}) {
    const auto losses = job.reports(r).waitForLosses(1);  // of the other too, if that closed first
    EXPECT_EQ(std::ranges::count(losses, 1, &std::pair<int, std::string>::first), 1);
  }
}

/// A receiver whose handler stands still holds up its senders, not its memory; when it resumes, all arrives.
TEST_P(MessageChannelContract, WhatIsNotHandledWaitsAtItsSender) {
  constexpr std::size_t kMessages = 200;
  const auto links = newJob(2);
  std::promise<void> release;
  std::promise<void> stands;
  std::vector<std::string> got;
  Reports sender, ignored;
  auto connecting = std::async(std::launch::async, [&] {
    return std::make_unique<MessageChannel>(
        links[1],
        [&, first = true](JobRank, ChannelMessage message) mutable {
          if (std::exchange(first, false)) {
            stands.set_value();
            release.get_future().wait();
          }
          got.push_back(message.head);
        },
        ignored.onLost());
  });
  MessageChannel from(links[0], sender.onMessage(), sender.onLost(), {.window = {.messages = 4}});
  const auto to = connecting.get();
  for (std::size_t i = 0; i < kMessages; ++i) from.send(JobRank(1), {std::to_string(i), {}});
  stands.get_future().wait();
  auto closing = std::async(std::launch::async, [&] { return from.close(kPatience); });
  EXPECT_EQ(closing.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  release.set_value();
  EXPECT_TRUE(closing.get());
  to->close(std::chrono::milliseconds(0));
  ASSERT_EQ(got.size(), kMessages);
  for (std::size_t i = 0; i < kMessages; ++i) EXPECT_EQ(got[i], std::to_string(i));
}

TEST_P(MessageChannelContract, ClosingGivesUpAtItsDeadlineAndSaysSo) {
  const auto links = newJob(2);
  std::promise<void> release;
  Reports sender, ignored;
  auto connecting = std::async(std::launch::async, [&] {
    return std::make_unique<MessageChannel>(
        links[1], [&](JobRank, const ChannelMessage&) { release.get_future().wait(); }, ignored.onLost());
  });
  MessageChannel from(links[0], sender.onMessage(), sender.onLost());
  const auto to = connecting.get();
  from.send(JobRank(1), {"never handled in time", {}});
  EXPECT_FALSE(from.close(std::chrono::milliseconds(100)));
  EXPECT_FALSE(from.close(kPatience));  // it has ended
  release.set_value();
}

TEST_P(MessageChannelContract, RefusesWhatCannotBeSent) {
  ChannelJob job(newJob(2), {.window = {.largestMessage = 100'000}});
  EXPECT_THROW(job[0].send(JobRank(2), {"nobody", {}}), UsageError);
  EXPECT_THROW(job[0].send(JobRank(-1), {"nobody", {}}), UsageError);
  EXPECT_THROW(job[0].send(JobRank(1), {"too large", {partOf(100'000, 1)}}), UsageError);
  job[0].send(JobRank(1), {"fits", {partOf(99'000, 1)}});
  EXPECT_EQ(job.reports(1).waitForMessages(1).size(), 1U);  // before rank 1 closes too
  EXPECT_TRUE(job.close());
}

}  // namespace pw
