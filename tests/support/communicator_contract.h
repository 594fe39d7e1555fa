#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/messages/communicator.h"
#include "schedules/error.h"

namespace pw {

// The contract of every transport, as tests that run on each: INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorContract, testing::Values(...)).

/// Connects one rank of a job; called on that rank's thread.
using Connect = std::function<std::unique_ptr<Communicator>(JobRank)>;

struct TestedTransport {
  std::string name;
  bool tellsDone = true;    ///< has `isDone` and `waitAny`
  bool checksSizes = true;  ///< refuses a message of another size
  std::function<Connect(int ranks, std::chrono::milliseconds deadline)> newJob;
};
inline void PrintTo(const TestedTransport& transport, std::ostream* out) { *out << transport.name; }

/// Far above what any test needs.
constexpr std::chrono::milliseconds kLongWait{20'000};

inline Buffer bytesOf(std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }
inline Buffer bytesOf(int& value) { return {reinterpret_cast<std::byte*>(&value), sizeof value}; }

/// The error message as the user sees it; empty if there was no error.
inline std::string failureOf(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// A message that differs from its like in size and salt, so that bytes in a wrong place or of another message show.
inline std::vector<std::byte> patternOf(std::size_t size, int salt) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 31 + i / 251 + static_cast<std::size_t>(salt)) % 256);
  return bytes;
}

class CommunicatorContract : public testing::TestWithParam<TestedTransport> {
 protected:
  /// Runs `work` as each rank of a job, one thread each; no rank leaves the job before all are done. Returns what went wrong, per rank.
  static std::vector<std::string> run(int ranks, const std::function<void(Communicator&)>& work,
                                      std::chrono::milliseconds deadline = kLongWait) {
    const Connect connect = GetParam().newJob(ranks, deadline);
    std::vector<std::string> failures(static_cast<std::size_t>(ranks));
    std::latch done(ranks);
    {
      std::vector<std::jthread> threads;
      for (int r = 0; r < ranks; ++r) {
        threads.emplace_back([&, r] {
          std::unique_ptr<Communicator> me;
          failures[static_cast<std::size_t>(r)] = failureOf([&] {
            me = connect(JobRank(r));
            work(*me);
          });
          done.arrive_and_wait();
        });
      }
    }
    return failures;
  }
  static auto succeeds() { return testing::Each(testing::IsEmpty()); }
};

TEST_P(CommunicatorContract, EachRankKnowsItsPlace) {
  std::atomic<int> sum = 0;
  EXPECT_THAT(run(3, [&](Communicator& me) { sum += me.size() * 10 + me.rank().value; }), succeeds());
  EXPECT_EQ(sum, 3 * 30 + 0 + 1 + 2);
}

TEST_P(CommunicatorContract, MessagesMatchBySenderAndTagNotByOrder) {
  EXPECT_THAT(run(3,
                  [](Communicator& me) {
                    if (me.rank() != JobRank(2)) {
                      int first = 10 * me.rank().value + 1, second = 10 * me.rank().value + 2;
                      const auto a = me.send(JobRank(2), 1, bytesOf(first)), b = me.send(JobRank(2), 2, bytesOf(second));
                      me.wait(b);
                      me.wait(a);
                      return;
                    }
                    int got[4] = {};
                    const auto a = me.receive(JobRank(1), 2, bytesOf(got[0])), b = me.receive(JobRank(0), 2, bytesOf(got[1]));
                    const auto c = me.receive(JobRank(0), 1, bytesOf(got[2])), d = me.receive(JobRank(1), 1, bytesOf(got[3]));
                    for (const auto request : {d, a, c, b}) me.wait(request);
                    EXPECT_THAT(got, testing::ElementsAre(12, 2, 1, 11));
                  }),
              succeeds());
}

TEST_P(CommunicatorContract, MessagesOfOneTagKeepTheirOrder) {
  EXPECT_THAT(run(2,
                  [](Communicator& me) {
                    std::vector<int> values(50, -1);
                    std::vector<Communicator::Request> requests;
                    if (me.rank() == JobRank(0)) std::iota(values.begin(), values.end(), 0);
                    for (int& value : values) {
                      requests.push_back(me.rank() == JobRank(0) ? me.send(JobRank(1), 7, bytesOf(value))
                                                                 : me.receive(JobRank(0), 7, bytesOf(value)));
                    }
                    for (const auto request : requests) me.wait(request);
                    for (int i = 0; i < 50; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], i);
                  }),
              succeeds());
}

