#include "backends/messages/transport.h"

#include <fmt/format.h>

#include "backends/messages/tags.h"

namespace pw {

Transport defaultTransport(bool onGpu) {
  for (const Transport transport : valuesOf<Transport>()) {
    if (factsOf(transport).onGpu == onGpu) return transport;
  }
  return Transport::Ucx;
}

std::string hostTransports(std::string_view separator) {
  std::string names;
  for (const Transport transport : valuesOf<Transport>()) {
    if (!factsOf(transport).onGpu) names.append(names.empty() ? "" : separator).append(nameOf(transport));
  }
  return names;
}

void meetByMessages(Communicator& communicator) {
  const int rank = communicator.rank().value, size = communicator.size();
  std::uint32_t tag = kMeetingTags.first;
  for (int distance = 1; distance < size; distance *= 2, ++tag) {
    std::byte out{}, in{};
    const auto sent = communicator.send(JobRank((rank + distance) % size), tag, {&out, 1});
    communicator.wait(communicator.receive(JobRank((rank + size - distance) % size), tag, {&in, 1}));
    communicator.wait(sent);
  }
}

std::string inWords(std::chrono::milliseconds time) {
  return time.count() % 1000 == 0 ? fmt::format("{} s", time.count() / 1000) : fmt::format("{} ms", time.count());
}

std::string lateSentence(bool sending, JobRank peer, std::chrono::milliseconds deadline) {
  const std::string what =
      sending ? fmt::format("rank {} took no message", peer.value) : fmt::format("no message came from rank {}", peer.value);
  return fmt::format("{} within {}; check whether it hangs, or raise --timeout", what, inWords(deadline));
}

std::string lostSentence(JobRank peer) {
  return fmt::format("the connection to rank {} was lost; see why that rank or its machine ended", peer.value);
}

std::string gaveUpSentence(JobRank peer) { return fmt::format("rank {} gave up; the reason is in that rank's message", peer.value); }

std::string closedSentence(JobRank peer) { return fmt::format("rank {} left; its part of the job has ended", peer.value); }

std::string silentSentence(JobRank peer, std::chrono::milliseconds time) {
  return fmt::format("rank {} was silent for {}; check whether it hangs or was stopped", peer.value, inWords(time));
}

std::string sizeSentence(JobRank self, JobRank from, std::uint32_t tag, std::size_t expected, std::size_t got) {
  return fmt::format("rank {} expected {} bytes with tag {} from rank {} but got {}; the ranks run different plans", self.value, expected,
                     tag, from.value, got);
}

std::string failedSentence() { return "another rank has failed; the reason is in that rank's message"; }

std::string leftSentence() { return "this rank already left the job; start the job again"; }

std::string unmetSentence(int ranks, const std::string& address, int port, std::chrono::milliseconds deadline, const std::string& reason) {
  return fmt::format("it could not meet the other ranks ({} in all) at {}:{} {}; check that all are started and can reach that address",
                     ranks, address, port, reason.empty() ? "within " + inWords(deadline) : "(" + reason + ")");
}

}  // namespace pw
