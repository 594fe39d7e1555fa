#include "simulator/step/posting_links.h"

#include <map>
#include <utility>

namespace pw {
namespace {

/// One end of a message's transfer.
struct End {
  std::int32_t step = 0;
  std::int32_t delay = 0;  ///< `Edge::delay` until it is over at this end
  Rank peer;
};
using Ends = std::vector<End>;

/// The transfers of the messages that an action sends or receives.
Ends endsOf(const PostingLinks& of, const Action& action) {
  Ends ends;
  const bool send = isSend(action.kind);
  for (const std::size_t m : (send ? of.leaving : of.arriving).at(action)) {
    const MessageCost& message = of.costs.messages[m];
    const std::int32_t step = of.transferOf[m * static_cast<std::size_t>(of.rows.microbatches) + action.microbatch.index()];
    const Rank peer = of.rows.placement.rankOf(send ? message.to : message.from, action.microbatch);
    if (step >= 0) ends.push_back({step, send ? 0 : static_cast<std::int32_t>(m) + 1, peer});
  }
  return ends;
}

/// A stream of a rank: all its messages, those with a peer, or those of one direction with a peer.
std::pair<std::int32_t, bool> streamOf(Posting::Streams streams, Rank peer, bool send) {
  switch (streams) {
    case Posting::Streams::Direction: return {peer.value, send};
    case Posting::Streams::Pair: return {peer.value, false};
    case Posting::Streams::All: break;
  }
  return {0, false};
}

}  // namespace

void addPostingLinks(const PostingLinks& of, const Posting& posting, std::vector<Lanes::Link>& links) {
  for (std::size_t rank = 0; rank < of.rows.rows.size(); ++rank) {
    const std::vector<Action>& row = of.rows.rows[rank];
    std::map<std::pair<std::int32_t, bool>, Ends> before, now;  // by stream: what was posted last, and what is posted together
    const auto close = [&] {
      for (auto& [stream, ends] : now) before[stream] = std::move(ends);
      now.clear();
    };
    for (std::size_t at = 0; at < row.size(); ++at) {
      const bool send = isSend(row[at].kind);
      if (!send && !isReceive(row[at].kind)) continue;
      for (const End& end : endsOf(of, row[at])) {
        const auto stream = streamOf(posting.streams, end.peer, send);
        for (const End& earlier : before[stream]) links.push_back({earlier.step, end.step, earlier.delay});
        now[stream].push_back(end);
      }
      if (!posting.grouped || !posting.joined[rank][at]) close();
    }
    close();
  }
  for (const PostingLinks::Waiting& waiting : of.waiting) {
    for (const End& end : endsOf(of, waiting.message)) links.push_back({end.step, waiting.step, end.delay});
  }
}

}  // namespace pw
