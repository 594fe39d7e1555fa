#include "backends/messages/channel/message_channel.h"

#include <sys/wait.h>

#include <csignal>
#include <optional>

#include "backends/messages/channel/in_memory_link.h"
#include "backends/messages/ucx/link.h"
#include "tests/support/channel_contract.h"
#include "tests/support/rank_processes.h"
#include "tests/support/shared_store.h"

namespace pw {
namespace {

using test::Processes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<LinkMaker> ucxLinks(int ranks, const std::string& token = "secret") {
  const KeyValueStore store = sharedStore(kPatience);
  std::vector<LinkMaker> links;
  for (int r = 0; r < ranks; ++r) {
    Rendezvous meeting;
    meeting.rank = JobRank(r);
    meeting.size = ranks;
    meeting.token = token;
    meeting.deadline = kPatience;
    links.push_back(ucxLink(meeting, store));
  }
  return links;
}

INSTANTIATE_TEST_SUITE_P(InMemory, MessageChannelContract, testing::Values(TestedLink{"in_memory", &inMemoryLinks}),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Ucx, MessageChannelContract, testing::Values(TestedLink{"ucx", [](int ranks) { return ucxLinks(ranks); }}),
                         testing::PrintToStringParamName());

/// A rank without a channel: it sends blocks as it likes.
class LooseRank {
 public:
  explicit LooseRank(const LinkMaker& maker)
      : head_{.key = blockKey(maker.token, maker.rank, JobRank(0)), .from = static_cast<std::uint32_t>(maker.rank.value)} {
    link_ = maker.connect({.arrived = [](const BlockHead&, std::span<const std::byte>) {},
                           .place = [](const BlockHead&, std::size_t) { return HeldBuffer{}; },
                           .placed = [](const BlockHead&, const HeldBuffer&) {},
                           .lost = [](JobRank, const std::string&) {}});
  }
  ~LooseRank() { link_.leave(std::chrono::milliseconds(0)); }
  LooseRank(const LooseRank&) = delete;
  LooseRank& operator=(const LooseRank&) = delete;
  /// What every good block has.
  [[nodiscard]] BlockHead head(BlockKind kind, std::uint64_t number) const {
    BlockHead head = head_;
    head.kind = kind;
    head.number = number;
    return head;
  }
  void send(const BlockHead& head, const HeldBuffer& data) {
    link_.start(JobRank(0), head, data);
    link_.progress();
  }

 private:
  BlockHead head_;
  MessageLink link_;
};

HeldBuffer firstBlockOf(const std::string& head) { return packMessage({head, {}}).first; }

HeldBuffer numbers(const std::vector<std::uint64_t>& values) {
  const auto held = std::make_shared<std::vector<std::uint64_t>>(values);
  return {{reinterpret_cast<std::byte*>(held->data()), held->size() * sizeof(std::uint64_t)}, held};
}

class HostileRank : public testing::Test {
 protected:
  HostileRank() : links_(inMemoryLinks(2)) {}

  std::vector<LinkMaker> links_;
  Reports reports_;
  MessageChannel channel_{
      links_[0], reports_.onMessage(), reports_.onLost(), {.window = {.messages = 8, .bytes = 1 << 20, .largestMessage = 1 << 22}}};
  LooseRank other_{links_[1]};

