#include "engine/remote/references.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/remote_job.h"

namespace pw::test {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

void expectIdle(RemoteJob& job) {
  const auto until = std::chrono::steady_clock::now() + 20s;
  for (int i = 0; i < job.size(); ++i) {
    while (job.remote(i).counts() != RemoteCounts{} && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    const RemoteCounts left = job.remote(i).counts();
    EXPECT_EQ(left, RemoteCounts{}) << "worker " << i << ": " << left.owned << " owned, " << left.held << " held";
  }
}

// Halving n times and adding the parts in any order gives one whole, and never before the last part.
TEST(Shares, AreAWholeExactlyWhenAllAreBack) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Share> parts{Share{0}};
    for (auto cuts = random() % 300; cuts > 0; --cuts) {
      Share& cut = parts[random() % parts.size()];
      const Share half = halveShare(cut);
      parts.push_back(half);
    }
    std::shuffle(parts.begin(), parts.end(), random);
    Shares sum;
    for (const Share part : parts) {
      EXPECT_FALSE(sum.isWhole());
      sum.add(part);
    }
    EXPECT_TRUE(sum.isWhole());
    EXPECT_THROW(sum.add(parts[0]), Error);
  }
}

// Workers that take and give shares by chance never have more or less than the whole together.
TEST(Shares, StayAWholeWhoeverHasThem) {
  std::mt19937_64 random(5);
  std::vector<Shares> workers(4);
  workers[0].add(Share{0});
  for (int i = 0; i < 10000; ++i) {
    Shares& from = workers[random() % 4];
    if (from.isEmpty()) continue;
    workers[random() % 4].add(from.take());
    if (i % 1000 != 999) continue;
    Shares all;
    for (Shares& worker : workers) {
      for (const Share share : worker.takeAll()) all.add(share);
    }
    ASSERT_TRUE(all.isWhole());
    workers[random() % 4].add(Share{0});
  }
}

TEST(Shares, CanBeHalvedForEver) {
  Share share;
  Shares sum;
  for (int i = 0; i < 100000; ++i) sum.add(halveShare(share));
  EXPECT_FALSE(sum.isWhole());
  EXPECT_EQ(sum.runs(), 1U) << "its room does not grow";
  sum.add(share);
  EXPECT_TRUE(sum.isWhole());
}

TEST(References, KeepAValueUntilTheLastOneGoes) {
  RemoteJob job(JobOptions{.workers = 2});
  job.defineEverywhere("make", [](Remote&, const RemoteValue& value) { return value; });
  job.start();
  Reference reference = job.remote(0).remote("worker1", "make", 5);
  EXPECT_EQ(reference.owner(), JobRank(1));
  const Reference copy = reference;
  reference = {};
  EXPECT_EQ(job.remote(0).toHere(copy).integer(), 5);
  EXPECT_EQ(job.remote(0).toHere(copy).integer(), 5);
  EXPECT_EQ(job.remote(1).counts().owned, 1U);
  EXPECT_THAT([&] { (void)job.remote(0).localValue(copy); }, testing::ThrowsMessage<UsageError>(HasSubstr("is on worker1")));
}

TEST(References, GoWhenTheyAreDroppedAtOnce) {
  RemoteJob job(JobOptions{.workers = 3});
  job.defineEverywhere("make", [](Remote&, const RemoteValue& value) { return value; });
  job.start();
  for (int i = 0; i < 100; ++i) (void)job.remote(0).remote("worker" + std::to_string(i % 3), "make", i);
  expectIdle(job);
}

TEST(References, AreUsedWhereTheirOwnerSharesThem) {
  RemoteJob job(JobOptions{.workers = 2});
  job.defineEverywhere("read", [](Remote& here, const RemoteValue& reference) { return here.toHere(reference.reference()); });
  job.start();
  {
    const Reference mine = job.remote(0).share("mine");
    EXPECT_EQ(job.remote(0).localValue(mine).text(), "mine");
    EXPECT_EQ(job.remote(0).rpcSync("worker1", "read", mine).text(), "mine");
    EXPECT_EQ(job.remote(0).rpcSync("worker0", "read", mine).text(), "mine");
  }
  expectIdle(job);
}

// Objects that cannot be sent are values of references, which functions on their owner use.
TEST(References, KeepObjectsOfTheirOwner) {
  RemoteJob job(JobOptions{.workers = 2});
  job.defineEverywhere("counter", [](Remote&, const RemoteValue&) -> RemoteValue { return Local{std::make_shared<int>(0)}; });
  job.defineEverywhere("increase", [](Remote& here, const RemoteValue& reference) -> RemoteValue {
    return ++*std::static_pointer_cast<int>(here.localValue(reference.reference()).object());
  });
  job.start();
  {
    const Reference counter = job.remote(0).remote("worker1", "counter");
    EXPECT_EQ(job.remote(0).rpcSync("worker1", "increase", counter).integer(), 1);
    EXPECT_EQ(job.remote(0).rpcSync("worker1", "increase", counter).integer(), 2);
    EXPECT_THAT([&] { (void)job.remote(0).toHere(counter); }, testing::ThrowsMessage<RemoteError>(HasSubstr("stays there")));
  }
  expectIdle(job);
}

