// A pair of processes with a message channel over UCX, for remote.py: remote_bench PORT. A line `BYTES COUNT` from stdin sends so many
// messages there and back, one after the other, and prints their times [us] as JSON.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "backends/messages/channel/message_channel.h"
#include "backends/messages/meeting.h"
#include "backends/messages/ucx/link.h"
#include "schedules/error.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using pw::ChannelMessage;
using pw::JobRank;
using pw::MessageChannel;

pw::LinkMaker linkOf(int rank, int port) {
  pw::Rendezvous meeting;
  meeting.rank = JobRank(rank);
  meeting.size = 2;
  meeting.masterPort = port;
  meeting.token = "bench";
  return pw::ucxLink(meeting, pw::meet(meeting).dictionary());
}

/// Sends back what comes until the other leaves.
void echo(int port) {
  std::promise<void> lost;
  std::promise<MessageChannel*> self;
  MessageChannel channel(
      linkOf(1, port),
      [channel = self.get_future().share()](JobRank from, ChannelMessage message) { channel.get()->send(from, std::move(message)); },
      [&](JobRank, const std::string&) { lost.set_value(); });
  self.set_value(&channel);
  lost.get_future().wait();
}

/// The caller of a remote call: waits for the answer on a thread of its own.
class Caller {
 public:
  explicit Caller(int port)
      : channel_(
            linkOf(0, port),
            [this](JobRank, ChannelMessage message) {
              const std::lock_guard lock(mutex_);
              answer_ = std::move(message);
              isThere_ = true;
              changed_.notify_one();
            },
            [](JobRank, const std::string& why) {
              std::cerr << why << '\n';
              std::_Exit(1);
            }) {}

  /// [us]
  double time(const pw::HeldBuffer& data) {
    const auto start = Clock::now();
    channel_.send(JobRank(1), {"identity", {data}});
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, 60s, [&] { return isThere_; })) throw pw::Error("no answer came");
    const double time = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    isThere_ = false;
    if (answer_.parts.at(0).buffer.bytes != data.buffer.bytes) throw pw::Error("another answer came");
    answer_ = {};
    return time;
  }
  void close() { channel_.close(10s); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool isThere_ = false;
  ChannelMessage answer_;
  MessageChannel channel_;
};

void run(int port) {
  Caller caller(port);
  for (std::size_t bytes = 0, count = 0; std::cin >> bytes >> count;) {
    const auto memory = std::make_shared<std::vector<std::byte>>(bytes, std::byte{1});
    nlohmann::json times = nlohmann::json::array();
    for (std::size_t i = 0; i < count; ++i) times.push_back(caller.time({{memory->data(), bytes}, memory}));
    std::cout << times.dump() << std::endl;
  }
  caller.close();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "remote_bench PORT\n";
    return 2;
  }
  const int port = std::atoi(arguments[1]);
  const pid_t peer = ::fork();
  try {
    if (peer == 0) {
      echo(port);
      return 0;
    }
    run(port);
    int status = 0;
    ::waitpid(peer, &status, 0);
    return status == 0 ? 0 : 1;
  } catch (const pw::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
