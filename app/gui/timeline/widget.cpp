#include "app/gui/timeline/widget.h"

#include <QAction>
#include <QContextMenuEvent>
#include <QGridLayout>
#include <QKeyEvent>
#include <QPainter>
#include <QStyle>
#include <algorithm>
#include <utility>

#include "app/gui/timeline/drawing/edit_marks.h"
#include "app/gui/timeline/drawing/legend.h"
#include "app/gui/timeline/drawing/overlays.h"
#include "app/gui/timeline/drawing/picture.h"
#include "app/gui/timeline/overview/differing.h"
#include "app/gui/timeline/widget_parts.h"

namespace pw::gui {
namespace {

constexpr double kZoomStep = 0.8;

}  // namespace

TimelineWidget::Private::Private(TimelineWidget& widget, Document& owner)
    : w(widget),
      document(owner),
      canvas(new TimelineCanvas(&w)),
      bar(new QScrollBar(Qt::Vertical, &w)),
      findBar(new FindBar(&w)),
      overview(new OverviewStrip([this] { return place.geometry(); }, &w)),
      hand(new HandEdit(document, &w)),
      strip(new DetailsStrip(&w)),
      shown(document, scene),
      knowledge(shown, scene),
      place(scene, *canvas, *bar),
      selection(scene, knowledge, place),
      finder(scene, selection, *findBar),
      editing(*hand, scene, shown, selection),
      mouse(*canvas, scene, knowledge, place, selection, editing),
      notes(document, scene, place, selection, mouse, *canvas),
      commands(w),
      progress(*canvas, [this] { return document.isPredicting(); }) {
  canvas->setHandler([this](QEvent* event) { return handle(event); });
  canvas->setAccessibleName(tr("Timeline"));
  bar->setAccessibleName(tr("Scroll ranks"));
  findBar->hide();
  overview->hide();
  w.setFocusProxy(canvas);
  addCommands(commands, targets());
  notes.addCommands(commands);
  editBar = editing.makeBar(&w);
  layOut();
  connectParts();
  connectDocument();
}

void TimelineWidget::Private::layOut() {
  auto* grid = new QGridLayout(&w);
  grid->setContentsMargins(0, 0, 0, 0);
  grid->setSpacing(0);
  grid->addWidget(findBar, 0, 0, 1, 2);
  grid->addWidget(overview, 1, 0);
  grid->addWidget(canvas, 2, 0);
  grid->addWidget(bar, 2, 1);
  grid->addWidget(editBar, 3, 0, 1, 2);  // below the rows: those under the mouse stay there when it comes
  grid->addWidget(strip, 4, 0, 1, 2);
  grid->setRowStretch(2, 1);
  QWidget::setTabOrder(overview, canvas);
}

void TimelineWidget::Private::connectParts() {
  connect(&shown, &ShownTimelines::settled, &w, [this] { settle(); });
  connect(&knowledge, &Knowledge::prepared, &w, [this] { updateDetails(); });
  connect(&knowledge, &Knowledge::explained, &w, [this] { explained(); });
  connect(&place, &Place::changed, &w, &TimelineWidget::viewChanged);
  connect(&place, &Place::changed, &w, [this] { updateOverview(); });
  connect(overview, &OverviewStrip::timesChosen, &place, &Place::showTimes);
  connect(overview, &OverviewStrip::scrolled, &place, &Place::scrollTo);
  connect(overview, &OverviewStrip::allChosen, &place, &Place::fitAll);
  connect(&selection, &Selection::marked, &w, [this] { canvas->updateSoon(); });
  for (const auto happened : {&Selection::marked, &Selection::changed})
    connect(&selection, happened, &w, &TimelineWidget::selectionChanged);
  connect(&selection, &Selection::changed, &w, [this] { updateDetails(); });
  connect(&mouse, &Mouse::memoryClicked, &w, &TimelineWidget::memoryClicked);
  connect(findBar, &FindBar::searched, &w,
          [this](const QString& text) { shown.isLarge() ? finder.searchSoon() : void(finder.search(text, true)); });
  connect(findBar, &FindBar::stepped, &w, [this](int direction) { finder.step(direction); });
  connect(findBar, &FindBar::closed, &w, [this] {
    finder.close();
    canvas->setFocus(Qt::OtherFocusReason);
  });
  connect(hand, &HandEdit::changed, &w, [this] { showEditing(); });
  connect(strip, &DetailsStrip::linkChosen, &w, [this](int number) {
    const auto step = static_cast<std::size_t>(number);
    if (step < steps.size()) selection.selectSpan(steps[step].span);
    canvas->setFocus(Qt::OtherFocusReason);
  });
  connect(hand, &HandEdit::refused, &w, &TimelineWidget::editRefused);
  connect(&notes, &NoteMarks::refused, &w, &TimelineWidget::editRefused);
}

void TimelineWidget::Private::connectDocument() {
  connect(&document, &Document::designChanged, &w, [this] {
    takeLimits();
    progress.noteRequest();
  });
  connect(&document, &Document::predictionChanged, &w, [this] { takePrediction(); });
  connect(&document, &Document::measuredChanged, &w, [this] { takeMeasured(); });
}

// ---- Events --------------------------------------------------------------------------------------------------------

bool TimelineWidget::Private::handle(QEvent* event) {
  switch (static_cast<int>(event->type())) {
    case QEvent::Paint: paint(); return true;
    case QEvent::Resize: place.resized(); return false;
    case QEvent::FocusIn:
    case QEvent::FocusOut: canvas->update(); return false;
    case QEvent::MouseButtonPress: w.dismissChange(); [[fallthrough]];
    default: return notes.handle(event) || mouse.handle(event);
  }
}

void TimelineWidget::dismissChange() {
  if (d->shown.isChangeDismissed()) return;
  d->shown.dismissChange();
  d->place.showUpTo(0);
  d->updateDetails();
  d->canvas->update();
}

void TimelineWidget::Private::paint() {
  const Theme& theme = currentTheme();
  const QIcon icon = document.problem().isEmpty() ? QIcon() : w.style()->standardIcon(QStyle::SP_MessageBoxWarning);
  {
    QPainter p(canvas);
    if (isEmpty(scene)) {
      p.fillRect(canvas->rect(), theme.background);
      paintNothing(p, canvas->rect(), document.problem(), document.isPredicting(), icon, theme);
    } else {
      painter.paint(p, place.geometry().area, scene, place.layout(), place.view(), place.scroll(), theme);
      const int height = place.legendHeight();
      const QRect legend(0, canvas->height() - height, canvas->width(), height);
      p.fillRect(legend, theme.alternate);
      paintLegend(p, legend, scene, theme);
      paintOverlays(p, icon, theme);
    }
    progress.paint(p, theme);
  }
  canvas->notePainted();
  if (!std::exchange(paintedNewest, true)) emit w.timelinePainted();
}

void TimelineWidget::Private::paintOverlays(QPainter& p, const QIcon& icon, const Theme& theme) {
  const Geometry where = place.geometry();
  p.setRenderHint(QPainter::Antialiasing, false);
  const auto& gap = selection.gap();
  if (const Timeline* t = gap ? timelineFrom(scene, gap->source) : nullptr) {
    const auto [from, to] = gapOf(*t, *gap);
    paintFrame(p, where, {gap->source, {gap->rank, TrackKind::Compute, 0}}, from, to, theme);
  }
  const auto& selected = scene.selected;
  if (selected && scene.showsArrows && !shown.isMoving() && !hand->isOn() && knowledge.isPrepared(selected->source))
    paintFlows(p, where, arrowsOf(*selected, *timelineFrom(scene, selected->source), *knowledge.dependencies(selected->source)), theme);
  if (const auto before = shown.before(); before) {
    p.save();
    p.setClipRect(where.tracks());
    paintGhost(p, where, before->timeline, theme);
    p.restore();
  }
  editing.paint(p, where, theme);
  if (!document.problem().isEmpty())
    paintProblem(p, where.area, document.problem(), icon, theme);
  else if (const auto& at = mouse.at())
    paintCursor(p, where, *at, timeText(where.timeAt(at->x()), where.view.nsPerPixel), theme);
  if (!canvas->hasFocus()) return;
  p.setPen(QPen(theme.focus, 1));
  p.setBrush(Qt::NoBrush);
  p.drawRect(canvas->rect().adjusted(0, 0, -1, -1));
}

// ---- The widget ----------------------------------------------------------------------------------------------------

TimelineWidget::TimelineWidget(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(*this, document)) {
  setAccessibleName(tr("Timeline of predicted and measured steps"));
  d->showEditing();
  d->takeMeasured();
  d->takePrediction();
}

TimelineWidget::~TimelineWidget() {
  // Children would be destroyed after `d`, and may not call it then.
  delete d->canvas;
  delete d->editBar;
  delete d->findBar;
  delete d->overview;
  delete d->bar;
  delete d->strip;
}

bool TimelineWidget::event(QEvent* event) {
  // These keys are handled here while the timeline has the focus, whatever the window does with them.
  if (event->type() == QEvent::ShortcutOverride && !d->findBar->isAncestorOf(focusWidget()) &&
      d->commands.commandOf(*static_cast<QKeyEvent*>(event)) != nullptr) {
    event->accept();
    return true;
  }
  return QWidget::event(event);
}

void TimelineWidget::keyPressEvent(QKeyEvent* event) {
  QAction* const action = d->commands.commandOf(*event);
  if (action == nullptr) return QWidget::keyPressEvent(event);
  if (action->isEnabled()) return action->trigger();
  const bool canEdit = handAction()->isEnabled();
  emit editRefused(canEdit ? tr("“%1” edits the schedule by hand; press E to begin that.").arg(action->text()) : handAction()->toolTip());
}

void TimelineWidget::contextMenuEvent(QContextMenuEvent* event) {
  if (isEmpty(d->scene)) return;
  const bool isInside = event->reason() == QContextMenuEvent::Mouse;
  if (isInside) {
    const QPoint at = d->canvas->mapFromGlobal(event->globalPos());
    if (!d->canvas->rect().contains(at)) return QWidget::contextMenuEvent(event);
    d->mouse.openedMenu(at);
    d->notes.openedMenu(at);
  }
  d->commands.openMenu(isInside ? event->globalPos() : d->canvas->mapToGlobal(d->place.geometry().tracks().center()));
}

void TimelineWidget::changeEvent(QEvent* event) {
  QWidget::changeEvent(event);
  if (!d) return;
  switch (static_cast<int>(event->type())) {
    case QEvent::PaletteChange:
    case QEvent::StyleChange:
    case QEvent::FontChange:
    case QEvent::ApplicationFontChange:
      d->painter.forget();
      d->place.resized();
      d->overview->forget();
      d->canvas->update();
      break;
    default: break;
  }
}

void TimelineWidget::fitAll() { d->place.fitAll(); }
void TimelineWidget::fitSelection() { d->selection.fit(); }
void TimelineWidget::zoomIn() { d->mouse.zoom(kZoomStep); }
void TimelineWidget::zoomOut() { d->mouse.zoom(1 / kZoomStep); }
void TimelineWidget::find() { d->findBar->open(); }

int TimelineWidget::findText(const QString& query) {
  d->findBar->setText(query);
  return d->finder.search(query, true);
}

void TimelineWidget::viewBack() { d->place.back(); }
void TimelineWidget::viewForward() { d->place.forward(); }
void TimelineWidget::showCriticalPath(bool on) { d->selection.setShowsPath(on); }
void TimelineWidget::setArrangement(Arrangement arrangement) { d->place.setArrangement(arrangement); }
void TimelineWidget::setColourBy(ColourBy by) { d->place.setColourBy(by); }
void TimelineWidget::setDifferences(bool on) { d->place.setDifferences(on); }
void TimelineWidget::togglePin() {
  d->place.changeRank(d->mouse.currentRank(), [](RankView& view) { view.pinned = !view.pinned; });
}

void TimelineWidget::toggleCollapse() {
  d->place.changeRank(d->mouse.currentRank(), [](RankView& view) { view.collapsed = !view.collapsed; });
}

void TimelineWidget::moveRank(int direction) {
  if (const auto rank = d->mouse.currentRank()) d->place.setRanks(withRankMoved(d->scene.ranks, *rank, direction));
}

void TimelineWidget::showDifferingRanks() {
  const Timeline* timeline = timelineFrom(d->scene, d->scene.measured ? Source::Measured : Source::Predicted);
  if (timeline == nullptr) return;
  constexpr std::size_t kMost = 5;
  const Differing differing = ranksThatDiffer(*timeline, std::min(kMost, d->place.roomForPinned()));
  d->selection.clear();
  if (!differing.ranks.empty()) d->place.single(ranksOf(differing));
  d->showDetails(textOf(differing));
}

void TimelineWidget::select(const SourcedSpan& span) { d->selection.selectSpan(span); }
void TimelineWidget::selectWithin(const SourcedSpan& span) { d->selection.selectWithin(span); }
void TimelineWidget::selectBubble(const BubbleRef& bubble) { d->selection.selectGap(bubble); }
void TimelineWidget::selectRange(Ns from, Ns to) { d->selection.selectTimes(from, to); }
void TimelineWidget::clearSelection() { d->selection.clear(); }
void TimelineWidget::markStuck(std::vector<SourcedSpan> spans) {
  d->selection.clear();
  if (!spans.empty()) d->selection.selectSpan(spans.front());
  d->selection.emphasize(Selection::Emphasis::Stuck, std::move(spans));
}
std::vector<SourcedSpan> TimelineWidget::markedSpans() const { return d->selection.emphasized(); }
std::optional<BubbleRef> TimelineWidget::selectedBubble() const { return d->selection.gap(); }
const Scene& TimelineWidget::scene() const { return d->scene; }
const Viewport& TimelineWidget::viewport() const { return d->place.view(); }
QString TimelineWidget::details() const { return d->details; }
QAction* TimelineWidget::handAction() const { return d->commands.group(kHandToggle).value(0); }
QList<QAction*> TimelineWidget::handActions() const { return d->commands.group(kHandCommands); }
QList<QAction*> TimelineWidget::rowActions() const { return d->commands.group(kRowCommands); }
QList<QAction*> TimelineWidget::overviewActions() const { return d->commands.group(kOverviewCommands); }
QList<QAction*> TimelineWidget::noteActions() const { return d->commands.group(kNoteCommands); }
void TimelineWidget::writeNote() { d->notes.write(); }
void TimelineWidget::goToNote(std::size_t note) { d->notes.goTo(note); }
HandEdit& TimelineWidget::hand() { return *d->hand; }

SavedView TimelineWidget::Private::saved() const {
  if (pending) return *pending;
  SavedView view = place.saved();
  view.selection = selection.saved();
  return view;
}

QByteArray TimelineWidget::saveView() const { return toJson(d->saved()); }
QByteArray TimelineWidget::shortView() const { return toShortJson(d->saved()); }

void TimelineWidget::restoreView(const QByteArray& view) {
  const auto saved = parseView(view);
  if (!saved) return;
  if (isEmpty(d->scene) || d->shown.awaitsModel())
    d->pending = saved;
  else
    d->restore(*saved);
}

QSize TimelineWidget::pictureSize() const { return pw::gui::pictureSize(d->place.geometry()); }

void TimelineWidget::render(QPainter& painter, const QSize& size, const Theme& theme) const {
  paintPicture(painter, size, d->place.geometry(), theme);
}

}  // namespace pw::gui
