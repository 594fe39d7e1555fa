#include "app/gui/timeline/selection.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "app/gui/timeline/facts/navigation.h"

namespace pw::gui {
namespace {

/// Where the bubble's gap ends: at a span, if the row does not end with it.
std::optional<SpanTag> tagAfter(const Timeline& timeline, const BubbleRef& gap) {
  const SpanRef next{gap.rank, TrackKind::Compute, gap.next};
  return exists(&timeline, next) ? std::optional(tagOf(timeline, next)) : std::nullopt;
}

}  // namespace

Selection::Selection(Scene& scene, Knowledge& knowledge, Place& place) : scene_(scene), knowledge_(knowledge), place_(place) {}

// ---- Selecting -----------------------------------------------------------------------------------------------------

void Selection::selectSpan(const std::optional<SourcedSpan>& span) {
  scene_.range.reset();
  if (!span) return clear();
  selectWithin(*span);
}

void Selection::selectWithin(const SourcedSpan& span) {
  if (!exists(timeline(span.source), span.span)) return clear();
  take(span);
  const Span s = spanOf(*timeline(span.source), span.span);
  place_.revealRow(span);
  place_.revealTime(s.start, s.end);
  emit changed();
}

void Selection::selectInPlace(const SourcedSpan& span) {
  scene_.range.reset();
  if (!exists(timeline(span.source), span.span)) return clear();
  take(span);
  emit changed();
}

/// In the place of any other span or bubble, and of what was highlighted for its sake.
void Selection::take(const SourcedSpan& span) {
  scene_.selected = span;
  selectedTag_ = tagOf(*timeline(span.source), span.span);
  gap_.reset();
  leaveMarks();
  if (showsPath_ && emphasis_ == Emphasis::None) showPath();
  markAlso();
}

void Selection::selectGap(const BubbleRef& wanted) {
  const Timeline* t = timeline(wanted.source);
  if (t == nullptr) return;
  const auto [from, to] = gapOf(*t, wanted);
  if (from >= to) return;
  scene_.selected.reset();
  scene_.range.reset();
  gap_ = wanted;
  afterGap_ = tagAfter(*t, wanted);
  place_.revealRow({wanted.source, {wanted.rank, TrackKind::Compute, 0}});
  place_.revealTime(from, to);
  showCauses();
  emit changed();
}

void Selection::selectTimes(Ns from, Ns to) {
  if (pw::gui::isEmpty(scene_)) return;
  if (from > to) std::swap(from, to);
  from = std::clamp<Ns>(from, 0, endOf(scene_));
  to = std::clamp<Ns>(to, 0, endOf(scene_));
  if (from == to) return clear();
  scene_.selected.reset();
  gap_.reset();
  scene_.range = {from, to};
  leaveMarks();
  markAlso();
  emit changed();
}

void Selection::choose(const SourcedSpan& span) {
  if (!exists(timeline(span.source), span.span)) return;
  std::vector<SourcedSpan> chosen;
  if (emphasis_ != Emphasis::Chosen) anchor_.reset();
  if (emphasis_ == Emphasis::Chosen)
    chosen = emphasized();
  else if (scene_.selected)
    chosen.push_back(*scene_.selected);
  const bool isNew = std::erase(chosen, span) == 0;
  if (isNew) chosen.push_back(span);
  if (isNew || anchor_ == span) anchor_ = isNew ? std::optional(span) : std::nullopt;
  chooseAll(std::move(chosen));
}

void Selection::chooseUpTo(const SourcedSpan& span) {
  const auto from = emphasis_ == Emphasis::Chosen && anchor_ ? anchor_ : scene_.selected;
  if (!from || from->source != span.source || from->span.rank != span.span.rank || from->span.track != span.span.track) return choose(span);
  const auto [first, last] = std::minmax(from->span.index, span.span.index);
  std::vector<SourcedSpan> chosen = emphasis_ == Emphasis::Chosen ? emphasized() : std::vector<SourcedSpan>();
  for (std::int32_t i = first; i <= last; ++i) chosen.push_back({span.source, {span.span.rank, span.span.track, i}});
  anchor_ = from;
  chooseAll(std::move(chosen));
}

/// The selected one stays the place from which keys go on.
void Selection::chooseAll(std::vector<SourcedSpan> chosen) {
  gap_.reset();
  scene_.range.reset();
  const bool isAny = !chosen.empty();
  emphasize(isAny ? Emphasis::Chosen : Emphasis::None, std::move(chosen));
  chosen_.clear();
  for (const SourcedSpan& span : emphasized()) chosen_.emplace_back(span, tagOf(*timeline(span.source), span.span));
  if (!isAny) scene_.selected.reset();
  emit changed();
}

/// What is highlighted for the sake of what was selected until now.
void Selection::leaveMarks() {
  if (emphasis_ == Emphasis::Chain || emphasis_ == Emphasis::Chosen) emphasize(Emphasis::None, {});
}

std::vector<SourcedSpan> Selection::emphasized() const {
  std::vector<SourcedSpan> own;
  if (emphasis_ == Emphasis::None) return own;
  std::ranges::copy_if(scene_.highlighted, std::back_inserter(own),
                       [this](const SourcedSpan& span) { return std::ranges::find(also_, span) == also_.end(); });
  return own;
}

void Selection::selectRank(Rank rank) {
  if (rank_ == rank) return;
  rank_ = rank;
  if (scene_.selected && scene_.selected->span.rank == rank) return;
  clear();
  rank_ = rank;
}

void Selection::clear() {
  scene_.selected.reset();
  scene_.range.reset();
  gap_.reset();
  rank_.reset();
  emphasize(Emphasis::None, {});
  if (showsPath_) showPath();
  emit changed();
}

void Selection::leave() {
  const auto around = scene_.selected ? scene_.range : std::nullopt;
  clear();
  if (around) selectTimes(around->first, around->second);
}

std::optional<Rank> Selection::rank() const {
  if (scene_.selected) return scene_.selected->span.rank;
  return gap_ ? gap_->rank : rank_;
}

void Selection::turnTo(Rank rank) {
  scene_.selected.reset();
  gap_.reset();
  rank_ = rank;
}

void Selection::fit() {
  std::optional<std::pair<Ns, Ns>> times = scene_.range;
  if (const auto& selected = scene_.selected) {
    const Span span = spanOf(*timeline(selected->source), selected->span);
    times = {span.start, span.end};
    place_.revealRow(*selected);
  } else if (gap_) {
    times = gapOf(*timeline(gap_->source), *gap_);
    place_.revealRow({gap_->source, {gap_->rank, TrackKind::Compute, 0}});
  }
  if (!times) return place_.fitAll();
  place_.fit(times->first, times->second);
}

void Selection::forget() {
  scene_.selected.reset();
  scene_.range.reset();
  gap_.reset();
}

/// The same action may have a different index, or no longer exist. Highlighting by index is recomputed (`refresh`); until then it is kept
/// only if indices still mean the same.
void Selection::keep(bool isSameShape) {
  scene_.hovered.reset();
  if (auto& selected = scene_.selected) {
    const Timeline* t = timeline(selected->source);
    const auto same = t == nullptr ? std::nullopt : sameSpan(*t, selected->span, selectedTag_);
    if (same)
      selected->span = *same;
    else
      selected.reset();
  }
  if (gap_) {
    const Timeline* t = timeline(gap_->source);
    const bool hasRank = t != nullptr && gap_->rank.index() < t->ranks.size();
    const auto size = hasRank ? static_cast<std::int32_t>(t->ranks[gap_->rank.index()].compute.size()) : 0;
    const auto same = hasRank && afterGap_ ? sameSpan(*t, {gap_->rank, TrackKind::Compute, gap_->next}, *afterGap_) : std::nullopt;
    gap_->next = same ? same->index : size;
    const auto [from, to] = t == nullptr ? std::pair<Ns, Ns>() : gapOf(*t, *gap_);
    if (from >= to || afterGap_.has_value() != same.has_value()) gap_.reset();
    if (!gap_ && emphasis_ == Emphasis::Chain) emphasis_ = Emphasis::None, scene_.dimsOthers = false, scene_.highlighted.clear();
  }
  if (scene_.range) scene_.range->second = std::min(scene_.range->second, endOf(scene_));
  if (scene_.range && scene_.range->first >= scene_.range->second) scene_.range.reset();
  if (isSameShape) return unmarkWhatIsGone();
  also_.clear();
  scene_.highlighted.clear();
  scene_.dimsOthers = false;
  emphasis_ = Emphasis::None;
}

/// The measured timeline may have gone, or be a shorter one, beside a prediction of the same shape.
void Selection::unmarkWhatIsGone() {
  const auto isGone = [this](const SourcedSpan& span) { return !exists(timeline(span.source), span.span); };
  for (auto* spans : {&scene_.highlighted, &also_}) std::erase_if(*spans, isGone);
  if (emphasis_ == Emphasis::Chosen) followChosen();
}

/// Those chosen stay the same actions, also where a longer or another measured timeline has them elsewhere.
void Selection::followChosen() {
  std::optional<SourcedSpan> anchor;
  std::vector<std::pair<SourcedSpan, SpanTag>> left;
  scene_.highlighted.clear();
  for (const auto& [span, tag] : chosen_) {
    const Timeline* t = timeline(span.source);
    const auto same = t == nullptr ? std::nullopt : sameSpan(*t, span.span, tag);
    if (!same) continue;
    left.emplace_back(SourcedSpan{span.source, *same}, tag);
    if (anchor_ == span) anchor = left.back().first;
    scene_.highlighted.push_back(left.back().first);
  }
  std::erase_if(also_, [this](const SourcedSpan& span) { return std::ranges::find(scene_.highlighted, span) != scene_.highlighted.end(); });
  if (left.empty()) emphasis_ = Emphasis::None;
  scene_.dimsOthers = !left.empty();
  std::ranges::copy(also_, std::back_inserter(scene_.highlighted));
  std::sort(scene_.highlighted.begin(), scene_.highlighted.end());
  chosen_ = std::move(left);
  anchor_ = anchor;
}

SavedSelection Selection::saved() const {
  if (scene_.selected) return blockName(scene_, *scene_.selected);
  if (gap_) return BubbleName{gap_->source == Source::Measured, gap_->rank, gapOf(*timeline(gap_->source), *gap_).first};
  if (scene_.range) return *scene_.range;
  return {};
}

void Selection::restore(const SavedSelection& saved) {
  if (const auto* block = std::get_if<BlockName>(&saved)) {
    if (const auto span = spanNamed(scene_, *block)) selectSpan(span);
  } else if (const auto* bubble = std::get_if<BubbleName>(&saved)) {
    const Source source = bubble->isMeasured ? Source::Measured : Source::Predicted;
    const Timeline* t = timeline(source);
    const bool hasRank = t != nullptr && bubble->rank.index() < t->ranks.size();
    if (const auto gap = hasRank ? bubbleUnder(*t, source, bubble->rank, bubble->time) : std::nullopt) selectGap(*gap);
  } else if (const auto* range = std::get_if<std::pair<Ns, Ns>>(&saved)) {
    selectTimes(range->first, range->second);
  }
}

// ---- Walking -------------------------------------------------------------------------------------------------------

/// Without a selection: the span of the first row at the left edge of what is shown.
std::optional<SourcedSpan> Selection::startingPoint() const {
  const Viewport& view = place_.view();
  for (const Row& row : place_.layout().rows) {
    const Timeline* t = timeline(row.source);
    if (t == nullptr || row.kind != Row::Kind::Compute || row.rank.index() >= t->ranks.size()) continue;
    const SpanTrack& track = t->ranks[row.rank.index()].compute;
    const auto first = visible(track, static_cast<Ns>(view.start), static_cast<Ns>(view.end())).first;
    if (track.size() > 0)
      return SourcedSpan{row.source, {row.rank, TrackKind::Compute, static_cast<std::int32_t>(std::min(first, track.size() - 1))}};
  }
  return std::nullopt;
}

void Selection::walk(int direction) {
  if (gap_) {
    // From a bubble to the span on either side.
    const SpanRef to{gap_->rank, TrackKind::Compute, direction > 0 ? gap_->next : gap_->next - 1};
    if (exists(timeline(gap_->source), to)) selectSpan(SourcedSpan{gap_->source, to});
    return;
  }
  if (!scene_.selected) return selectSpan(startingPoint());
  selectSpan(SourcedSpan{scene_.selected->source, neighbour(*timeline(scene_.selected->source), scene_.selected->span, direction)});
}

void Selection::walkRows(int direction) {
  if (!scene_.selected) return selectSpan(startingPoint());
  selectSpan(onRowBeside(scene_, place_.layout(), *scene_.selected, direction));
}

void Selection::follow(int direction) {
  if (!scene_.selected) return walk(direction);
  const Source source = scene_.selected->source;
  selectSpan(SourcedSpan{source, alongDependency(*knowledge_.dependencies(source), *timeline(source), scene_.selected->span, direction)});
}

// ---- Highlighting --------------------------------------------------------------------------------------------------

void Selection::emphasize(Emphasis kind, std::vector<SourcedSpan> spans) {
  std::erase_if(spans, [&](const SourcedSpan& s) { return !exists(timeline(s.source), s.span); });
  std::sort(spans.begin(), spans.end());
  spans.erase(std::unique(spans.begin(), spans.end()), spans.end());
  emphasis_ = kind;
  scene_.highlighted = std::move(spans);
  scene_.dimsOthers = !scene_.highlighted.empty();
  also_.clear();
  markAlso();
}

void Selection::leaveGap() {
  gap_.reset();
  emphasis_ = Emphasis::None;
}

void Selection::hover(const std::optional<SourcedSpan>& span) {
  if (span == scene_.hovered) return;
  scene_.hovered = span;
  markAlso();
}

/// Puts them among the highlighted ones, and takes those of the last time out: many may be found, and this happens at each move of the
/// mouse.
void Selection::markAlso() {
  auto& all = scene_.highlighted;
  for (const SourcedSpan& span : also_) {
    const auto at = std::lower_bound(all.begin(), all.end(), span);
    if (at != all.end() && *at == span) all.erase(at);
  }
  also_.clear();
  const auto add = [&](const SourcedSpan& span) {
    const auto at = std::lower_bound(all.begin(), all.end(), span);
    if (at != all.end() && *at == span) return;
    all.insert(at, span);
    also_.push_back(span);
  };
  for (const auto& one : {scene_.selected, scene_.hovered}) {
    if (!one) continue;
    if (const auto other = knowledge_.counterpart(*one)) {
      add(*other);
      add(*one);
    }
  }
  emit marked();
}

void Selection::showCauses() {
  if (gap_) emphasize(Emphasis::Chain, knowledge_.causeOf(*gap_).spans);
}

void Selection::showPath() {
  if (!scene_.predicted || emphasis_ == Emphasis::Chain) return;
  if (const Explanation* known = knowledge_.explanation())
    emphasize(Emphasis::Path, spansOf(known->path.segments, *scene_.predicted, *knowledge_.dependencies(Source::Predicted)));
  else
    knowledge_.requestExplanation();
}

void Selection::setShowsPath(bool on) {
  showsPath_ = on;
  if (on)
    showPath();
  else if (emphasis_ == Emphasis::Path)
    emphasize(Emphasis::None, {});
  emit changed();
}

void Selection::refresh() {
  if (gap_) showCauses();
  if (showsPath_) showPath();
}

}  // namespace pw::gui
