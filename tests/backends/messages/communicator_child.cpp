// A rank as the tests of transports between processes need it: VERB RANK SIZE SOCKET [TLS]. The socket carries packets `key NUL value`:
// those this process sets go to the test, which sends each rank the others'; the last one says how it ended. Verbs that begin with channel_
// are of message channels.

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/messages/channel/message_channel.h"
#include "backends/messages/ucx/communicator.h"
#include "backends/messages/ucx/link.h"
#include "schedules/error.h"
#include "tests/support/communicator_contract.h"

namespace {

void sendPacket(int socket, const std::string& key, const std::string& value) {
  const std::string packet = key + '\0' + value;
  if (::send(socket, packet.data(), packet.size(), 0) < 0) std::_Exit(3);
}

pw::KeyValueStore storeOver(int socket) {
  pw::KeyValueStore store;
  store.set = [socket](const std::string& key, const std::string& value) { sendPacket(socket, key, value); };
  store.get = [socket, values = std::map<std::string, std::string>()](const std::string& key) mutable {
    std::array<char, 65536> packet{};
    while (!values.contains(key)) {
      const ssize_t size = ::recv(socket, packet.data(), packet.size(), 0);
      if (size <= 0) std::_Exit(3);
      const std::string text(packet.data(), static_cast<std::size_t>(size));
      values[text.substr(0, text.find('\0'))] = text.substr(text.find('\0') + 1);
    }
    return values[key];
  };
  return store;
}

/// Messages of small and large sizes around the ring of ranks.
void exchange(pw::Communicator& me) {
  const int rank = me.rank().value, size = me.size(), left = (rank + size - 1) % size;
  for (const std::size_t bytes : {0, 8, 5'000, 300'000, 25'000'000}) {
    std::vector<std::byte> out = pw::patternOf(bytes, rank), in(bytes);
    const auto got = me.receive(pw::JobRank(left), 1, pw::bytesOf(in)), sent = me.send(pw::JobRank((rank + 1) % size), 1, pw::bytesOf(out));
    me.wait(got);
    me.wait(sent);
    if (in != pw::patternOf(bytes, left)) throw pw::Error("a message of " + std::to_string(bytes) + " bytes came broken");
  }
  me.barrier();
}

/// Rank 0 waits until a rank is lost and returns why; rank 1 does as the verb says once it heard from rank 0.
std::string channelAsTold(const std::string& verb, const pw::LinkMaker& link) {
  std::promise<void> heard;
  std::promise<std::string> lost;
  std::once_flag once, onceLost;
  const bool isFirst = link.rank == pw::JobRank(0);
  const bool isLarge = verb == "channel_die_before_taking";
  pw::MessageChannel channel(
      link,
      [&](pw::JobRank, const pw::ChannelMessage&) {
        if (!isFirst && isLarge) ::raise(SIGKILL);
        std::call_once(once, [&] { heard.set_value(); });
      },
      [&](pw::JobRank rank, const std::string& why) {
        // The others stay for rank 0, so that it sees only the one that this is about.
        if (isFirst || rank == pw::JobRank(0)) std::call_once(onceLost, [&] { lost.set_value(std::to_string(rank.value) + ": " + why); });
      },
      {.lostAfter = std::chrono::milliseconds(verb == "channel_stop" ? 3000 : 60'000)});
  auto wasLost = lost.get_future();
  if (isFirst) {
    for (int r = 1; r < link.size; ++r) {
      channel.send(pw::JobRank(r), {"hello", {}});
      // Held until the channel has sent it, and then never written to.
      const auto memory = std::make_shared<std::vector<std::byte>>(isLarge ? 64 << 20 : 0);
      if (isLarge) channel.send(pw::JobRank(r), {"large", {{{memory->data(), memory->size()}, memory}}});
    }
    return wasLost.wait_for(pw::kLongWait) == std::future_status::ready ? wasLost.get() : "nobody was lost";
  }
  heard.get_future().wait();
  if (link.rank.value == 1) {
    if (verb == "channel_die") ::raise(SIGKILL);
    if (verb == "channel_stop") ::raise(SIGSTOP);
    if (verb == "channel_leave") return channel.close(pw::kLongWait) ? "fine" : "not all was handled";
  }
  wasLost.wait_for(pw::kLongWait);
  return "fine";
}

void doAsTold(const std::string& verb, pw::Communicator& me) {
  if (verb == "exchange") return exchange(me);
  if (me.rank() == pw::JobRank(1)) {
    if (verb == "leave") return;
    ::raise(SIGKILL);
  }
  std::vector<std::byte> message(verb == "die_before_taking" ? 64 << 20 : 8);
  me.wait(verb == "die_before_taking" ? me.send(pw::JobRank(1), 1, pw::bytesOf(message))
                                      : me.receive(pw::JobRank(1), 1, pw::bytesOf(message)));
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return 2;
  const int socket = std::atoi(arguments[4]);
  if (count > 5) ::setenv("UCX_TLS", arguments[5], 1);
  pw::Rendezvous meeting;
  meeting.rank = pw::JobRank(std::atoi(arguments[2]));
  meeting.size = std::atoi(arguments[3]);
  meeting.deadline = pw::kLongWait;
  std::string failure = "fine";
  try {
    const std::string verb = arguments[1];
    if (verb.starts_with("channel_")) {
      failure = channelAsTold(verb, pw::ucxLink(meeting, storeOver(socket)));
    } else {
      const auto me = pw::connectUcx(meeting, storeOver(socket));
      doAsTold(verb, *me);
    }
  } catch (const pw::Error& error) {
    failure = error.what();
  }
  sendPacket(socket, "end", failure);
}
