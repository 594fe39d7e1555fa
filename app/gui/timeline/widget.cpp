#include "app/gui/timeline/widget.h"

#include <QGridLayout>
#include <QPainter>
#include <algorithm>
#include <cmath>
#include <utility>

#include "app/gui/timeline/private.h"

namespace pw::gui {
namespace {

constexpr int kRestMs = 600;                 ///< a view that is unchanged for this long was intended
constexpr int kSettleMs = 120;               ///< after the last prediction of a drag, or key in a long search
constexpr std::size_t kManySpans = 200'000;  ///< above this size, non-urgent work waits for `settle` even without a drag
constexpr double kZoomStep = 0.8;
constexpr int kMovingActions = 4;  ///< the first edits: what a drag does; they have keys and a place in the menu, no buttons

std::size_t spansIn(const Timeline& timeline) {
  std::size_t spans = 0;
  for (const auto& rank : timeline.ranks) spans += rank.compute.size() + rank.communication.size();
  return spans;
}

/// Whether every track has as many spans: then an index still means the same action.
bool sameShape(const Timeline* a, const Timeline* b) {
  if (a == nullptr || b == nullptr) return a == b;
  const auto same = [](const auto& x, const auto& y) {
    return x.compute.size() == y.compute.size() && x.communication.size() == y.communication.size();
  };
  return a->stages == b->stages && std::equal(a->ranks.begin(), a->ranks.end(), b->ranks.begin(), b->ranks.end(), same);
}

}  // namespace

TimelineWidget::Private::Private(TimelineWidget& widget, Document& owner)
    : w(widget),
      document(owner),
      canvas(new TimelineCanvas(&w)),
      progress(*canvas, [this] { return document.isPredicting(); }),
      commands(w) {}

void TimelineWidget::Private::build() {
  canvas->setHandler([this](QEvent* event) { return handle(event); });
  canvas->setAccessibleName(tr("Timeline"));
  bar = new QScrollBar(Qt::Vertical, &w);
  bar->setAccessibleName(tr("Scroll ranks"));
  findBar = new FindBar(&w);
  findBar->hide();
  hand = new HandEdit(document, &w);
  strip = new DetailsStrip(&w);
  auto* grid = new QGridLayout(&w);
  grid->setContentsMargins(0, 0, 0, 0);
  grid->setSpacing(0);
  grid->addWidget(findBar, 0, 0, 1, 2);
  grid->addWidget(canvas, 2, 0);
  grid->addWidget(bar, 2, 1);
  grid->addWidget(strip, 3, 0, 1, 2);
  grid->setRowStretch(2, 1);
  w.setFocusProxy(canvas);

  rest.setSingleShot(true);
  rest.setInterval(kRestMs);
  settling.setSingleShot(true);
  settling.setInterval(kSettleMs);
  typing.setSingleShot(true);
  typing.setInterval(kSettleMs);
  connect(&rest, &QTimer::timeout, &w, [this] { history.visit(visited()); });
  connect(&settling, &QTimer::timeout, &w, [this] { settle(); });
  connect(bar, &QScrollBar::valueChanged, &w, [this](int value) { scrollTo(value); });
  connect(findBar, &FindBar::searched, &w, [this](const QString& text) { isLarge ? typing.start() : void(search(text, true)); });
  connect(&typing, &QTimer::timeout, &w, [this] { search(findBar->text(), true); });
  connect(findBar, &FindBar::stepped, &w, [this](int direction) { stepFound(direction); });
  connect(findBar, &FindBar::closed, &w, [this] { closeFind(); });
  connect(&explainer, &Explainer::explained, &w, [this] { explained(); });
  connect(&document, &Document::modelChanged, &w, [this] {
    if (!document.prediction() || document.graph() != graph) newModel = true;  // other split points alone do not make a new model
    graph = document.graph();
  });
  connect(&document, &Document::designChanged, &w, [this] {
    if (std::exchange(scene.memoryLimit, document.design().request.memoryLimit) != document.design().request.memoryLimit) repaint();
    progress.noteRequest();
  });
  connect(&document, &Document::predictionChanged, &w, [this] { takePrediction(); });
  connect(&document, &Document::measuredChanged, &w, [this] { takeMeasured(); });
  addActions();
  editBar = new EditBar(editActions.mid(kMovingActions), &w);
  grid->addWidget(editBar, 1, 0, 1, 2);
  connect(hand, &HandEdit::changed, &w, [this] { showEditing(); });
  connect(hand, &HandEdit::refused, &w, &TimelineWidget::editRefused);
  showEditing();
  scene.memoryLimit = document.design().request.memoryLimit;
  takeMeasured();
  takePrediction();
}

// ---- Timelines -----------------------------------------------------------------------------------------------------

void TimelineWidget::Private::takePrediction() {
  progress.noteAnswer();
  const auto next = document.prediction();
  const bool keepsLast = !next && !newModel && (!document.problem().isEmpty() || document.isPredicting());
  if (keepsLast || next == prediction) return repaint();
  const Timeline* made = next ? &next->timeline : nullptr;
  const bool same = !newModel && sameShape(scene.predicted.get(), made);
  if (next && std::exchange(newModel, false)) {  // blocks of the same name and times are others now
    scene.selected.reset();
    scene.range.reset();
    gap.reset();
  }
  scene.predicted = next ? std::shared_ptr<const Timeline>(next, made) : nullptr;
  prediction = next;
  ownDependencies[0].reset();
  paintedNewest = next == nullptr;
  explainer.setPrediction(next);
  takeTimelines(!same);
}

void TimelineWidget::Private::takeMeasured() {
  const auto next = document.measured();
  if (next == measured && (next != nullptr) == (scene.measured != nullptr)) return;
  const bool same = next && sameShape(scene.measured.get(), &next->timeline);
  measured = next;
  scene.measured = next ? std::shared_ptr<const Timeline>(next, &next->timeline) : nullptr;
  ownDependencies[1].reset();
  takeTimelines(!same && !scene.predicted);
}

/// A timeline with other ranks or tracks is shown completely; otherwise the view is kept, unless it showed everything and is not being
/// dragged.
void TimelineWidget::Private::takeTimelines(bool newShape) {
  ownMatches.reset();
  scene.hovered.reset();
  std::size_t ranks = 0, spans = 0;
  for (const Source source : {Source::Predicted, Source::Measured}) {
    if (const Timeline* t = timeline(source)) ranks = std::max(ranks, t->ranks.size()), spans += spansIn(*t);
  }
  scene.ranks = rankViews(scene.ranks, ranks);
  keepSelection(!newShape);
  layOut();
  const bool isDragging = document.isDragging();
  if (newShape && !isDragging) {
    history.clear();
    showsAll = true;
  }
  if (showsAll && !isDragging) {
    view = fitted(0, std::max<Ns>(1, end()), std::max(1, trackArea().width()));
    if (!isEmpty()) history.visit(visited());
    emit w.viewChanged();
  }
  if (pending && !isEmpty() && !awaitsModel()) restore(*std::exchange(pending, std::nullopt));
  canvas->update();
  isLarge = spans > kManySpans;
  if (isDragging || isLarge)
    settling.start();
  else
    settle();
}

void TimelineWidget::Private::settle() {
  if (document.isDragging()) {
    settling.start();
    return updateDetails();
  }
  prepare();
  if (showsAll && (static_cast<double>(end()) > view.end() || static_cast<double>(end()) < 0.7 * view.end())) w.fitAll();
  if (!foundQuery.isEmpty()) search(foundQuery, false);
  markAlso();
  if (gap) showCauses();
  if (pathOn) showPath();
  updateDetails();
  repaint();
}

// ---- The widget ----------------------------------------------------------------------------------------------------

TimelineWidget::TimelineWidget(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(*this, document)) {
  setAccessibleName(tr("Timeline of predicted and measured steps"));
  d->build();
}

TimelineWidget::~TimelineWidget() {
  // Children would be destroyed after `d`, and may not call it then.
  delete d->canvas;
  delete d->editBar;
  delete d->findBar;
  delete d->bar;
  delete d->strip;
}

void TimelineWidget::fitAll() {
  if (d->isEmpty()) return;
  d->show(fitted(0, std::max<Ns>(1, d->end()), std::max(1, d->trackArea().width())), Private::Move::Jump);
  d->showsAll = true;
}

void TimelineWidget::fitSelection() {
  std::optional<std::pair<Ns, Ns>> times = d->scene.range;
  if (const auto& selected = d->scene.selected) {
    const Span span = spanOf(*d->timeline(selected->source), selected->span);
    times = {span.start, span.end};
    d->revealRow(*selected);
  } else if (d->gap) {
    times = gapOf(*d->timeline(d->gap->source), *d->gap);
    d->revealRow({d->gap->source, {d->gap->rank, TrackKind::Compute, 0}});
  }
  if (!times) return fitAll();
  const int width = std::max(1, d->trackArea().width());
  d->show(fitted(times->first, std::max(times->first + 1, times->second), width, width / 8), Private::Move::Jump);
}

void TimelineWidget::zoomIn() { d->zoom(kZoomStep); }
void TimelineWidget::zoomOut() { d->zoom(1 / kZoomStep); }
void TimelineWidget::selectNext(int direction) { d->walk(direction); }
void TimelineWidget::followDependency(int direction) { d->follow(direction); }
void TimelineWidget::find() { d->findBar->open(); }

int TimelineWidget::findText(const QString& query) {
  d->findBar->setText(query);
  return d->search(query, true);
}

void TimelineWidget::findStep(int direction) { d->stepFound(direction); }

void TimelineWidget::viewBack() {
  if (d->rest.isActive()) d->history.visit(d->visited());
  if (const auto place = d->history.back()) d->revisit(*place);
}

void TimelineWidget::viewForward() {
  if (const auto place = d->history.forward()) d->revisit(*place);
}

void TimelineWidget::showCriticalPath(bool on) {
  d->pathOn = on;
  if (on)
    d->showPath();
  else if (d->emphasis == Private::Emphasis::Path)
    d->emphasize(Private::Emphasis::None, {});
  d->updateDetails();
}

void TimelineWidget::setArrangement(Arrangement arrangement) {
  d->scene.arrangement = arrangement;
  d->layOut();
  emit viewChanged();
  d->repaint();
}

void TimelineWidget::setColourBy(ColourBy by) {
  d->scene.colourBy = by;
  emit viewChanged();
  d->repaint();
}

void TimelineWidget::setDifferences(bool on) {
  d->scene.differences = on;
  emit viewChanged();
  d->repaint();
}

void TimelineWidget::togglePin() {
  d->changeRank([](RankView& view) { view.pinned = !view.pinned; });
}

void TimelineWidget::toggleCollapse() {
  d->changeRank([](RankView& view) { view.collapsed = !view.collapsed; });
}

void TimelineWidget::moveRank(int direction) {
  if (const auto rank = d->currentRank()) d->setRanks(withRankMoved(d->scene.ranks, *rank, direction));
}

void TimelineWidget::select(const SourcedSpan& span) { d->selectSpan(span); }
void TimelineWidget::selectBubble(const BubbleRef& bubble) { d->selectGap(bubble); }
void TimelineWidget::selectRange(Ns from, Ns to) { d->selectTimes(from, to); }
void TimelineWidget::clearSelection() { d->clear(); }
std::optional<BubbleRef> TimelineWidget::selectedBubble() const { return d->gap; }
const Scene& TimelineWidget::scene() const { return d->scene; }
const Viewport& TimelineWidget::viewport() const { return d->view; }
QString TimelineWidget::details() const { return d->details; }

HandEdit& TimelineWidget::hand() { return *d->hand; }

QByteArray TimelineWidget::saveView() const {
  if (d->pending) return toJson(*d->pending);
  SavedView saved;
  if (!d->showsAll && !d->isEmpty()) saved.shown = {d->view.start, d->view.end()};
  saved.scroll = d->scroll;
  saved.ranks = d->scene.ranks;
  saved.arrangement = d->scene.arrangement;
  saved.colourBy = d->scene.colourBy;
  saved.differences = d->scene.differences;
  saved.showsCommunication = d->scene.showsCommunication;
  saved.showsMemory = d->scene.showsMemory;
  return toJson(saved);
}

void TimelineWidget::restoreView(const QByteArray& view) {
  const auto saved = parseView(view);
  if (!saved) return;
  if (d->isEmpty() || d->awaitsModel())
    d->pending = saved;
  else
    d->restore(*saved);
}

}  // namespace pw::gui
