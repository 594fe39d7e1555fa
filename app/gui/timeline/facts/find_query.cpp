#include "app/gui/timeline/facts/find_query.h"

#include <QRegularExpression>
#include <QStringList>
#include <algorithm>
#include <tuple>

#include "schedules/units.h"

namespace pw::gui {
namespace {

constexpr std::uint32_t bit(SpanKind kind) { return 1U << static_cast<unsigned>(kind); }
constexpr std::uint32_t kMessages = bit(SpanKind::SendForward) | bit(SpanKind::SendBackward);

struct Word {
  const char* text;
  std::uint32_t kinds;
};
constexpr Word kWords[] = {
    {"f", bit(SpanKind::Forward)},
    {"forward", bit(SpanKind::Forward)},
    {"b", bit(SpanKind::Backward)},
    {"backward", bit(SpanKind::Backward) | bit(SpanKind::BackwardInput) | bit(SpanKind::BackwardWeight)},
    {"i", bit(SpanKind::BackwardInput)},
    {"w", bit(SpanKind::BackwardWeight)},
    {"send_f", bit(SpanKind::SendForward)},
    {"send_b", bit(SpanKind::SendBackward)},
    {"send", kMessages},
    {"message", kMessages},
    {"messages", kMessages},
    {"reduce", bit(SpanKind::ReduceGrad)},
    {"reduce_grad", bit(SpanKind::ReduceGrad)},
    {"optimizer", bit(SpanKind::Optimizer)},
    {"load", bit(SpanKind::Load)},
    {"store", bit(SpanKind::Store)},
};

std::uint32_t kindsOf(const QString& word) {
  for (const Word& known : kWords) {
    if (word == QLatin1String(known.text)) return known.kinds;
  }
  return 0;
}

/// A number of at most nine digits.
std::optional<int> numberOf(const QString& text) {
  bool good = false;
  const int number = text.toInt(&good);
  return good && text.size() <= 9 && text[0].isDigit() ? std::optional(number) : std::nullopt;
}

/// `2`, `2.5`, `2.`, `.5`: stage and microbatch. False for anything else.
bool readPlace(const QString& text, FindQuery& query) {
  static const QRegularExpression kPlace(QStringLiteral("^(\\d{0,9})(?:\\.(\\d{0,9}))?$"));
  const auto match = kPlace.match(text);
  if (!match.hasMatch() || text.isEmpty() || text == QLatin1String(".")) return false;
  if (const auto stage = match.captured(1); !stage.isEmpty()) query.stage = Stage(stage.toInt());
  if (const auto microbatch = match.captured(2); !microbatch.isEmpty()) query.microbatch = Microbatch(microbatch.toInt());
  return true;
}

/// After a kind, where a number alone is a microbatch: a block's label says `B3`.
bool readPlaceOfKind(const QString& text, FindQuery& query) {
  return readPlace(text.contains(QLatin1Char('.')) ? text : QLatin1Char('.') + text, query);
}

/// `rank`, `stage`, `mb` and a number.
bool readNamed(const QString& word, const QString& number, FindQuery& query) {
  const auto value = number.isEmpty() ? std::nullopt : numberOf(number);
  if (!value) return false;
  if (word == QLatin1String("rank") || word == QLatin1String("r")) return query.rank = Rank(*value), true;
  if (word == QLatin1String("stage") || word == QLatin1String("s")) return query.stage = Stage(*value), true;
  if (word == QLatin1String("mb") || word == QLatin1String("m") || word == QLatin1String("microbatch"))
    return query.microbatch = Microbatch(*value), true;
  return false;
}

bool readLonger(const QString& text, FindQuery& query) {
  const Answer<Ns> time = tryDuration(text.toStdString());
  if (time) query.longerThan = *time;
  return static_cast<bool>(time);
}

/// Words that stand alone.
bool readWord(const QString& word, FindQuery& query) {
  if (word.startsWith(QLatin1String("bubble")) || word == QLatin1String("idle")) return query.bubbles = true;
  if (word == QLatin1String("measured")) return query.source = Source::Measured, true;
  if (word == QLatin1String("predicted")) return query.source = Source::Predicted, true;
  if (const std::uint32_t kinds = kindsOf(word)) return query.kinds |= kinds, true;
  if (word.contains(QLatin1Char('.')) && readPlace(word, query)) return true;  // a number alone could mean anything
  static const QRegularExpression kJoined(QStringLiteral("^(\\d{0,9})([a-z_]+?)(\\d[\\d.]*|\\.\\d+|)$"));
  const auto match = kJoined.match(word);
  if (!match.hasMatch()) return false;
  if (match.captured(1).isEmpty() && readNamed(match.captured(2), match.captured(3), query)) return true;
  query.kinds |= kindsOf(match.captured(2));
  if (kindsOf(match.captured(2)) == 0) return false;
  if (match.captured(1).isEmpty()) return readPlaceOfKind(match.captured(3), query);
  const QString microbatch = match.captured(3);
  return readPlace(match.captured(1) + (microbatch.startsWith(QLatin1Char('.')) ? QString() : QStringLiteral(".")) + microbatch, query);
}

struct Search {
  const FindQuery& query;
  Source source;
  const Timeline& timeline;
  std::vector<Found>& found;

