#include "backends/messages/ucx/communicator.h"
#include "backends/messages/in_memory_communicator.h"

#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <future>
#include <vector>

#include "tests/support/communicator_contract.h"
#include "tests/support/rank_processes.h"
#include "tests/support/shared_store.h"

namespace pw {
namespace {

using test::Processes;
using ::testing::HasSubstr;

TestedTransport inMemory() {
  return {.name = "in_memory", .newJob = [](int ranks, std::chrono::milliseconds deadline) -> Connect {
            auto all = std::make_shared<std::vector<std::unique_ptr<Communicator>>>(inMemoryCommunicators(ranks, deadline));
            return [all](JobRank rank) { return std::move((*all)[rank.index()]); };
          }};
}

TestedTransport ucx() {
  return {.name = "ucx", .newJob = [](int ranks, std::chrono::milliseconds deadline) -> Connect {
            return [ranks, deadline, store = sharedStore(deadline)](JobRank rank) {
              Rendezvous meeting;
              meeting.rank = rank;
              meeting.size = ranks;
              meeting.deadline = deadline;
              return connectUcx(meeting, store);
            };
          }};
}

INSTANTIATE_TEST_SUITE_P(InMemory, CommunicatorContract, testing::Values(inMemory()), testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorContract, testing::Values(ucx()), testing::PrintToStringParamName());

class UcxProcesses : public testing::TestWithParam<const char*> {};

TEST_P(UcxProcesses, ExchangeMessages) {
  Processes ranks(COMMUNICATOR_CHILD, "exchange", 3, GetParam());
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(ranks.endOf(r), "fine");
}

TEST_P(UcxProcesses, NoticeThatAPeerTheyWaitForWasKilled) {
  Processes ranks(COMMUNICATOR_CHILD, "die", 2, GetParam());
  EXPECT_EQ(WTERMSIG(ranks.reap(1)), SIGKILL);
  EXPECT_THAT(ranks.endOf(0), HasSubstr("the connection to rank 1 was lost"));
}

TEST_P(UcxProcesses, NoticeThatAPeerWasKilledBeforeItTookTheirMessage) {
  Processes ranks(COMMUNICATOR_CHILD, "die_before_taking", 2, GetParam());
  EXPECT_EQ(WTERMSIG(ranks.reap(1)), SIGKILL);
  EXPECT_THAT(ranks.endOf(0), HasSubstr("the connection to rank 1 was lost"));
}

TEST_P(UcxProcesses, NoticeThatAPeerLeft) {
  Processes ranks(COMMUNICATOR_CHILD, "leave", 2, GetParam());
  EXPECT_THAT(ranks.endOf(0), HasSubstr("the connection to rank 1 was lost"));
}

INSTANTIATE_TEST_SUITE_P(Default, UcxProcesses, testing::Values(""));
INSTANTIATE_TEST_SUITE_P(Tcp, UcxProcesses, testing::Values("tcp"));
INSTANTIATE_TEST_SUITE_P(SharedMemoryByCopies, UcxProcesses, testing::Values("posix"));

TEST(UcxCommunicator, ARankThatDoesNotComeIsNamed) {
  const KeyValueStore store = sharedStore(std::chrono::milliseconds(50));
  Rendezvous meeting;
  meeting.size = 2;
  EXPECT_THAT(failureOf([&] { (void)connectUcx(meeting, store); }), HasSubstr("ucx/1"));
}

TEST(UcxCommunicator, AForgedAddressIsRefusedBeforeUcxSeesIt) {
  for (const std::string& forged : {std::string(), std::string("short"), std::string(32, '\0'), std::string(4096, '\xff')}) {
    const KeyValueStore store = sharedStore(std::chrono::milliseconds(50));
    store.set("ucx/1", forged);
    Rendezvous meeting;
    meeting.size = 2;
    EXPECT_THAT(failureOf([&] { (void)connectUcx(meeting, store); }), HasSubstr("of rank 1 was not written by a rank of this job"));
  }
}

/// As it does nothing during a long operator. UCX's own queue for shared memory holds a third of such a message, which is nearly the
/// largest that goes through it.
TEST(UcxCommunicator, AMessageArrivesWhileItsSenderDoesNothing) {
  const auto connect = ucx().newJob(2, std::chrono::seconds(30));
  auto other = std::async(std::launch::async, [&] { return connect(JobRank(1)); });
  const auto sender = connect(JobRank(0)), receiver = other.get();
  std::vector<std::byte> data(1'500'000), arrived(data.size());
  const Buffer out{data.data(), data.size()}, in{arrived.data(), arrived.size()};
  for (std::uint32_t tag = 1; tag <= 20; ++tag) {
    const auto sent = sender->send(JobRank(1), tag, out);
    ASSERT_NO_THROW(receiver->wait(receiver->receive(JobRank(0), tag, in))) << "message " << tag;
    sender->wait(sent);
  }
}

TEST(UcxCommunicator, OneRankAloneSendsToItself) {
  const auto me = connectUcx({}, {});
  int out = 7, in = 0;
  const auto got = me->receive(JobRank(0), 1, bytesOf(in)), sent = me->send(JobRank(0), 1, bytesOf(out));
  me->wait(got);
  me->wait(sent);
  me->barrier();
  EXPECT_EQ(in, 7);
}

}  // namespace
}  // namespace pw