// References wander from user to user by chance, are used, copied and dropped, with messages of different pairs in any order.
TEST(References, SurviveForksInAnyOrder) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RemoteJob job(JobOptions{.workers = 4, .seed = seed});
    job.defineEverywhere("make", [](Remote&, const RemoteValue& value) { return value; });
    job.defineEverywhere("wander", [](Remote& here, const RemoteValue& arguments) -> RemoteValue {
      std::mt19937_64 random(static_cast<std::uint64_t>(arguments.at(1).integer()));
      const std::int64_t left = arguments.at(2).integer();
      std::vector<RemoteFuture> calls;
      for (auto ways = random() % 3; left > 0 && ways > 0; --ways) {
        const std::string next = here.nameOf(JobRank(static_cast<std::int32_t>(random() % 4)));
        calls.push_back(
            here.rpcAsync(next, "wander", RemoteValue::List{arguments.at(0), static_cast<std::int64_t>(random() >> 2U), left - 1}));
      }
      if (random() % 2 == 0) {
        EXPECT_EQ(here.toHere(arguments.at(0).reference()).integer(), 77);
      }
      for (const RemoteFuture& call : calls) (void)call.wait();
      return left % 2 == 0 ? arguments.at(0) : RemoteValue();
    });
    job.start();
    for (int i = 0; i < 10; ++i) {
      Reference reference = job.remote(0).remote("worker" + std::to_string(i % 4), "make", 77);
      const RemoteFuture call =
          job.remote(0).rpcAsync("worker" + std::to_string((i + 1) % 4), "wander",
                                 RemoteValue::List{reference, static_cast<std::int64_t>(seed * 100 + static_cast<std::uint64_t>(i)), 5});
      if (i % 2 == 0) reference = {};  // before anybody else has it
      (void)call.wait();
    }
    expectIdle(job);
  }
}

TEST(References, GoEvenWhereABrokenPeerGaveBackMoreThanItHad) {
  const auto references = std::make_shared<References>(
      JobRank(0), 2, [](JobRank, ReferenceId, Share) {}, [](const std::shared_ptr<void>&) {});
  Reference whole = references->make(JobRank(0));
  references->takeBack(whole.id(), Share{1});
  whole = {};
  EXPECT_EQ(references->held(), 0U);
}

TEST(References, TakeBackTheSharesOfMessagesThatDoNotGoOut) {
  RemoteJob job(JobOptions{.workers = 4});
  job.defineEverywhere("make", [](Remote&, const RemoteValue& value) { return value; });
  job.defineEverywhere("local", [](Remote&, const RemoteValue& reference) -> RemoteValue { return RemoteValue::List{reference, Local{}}; });
  job.start();
  {
    const Reference reference = job.remote(0).remote("worker1", "make", 5), own = job.remote(0).share(6);
    for (const Reference& value : {reference, own}) {
      EXPECT_THROW((void)job.remote(0).rpcAsync("worker2", "make", RemoteValue::List{value, Local{}}), UsageError);
      EXPECT_THROW((void)job.remote(0).rpcSync("worker2", "local", value), RemoteError);
    }
    job.kill(3);
    for (const Reference& value : {reference, own}) EXPECT_THROW((void)job.remote(0).rpcSync("worker3", "make", value), Error);
    EXPECT_EQ(job.remote(0).toHere(reference).integer(), 5);
    EXPECT_EQ(job.remote(0).toHere(own).integer(), 6);
  }
  const auto until = std::chrono::steady_clock::now() + 20s;
  const auto isOwned = [&] { return job.remote(0).counts().owned + job.remote(1).counts().owned > 0; };
  while (isOwned() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_FALSE(isOwned());
}

// A reference whose way back is lost leaves its value with the owner; nothing else notices.
TEST(References, NeverTakeAValueAwayTooEarlyWhenMessagesAreLost) {
  JobOptions options{.workers = 3};
  options.drops = [](const MessageView& view) { return view.kind == MessageKind::GiveBack && view.from == JobRank(2); };
  RemoteJob job(options);
  job.defineEverywhere("make", [](Remote&, const RemoteValue& value) { return value; });
  job.defineEverywhere("look", [](Remote& here, const RemoteValue& reference) { return here.toHere(reference.reference()); });
  job.start();
  {
    const Reference reference = job.remote(0).remote("worker1", "make", 5);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(job.remote(0).rpcSync("worker2", "look", reference).integer(), 5);
    EXPECT_EQ(job.remote(0).toHere(reference).integer(), 5);
  }
  EXPECT_EQ(job.remote(0).rpcSync("worker1", "make", 1).integer(), 1);  // after the first worker's last share
  EXPECT_EQ(job.remote(1).counts().owned, 1U);
}

}  // namespace
}  // namespace pw::test