  void track(const SpanTrack& spans, Rank rank, TrackKind kind) const;
  void gaps(Rank rank) const;
};

void Search::track(const SpanTrack& spans, Rank rank, TrackKind kind) const {
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const SpanTag& tag = spans.tags[i];
    if (query.kinds != 0 && (query.kinds & bit(tag.kind)) == 0) continue;
    if (query.stage && tag.stage != *query.stage) continue;
    if (query.microbatch && tag.microbatch != *query.microbatch) continue;
    if (spans.end[i] - spans.start[i] <= query.longerThan) continue;
    found.push_back({spans.start[i], {source, {rank, kind, static_cast<std::int32_t>(i)}}, false});
  }
}

void Search::gaps(Rank rank) const {
  const auto size = static_cast<std::int32_t>(timeline.ranks[rank.index()].compute.size());
  for (std::int32_t next = 0; next <= size; ++next) {
    const auto [from, to] = gapOf(timeline, {source, rank, next});
    if (to - from > std::max<Ns>(0, query.longerThan)) found.push_back({from, {source, {rank, TrackKind::Compute, next}}, true});
  }
}

void search(const FindQuery& query, Source source, const Timeline* timeline, std::vector<Found>& found) {
  if (timeline == nullptr || (query.source && *query.source != source)) return;
  const Search in{query, source, *timeline, found};
  for (std::size_t r = 0; r < timeline->ranks.size(); ++r) {
    if (query.rank && query.rank->index() != r) continue;
    if (query.bubbles) {
      in.gaps(Rank(r));
      continue;
    }
    in.track(timeline->ranks[r].compute, Rank(r), TrackKind::Compute);
    in.track(timeline->ranks[r].communication, Rank(r), TrackKind::Communication);
  }
}

}  // namespace

std::pair<Ns, Ns> gapOf(const Timeline& timeline, const BubbleRef& bubble) {
  if (bubble.rank.value < 0 || bubble.rank.index() >= timeline.ranks.size()) return {};
  const SpanTrack& track = timeline.ranks[bubble.rank.index()].compute;
  const auto next = static_cast<std::size_t>(bubble.next);
  if (bubble.next < 0 || next > track.size()) return {};
  const Ns from = next == 0 ? 0 : track.end[next - 1];
  const Ns to = next == track.size() ? timeline.end : track.start[next];
  return {from, std::max(from, to)};
}

std::optional<BubbleRef> bubbleUnder(const Timeline& timeline, Source source, Rank rank, Ns time) {
  if (rank.value < 0 || rank.index() >= timeline.ranks.size() || time < 0 || time >= timeline.end) return std::nullopt;
  const SpanTrack& track = timeline.ranks[rank.index()].compute;
  const auto next = std::upper_bound(track.start.begin(), track.start.end(), time) - track.start.begin();
  const BubbleRef bubble{source, rank, static_cast<std::int32_t>(next)};
  const auto [from, to] = gapOf(timeline, bubble);
  return from <= time && time < to ? std::optional(bubble) : std::nullopt;
}

ParsedQuery parseQuery(const QString& text) {
  ParsedQuery parsed;
  QString spread = text.toLower();
  spread.replace(QLatin1Char('>'), QLatin1String(" > ")).replace(QRegularExpression(QStringLiteral("[=:,]")), QStringLiteral(" "));
  // `2 ms` is one word.
  spread.replace(QRegularExpression(QStringLiteral("(\\d)\\s+(ns|us|ms|s)\\b")), QStringLiteral("\\1\\2"));
  const QStringList words = spread.split(QRegularExpression(QStringLiteral("\\s+")), Qt::SkipEmptyParts);
  for (qsizetype i = 0; i < words.size(); ++i) {
    const QString& word = words[i];
    const QString after = i + 1 < words.size() ? words[i + 1] : QString();
    FindQuery& query = parsed.query;
    if (word == QLatin1String(">") ? readLonger(after, query) : readNamed(word, after, query)) {
      ++i;
    } else if (readWord(word, query)) {
      if (kindsOf(word) != 0 && readPlaceOfKind(after, query)) ++i;
    } else {
      parsed.wrong = word;
      return parsed;
    }
  }
  parsed.understood = !words.isEmpty();
  return parsed;
}

std::vector<Found> findAll(const FindQuery& query, const Timeline* predicted, const Timeline* measured) {
  std::vector<Found> found;
  search(query, Source::Predicted, predicted, found);
  search(query, Source::Measured, measured, found);
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return std::tie(a.start, a.at) < std::tie(b.start, b.at); });
  return found;
}

}  // namespace pw::gui
