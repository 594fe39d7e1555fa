#include "engine/clock.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "backends/messages/message_memory.h"
#include "backends/messages/tags.h"

namespace pw {
namespace {

constexpr std::uint32_t kTrips = 10;
static_assert(2 * kTrips <= kClockTags.count);

Buffer bufferOfTime(Ns& value) { return {reinterpret_cast<std::byte*>(&value), sizeof(value)}; }

ClockReading readClock(JobRank peer, Communicator& communicator, const ClockFunction& now) {
  ClockReading best;
  for (std::uint32_t i = 0; i < kTrips; ++i) {
    const MessageMemory<std::pair<Ns, Ns>> times(communicator);
    auto& [theirs, sent] = *times;
    const auto reply = communicator.receive(peer, kClockTags.first + 2 * i + 1, bufferOfTime(theirs));
    sent = now();
    communicator.wait(communicator.send(peer, kClockTags.first + 2 * i, bufferOfTime(sent)));
    communicator.wait(reply);
    const Ns trip = now() - sent;
    if (i > 0 && trip >= best.roundTrip) continue;
    best = {theirs, theirs - (sent + trip / 2), trip};
  }
  // Theirs was read within the round trip: with one clock the offset is at most half of it, rounded up.
  if (abs(best.offset) <= (best.roundTrip + 1) / 2) best.offset = 0;
  return best;
}

void giveTimes(Communicator& communicator, const ClockFunction& now) {
  for (std::uint32_t i = 0; i < kTrips; ++i) {
    Ns sent = 0;
    communicator.wait(communicator.receive(JobRank(0), kClockTags.first + 2 * i, bufferOfTime(sent)));
    Ns theirs = now();
    communicator.wait(communicator.send(JobRank(0), kClockTags.first + 2 * i + 1, bufferOfTime(theirs)));
  }
}

}  // namespace

std::vector<ClockReading> compareClocks(Communicator& communicator, const ClockFunction& now) {
  communicator.barrier();
  if (communicator.rank().value != 0) {
    giveTimes(communicator, now);
    return {};
  }
  std::vector<ClockReading> readings(1);
  for (int r = 1; r < communicator.size(); ++r) readings.push_back(readClock(JobRank(r), communicator, now));
  return readings;
}

Ns onOurClock(Ns time, const ClockReading& first, const ClockReading& last) {
  if (time >= last.at || first.at >= last.at || first.offset == last.offset) return time - last.offset;
  if (time <= first.at) return time - first.offset;
  const double share = static_cast<double>(time - first.at) / static_cast<double>(last.at - first.at);
  return time - (first.offset + Ns(std::llround(share * static_cast<double>(last.offset - first.offset))));
}

}  // namespace pw
