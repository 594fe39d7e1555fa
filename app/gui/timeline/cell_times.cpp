#include "app/gui/timeline/cell_times.h"

#include <algorithm>

#include "app/gui/common/format.h"

namespace pw::gui {

std::optional<CellTimes> timesOf(const std::vector<Action>& row, const SpanTrack& track) {
  CellTimes times;
  std::size_t at = 0;
  const auto isAction = [&](std::size_t i) {
    const SpanKind kind = track.tags[i].kind;
    return kind == SpanKind::Forward || kind == SpanKind::Backward || kind == SpanKind::BackwardInput || kind == SpanKind::BackwardWeight;
  };
  for (const Action& a : row) {
    if (a.kind == ActionKind::Idle) {
      const Ns end = times.empty() ? 0 : times.back().second;
      times.emplace_back(end, end);
      continue;
    }
    while (at < track.size() && !isAction(at)) ++at;
    if (at == track.size() || track.tags[at].stage != a.stage || track.tags[at].microbatch != a.microbatch) return std::nullopt;
    times.emplace_back(track.start[at], track.end[at]);
    ++at;
  }
  return times;
}

std::int32_t placeAt(const CellTimes& times, Ns time) {
  const auto later = std::ranges::find_if(times, [&](const auto& t) { return t.first + (t.second - t.first) / 2 > time; });
  return static_cast<std::int32_t>(later - times.begin());
}

Ns timeOfPlace(const CellTimes& times, std::int32_t place) {
  if (times.empty()) return 0;
  const auto at = static_cast<std::size_t>(place);
  if (at == 0) return times.front().first;
  if (at >= times.size()) return times.back().second;
  return (times[at - 1].second + times[at].first) / 2;
}

QString whyNotEarlier(const Schedule& schedule, Cell cell, const Timeline& timeline) {
  const auto& row = schedule.rows[cell.rank.index()];
  const auto times = timesOf(row, timeline.ranks.at(cell.rank.index()).compute);
  if (!times) return {};
  const auto at = static_cast<std::size_t>(cell.position);
  const QString action = actionText(row[at]);
  const Ns start = (*times)[at].first, free = at == 0 ? 0 : (*times)[at - 1].second;
  QString text = start == 0 ? translated("%1 starts at once.").arg(action)
                 : start > free
                     ? translated("%1 starts at %2, when what it needs from other ranks has arrived.").arg(action, durationText(start))
                     : translated("%1 starts at %2, when rank %3 has done %4.")
                           .arg(action, durationText(start))
                           .arg(cell.rank.value)
                           .arg(actionText(row[at - 1]));
  const LegalPlaces legal = legalPlaces(schedule, cell);
  if (!legal.after) return cell.position == 0 ? text : text + QLatin1Char(' ') + translated("It can move to the start of its row.");
  const QString after = actionText(*legal.after);
  return text + QLatin1Char(' ') +
         (legal.first == cell.position ? translated("It cannot move before %1, which has to come first.").arg(after)
                                       : translated("It can move to any place after %1.").arg(after));
}

namespace {

/// `21 % → 24 %`; one of them where they look alike.
QString pairText(const QString& before, const QString& after) {
  return before == after ? after : QStringLiteral("%1 → %2").arg(before, after);
}

/// `Step 9.46 ms → 10.8 ms (+14 %)`, `Step 14.5 s (+1.20 ms)`, `Step 14.5 s, as before`.
QString stepText(Ns before, Ns after) {
  const QString was = durationText(before), is = durationText(after);
  if (before == after) return translated("Step %1, as before").arg(is);
  if (was == is)
    return translated("Step %1 (%2%3)")
        .arg(is, after > before ? QStringLiteral("+") : QStringLiteral("−"), durationText(abs(after - before)));
  const double change = before > 0 ? static_cast<double>(after) / static_cast<double>(before) - 1 : 0;
  return translated("Step %1 → %2 (%3)").arg(was, is, signedPercentText(change));
}

}  // namespace

QString differenceText(const Prediction& before, const Prediction& after) {
  const auto peak = [](const Prediction& p) {
    Bytes most = 0;
    for (const RankMetrics& rank : p.ranks) most = std::max(most, rank.peakBytes);
    return most;
  };
  QString text = stepText(before.step, after.step) +
                 translated(", bubble %1").arg(pairText(percentText(before.bubbleFraction), percentText(after.bubbleFraction)));
  if (peak(before) != 0 || peak(after) != 0)
    text += translated(", peak memory %1").arg(pairText(sizeText(peak(before)), sizeText(peak(after))));
  return text;
}

QString changeText(const Document& document) {
  const auto before = document.before(), now = document.prediction();
  return !before || !now || now == before || !document.problem().isEmpty() ? QString() : differenceText(*before, *now);
}

}  // namespace pw::gui
