#include "backends/messages/meeting.h"

#include <chrono>
#include <list>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "backends/messages/meeting_wire.h"
#include "schedules/error.h"
#include "tests/support/loopback.h"

namespace pw {
namespace {

using namespace std::chrono_literals;
using test::connectTo;
using test::isClosed;
using test::Listener;
using test::say;
using testing::AllOf;
using testing::HasSubstr;

constexpr auto kLong = std::chrono::milliseconds(20s);

Rendezvous placeOf(const Listener& listener, int rank, std::chrono::milliseconds deadline = kLong, int ranks = 2) {
  Rendezvous place;
  place.rank = JobRank(rank);
  place.size = ranks;
  place.masterPort = listener.port;
  if (rank == 0) place.listenFd = ::dup(listener.fd.get());
  place.deadline = deadline;
  place.token = "the job's token";
  return place;
}

template <class Work>
std::string failureOf(const Work& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Meeting, PassesValuesBetweenItsRanks) {
  const Listener listener;
  const Meeting zero = meet(placeOf(listener, 0)), one = meet(placeOf(listener, 1));
  const std::string large(1 << 20, '\0');
  zero.set("a/0", "from zero");
  one.set("a/1", large);
  EXPECT_EQ(one.dictionary().get("a/0"), "from zero");
  EXPECT_EQ(zero.dictionary().get("a/1"), large);
  zero.set("a/0", "");
  EXPECT_EQ(one.find("a/0", kLong), "");
  EXPECT_EQ(one.find("a/2", 1ms), std::nullopt);
  EXPECT_EQ(zero.port(), listener.port);
}

TEST(Meeting, WaitsForAKeyThatIsSetLater) {
  const Listener listener;
  const Meeting zero = meet(placeOf(listener, 0)), one = meet(placeOf(listener, 1)), two = meet(placeOf(listener, 2));
  std::thread waiting([&] { EXPECT_EQ(two.dictionary().get("late/1"), "here"); });
  one.set("other/1", "");
  one.set("late/1", "here");
  waiting.join();
}

TEST(Meeting, NamesTheRankWhoseKeyDoesNotCome) {
  const Listener listener;
  const Meeting zero = meet(placeOf(listener, 0, 100ms));
  EXPECT_THAT(
      failureOf([&] { static_cast<void>(zero.dictionary().get("ucx/1")); }),
      AllOf(HasSubstr("rank 1 did not come to 127.0.0.1:" + std::to_string(listener.port) + " within 100 ms"), HasSubstr("--timeout")));
}

TEST(Meeting, EndsWhereNobodyListens) {
  Rendezvous place;
  place.rank = JobRank(1);
  place.size = 2;
  place.masterPort = test::freePort();
  place.deadline = 100ms;
  EXPECT_THAT(failureOf([&] { static_cast<void>(meet(place)); }),
              AllOf(HasSubstr("rank 0 did not answer at 127.0.0.1:" + std::to_string(place.masterPort) + " within 100 ms"),
                    HasSubstr("nobody listens there")));
}

TEST(Meeting, EndsWhereRankZeroIsSilent) {
  const Listener listener;  // accepts connections, as a stopped process does
  EXPECT_THAT(failureOf([&] { static_cast<void>(meet(placeOf(listener, 1, 100ms))); }),
              AllOf(HasSubstr("rank 0 did not answer"), HasSubstr("is silent")));
}

TEST(Meeting, WaitsForARankZeroThatComesLater) {
  const Listener listener;
  std::thread one([&] { EXPECT_EQ(meet(placeOf(listener, 1)).find("key/0", kLong), "value"); });
  const Meeting zero = meet(placeOf(listener, 0));
  zero.set("key/0", "value");
  one.join();
}

TEST(Meeting, SaysThatRankZeroHasEnded) {
  const Listener listener;
  auto zero = std::make_unique<Meeting>(meet(placeOf(listener, 0)));
  const Meeting one = meet(placeOf(listener, 1));
  zero.reset();
  EXPECT_THAT(failureOf([&] { one.set("key/1", ""); }), HasSubstr("rank 0, at which the ranks meet"));
  EXPECT_THAT(failureOf([&] { one.set("key/1", ""); }), HasSubstr("has ended")) << "again";
}

TEST(Meeting, LetsNobodyInWithAnotherToken) {
  const Listener listener;
  const Meeting zero = meet(placeOf(listener, 0));
  Rendezvous stranger = placeOf(listener, 1, 500ms);
  stranger.token = "another token";
  EXPECT_THAT(failureOf([&] { static_cast<void>(meet(stranger)); }), HasSubstr("has a different token"));
  const Meeting one = meet(placeOf(listener, 1));  // the stranger is not taken for it
  one.set("key/1", "value");
  EXPECT_EQ(zero.find("key/1", kLong), "value");
}

TEST(Meeting, IsNotTakenInByAServerWithAnotherToken) {
  const Listener listener;
  Rendezvous foreign = placeOf(listener, 0);
  foreign.token = "another token";
  const Meeting zero = meet(foreign);
  EXPECT_THAT(failureOf([&] { static_cast<void>(meet(placeOf(listener, 1, 500ms))); }), HasSubstr("has a different token"));
}

TEST(Meeting, DropsStrangersWhoWriteGarbage) {
  const Listener listener;
  const Meeting zero = meet(placeOf(listener, 0));
  const std::string forged = 'S' + meeting::bytesOf(5) + meeting::bytesOf(4) + "ucx/1" + "evil";
  const std::string hello = std::string(meeting::kMagic) + std::string(meeting::kClientHello - meeting::kMagic.size(), '\0');
  for (const std::string& garbage : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xff'), forged, hello, hello + forged,
                                     std::string("PWMEET1\nxy") + forged}) {
    const Fd stranger = connectTo(listener.port);
    say(stranger, garbage);
    if (garbage.starts_with("PWMEET1\n") && garbage.size() < meeting::kClientHello)
      continue;  // may still become a proof; dropped when it takes too long
    EXPECT_TRUE(isClosed(stranger, 20'000)) << garbage.substr(0, 20);
  }
  const Meeting one = meet(placeOf(listener, 1));
  EXPECT_EQ(one.find("ucx/1", 1ms), std::nullopt) << "nothing was forged";
  one.set("ucx/1", "right");
  EXPECT_EQ(zero.find("ucx/1", kLong), "right");
}

TEST(Meeting, HasRoomForItsRanksBesideSilentStrangers) {
  const Listener listener;
  const Meeting zero = meet(placeOf(listener, 0));
  std::list<Fd> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(connectTo(listener.port));
  const Meeting one = meet(placeOf(listener, 1));
  one.set("key/1", "value");
  EXPECT_EQ(zero.find("key/1", kLong), "value");
}

TEST(Meeting, RefusesAPortThatIsTaken) {
  const Listener listener;
  Rendezvous place;
  place.masterPort = listener.port;
  EXPECT_THAT(failureOf([&] { static_cast<void>(meet(place)); }),
              AllOf(HasSubstr("port " + std::to_string(listener.port)), HasSubstr("MASTER_PORT")));
}

}  // namespace
}  // namespace pw
