#include "backends/messages/link_times.h"

#include <algorithm>

namespace pw {

std::vector<std::pair<Bytes, Ns>> linkTimes(Communicator& group, const Device& device, std::chrono::milliseconds deadline) {
  std::vector<std::pair<Bytes, Ns>> times;
  std::uint32_t tag = 1;
  for (const Bytes size : {Bytes{1} << 10, Bytes{1} << 14, Bytes{1} << 17, Bytes{1} << 20, Bytes{1} << 22}) {
    const HeldBuffer out = device.allocate(static_cast<std::size_t>(size)), in = device.allocate(static_cast<std::size_t>(size));
    std::vector<Ns> trips;
    for (int i = 0; i < 20 && group.rank().value < 2; ++i) {
      const JobRank peer(1 - group.rank().value);
      const Ns start = monotonicNow();
      const auto receive = group.receive(peer, tag, in.buffer);
      if (group.rank().value == 1) group.wait(receive);
      group.wait(group.send(peer, tag, out.buffer));
      if (group.rank().value == 0) group.wait(receive);
      device.finish(deadline, {});
      trips.push_back(monotonicNow() - start);
      ++tag;
    }
    if (!trips.empty()) times.emplace_back(size, *std::ranges::min_element(trips) / 2);
    group.barrier();
  }
  return times;
}

}  // namespace pw
