// A rank as the tests of transports between processes need it: VERB RANK SIZE SOCKET [TLS]. The socket carries packets `key NUL value`:
// those this process sets go to the test, which sends each rank the others'; the last one says how it ended.

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <map>
#include <string>

#include "backends/messages/ucx_communicator.h"
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
    const auto me = pw::connectUcx(meeting, storeOver(socket));
    doAsTold(arguments[1], *me);
  } catch (const pw::Error& error) {
    failure = error.what();
  }
  sendPacket(socket, "end", failure);
}
