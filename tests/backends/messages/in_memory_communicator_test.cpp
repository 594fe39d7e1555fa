#include <array>
#include <cstring>
#include <functional>
#include <future>
#include <numeric>
#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/messages/communicator.h"
#include "backends/messages/in_memory_communicator.h"
#include "schedules/error.h"

namespace pw {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kLong = 20s;

template <class T, std::size_t kSize>
Buffer bufferOf(std::span<T, kSize> values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size_bytes()};
}
Buffer bufferOf(int& value) { return {reinterpret_cast<std::byte*>(&value), sizeof value}; }

std::string errorOf(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(InMemoryCommunicator, EachRankKnowsItsPlace) {
  const auto ranks = inMemoryCommunicators(3, kLong);
  ASSERT_EQ(ranks.size(), 3U);
  EXPECT_EQ(ranks[2]->rank(), JobRank(2));
  EXPECT_EQ(ranks[2]->size(), 3);
}

TEST(InMemoryCommunicator, MessagesMatchBySenderAndTagNotByOrder) {
  const auto ranks = inMemoryCommunicators(3, kLong);
  int a = 10, b = 11, c = 20;
  for (const auto request : {ranks[0]->send(JobRank(2), 1, bufferOf(a)), ranks[0]->send(JobRank(2), 2, bufferOf(b))})
    ranks[0]->wait(request);
  ranks[1]->wait(ranks[1]->send(JobRank(2), 1, bufferOf(c)));
  int gotA = 0, gotB = 0, gotC = 0;
  const auto requestA = ranks[2]->receive(JobRank(0), 1, bufferOf(gotA));
  const auto requestB = ranks[2]->receive(JobRank(0), 2, bufferOf(gotB));
  const auto requestC = ranks[2]->receive(JobRank(1), 1, bufferOf(gotC));
  ranks[2]->wait(requestC);
  ranks[2]->wait(requestB);
  ranks[2]->wait(requestA);
  EXPECT_EQ(gotA, 10);
  EXPECT_EQ(gotB, 11);
  EXPECT_EQ(gotC, 20);
}

TEST(InMemoryCommunicator, MessagesOfOneTagKeepTheirOrder) {
  const auto ranks = inMemoryCommunicators(1, kLong);
  for (int step = 0; step < 3; ++step) ranks[0]->wait(ranks[0]->send(JobRank(0), 7, bufferOf(step)));
  for (int step = 0; step < 3; ++step) {
    int got = -1;
    ranks[0]->wait(ranks[0]->receive(JobRank(0), 7, bufferOf(got)));
    EXPECT_EQ(got, step);
  }
}

TEST(InMemoryCommunicator, AnEmptyMessageIsAMessage) {
  const auto ranks = inMemoryCommunicators(2, kLong);
  ranks[0]->wait(ranks[0]->send(JobRank(1), 0, {}));
  EXPECT_NO_THROW(ranks[1]->wait(ranks[1]->receive(JobRank(0), 0, {})));
}

TEST(InMemoryCommunicator, ThreadsPassARingOfMessagesAndMeetAtBarriers) {
  constexpr int kRanks = 4, kSteps = 200;
  const auto ranks = inMemoryCommunicators(kRanks, kLong);
  std::vector<std::future<std::int64_t>> sums;
  for (const auto& communicator : ranks) {
    sums.push_back(std::async(std::launch::async, [&me = *communicator] {
      const int r = me.rank().value;
      std::int64_t sum = 0;
      for (int step = 0; step < kSteps; ++step) {
        std::array<std::int64_t, 64> out{}, in{};
        out.fill(r * 1000 + step);
        const auto got = me.receive(JobRank((r + kRanks - 1) % kRanks), 5, bufferOf(std::span(in)));
        const auto sent = me.send(JobRank((r + 1) % kRanks), 5, bufferOf(std::span(out)));
        me.wait(sent);
        me.wait(got);
        me.barrier();
        sum += std::accumulate(in.begin(), in.end(), std::int64_t{0});
      }
      return sum;
    }));
  }
  for (int r = 0; r < kRanks; ++r) {
    const int left = (r + kRanks - 1) % kRanks;
    // 64 · Σ_step (1000·left + step)
    EXPECT_EQ(sums[static_cast<std::size_t>(r)].get(), 64 * (1000 * left * kSteps + kSteps * (kSteps - 1) / 2));
  }
}

TEST(InMemoryCommunicator, AMissingMessageIsAnErrorNamingPeerAndTag) {
  const auto ranks = inMemoryCommunicators(2, 10ms);
  int got = 0;
  const auto request = ranks[0]->receive(JobRank(1), 42, bufferOf(got));
  EXPECT_THAT(errorOf([&] { ranks[0]->wait(request); }), AllOf(HasSubstr("tag 42"), HasSubstr("from rank 1"), HasSubstr("10 ms")));
}

TEST(InMemoryCommunicator, ABarrierNamesTheRanksThatDidNotCome) {
  const auto ranks = inMemoryCommunicators(3, 10ms);
  EXPECT_THAT(errorOf([&] { ranks[1]->barrier(); }), HasSubstr("for rank 0, 2"));
}

TEST(InMemoryCommunicator, AMessageOfAnotherSizeIsAnError) {
  const auto ranks = inMemoryCommunicators(2, kLong);
  std::array<int, 2> two{};
  int one = 0;
  ranks[0]->wait(ranks[0]->send(JobRank(1), 3, bufferOf(std::span(two))));
  const auto request = ranks[1]->receive(JobRank(0), 3, bufferOf(one));
  EXPECT_THAT(errorOf([&] { ranks[1]->wait(request); }), AllOf(HasSubstr("expected 4 bytes"), HasSubstr("rank 0"), HasSubstr("got 8")));
}

TEST(InMemoryCommunicator, AnAbortWakesEveryWaitOfEveryRank) {
  const auto ranks = inMemoryCommunicators(3, kLong);
  auto receiving = std::async(std::launch::async, [&] {
    int got = 0;
    const auto request = ranks[0]->receive(JobRank(1), 9, bufferOf(got));
    return errorOf([&] { ranks[0]->wait(request); });
  });
  auto meeting = std::async(std::launch::async, [&] { return errorOf([&] { ranks[1]->barrier(); }); });
  ranks[2]->abort();
  EXPECT_THAT(receiving.get(), AllOf(HasSubstr("waiting for rank 1 (tag 9)"), HasSubstr("rank 2 gave up")));
  EXPECT_THAT(meeting.get(), HasSubstr("rank 2 gave up"));
}

TEST(InMemoryCommunicator, AfterAnAbortEvenSendsAndArrivedMessagesFail) {
  const auto ranks = inMemoryCommunicators(2, kLong);
  int value = 1;
  const auto sent = ranks[0]->send(JobRank(1), 1, bufferOf(value));
  const auto got = ranks[1]->receive(JobRank(0), 1, bufferOf(value));
  ranks[0]->abort();
  ranks[0]->abort();  // twice is once
  EXPECT_THROW(ranks[0]->wait(sent), Error);
  EXPECT_THROW(ranks[1]->wait(got), Error);
  EXPECT_THROW(ranks[1]->barrier(), Error);
}

}  // namespace
}  // namespace pw
