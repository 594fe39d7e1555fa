#include "app/gui/cluster/messages.h"

#include <map>
#include <utility>

#include "app/gui/model/parts/links.h"

namespace pw::gui {

std::vector<StageMessage> messagesOf(const Document& document) {
  const auto partition = document.graph() ? partitionOf(document) : std::nullopt;
  if (!partition) return {};
  const Wiring wiring = wiringOf(document);
  std::map<std::pair<Stage, Stage>, Bytes> sums;
  for (const Transfer& transfer : partition->transfers) sums[{transfer.from, transfer.to}] += transfer.bytes;
  std::vector<StageMessage> messages;
  for (const auto& [ends, bytes] : sums)
    messages.push_back({ends.first, ends.second, wiring.rank(ends.first), wiring.rank(ends.second), bytes});
  return messages;
}

Ns timeOn(const LinkSpec& link, Bytes bytes) { return link.latency + transferTime(link, bytes); }

}  // namespace pw::gui
