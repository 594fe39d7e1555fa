#include "app/gui/timeline/place.h"

#include <QSignalBlocker>
#include <algorithm>
#include <utility>

#include "app/gui/timeline/drawing/legend.h"

namespace pw::gui {
namespace {

constexpr int kRestMs = 600;  ///< a view that is unchanged for this long was intended

}  // namespace

Place::Place(Scene& scene, TimelineCanvas& canvas, QScrollBar& bar) : scene_(scene), canvas_(canvas), bar_(bar) {
  rest_.setSingleShot(true);
  rest_.setInterval(kRestMs);
  connect(&rest_, &QTimer::timeout, this, [this] { history_.visit(visited()); });
  connect(&bar_, &QScrollBar::valueChanged, this, [this](int value) { scrollTo(value); });
}

// ---- Where things are ----------------------------------------------------------------------------------------------

Geometry Place::geometry() const { return {scene_, layout_, view_, scroll_, canvas_.rect().adjusted(0, 0, 0, -legendHeight_)}; }

Viewport Place::whole() const {
  return fitted(0, std::max({Ns(1), endOf(scene_), outlinesEnd_}), std::max(1, geometry().tracks().width()));
}

void Place::layOut() {
  legendHeight_ = pw::gui::legendHeight(scene_, canvas_.width());
  if (fitsHeight_ && !isEmpty(scene_)) {
    const auto fitted = [&] { return fittedRowScale(scene_, std::max(0, geometry().tracks().height())); };
    scene_.rowScale = fitted();
    // Rows too low for messages leave them out of the legend, which then may need another number of lines.
    const int next = pw::gui::legendHeight(scene_, canvas_.width());
    if (std::exchange(legendHeight_, next) != next) scene_.rowScale = fitted();
  }
  const int height = std::max(0, geometry().tracks().height());
  layout_ = layOutRows(scene_);
  const QSignalBlocker quiet(&bar_);
  bar_.setRange(0, std::max(0, layout_.height - height));
  bar_.setPageStep(std::max(1, height - layout_.pinnedHeight));
  bar_.setSingleStep(std::max(1, canvas_.fontMetrics().height()));
  bar_.setVisible(bar_.maximum() > 0);
  scroll_ = bar_.value();
}

void Place::resized() {
  layOut();
  if (showsAll_ && !isEmpty(scene_))
    view_ = whole();
  else
    view_.width = std::max(1, geometry().tracks().width());
  emit changed();
}

void Place::takeTimelines(bool isOtherShape, bool isDragging) {
  std::size_t ranks = 0;
  for (const Source source : {Source::Predicted, Source::Measured}) {
    if (const Timeline* t = timelineFrom(scene_, source)) ranks = std::max(ranks, t->ranks.size());
  }
  scene_.ranks = rankViews(scene_.ranks, ranks);
  layOut();
  if (isOtherShape && !isDragging) {
    history_.clear();
    showsAll_ = true;
  }
  if (!showsAll_ || isDragging) {
    const int width = std::max(1, geometry().tracks().width());  // names beside two timelines are longer
    if (std::exchange(view_.width, width) != width) emit changed();
    return;
  }
  view_ = whole();
  if (!isEmpty(scene_)) history_.visit(visited());
  emit changed();
}

void Place::settle() {
  const auto end = static_cast<double>(std::max(endOf(scene_), outlinesEnd_));
  const auto before = static_cast<double>(std::exchange(end_, std::max(endOf(scene_), outlinesEnd_)));
  if (showsAll_) {
    if (end > view_.end() || end < 0.7 * view_.end()) fitAll();
  } else if (view_.start < before && before <= view_.end() && end > view_.end()) {
    constexpr int kMargin = 8;  // pixels after the end, as where all is shown
    Viewport longer = view_;
    longer.nsPerPixel = (end - view_.start) / std::max(1, view_.width - kMargin);
    show(longer, Move::Jump);
  }
}

// ---- Moving --------------------------------------------------------------------------------------------------------

void Place::show(const Viewport& next, Move move) {
  if (next == view_) return;
  if (move == Move::Jump) history_.visit(visited());
  view_ = next;
  showsAll_ = false;
  if (move == Move::Jump) {
    rest_.stop();
    history_.visit(visited());
  } else {
    rest_.start();
  }
  emit changed();
  canvas_.updateSoon();
}

void Place::fitAll() {
  if (isEmpty(scene_)) return;
  show(whole(), Move::Jump);
  showsAll_ = true;
}

void Place::fit(Ns from, Ns to) {
  const int width = std::max(1, geometry().tracks().width());
  show(fitted(from, std::max(from + 1, to), width, width / 8), Move::Jump);
}

void Place::showTimes(double from, double to) {
  const int width = std::max(1, geometry().tracks().width());
  if (!isEmpty(scene_) && to > from) show(zoomed({from, (to - from) / width, width}, 0, 1, endOf(scene_)), Move::Drift);
}

void Place::zoomAt(double x, double factor, Move move) {
  if (!isEmpty(scene_)) show(zoomed(view_, x, factor, std::max<Ns>(1, endOf(scene_))), move);
}

void Place::pan(double pixels) {
  if (!isEmpty(scene_)) show(panned(view_, pixels, std::max<Ns>(1, endOf(scene_))), Move::Drift);
}

void Place::scrollTo(int to) {
  const int next = std::clamp(to, 0, bar_.maximum());
  if (next == scroll_) return;
  scroll_ = next;
  const QSignalBlocker quiet(&bar_);
  bar_.setValue(next);
  rest_.start();
  emit changed();
  canvas_.updateSoon();
}

void Place::scrollPages(int pages) { scrollTo(scroll_ + pages * bar_.pageStep()); }

void Place::revealRow(const SourcedSpan& span) {
  const auto at = rowOf(layout_, span);
  if (!at || layout_.rows[*at].pinned) return;
  const Row& row = layout_.rows[*at];
  const int height = geometry().tracks().height();
  if (row.top - scroll_ < layout_.pinnedHeight) scrollTo(row.top - layout_.pinnedHeight);
  if (row.top + row.height - scroll_ > height) scrollTo(row.top + row.height - height);
}

/// Lays out, and keeps the rank `y` below the top of the rows where it is.
void Place::layOutAround(int y) {
  const auto anchor = rankPlaceAt(layout_, y + scroll_);
  layOut();
  if (anchor) scrollTo(lineOf(layout_, *anchor) - y);
  emit changed();
  canvas_.updateSoon();
}

void Place::setRowScale(double scale, int y) {
  fitsHeight_ = false;
  const double next = std::clamp(scale, leastRowScale(scene_), kMostRowScale);
  if (isEmpty(scene_) || next == scene_.rowScale) return;
  scene_.rowScale = next;
  layOutAround(y);
}

void Place::zoomRows(int y, double factor) {
  setRowScale(scene_.rowScale * factor, y);
  rest_.start();
}

void Place::fitHeight() {
  if (isEmpty(scene_)) return;
  history_.visit(visited());
  fitsHeight_ = true;
  layOutAround(middle());
  history_.visit(visited());
}

void Place::normalHeight() {
  if (isEmpty(scene_)) return;
  history_.visit(visited());
  setRowScale(1, middle());
  history_.visit(visited());
}

void Place::revealTime(Ns from, Ns to) { show(revealing(view_, from, to), Move::Jump); }

void Place::revisit(const VisitedView& place) {
  rest_.stop();
  view_.nsPerPixel = std::max(1e-9, (place.to - place.from) / view_.width);
  view_.start = place.from;
  showsAll_ = false;
  if (place.rowScale != scene_.rowScale) {
    fitsHeight_ = false;
    scene_.rowScale = place.rowScale;
    layOut();
  }
  scrollTo(place.scroll);
  rest_.stop();
  emit changed();
  canvas_.update();
}

void Place::back() {
  if (rest_.isActive()) history_.visit(visited());
  if (const auto place = history_.back()) revisit(*place);
}

void Place::forward() {
  if (const auto place = history_.forward()) revisit(*place);
}

// ---- Rows and looks ------------------------------------------------------------------------------------------------

void Place::setArrangement(Arrangement arrangement) {
  scene_.arrangement = arrangement;
  layOut();
  emit changed();
  canvas_.update();
}

void Place::setColourBy(ColourBy by) {
  scene_.colourBy = by;
  layOut();  // the legend may need more lines
  emit changed();
  canvas_.update();
}

void Place::setDifferences(bool on) {
  scene_.differences = on;
  layOut();
  emit changed();
  canvas_.update();
}

void Place::setRows(bool Scene::*rows, bool shown) {
  scene_.*rows = shown;
  layOut();
  emit changed();
  canvas_.update();
}

void Place::setRanks(std::vector<RankView> ranks) {
  if (ranks == scene_.ranks) return;
  scene_.ranks = std::move(ranks);
  layOut();
  emit changed();
  canvas_.update();
}

void Place::changeRank(std::optional<Rank> rank, const std::function<void(RankView&)>& change) {
  std::vector<RankView> ranks = scene_.ranks;
  for (RankView& one : ranks) {
    if (rank && one.rank == *rank) change(one);
  }
  setRanks(std::move(ranks));
}

void Place::toggleGroup(Rank rank) {
  const std::vector<QString>& groups = scene_.groups;
  const auto isInIt = [&](const RankView& one) {
    return rank.index() < groups.size() && one.rank.index() < groups.size() && groups[one.rank.index()] == groups[rank.index()];
  };
  std::vector<RankView> ranks = scene_.ranks;
  const bool areCollapsed = std::all_of(ranks.begin(), ranks.end(), [&](const RankView& one) { return one.collapsed || !isInIt(one); });
  for (RankView& one : ranks) {
    if (isInIt(one)) one.collapsed = !areCollapsed;
  }
  setRanks(std::move(ranks));
}

void Place::collapseAll(bool collapsed) {
  for (RankView& one : scene_.ranks) one.collapsed = collapsed;
  layOutAround(layout_.pinnedHeight);
}

std::size_t Place::roomForPinned() const {
  Scene one = scene_;
  one.ranks = {{Rank(0)}};
  one.rowScale = 1;
  const int height = std::max(1, layOutRows(one).height);
  return static_cast<std::size_t>(std::max(1, geometry().tracks().height() * 2 / 3 / height));
}

void Place::single(const std::vector<Rank>& ranks) {
  history_.visit(visited());
  for (RankView& one : scene_.ranks) {
    one.pinned = std::find(ranks.begin(), ranks.end(), one.rank) != ranks.end();
    one.collapsed = !one.pinned;
  }
  fitsHeight_ = false;
  scene_.rowScale = 1;
  layOut();
  scrollTo(0);
  history_.visit(visited());
  emit changed();
  canvas_.update();
}

void Place::unpinAll() {
  for (RankView& one : scene_.ranks) one.pinned = false;
  layOutAround(layout_.pinnedHeight);
}

// ---- What a project remembers --------------------------------------------------------------------------------------

SavedView Place::saved() const {
  SavedView saved;
  if (!showsAll_ && !isEmpty(scene_)) saved.shown = {view_.start, view_.end()};
  saved.scroll = scroll_;
  saved.ranks = scene_.ranks;
  saved.arrangement = scene_.arrangement;
  saved.colourBy = scene_.colourBy;
  saved.differences = scene_.differences;
  saved.showsCommunication = scene_.showsCommunication;
  saved.showsMemory = scene_.showsMemory;
  saved.showsOverview = scene_.showsOverview;
  saved.rowScale = scene_.rowScale;
  saved.fitsHeight = fitsHeight_;
  return saved;
}

void Place::restore(const SavedView& saved) {
  scene_.arrangement = saved.arrangement;
  scene_.colourBy = saved.colourBy;
  scene_.differences = saved.differences;
  scene_.showsCommunication = saved.showsCommunication;
  scene_.showsMemory = saved.showsMemory;
  scene_.showsOverview = saved.showsOverview;
  scene_.rowScale = saved.rowScale;
  fitsHeight_ = saved.fitsHeight;
  if (!saved.ranks.empty()) scene_.ranks = rankViews(saved.ranks, scene_.ranks.size());
  layOut();
  scrollTo(saved.scroll);
  if (!saved.shown) {
    fitAll();
    emit changed();  // rows and looks, where the range is the same
    return canvas_.update();
  }
  view_.start = saved.shown->first;
  view_.nsPerPixel = (saved.shown->second - saved.shown->first) / view_.width;
  showsAll_ = false;
  history_.visit(visited());
  emit changed();
  canvas_.update();
}

}  // namespace pw::gui
