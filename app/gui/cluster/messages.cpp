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
  const auto profile = document.profile();
  const auto sentAfter = [&](NodeId begin) -> std::optional<Ns> {
    if (!profile || begin.index() == 0 || begin.index() > profile->sent.size()) return std::nullopt;
    const Ns sent = profile->sent[begin.index() - 1];
    return sent >= 0 ? std::optional(sent) : std::nullopt;
  };
  for (const auto& [ends, bytes] : sums) {
    messages.push_back({ends.first, ends.second, wiring.rank(ends.first), wiring.rank(ends.second), bytes,
                        sentAfter(partition->stages[ends.second.index()].begin)});
  }
  return messages;
}

Ns timeOn(const LinkSpec& link, Bytes bytes) { return link.latency + transferTime(link, bytes); }

}  // namespace pw::gui
