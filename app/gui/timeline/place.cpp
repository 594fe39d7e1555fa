#include <algorithm>
#include <utility>

#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/private.h"

namespace pw::gui {

// ---- Geometry ------------------------------------------------------------------------------------------------------

Ns TimelineWidget::Private::end() const {
  return std::max(scene.predicted ? scene.predicted->end : 0, scene.measured ? scene.measured->end : 0);
}

int TimelineWidget::Private::legendHeight() const { return isEmpty() ? 0 : w.fontMetrics().height() + 8; }

QRect TimelineWidget::Private::sceneArea() const { return canvas->rect().adjusted(0, 0, 0, -legendHeight()); }

QRect TimelineWidget::Private::trackArea() const { return sceneArea().adjusted(labelWidth(scene), rulerHeight(scene), 0, 0); }

void TimelineWidget::Private::layOut() {
  layout = layOutRows(scene);
  const int height = std::max(0, trackArea().height());
  const QSignalBlocker quiet(bar);
  bar->setRange(0, std::max(0, layout.height - height));
  bar->setPageStep(std::max(1, height - layout.pinnedHeight));
  bar->setSingleStep(std::max(1, w.fontMetrics().height()));
  bar->setVisible(bar->maximum() > 0);
  scroll = bar->value();
}

void TimelineWidget::Private::resized() {
  layOut();
  const int width = std::max(1, trackArea().width());
  if (showsAll && !isEmpty())
    view = fitted(0, std::max<Ns>(1, end()), width);
  else
    view.width = width;
  emit w.viewChanged();
}

void TimelineWidget::Private::show(const Viewport& next, Move move) {
  if (next == view) return;
  if (move == Move::Jump) history.visit(visited());
  view = next;
  showsAll = false;
  if (move == Move::Jump) {
    rest.stop();
    history.visit(visited());
  } else {
    rest.start();
  }
  emit w.viewChanged();
  repaintSoon();
}

void TimelineWidget::Private::scrollTo(int to) {
  const int next = std::clamp(to, 0, bar->maximum());
  if (next == scroll) return;
  scroll = next;
  const QSignalBlocker quiet(bar);
  bar->setValue(next);
  rest.start();
  emit w.viewChanged();
  repaintSoon();
}

VisitedView TimelineWidget::Private::visited() const { return {view.start, view.end(), scroll}; }

void TimelineWidget::Private::revisit(const VisitedView& place) {
  rest.stop();
  view.nsPerPixel = std::max(1e-9, (place.to - place.from) / view.width);
  view.start = place.from;
  showsAll = false;
  scrollTo(place.scroll);
  rest.stop();
  emit w.viewChanged();
  repaint();
}

void TimelineWidget::Private::revealTime(Ns from, Ns to) { show(revealing(view, from, to), Move::Jump); }

void TimelineWidget::Private::revealRow(const SourcedSpan& span) {
  const auto at = rowOf(layout, span);
  if (!at || layout.rows[*at].pinned) return;
  const Row& row = layout.rows[*at];
  if (row.top - scroll < layout.pinnedHeight) scrollTo(row.top - layout.pinnedHeight);
  if (row.top + row.height - scroll > trackArea().height()) scrollTo(row.top + row.height - trackArea().height());
}

void TimelineWidget::Private::reveal(const SourcedSpan& span) {
  const Span s = spanOf(*timeline(span.source), span.span);
  revealRow(span);
  revealTime(s.start, s.end);
}

void TimelineWidget::Private::repaint() { canvas->update(); }

void TimelineWidget::Private::repaintSoon() { canvas->updateSoon(); }

// ---- Ranks ---------------------------------------------------------------------------------------------------------

void TimelineWidget::Private::setRanks(std::vector<RankView> ranks) {
  if (ranks == scene.ranks) return;
  scene.ranks = std::move(ranks);
  layOut();
  emit w.viewChanged();
  repaint();
}

void TimelineWidget::Private::changeRank(const std::function<void(RankView&)>& change) {
  const auto rank = currentRank();
  std::vector<RankView> ranks = scene.ranks;
  for (RankView& view_ : ranks) {
    if (rank && view_.rank == *rank) change(view_);
  }
  setRanks(std::move(ranks));
}

void TimelineWidget::Private::restore(const SavedView& saved) {
  scene.arrangement = saved.arrangement;
  scene.colourBy = saved.colourBy;
  scene.differences = saved.differences;
  scene.showsCommunication = saved.showsCommunication;
  scene.showsMemory = saved.showsMemory;
  if (!saved.ranks.empty()) scene.ranks = rankViews(saved.ranks, scene.ranks.size());
  layOut();
  scrollTo(saved.scroll);
  if (!saved.shown) return w.fitAll();
  view.start = saved.shown->first;
  view.nsPerPixel = (saved.shown->second - saved.shown->first) / view.width;
  showsAll = false;
  history.visit(visited());
  emit w.viewChanged();
  repaint();
}

}  // namespace pw::gui
