#include <QAccessible>
#include <algorithm>
#include <utility>

#include "app/gui/timeline/drawing/matches.h"
#include "app/gui/timeline/private.h"

namespace pw::gui {
namespace {

bool exists(const Timeline* timeline, const SpanRef& span) {
  return timeline != nullptr && span.rank.value >= 0 && span.rank.index() < timeline->ranks.size() && span.index >= 0 &&
         static_cast<std::size_t>(span.index) < trackOf(*timeline, span).size();
}

SpanTag tagAt(const Timeline& timeline, const SpanRef& span) { return trackOf(timeline, span).tags[static_cast<std::size_t>(span.index)]; }

/// Where the bubble's gap ends: at a span, if the row does not end with it.
std::optional<SpanTag> tagAfter(const Timeline& timeline, const BubbleRef& gap) {
  const SpanRef next{gap.rank, TrackKind::Compute, gap.next};
  return exists(&timeline, next) ? std::optional(tagAt(timeline, next)) : std::nullopt;
}

}  // namespace

// ---- What is known of the timelines --------------------------------------------------------------------------------

StageLinks TimelineWidget::Private::links(Source source) const {
  const int stages = timeline(source)->stages;
  const bool known = prediction && static_cast<int>(prediction->costs.stages.size()) == stages;
  return known ? linksOf(prediction->costs) : chainLinks(stages);
}

const Dependencies* TimelineWidget::Private::dependencies(Source source) {
  if (timeline(source) == nullptr) return nullptr;
  auto& own = ownDependencies[source == Source::Predicted ? 0 : 1];
  if (!own) own = std::make_shared<const Dependencies>(*timeline(source), links(source));
  return own.get();
}

bool TimelineWidget::Private::isPrepared(Source source) const {
  return !isLarge || ownDependencies[source == Source::Predicted ? 0 : 1] != nullptr;
}

void TimelineWidget::Private::prepare() {
  using Made = std::pair<std::shared_ptr<const Timeline>, std::shared_ptr<const Dependencies>>;
  struct Wanted {
    std::shared_ptr<const Timeline> timeline;
    StageLinks links;
  };
  std::vector<Wanted> wanted;
  for (const Source source : {Source::Predicted, Source::Measured}) {
    if (timeline(source) != nullptr && !isPrepared(source))
      wanted.push_back({source == Source::Predicted ? scene.predicted : scene.measured, links(source)});
  }
  if (wanted.empty()) return;
  preparing.start(tr("Looking through the timeline"), [this, wanted](JobControl& control) -> std::function<void()> {
    std::vector<Made> made;
    for (const Wanted& one : wanted) {
      if (!control.isCancelled()) made.emplace_back(one.timeline, std::make_shared<const Dependencies>(*one.timeline, one.links));
    }
    return [this, made] {
      for (const auto& [of, dependencies] : made) {
        if (of == scene.predicted && !ownDependencies[0]) ownDependencies[0] = dependencies;
        if (of == scene.measured && !ownDependencies[1]) ownDependencies[1] = dependencies;
      }
      updateDetails();
    };
  });
}

const Matches* TimelineWidget::Private::matches() {
  if (!scene.predicted || !scene.measured) return nullptr;
  if (!ownMatches) ownMatches = matchSpans(*scene.predicted, *scene.measured);
  return &*ownMatches;
}

std::optional<SourcedSpan> TimelineWidget::Private::counterpart(const SourcedSpan& span) {
  const Source other = span.source == Source::Predicted ? Source::Measured : Source::Predicted;
  if (document.isDragging() || settling.isActive() || !exists(timeline(span.source), span.span) || timeline(other) == nullptr)
    return std::nullopt;
  if (span.span.track == TrackKind::Compute) {
    const Matches* known = matches();
    const auto& all = span.source == Source::Predicted ? known->measuredOf : known->predictedOf;
    const auto rank = span.span.rank.index(), index = static_cast<std::size_t>(span.span.index);
    if (rank >= all.size() || index >= all[rank].size() || all[rank][index] < 0) return std::nullopt;
    return SourcedSpan{other, {span.span.rank, TrackKind::Compute, all[rank][index]}};
  }
  if (!isPrepared(other)) return std::nullopt;
  const auto same = dependencies(other)->find(span.span.rank, tagAt(*timeline(span.source), span.span));
  return same ? std::optional(SourcedSpan{other, *same}) : std::nullopt;
}

// ---- Selecting -----------------------------------------------------------------------------------------------------

void TimelineWidget::Private::selectSpan(const std::optional<SourcedSpan>& span) {
  if (!span || !exists(timeline(span->source), span->span)) return clear();
  scene.selected = span;
  selectedTag = tagAt(*timeline(span->source), span->span);
  gap.reset();
  scene.range.reset();
  if (emphasis == Emphasis::Chain) emphasize(Emphasis::None, {});
  if (pathOn && emphasis == Emphasis::None) showPath();
  reveal(*span);
  markAlso();
  updateDetails();
}

void TimelineWidget::Private::selectGap(const BubbleRef& wanted) {
  const Timeline* t = timeline(wanted.source);
  if (t == nullptr) return;
  const auto [from, to] = gapOf(*t, wanted);
  if (from >= to) return;
  scene.selected.reset();
  scene.range.reset();
  gap = wanted;
  afterGap = tagAfter(*t, wanted);
  const SourcedSpan row{wanted.source, {wanted.rank, TrackKind::Compute, 0}};
  revealRow(row);
  revealTime(from, to);
  showCauses();
  updateDetails();
}

void TimelineWidget::Private::selectTimes(Ns from, Ns to) {
  if (isEmpty()) return;
  if (from > to) std::swap(from, to);
  from = std::clamp<Ns>(from, 0, end());
  to = std::clamp<Ns>(to, 0, end());
  if (from == to) return clear();
  scene.selected.reset();
  gap.reset();
  scene.range = {from, to};
  if (emphasis == Emphasis::Chain) emphasize(Emphasis::None, {});
  markAlso();
  updateDetails();
}

void TimelineWidget::Private::clear() {
  scene.selected.reset();
  scene.range.reset();
  gap.reset();
  labelRank.reset();
  emphasize(Emphasis::None, {});
  if (pathOn) showPath();
  updateDetails();
}

/// The same action may have a different index, or no longer exist. Highlighting by index is recomputed (`settle`); until then it is kept
/// only if indices still mean the same.
void TimelineWidget::Private::keepSelection(bool sameShape) {
  if (auto& selected = scene.selected) {
    const Timeline* t = timeline(selected->source);
    const auto same = t == nullptr ? std::nullopt : sameSpan(*t, selected->span, selectedTag);
    if (same)
      selected->span = *same;
    else
      selected.reset();
  }
  if (gap) {
    const Timeline* t = timeline(gap->source);
    const bool hasRank = t != nullptr && gap->rank.index() < t->ranks.size();
    const auto size = hasRank ? static_cast<std::int32_t>(t->ranks[gap->rank.index()].compute.size()) : 0;
    const auto same = hasRank && afterGap ? sameSpan(*t, {gap->rank, TrackKind::Compute, gap->next}, *afterGap) : std::nullopt;
    gap->next = same ? same->index : size;
    const auto [from, to] = t == nullptr ? std::pair<Ns, Ns>() : gapOf(*t, *gap);
    if (from >= to || afterGap.has_value() != same.has_value()) gap.reset();
    if (!gap && emphasis == Emphasis::Chain) emphasis = Emphasis::None, scene.dimsOthers = false, scene.highlighted.clear();
  }
  if (scene.range) scene.range->second = std::min(scene.range->second, end());
  if (scene.range && scene.range->first >= scene.range->second) scene.range.reset();
  also.clear();
  if (sameShape) return;
  scene.highlighted.clear();
  scene.dimsOthers = false;
  emphasis = Emphasis::None;
  found.clear();
}

// ---- Highlighting --------------------------------------------------------------------------------------------------

void TimelineWidget::Private::emphasize(Emphasis kind, std::vector<SourcedSpan> spans) {
  std::erase_if(spans, [&](const SourcedSpan& s) { return !exists(timeline(s.source), s.span); });
  std::sort(spans.begin(), spans.end());
  spans.erase(std::unique(spans.begin(), spans.end()), spans.end());
  emphasis = kind;
  scene.highlighted = std::move(spans);
  scene.dimsOthers = !scene.highlighted.empty();
  also.clear();
  markAlso();
}

/// Puts them among the highlighted ones, and takes those of the last time out: many may be found, and this happens at each move of the
/// mouse.
void TimelineWidget::Private::markAlso() {
  auto& all = scene.highlighted;
  for (const SourcedSpan& span : also) {
    const auto at = std::lower_bound(all.begin(), all.end(), span);
    if (at != all.end() && *at == span) all.erase(at);
  }
  also.clear();
  const auto add = [&](const SourcedSpan& span) {
    const auto at = std::lower_bound(all.begin(), all.end(), span);
    if (at != all.end() && *at == span) return;
    all.insert(at, span);
    also.push_back(span);
  };
  for (const auto& marked : {scene.selected, scene.hovered}) {
    if (!marked) continue;
    if (const auto other = counterpart(*marked)) {
      add(*other);
      add(*marked);
    }
  }
  repaintSoon();
}

Cause TimelineWidget::Private::causeOfGap(const BubbleRef& of) {
  const Timeline& t = *timeline(of.source);
  const auto [from, to] = gapOf(t, of);
  if (of.source == Source::Predicted && explainer.explanation()) {
    if (const Bubble* bubble = bubbleIn(*explainer.explanation(), of.rank, from, to)) return causeOf(*bubble, t, *dependencies(of.source));
  }
  if (of.source == Source::Predicted) explainer.request();
  return simpleCause(of, t, *dependencies(of.source));
}

void TimelineWidget::Private::showCauses() {
  if (gap) emphasize(Emphasis::Chain, causeOfGap(*gap).spans);
}

void TimelineWidget::Private::showPath() {
  if (!scene.predicted || emphasis == Emphasis::Chain) return;
  if (const auto& known = explainer.explanation())
    emphasize(Emphasis::Path, spansOf(known->path.segments, *scene.predicted, *dependencies(Source::Predicted)));
  else
    explainer.request();
}

void TimelineWidget::Private::explained() {
  if (document.isDragging()) return;
  if (gap) showCauses();
  if (pathOn) showPath();
  updateDetails();
  repaint();
}

// ---- Words ---------------------------------------------------------------------------------------------------------

SpanFacts TimelineWidget::Private::facts(const SourcedSpan& at, bool fully) {
  const Timeline& t = *timeline(at.source);
  const Span span = spanOf(t, at.span);
  Bytes bytes = 0;
  if (at.span.track == TrackKind::Communication) {
    if (at.source == Source::Predicted && prediction) bytes = bytesOf(prediction->costs, *prediction->rows, span);
    if (at.source == Source::Measured && measured) bytes = bytesOf(measured->trace, span);
  }
  SpanFacts known = factsOf(at, t, fully ? dependencies(at.source) : nullptr, bytes);
  if (const auto other = counterpart(at)) known.other = spanOf(*timeline(other->source), other->span);
  return known;
}

QString TimelineWidget::Private::describe() {
  if (isEmpty()) return {};
  if (scene.selected) return detailsOf(facts(*scene.selected, !document.isDragging() && isPrepared(scene.selected->source)));
  if (gap) {
    const Cause cause = causeOfGap(*gap);
    return cause.chain.isEmpty() ? cause.headline : cause.headline + QLatin1Char('\n') + tr("Causes: %1").arg(cause.chain);
  }
  if (scene.range) {
    const Ns from = scene.range->first, to = scene.range->second;
    const auto of = [&](const Timeline* t) { return t == nullptr ? std::vector<RangeTotals>() : rangeTotals(*t, from, to); };
    return rangeDetails(from, to, of(scene.predicted.get()), of(scene.measured.get()), scene.ranks);
  }
  if (pathOn && explainer.explanation()) return pathDetails(explainer.explanation()->path);
  return {};
}

void TimelineWidget::Private::updateDetails() {
  const QString text = describe();
  strip->setDetails(
      text, isEmpty() ? QString() : tr("Click a block or a bubble for its details; drag on the ruler to sum up a range; press / to find."));
  if (text == details) return;
  details = text;
  canvas->setAccessibleDescription(details);
  QAccessibleEvent changed(canvas, QAccessible::DescriptionChanged);
  QAccessible::updateAccessibility(&changed);
  emit w.detailsChanged(details);
}

// ---- Finding -------------------------------------------------------------------------------------------------------

int TimelineWidget::Private::search(const QString& query, bool selects) {
  const ParsedQuery parsed = parseQuery(query);
  const std::size_t keptAt = selects ? 0 : foundAt;
  found = parsed.understood ? findAll(parsed.query, scene.predicted.get(), scene.measured.get()) : std::vector<Found>();
  foundQuery = query;
  foundAt = found.empty() ? 0 : std::min(keptAt, found.size() - 1);
  std::vector<SourcedSpan> spans;
  for (const Found& one : found) {
    if (!one.bubble) spans.push_back(one.at);
  }
  if (!found.empty() && selects) {
    gap.reset();
    emphasis = Emphasis::None;
  }
  if (emphasis != Emphasis::Chain) emphasize(found.empty() ? Emphasis::None : Emphasis::Found, std::move(spans));
  if (parsed.wrong.isEmpty())
    countFound();
  else
    findBar->setCount(tr("“%1”?").arg(parsed.wrong), false);
  if (selects && !found.empty()) stepFound(0);
  return static_cast<int>(found.size());
}

void TimelineWidget::Private::countFound() {
  if (found.empty())
    findBar->setCount(foundQuery.isEmpty() ? QString() : tr("nothing found"), foundQuery.isEmpty());
  else
    findBar->setCount(tr("%1 of %2").arg(foundAt + 1).arg(found.size()), true);
}

void TimelineWidget::Private::stepFound(int direction) {
  if (typing.isActive()) {
    typing.stop();
    search(findBar->text(), true);
    return;
  }
  if (found.empty()) return;
  foundAt = (foundAt + found.size() + static_cast<std::size_t>(direction + 1) - 1) % found.size();
  const Found one = found[foundAt];
  if (one.bubble)
    selectGap({one.at.source, one.at.span.rank, one.at.span.index});
  else
    selectSpan(one.at);
  countFound();
}

void TimelineWidget::Private::closeFind() {
  findBar->hide();
  foundQuery.clear();
  found.clear();
  if (emphasis == Emphasis::Found) emphasize(Emphasis::None, {});
  if (pathOn) showPath();
  canvas->setFocus(Qt::OtherFocusReason);
}

// ---- Walking -------------------------------------------------------------------------------------------------------

/// Without a selection: the span of the first row at the left edge of what is shown.
std::optional<SourcedSpan> TimelineWidget::Private::startingPoint() const {
  for (const Row& row : layout.rows) {
    const Timeline* t = timeline(row.source);
    if (t == nullptr || row.kind != Row::Kind::Compute || row.rank.index() >= t->ranks.size()) continue;
    const SpanTrack& track = t->ranks[row.rank.index()].compute;
    const auto first = visible(track, static_cast<Ns>(view.start), static_cast<Ns>(view.end())).first;
    if (track.size() > 0)
      return SourcedSpan{row.source, {row.rank, TrackKind::Compute, static_cast<std::int32_t>(std::min(first, track.size() - 1))}};
  }
  return std::nullopt;
}

void TimelineWidget::Private::walk(int direction) {
  if (gap) {
    // From a bubble to the span on either side.
    const SpanRef to{gap->rank, TrackKind::Compute, direction > 0 ? gap->next : gap->next - 1};
    if (exists(timeline(gap->source), to)) selectSpan(SourcedSpan{gap->source, to});
    return;
  }
  if (!scene.selected) return selectSpan(startingPoint());
  selectSpan(SourcedSpan{scene.selected->source, neighbour(*timeline(scene.selected->source), scene.selected->span, direction)});
}

void TimelineWidget::Private::walkRows(int direction) {
  if (!scene.selected) return selectSpan(startingPoint());
  selectSpan(onRowBeside(scene, layout, *scene.selected, direction));
}

void TimelineWidget::Private::follow(int direction) {
  if (!scene.selected) return walk(direction);
  const Source source = scene.selected->source;
  selectSpan(SourcedSpan{source, alongDependency(*dependencies(source), *timeline(source), scene.selected->span, direction)});
}

std::optional<Rank> TimelineWidget::Private::currentRank() const {
  if (scene.selected) return scene.selected->span.rank;
  if (gap) return gap->rank;
  if (labelRank) return labelRank;
  return mouse ? rankAt(mouse->y()) : std::nullopt;
}

}  // namespace pw::gui
