#include "simulator/step/posting.h"

#include <map>
#include <utility>

namespace pw {
namespace {

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

void linkStreams(const Schedule& rows, const Posting& posting, const PostedTransfers& transfers, std::vector<Lanes::Link>& links) {
  using Ends = std::vector<PostedTransfers::End>;
  for (std::size_t rank = 0; rank < rows.rows.size(); ++rank) {
    const std::vector<Action>& row = rows.rows[rank];
    std::map<std::pair<std::int32_t, bool>, Ends> before, now;  // by stream: what was posted last, and what is posted together
    const auto close = [&] {
      for (auto& [stream, ends] : now) before[stream] = std::move(ends);
      now.clear();
    };
    for (std::size_t at = 0; at < row.size(); ++at) {
      if (!isSend(row[at].kind) && !isReceive(row[at].kind)) continue;
      for (const PostedTransfers::End& end : transfers.ends[rank][at]) {
        const auto stream = streamOf(posting.streams, end.peer, isSend(row[at].kind));
        for (const PostedTransfers::End& earlier : before[stream]) links.push_back({earlier.step, end.step, earlier.delay});
        now[stream].push_back(end);
      }
      if (!posting.grouped || !posting.joined[rank][at]) close();
    }
    close();
  }
}

}  // namespace pw
