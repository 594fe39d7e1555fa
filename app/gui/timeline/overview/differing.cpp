#include "app/gui/timeline/overview/differing.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "app/gui/common/format.h"
#include "simulator/text/median.h"

namespace pw::gui {

Differing ranksThatDiffer(const Timeline& timeline, std::size_t most) {
  Differing result;
  result.end = timeline.end;
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
    const SpanTrack& track = timeline.ranks[r].compute;
    const Ns busy = track.busy.empty() ? 0 : std::accumulate(track.busy.back().begin(), track.busy.back().end(), Ns{0});
    result.ranks.push_back({Rank(r), busy});
  }
  std::vector<Ns> busy;
  for (const BusyRank& rank : result.ranks) busy.push_back(rank.busy);
  result.median = medianOf(std::move(busy)).value_or(Ns{0});
  const auto difference = [&](const BusyRank& rank) { return abs(rank.busy - result.median); };
  std::erase_if(result.ranks, [&](const BusyRank& rank) { return difference(rank) == 0 || difference(rank) < result.median / 100; });
  std::ranges::stable_sort(result.ranks, std::ranges::greater{}, difference);
  if (result.ranks.size() > most) {
    result.more = result.ranks.size() - most;
    result.ranks.resize(most);
  }
  std::ranges::sort(result.ranks, {}, &BusyRank::rank);
  return result;
}

std::vector<Rank> ranksOf(const Differing& differing) {
  std::vector<Rank> ranks;
  for (const BusyRank& one : differing.ranks) ranks.push_back(one.rank);
  return ranks;
}

QString textOf(const Differing& differing) {
  if (differing.ranks.empty()) return translated("All ranks are busy for about the same time, %1.").arg(durationText(differing.median));
  QString text = translated("Busy time against the median, %1").arg(durationText(differing.median));
  if (differing.more > 0) text += translated("; %1 more differ less").arg(differing.more);
  for (const BusyRank& one : differing.ranks) {
    text += translated("\nrank %1\tbusy %2").arg(one.rank.value).arg(durationText(one.busy));
    if (differing.median > 0) {
      const double share = static_cast<double>(one.busy - differing.median) / static_cast<double>(differing.median);
      text += QStringLiteral(" (%1)").arg(signedPercentText(share));
    }
    text += translated("\tidle %1").arg(durationText(differing.end - one.busy));
  }
  return text;
}

}  // namespace pw::gui
