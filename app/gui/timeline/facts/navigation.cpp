#include "app/gui/timeline/facts/navigation.h"

#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <algorithm>
#include <limits>
#include <tuple>

#include "app/gui/common/format.h"
#include "app/gui/common/json_object.h"

namespace pw::gui {
namespace {

auto viewOf(std::vector<RankView>& ranks, Rank rank) {
  return std::find_if(ranks.begin(), ranks.end(), [&](const RankView& view) { return view.rank == rank; });
}

}  // namespace

bool exists(const Timeline* timeline, const SpanRef& span) {
  return timeline != nullptr && span.rank.value >= 0 && span.rank.index() < timeline->ranks.size() && span.index >= 0 &&
         static_cast<std::size_t>(span.index) < trackOf(*timeline, span).size();
}

const SpanTag& tagOf(const Timeline& timeline, const SpanRef& span) {
  return trackOf(timeline, span).tags[static_cast<std::size_t>(span.index)];
}

SpanRef neighbour(const Timeline& timeline, const SpanRef& span, int direction) {
  const auto last = static_cast<std::int32_t>(trackOf(timeline, span).size()) - 1;
  return {span.rank, span.track, std::clamp(span.index + (direction < 0 ? -1 : 1), 0, std::max(0, last))};
}

std::optional<std::int32_t> nearestSpan(const SpanTrack& track, Ns time) {
  if (track.size() == 0) return std::nullopt;
  if (const auto under = spanAt(track, time)) return static_cast<std::int32_t>(*under);
  const auto next = static_cast<std::size_t>(std::upper_bound(track.start.begin(), track.start.end(), time) - track.start.begin());
  if (next == 0) return 0;
  if (next == track.size()) return static_cast<std::int32_t>(next - 1);
  const bool before = time - track.end[next - 1] <= track.start[next] - time;
  return static_cast<std::int32_t>(before ? next - 1 : next);
}

SourcedSpan onRowBeside(const Scene& scene, const RowLayout& layout, const SourcedSpan& span, int direction) {
  const auto row = rowOf(layout, span);
  const Timeline* own = timelineFrom(scene, span.source);
  if (!row || own == nullptr) return span;
  const Span self = spanOf(*own, span.span);
  const Ns middle = self.start + (self.end - self.start) / 2;
  const int step = direction < 0 ? -1 : 1;
  for (auto at = static_cast<std::ptrdiff_t>(*row) + step; at >= 0 && at < static_cast<std::ptrdiff_t>(layout.rows.size()); at += step) {
    const Row& other = layout.rows[static_cast<std::size_t>(at)];
    const Timeline* timeline = timelineFrom(scene, other.source);
    if (other.kind == Row::Kind::Memory || timeline == nullptr || other.rank.index() >= timeline->ranks.size()) continue;
    const TrackKind kind = other.kind == Row::Kind::Compute ? TrackKind::Compute : TrackKind::Communication;
    const SpanRef first{other.rank, kind, 0};
    if (const auto index = nearestSpan(trackOf(*timeline, first), middle)) return {other.source, {other.rank, kind, *index}};
  }
  return span;
}

SpanRef alongDependency(const Dependencies& dependencies, const Timeline& timeline, const SpanRef& span, int direction) {
  if (direction < 0) {
    const auto inputs = dependencies.inputs(span);
    return inputs.empty() ? dependencies.beside(span, -1).value_or(span) : inputs.front();
  }
  std::optional<std::tuple<Ns, SpanRef>> best;
  for (const SpanRef& output : dependencies.outputs(span)) {
    Ns used = spanOf(timeline, output).start;
    if (output.track == TrackKind::Communication) {
      const auto users = dependencies.outputs(output);
      if (!users.empty()) used = spanOf(timeline, users.front()).start;
    }
    if (!best || std::tuple(used, output) < *best) best = {used, output};
  }
  return best ? std::get<1>(*best) : dependencies.beside(span, 1).value_or(span);
}

std::optional<SpanRef> sameSpan(const Timeline& timeline, const SpanRef& old, const SpanTag& tag) {
  if (old.rank.value < 0 || old.rank.index() >= timeline.ranks.size()) return std::nullopt;
  const auto& tags = trackOf(timeline, old).tags;
  if (old.index >= 0 && static_cast<std::size_t>(old.index) < tags.size() && tags[static_cast<std::size_t>(old.index)] == tag) return old;
  const auto found = std::find(tags.begin(), tags.end(), tag);
  if (found == tags.end()) return std::nullopt;
  return SpanRef{old.rank, old.track, static_cast<std::int32_t>(found - tags.begin())};
}

std::optional<SourcedSpan> spanNamed(const Scene& scene, const BlockName& name) {
  const Source source = name.isMeasured ? Source::Measured : Source::Predicted;
  const Timeline* timeline = timelineFrom(scene, source);
  const bool isMessage =
      name.tag.kind == SpanKind::SendForward || name.tag.kind == SpanKind::SendBackward || name.tag.kind == SpanKind::ReduceGrad;
  if (timeline == nullptr) return std::nullopt;
  for (const TrackKind track : {isMessage ? TrackKind::Communication : TrackKind::Compute, TrackKind::Compute}) {
    if (const auto found = sameSpan(*timeline, {name.rank, track, 0}, name.tag)) return SourcedSpan{source, *found};
  }
  return std::nullopt;
}

BlockName blockName(const Scene& scene, const SourcedSpan& span) {
  return {span.source == Source::Measured, span.span.rank, tagOf(*timelineFrom(scene, span.source), span.span)};
}

std::vector<RankView> rankViews(const std::vector<RankView>& shown, std::size_t count) {
  std::vector<RankView> views;
  std::vector<bool> seen(count, false);
  for (const RankView& view : shown) {
    if (view.rank.value < 0 || view.rank.index() >= count || seen[view.rank.index()]) continue;
    seen[view.rank.index()] = true;
    views.push_back(view);
  }
  for (std::size_t r = 0; r < count; ++r) {
    if (!seen[r]) views.push_back({Rank(r)});
  }
  return views;
}

std::vector<RankView> withRankMoved(std::vector<RankView> ranks, Rank rank, int direction) {
  const auto at = viewOf(ranks, rank);
  if (at == ranks.end()) return ranks;
  const int step = direction < 0 ? -1 : 1;
  for (auto i = at - ranks.begin() + step; i >= 0 && i < static_cast<std::ptrdiff_t>(ranks.size()); i += step) {
    if (ranks[static_cast<std::size_t>(i)].pinned == at->pinned)
      return withRankMovedTo(ranks, rank, ranks[static_cast<std::size_t>(i)].rank);
  }
  return ranks;
}

std::vector<RankView> withRankMovedTo(std::vector<RankView> ranks, Rank rank, Rank place) {
  const auto from = viewOf(ranks, rank), to = viewOf(ranks, place);
  if (from == ranks.end() || to == ranks.end() || from->pinned != to->pinned) return ranks;
  if (from < to)
    std::rotate(from, from + 1, to + 1);
  else
    std::rotate(to, from, from + 1);
  return ranks;
}

namespace {

QJsonObject jsonOf(const SavedSelection& selection) {
  const auto placed = [](const auto& name) {
    QJsonObject json{{QLatin1String("rank"), name.rank.value}};
    if (name.isMeasured) json[QLatin1String("measured")] = true;
    return json;
  };
  if (const auto* block = std::get_if<BlockName>(&selection)) {
    QJsonObject json = placed(*block);
    const std::string_view kind = nameOf(block->tag.kind);
    json[QLatin1String("kind")] = textOf(kind);
    json[QLatin1String("stage")] = block->tag.stage.value;
    json[QLatin1String("microbatch")] = block->tag.microbatch.value;
    if (block->tag.peer != block->rank) json[QLatin1String("peer")] = block->tag.peer.value;
    return {{QLatin1String("block"), json}};
  }
  if (const auto* bubble = std::get_if<BubbleName>(&selection)) {
    QJsonObject json = placed(*bubble);
    json[QLatin1String("time")] = static_cast<qint64>(bubble->time);
    return {{QLatin1String("bubble"), json}};
  }
  if (const auto* range = std::get_if<std::pair<Ns, Ns>>(&selection))
    return {{QLatin1String("range"), QJsonArray{static_cast<qint64>(range->first), static_cast<qint64>(range->second)}}};
  return {};
}

SavedSelection selectionIn(const QJsonObject& json) {
  const auto timeOf = [](const QJsonValue& value) { return std::clamp<Ns>(Ns(value.toInteger()), 0, kLatestNote); };
  if (const QJsonObject block = json[QLatin1String("block")].toObject(); !block.isEmpty()) {
    const auto kind = valueNamed<SpanKind>(block[QLatin1String("kind")].toString().toStdString());
    const int rank = block[QLatin1String("rank")].toInt(-1);
    if (!kind || rank < 0) return {};
    return BlockName{block[QLatin1String("measured")].toBool(),
                     Rank(rank),
                     {*kind, Stage(block[QLatin1String("stage")].toInt(-1)), Microbatch(block[QLatin1String("microbatch")].toInt(-1)),
                      Rank(block[QLatin1String("peer")].toInt(rank))}};
  }
  if (const QJsonObject bubble = json[QLatin1String("bubble")].toObject(); !bubble.isEmpty()) {
    const int rank = bubble[QLatin1String("rank")].toInt(-1);
    if (rank < 0) return {};
    return BubbleName{bubble[QLatin1String("measured")].toBool(), Rank(rank), timeOf(bubble[QLatin1String("time")])};
  }
  const QJsonArray range = json[QLatin1String("range")].toArray();
  if (range.size() == 2 && timeOf(range[0]) < timeOf(range[1])) return std::pair<Ns, Ns>(timeOf(range[0]), timeOf(range[1]));
  return {};
}

QJsonObject objectOf(const SavedView& view) {
  QJsonObject json;
  if (view.shown) {
    json[QLatin1String("from")] = view.shown->first;
    json[QLatin1String("to")] = view.shown->second;
  }
  json[QLatin1String("scroll")] = view.scroll;
  QJsonArray ranks;
  for (const RankView& rank : view.ranks) {
    QJsonObject one{{QLatin1String("rank"), rank.rank.value}};
    if (rank.pinned) one[QLatin1String("pinned")] = true;
    if (rank.collapsed) one[QLatin1String("collapsed")] = true;
    ranks.append(one);
  }
  json[QLatin1String("ranks")] = ranks;
  json[QLatin1String("arrangement")] = QLatin1String(view.arrangement == Arrangement::Over    ? "over"
                                                     : view.arrangement == Arrangement::Above ? "above"
                                                                                              : "below");
  json[QLatin1String("colourBy")] = QLatin1String(view.colourBy == ColourBy::Stage        ? "stage"
                                                  : view.colourBy == ColourBy::Microbatch ? "microbatch"
                                                                                          : "kind");
  json[QLatin1String("differences")] = view.differences;
  json[QLatin1String("communication")] = view.showsCommunication;
  json[QLatin1String("memory")] = view.showsMemory;
  json[QLatin1String("overview")] = view.showsOverview;
  json[QLatin1String("rowScale")] = view.rowScale;
  json[QLatin1String("fitsHeight")] = view.fitsHeight;
  if (!std::holds_alternative<std::monostate>(view.selection)) json[QLatin1String("selection")] = jsonOf(view.selection);
  return json;
}

}  // namespace

QByteArray toJson(const SavedView& view) { return QJsonDocument(objectOf(view)).toJson(QJsonDocument::Compact); }

QByteArray toShortJson(const SavedView& view) {
  QJsonObject json = objectOf(view);
  const QJsonObject usual = objectOf({});
  for (const QString& key : usual.keys()) {
    if (json[key] == usual[key] && key != QLatin1String("scroll")) json.remove(key);  // one stays: an empty object is no view
  }
  if (view.ranks == rankViews({}, view.ranks.size())) json.remove(QLatin1String("ranks"));
  return QJsonDocument(json).toJson(QJsonDocument::Compact);
}

std::optional<SavedView> parseView(const QByteArray& text) {
  const QJsonObject json = readObject(text);
  if (json.isEmpty()) return std::nullopt;
  SavedView view;
  const auto edge = [&](const char* name) {
    constexpr auto latest = static_cast<double>(kLatestNote);
    return std::clamp(json[QLatin1String(name)].toDouble(std::numeric_limits<double>::quiet_NaN()), -latest, latest);
  };
  const double from = edge("from"), to = edge("to");
  if (to > from) view.shown = {from, to};  // not where either is no number
  view.scroll = std::max(0, json[QLatin1String("scroll")].toInt());
  const QJsonArray ranks = json[QLatin1String("ranks")].toArray();
  for (const auto value : ranks) {
    const QJsonObject one = value.toObject();
    const int rank = one[QLatin1String("rank")].toInt(-1);
    if (rank >= 0) view.ranks.push_back({Rank(rank), one[QLatin1String("pinned")].toBool(), one[QLatin1String("collapsed")].toBool()});
  }
  if (json[QLatin1String("arrangement")].toString() == QLatin1String("over")) view.arrangement = Arrangement::Over;
  if (json[QLatin1String("arrangement")].toString() == QLatin1String("above")) view.arrangement = Arrangement::Above;
  const QString by = json[QLatin1String("colourBy")].toString();
  view.colourBy = by == QLatin1String("stage")        ? ColourBy::Stage
                  : by == QLatin1String("microbatch") ? ColourBy::Microbatch
                                                      : ColourBy::Kind;
  view.differences = json[QLatin1String("differences")].toBool();
  view.showsCommunication = json[QLatin1String("communication")].toBool(true);
  view.showsMemory = json[QLatin1String("memory")].toBool(true);
  view.showsOverview = json[QLatin1String("overview")].toBool(true);
  view.rowScale = std::clamp(json[QLatin1String("rowScale")].toDouble(1), 0.01, kMostRowScale);
  view.fitsHeight = json[QLatin1String("fitsHeight")].toBool();
  view.selection = selectionIn(json[QLatin1String("selection")].toObject());
  return view;
}

}  // namespace pw::gui