TEST_P(CommunicatorContract, MessagesOfEverySizeArriveAsTheyWereSentInBothDirectionsAtOnce) {
  for (const std::size_t size : {0, 1, 7, 64, 1023, 8191, 8193, 65536, 1048577, 16 << 20}) {
    EXPECT_THAT(run(2,
                    [size](Communicator& me) {
                      const JobRank peer(1 - me.rank().value);
                      std::vector<std::byte> out = patternOf(size, me.rank().value), in(size);
                      const auto got = me.receive(peer, 3, bytesOf(in)), sent = me.send(peer, 3, bytesOf(out));
                      me.wait(sent);
                      me.wait(got);
                      EXPECT_TRUE(in == patternOf(size, peer.value)) << size << " bytes";
                    }),
                succeeds());
  }
}

TEST_P(CommunicatorContract, ManyMessagesMayBeUnderWayAndAreWaitedForInAnyOrder) {
  constexpr int kMessages = 300;
  EXPECT_THAT(run(2,
                  [](Communicator& me) {
                    const JobRank peer(1 - me.rank().value);
                    std::vector<std::vector<std::byte>> out, in;
                    std::vector<Communicator::Request> requests;
                    for (int i = 0; i < kMessages; ++i) {
                      const auto size = static_cast<std::size_t>(1 + (i * 977) % 20'000);
                      out.push_back(patternOf(size, i + me.rank().value));
                      in.emplace_back(size);
                    }
                    for (std::size_t i = 0; i < kMessages; ++i)
                      requests.push_back(me.receive(peer, static_cast<std::uint32_t>(i), bytesOf(in[i])));
                    for (std::size_t i = kMessages; i-- > 0;)
                      requests.push_back(me.send(peer, static_cast<std::uint32_t>(i), bytesOf(out[i])));
                    for (std::size_t i = 0; i < requests.size(); ++i)
                      me.wait(requests[i * 7 % requests.size()]);  // 7 and 600 share no factor
                    for (int i = 0; i < kMessages; ++i) {
                      const std::vector<std::byte>& got = in[static_cast<std::size_t>(i)];
                      EXPECT_TRUE(got == patternOf(got.size(), i + peer.value)) << "message " << i;
                    }
                    me.barrier();  // a peer's send may need this rank to make progress for a little after it has received everything
                  }),
              succeeds());
}

TEST_P(CommunicatorContract, ABarrierLetsNobodyPassBeforeAllCame) {
  constexpr int kRanks = 5, kRounds = 50;
  std::atomic<int> came = 0;
  EXPECT_THAT(run(kRanks,
                  [&](Communicator& me) {
                    for (int round = 1; round <= kRounds; ++round) {
                      ++came;
                      me.barrier();
                      EXPECT_GE(came, kRanks * round);
                      me.progress();
                    }
                  }),
              succeeds());
  EXPECT_EQ(came, kRanks * kRounds);
}

TEST_P(CommunicatorContract, WhoeverCameFirstIsTakenFirst) {
  EXPECT_THAT(
      run(3,
          [](Communicator& me) {
            int value = me.rank().value, go = 0;
            if (me.rank() == JobRank(1)) me.wait(me.receive(JobRank(0), 2, bytesOf(go)));  // not before rank 2's message was taken
            if (me.rank() != JobRank(0)) return me.wait(me.send(JobRank(0), 1, bytesOf(value)));
            int got[2] = {};
            const Communicator::Request requests[]{me.receive(JobRank(1), 1, bytesOf(got[0])), me.receive(JobRank(2), 1, bytesOf(got[1]))};
            if (GetParam().tellsDone) {
              EXPECT_EQ(me.waitAny(requests), 1U);
              EXPECT_EQ(me.isDone(requests[1]), true);
              EXPECT_EQ(me.isDone(requests[0]), false);
            } else {
              EXPECT_EQ(me.isDone(requests[0]), std::nullopt);
              EXPECT_THROW((void)me.waitAny(requests), UsageError);
            }
            me.wait(requests[1]);
            me.wait(me.send(JobRank(1), 2, bytesOf(go)));
            if (GetParam().tellsDone) {
              EXPECT_EQ(me.waitAny(std::span(requests).first(1)), 0U);
            }
            me.wait(requests[0]);
            EXPECT_THAT(got, testing::ElementsAre(1, 2));
          }),
      succeeds());
}

TEST_P(CommunicatorContract, TellsHowFarAMessageIs) {
  EXPECT_THAT(run(2,
                  [](Communicator& me) {
                    int value = 7, go = 0;
                    if (me.rank() == JobRank(1)) {
                      me.wait(me.receive(JobRank(0), 2, bytesOf(go)));
                      return me.wait(me.send(JobRank(0), 1, bytesOf(value)));
                    }
                    const auto request = me.receive(JobRank(1), 1, bytesOf(value));
                    EXPECT_EQ(me.stateOf(request), GetParam().tellsDone ? MessageState::Waiting : MessageState::Unknown);
                    me.wait(me.send(JobRank(1), 2, bytesOf(go)));
                    if (GetParam().tellsDone) {
                      EXPECT_EQ(me.waitAny(std::span(&request, 1)), 0U);
                      EXPECT_EQ(me.stateOf(request), MessageState::Done);
                    }
                    me.wait(request);
                  }),
              succeeds());
}

TEST_P(CommunicatorContract, ASendIsDoneWhenItHasLeftAlsoWithoutAWait) {
  EXPECT_THAT(run(2,
                  [](Communicator& me) {
                    std::vector<std::byte> first(4 << 20), second(4 << 20);
                    int go = 0;
                    if (me.rank() == JobRank(1)) {
                      me.wait(me.receive(JobRank(0), 2, bytesOf(second)));  // before the one that was sent first
                      me.wait(me.receive(JobRank(0), 3, bytesOf(go)));
                      return me.wait(me.receive(JobRank(0), 1, bytesOf(first)));
                    }
                    const auto sent = me.send(JobRank(1), 1, bytesOf(first)), later = me.send(JobRank(1), 2, bytesOf(second));
                    me.wait(later);
                    me.wait(me.send(JobRank(1), 3, bytesOf(go)));
                    const auto until = std::chrono::steady_clock::now() + kLongWait;
                    while (!me.isDone(sent).value_or(false) && std::chrono::steady_clock::now() < until) {
                      me.progress();
                      std::this_thread::yield();
                    }
                    EXPECT_EQ(me.isDone(sent), true);
                    me.wait(sent);
                  }),
              succeeds());
}

TEST_P(CommunicatorContract, LeavesCollectivesOfTheHostsMemoryToMessages) {
  EXPECT_THAT(run(2,
                  [](Communicator& me) {
                    int value = 7;
                    const JobRank group[]{JobRank(0), JobRank(1)};
                    EXPECT_EQ(me.startCollective(Collective::AllReduce, group, DType::Int32, bytesOf(value)), std::nullopt);
                  }),
              succeeds());
}

TEST_P(CommunicatorContract, AMessageThatDoesNotComeIsAnErrorNamingThePeer) {
  std::latch failed(2);
  const auto failures = run(
      2,
      [&](Communicator& me) {
        me.barrier();
        int got = 0;
        const std::string failure = me.rank() == JobRank(1) ? "" : failureOf([&] { me.wait(me.receive(JobRank(1), 9, bytesOf(got))); });
        failed.arrive_and_wait();
        if (!failure.empty()) throw Error(failure);
      },
      std::chrono::milliseconds(2500));
  EXPECT_THAT(failures, testing::ElementsAre(testing::AllOf(testing::HasSubstr("rank 1"), testing::HasSubstr("within 2500 ms")), ""));
}

TEST_P(CommunicatorContract, AMessageOfAnotherSizeIsAnErrorNamingBothSizes) {
  if (!GetParam().checksSizes) GTEST_SKIP() << GetParam().name << " does not check sizes";
  for (const std::size_t sent : {0, 3, 5, 100'000, 3'000'000}) {
    const auto failures = run(2, [&](Communicator& me) {
      std::vector<std::byte> out(sent), in(4);
      if (me.rank() == JobRank(0)) return me.wait(me.send(JobRank(1), 3, bytesOf(out)));
      me.wait(me.receive(JobRank(0), 3, bytesOf(in)));
    });
    EXPECT_THAT(failures[1], testing::AllOf(testing::HasSubstr("expected 4 bytes with tag 3 from rank 0"),
                                            testing::HasSubstr("got " + std::to_string(sent) + ";")));
  }
}

TEST_P(CommunicatorContract, AnAbortEndsTheWaitsOfThePeerAndOwnCalls) {
  const auto failures = run(2, [](Communicator& me) {
    int value = 0;
    me.barrier();
    const auto request = me.receive(JobRank(1 - me.rank().value), 9, bytesOf(value));
    if (me.rank() == JobRank(1)) {
      me.abort();
      me.abort();  // twice is once
    }
    me.wait(request);
  });
  EXPECT_THAT(failures[0],
              testing::AllOf(testing::HasSubstr("rank 1"), testing::AnyOf(testing::HasSubstr("gave up"), testing::HasSubstr("was lost"))));
  EXPECT_THAT(failures[1], testing::Not(testing::IsEmpty()));
}

}  // namespace pw