  /// A good message gets through, so that what came before it had no effect.
  void expectUnharmed() {
    other_.send(other_.head(BlockKind::Message, 1), firstBlockOf("good"));
    const auto got = reports_.waitForMessages(1);
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(got[0].message.head, "good");
    EXPECT_THAT(reports_.waitForLosses(0), IsEmpty());
  }
  /// The rank is lost for what it sent.
  void expectRefused(const std::string& why) {
    EXPECT_THAT(reports_.waitForLosses(1), ElementsAre(Pair(1, AllOf(HasSubstr("the messages of rank 1 make no sense"), HasSubstr(why)))));
    EXPECT_THAT(reports_.waitForMessages(0), IsEmpty());
  }
};

TEST_F(HostileRank, BlocksWithoutTheJobsProofHaveNoEffect) {
  BlockHead forged = other_.head(BlockKind::Bye, 0);
  forged.key ^= 1;
  other_.send(forged, {});
  forged = other_.head(BlockKind::Message, 1);
  forged.key = 0;
  other_.send(forged, firstBlockOf("forged"));
  for (const std::uint32_t from : {0U, 2U, 0xFFFFFFFFU}) {
    forged = other_.head(BlockKind::Bye, 0);
    forged.from = from;
    other_.send(forged, {});
  }
  expectUnharmed();
}

TEST_F(HostileRank, AnUnknownKindIsRefused) {
  other_.send(other_.head(static_cast<BlockKind>(77), 1), {});
  expectRefused("unknown kind 77");
}

TEST_F(HostileRank, AMessageFarAheadIsRefused) {
  other_.send(other_.head(BlockKind::Message, 9), firstBlockOf("window is 8"));
  expectRefused("message 9 when message 1 was next");
}

TEST_F(HostileRank, AMessageNumberedZeroIsRefused) {
  other_.send(other_.head(BlockKind::Message, 0), firstBlockOf("x"));
  expectRefused("message 0 when message 1 was next");
}

TEST_F(HostileRank, AMessageThatBeginsTwiceIsRefused) {
  for (int i = 0; i < 2; ++i) other_.send(other_.head(BlockKind::Message, 2), firstBlockOf("x"));
  expectRefused("not the beginning of a message");
}

TEST_F(HostileRank, TakingMoreThanWasSentIsRefused) {
  BlockHead head = other_.head(BlockKind::Beat, 0);
  head.taken = 1;
  other_.send(head, {});
  expectRefused("took 1 messages");
}

TEST_F(HostileRank, SizesThatCannotBeAreRefusedBeforeMemoryIsTaken) {
  // head bytes, parts, their sizes
  other_.send(other_.head(BlockKind::Message, 1), numbers({0, 1, std::uint64_t{1} << 62}));
  expectRefused("not the beginning of a message");
}

TEST_F(HostileRank, APartThatItsMessageDoesNotHaveIsRefused) {
  other_.send(other_.head(BlockKind::Message, 1), numbers({0, 1, 10'000}));
  other_.send(other_.head(BlockKind::Part, 1), partOf(10'001, 1));
  expectRefused("a part that its message does not have");
}

TEST_F(HostileRank, APartThatCameBeforeAMessageWithoutItIsRefused) {
  other_.send(other_.head(BlockKind::Part, 1), partOf(10'000, 1));
  other_.send(other_.head(BlockKind::Message, 1), numbers({0, 1, 20'000}));
  expectRefused("a part that its message does not have");
}

TEST_F(HostileRank, MoreThanTheWindowAtOnceIsRefused) {
  other_.send(other_.head(BlockKind::Part, 1), partOf(1 << 20, 1));
  other_.send(other_.head(BlockKind::Part, 2), partOf(10'000, 1));
  expectRefused("more than is allowed");
}

TEST_F(HostileRank, MoreThanTheLargestMessageIsRefused) {
  other_.send(other_.head(BlockKind::Part, 1), partOf((1 << 22) + 1, 1));
  expectRefused("more than is allowed");
}

TEST(ChannelWire, RandomBeginningsAreReadOrRefusedAndNeverRead) {
  constexpr unsigned kSeed = 7;
  std::mt19937_64 random(kSeed);
  const HeldBuffer good = packMessage({"head", {partOf(100, 1), partOf(9'000, 2), partOf(0, 3)}}).first;
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes(good.buffer.data, good.buffer.data + random() % (good.buffer.bytes + 1));
    for (std::uint64_t changes = random() % 4; changes > 0 && !bytes.empty(); --changes)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto message = unpackMessage(bytes, 1 << 20);
    if (!message) continue;
    ++read;
    std::size_t total = 0;
    for (const HeldBuffer& part : message->message.parts) total += part.buffer.bytes;
    EXPECT_LE(total, std::size_t{1} << 20);
    EXPECT_LE(message->message.parts.size(), bytes.size() / 8);
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, 20'000);
}

TEST(OutgoingMessages, StopAtTheWindowAndGoOnWhenMessagesWereTaken) {
  OutgoingMessages messages({.messages = 2, .bytes = 10'000});
  for (int i = 0; i < 3; ++i) messages.push({"small", {}});
  messages.push({"larger than the window", {partOf(20'000, 1)}});
  EXPECT_TRUE(messages.mayStart());
  (void)messages.start();
  (void)messages.start();
  EXPECT_FALSE(messages.mayStart());
  EXPECT_TRUE(messages.noteTaken(1));
  (void)messages.start();
  EXPECT_TRUE(messages.noteTaken(2));
  EXPECT_FALSE(messages.mayStart()) << "the large one waits until it is alone";
  EXPECT_TRUE(messages.noteTaken(3));
  EXPECT_TRUE(messages.noteTaken(2)) << "an older count is nothing new";
  EXPECT_TRUE(messages.mayStart());
  EXPECT_EQ(messages.start().large.size(), 1U);
  EXPECT_EQ(messages.number(), 4U);
  EXPECT_FALSE(messages.noteTaken(5));
  EXPECT_FALSE(messages.isDone());
  EXPECT_TRUE(messages.noteTaken(4));
  EXPECT_TRUE(messages.isDone());
}

TEST(BlockMemory, GivesBackWhatNobodyUsesUpToALimit) {
  const BlockMemory memory(10 << 20);
  HeldBuffer block = memory.take(5 << 20);
  const std::byte* const place = block.buffer.data;
  block = {};
  EXPECT_EQ(memory.kept(), 6U << 20) << "5 MB in pages of 2";
  block = memory.take((5 << 20) + 1);
  EXPECT_EQ(block.buffer.data, place);
  EXPECT_EQ(block.buffer.bytes, (5U << 20) + 1);
  EXPECT_EQ(memory.kept(), 0U);
  HeldBuffer other = memory.take(6 << 20);
  block = {};
  other = {};
  EXPECT_EQ(memory.kept(), 6U << 20) << "both would be 12";
  (void)memory.take(11 << 20);
  (void)memory.take(100);
  EXPECT_EQ(memory.kept(), 6U << 20);
}

/// From some moment on nothing that the rank sends reaches anybody.
LinkMaker silenced(LinkMaker maker, const std::shared_ptr<std::atomic<bool>>& isSilent) {
  maker.connect = [connect = maker.connect, isSilent](LinkEvents events) {
    MessageLink link = connect(std::move(events));
    link.start = [start = link.start, isSilent](JobRank to, const BlockHead& head, HeldBuffer data) {
      return *isSilent || start(to, head, std::move(data));
    };
    return link;
  };
  return maker;
}

TEST(MessageChannel, ASilentRankIsLostWithinTheDeadlineAndOthersAreNot) {
  auto links = inMemoryLinks(3);
  const auto isSilent = std::make_shared<std::atomic<bool>>(false);
  links[1] = silenced(links[1], isSilent);
  ChannelJob job(links, {.lostAfter = std::chrono::milliseconds(2500)});
  job[0].send(JobRank(1), {"hello", {}});
  EXPECT_EQ(job.reports(1).waitForMessages(1).size(), 1U);
  *isSilent = true;
  for (const int r : {0, 2}) {
    EXPECT_THAT(job.reports(r).waitForLosses(1), ElementsAre(Pair(1, HasSubstr("rank 1 was silent for 2500 ms"))));
  }
  job[0].send(JobRank(2), {"still here", {}});
  EXPECT_EQ(job.reports(2).waitForMessages(1).size(), 1U);
}

TEST(MessageChannel, IdleRanksSayThatTheyLiveAndAreNotLost) {
  constexpr std::chrono::milliseconds kLostAfter{2000};
  auto links = inMemoryLinks(2);
  std::promise<void> enough;
  links[1].connect = [&, connect = links[1].connect](LinkEvents events) {
    MessageLink link = connect(std::move(events));
    link.start = [&, start = link.start, beats = 0](JobRank to, const BlockHead& head, HeldBuffer data) mutable {
      EXPECT_EQ(head.kind, BlockKind::Beat);
      if (++beats == 6) enough.set_value();  // one and a half times as long as it may be silent
      return start(to, head, std::move(data));
    };
    return link;
  };
  const auto since = std::chrono::steady_clock::now();
  ChannelJob job(links, {.lostAfter = kLostAfter});
  EXPECT_EQ(enough.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_GE(std::chrono::steady_clock::now() - since, kLostAfter);
  for (const int r : {0, 1}) EXPECT_THAT(job.reports(r).waitForLosses(0), IsEmpty());
  job.end(0);  // first, so that rank 1 has nobody to say farewell to
  EXPECT_EQ(job.reports(1).waitForLosses(1).size(), 1U);
}

TEST(MessageChannel, AJobOfAnotherTokenHearsNothing) {
  auto links = inMemoryLinks(2);
  links[1].token = "another";
  ChannelJob job(links, {.lostAfter = std::chrono::milliseconds(300)});
  job[1].send(JobRank(0), {"hello", {}});
  EXPECT_THAT(job.reports(0).waitForLosses(1), ElementsAre(Pair(1, HasSubstr("rank 1 was silent"))));
  EXPECT_THAT(job.reports(0).waitForMessages(0), IsEmpty());
}

TEST(MessageChannel, HandlersMayAnswer) {
  const auto links = inMemoryLinks(2);
  Reports first, second;
  MessageChannel* answering = nullptr;
  std::promise<void> ready;
  MessageChannel to(
      links[1],
      [&, set = ready.get_future().share()](JobRank from, ChannelMessage message) {
        set.wait();
        answering->send(from, {"re: " + message.head, std::move(message.parts)});
      },
      second.onLost());
  answering = &to;
  ready.set_value();
  MessageChannel from(links[0], first.onMessage(), first.onLost());
  from.send(JobRank(1), {"question", {partOf(70'000, 1)}});
  const auto got = first.waitForMessages(1);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_TRUE(areEqual(got[0].message, {"re: question", {partOf(70'000, 1)}}));
}

TEST(UcxLink, AForgedAddressIsRefusedBeforeUcxSeesIt) {
  const KeyValueStore store = sharedStore(std::chrono::milliseconds(50));
  store.set("channel/1", std::string(4096, '\xff'));
  Rendezvous meeting;
  meeting.size = 2;
  Reports reports;
  try {
    const MessageChannel channel(ucxLink(meeting, store), reports.onMessage(), reports.onLost());
    ADD_FAILURE() << "it connected";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("of rank 1 was not written by a rank of this job"));
  }
}

class ChannelProcesses : public testing::TestWithParam<const char*> {};

TEST_P(ChannelProcesses, NoticeThatAPeerWasKilled) {
  Processes ranks(COMMUNICATOR_CHILD, "channel_die", 3, GetParam());
  EXPECT_EQ(WTERMSIG(ranks.reap(1)), SIGKILL);
  EXPECT_THAT(ranks.endOf(0), HasSubstr("1: the connection to rank 1 was lost"));
}

TEST_P(ChannelProcesses, NoticeThatAPeerWasKilledBeforeItTookTheirMessage) {
  Processes ranks(COMMUNICATOR_CHILD, "channel_die_before_taking", 2, GetParam());
  EXPECT_EQ(WTERMSIG(ranks.reap(1)), SIGKILL);
  EXPECT_THAT(ranks.endOf(0), HasSubstr("1: the connection to rank 1 was lost"));
}

TEST_P(ChannelProcesses, NoticeThatAPeerWasStopped) {
  const Processes ranks(COMMUNICATOR_CHILD, "channel_stop", 3, GetParam());
  EXPECT_THAT(ranks.endOf(0), HasSubstr("1: rank 1 was silent for 3 s"));
}

TEST_P(ChannelProcesses, NoticeThatAPeerLeft) {
  const Processes ranks(COMMUNICATOR_CHILD, "channel_leave", 3, GetParam());
  EXPECT_THAT(ranks.endOf(0), HasSubstr("1: rank 1 left"));
}

INSTANTIATE_TEST_SUITE_P(Default, ChannelProcesses, testing::Values(""));
INSTANTIATE_TEST_SUITE_P(Tcp, ChannelProcesses, testing::Values("tcp"));
INSTANTIATE_TEST_SUITE_P(SharedMemoryByCopies, ChannelProcesses, testing::Values("posix"));

}  // namespace
}  // namespace pw
