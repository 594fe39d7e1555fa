#include "backends/messages/ucx_communicator.h"
#include "backends/messages/in_memory_communicator.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <stdexcept>

#include "tests/support/communicator_contract.h"
#include "tests/support/shared_store.h"

namespace pw {
namespace {

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

/// Ranks as processes of communicator_child, which meet through this one.
class Processes {
 public:
  Processes(const std::string& verb, int ranks, const std::string& transports) {
    for (int r = 0; r < ranks; ++r) start(verb, r, ranks, transports);
    std::vector<std::string> addresses;
    for (const int socket : sockets_) addresses.push_back(packetFrom(socket));
    for (std::size_t to = 0; to < sockets_.size(); ++to) {
      for (std::size_t from = 0; from < addresses.size(); ++from) {
        if (from == to) continue;  // a packet nobody reads would reset the socket
        if (::send(sockets_[to], addresses[from].data(), addresses[from].size(), MSG_NOSIGNAL) < 0)
          throw std::runtime_error("a rank ended early");
      }
    }
  }
  ~Processes() {
    for (std::size_t r = 0; r < pids_.size(); ++r) {
      ::close(sockets_[r]);
      if (pids_[r] > 0) ::kill(pids_[r], SIGKILL);
      reap(r);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// Waits for the process to end; its status.
  int reap(std::size_t rank) {
    int status = 0;
    if (pids_[rank] > 0) ::waitpid(std::exchange(pids_[rank], -1), &status, 0);
    return status;
  }

  /// How the rank ended in its own words.
  [[nodiscard]] std::string endOf(std::size_t rank) const {
    const std::string packet = packetFrom(sockets_[rank]);
    return packet.substr(packet.find('\0') + 1);
  }

 private:
  void start(const std::string& verb, int rank, int ranks, const std::string& transports) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) throw std::runtime_error("no socket");
    const std::string number = std::to_string(rank), count = std::to_string(ranks), socket = std::to_string(ends[1]);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::fcntl(ends[1], F_SETFD, 0);
      const char* name = COMMUNICATOR_CHILD;
      ::execl(name, name, verb.c_str(), number.c_str(), count.c_str(), socket.c_str(), transports.empty() ? nullptr : transports.c_str(),
              nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    pids_.push_back(pid);
    sockets_.push_back(ends[0]);
  }

  static std::string packetFrom(int socket) {
    std::array<char, 65536> packet{};
    pollfd fd{socket, POLLIN, 0};
    const ssize_t size =
        ::poll(&fd, 1, 2 * static_cast<int>(kLongWait.count())) == 1 ? ::recv(socket, packet.data(), packet.size(), 0) : -1;
    if (size <= 0) throw std::runtime_error("a rank said nothing");
    return {packet.data(), static_cast<std::size_t>(size)};
  }

  std::vector<pid_t> pids_;
  std::vector<int> sockets_;
};

class UcxProcesses : public testing::TestWithParam<const char*> {};

TEST_P(UcxProcesses, ExchangeMessages) {
  Processes ranks("exchange", 3, GetParam());
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(ranks.endOf(r), "fine");
}

TEST_P(UcxProcesses, NoticeThatAPeerTheyWaitForWasKilled) {
  Processes ranks("die", 2, GetParam());
  EXPECT_EQ(WTERMSIG(ranks.reap(1)), SIGKILL);
  EXPECT_THAT(ranks.endOf(0), HasSubstr("the connection to rank 1 was lost"));
}

TEST_P(UcxProcesses, NoticeThatAPeerWasKilledBeforeItTookTheirMessage) {
  Processes ranks("die_before_taking", 2, GetParam());
  EXPECT_EQ(WTERMSIG(ranks.reap(1)), SIGKILL);
  EXPECT_THAT(ranks.endOf(0), HasSubstr("the connection to rank 1 was lost"));
}

TEST_P(UcxProcesses, NoticeThatAPeerLeft) {
  Processes ranks("leave", 2, GetParam());
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
