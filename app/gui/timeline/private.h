#pragma once

// The parts of TimelineWidget: widget.cpp (what is shown), place.cpp (where), selection.cpp (what is marked and said), input.cpp,
// editing.cpp (a schedule edited by hand), paint.cpp.

#include <QScrollBar>
#include <QTimer>

#include "app/gui/common/command_list.h"
#include "app/gui/timeline/details.h"
#include "app/gui/timeline/details_strip.h"
#include "app/gui/timeline/drawing/drawing_area.h"
#include "app/gui/timeline/drawing/geometry.h"
#include "app/gui/timeline/drawing/matches.h"
#include "app/gui/timeline/drawing/progress_line.h"
#include "app/gui/timeline/drawing/scene_painter.h"
#include "app/gui/timeline/edit_bar.h"
#include "app/gui/timeline/explainer.h"
#include "app/gui/timeline/explanations.h"
#include "app/gui/timeline/find_bar.h"
#include "app/gui/timeline/hand_edit.h"
#include "app/gui/timeline/navigation.h"
#include "app/gui/timeline/view_history.h"
#include "app/gui/timeline/widget.h"

class QHelpEvent;
class QMouseEvent;
class QWheelEvent;

namespace pw::gui {

struct TimelineWidget::Private {
  Private(TimelineWidget& widget, Document& owner);

  // What is shown, and where: widget.cpp, place.cpp
  enum class Move : std::uint8_t { Jump, Drift };  ///< Drift: one of many small steps, noted in the history when it rests
  void build();
  void takePrediction();
  void takeMeasured();
  void takeTimelines(bool newShape);
  void settle();  ///< what may wait until a drag rests
  void layOut();
  void resized();
  void show(const Viewport& next, Move move);
  void scrollTo(int scroll);
  [[nodiscard]] VisitedView visited() const;
  void revisit(const VisitedView& place);
  void reveal(const SourcedSpan& span);
  void revealRow(const SourcedSpan& span);
  void revealTime(Ns from, Ns to);
  void setRanks(std::vector<RankView> ranks);
  void changeRank(const std::function<void(RankView&)>& change);
  void restore(const SavedView& saved);
  [[nodiscard]] const Timeline* timeline(Source source) const {
    return (source == Source::Predicted ? scene.predicted : scene.measured).get();
  }
  [[nodiscard]] bool isEmpty() const { return !scene.predicted && !scene.measured; }
  [[nodiscard]] bool awaitsModel() const { return newModel && document.isPredicting(); }  ///< what is shown is of another one
  [[nodiscard]] Ns end() const;
  [[nodiscard]] QRect sceneArea() const;  ///< ruler, labels and rows
  [[nodiscard]] QRect trackArea() const;  ///< rows without labels
  [[nodiscard]] int legendHeight() const;
  [[nodiscard]] Geometry geometry() const { return {scene, layout, view, scroll, sceneArea()}; }
  void repaint();
  void repaintSoon();  ///< at most once a frame

  // ---- Marks and words: selection.cpp ----
  enum class Emphasis : std::uint8_t { None, Chain, Path, Found, Cycle };
  const Dependencies* dependencies(Source source);  ///< made now where it was not yet
  [[nodiscard]] StageLinks links(Source source) const;
  void prepare();  ///< makes them in the background
  [[nodiscard]] bool isPrepared(Source source) const;
  const Matches* matches();
  [[nodiscard]] std::optional<SourcedSpan> counterpart(const SourcedSpan& span);
  void selectSpan(const std::optional<SourcedSpan>& span);
  void selectGap(const BubbleRef& gap);
  void selectTimes(Ns from, Ns to);
  void clear();
  void keepSelection(bool sameShape);
  void emphasize(Emphasis kind, std::vector<SourcedSpan> spans);
  void markAlso();  ///< the counterparts of what is selected and hovered
  void showCauses();
  void showPath();
  void explained();
  [[nodiscard]] Cause causeOfGap(const BubbleRef& gap);
  [[nodiscard]] SpanFacts facts(const SourcedSpan& span, bool fully);
  [[nodiscard]] QString describe();
  void updateDetails();
  int search(const QString& query, bool selects);
  void stepFound(int direction);
  void countFound();
  void closeFind();
  [[nodiscard]] std::optional<SourcedSpan> startingPoint() const;
  void walk(int direction);
  void walkRows(int direction);
  void follow(int direction);
  [[nodiscard]] std::optional<Rank> currentRank() const;

  // ---- Mouse, keys, menu: input.cpp ----
  void addActions();
  void addLookActions();
  bool handle(QEvent* event);
  void pressed(const QMouseEvent& event);
  void dragged(const QMouseEvent& event);
  void released(const QMouseEvent& event);
  void doubleClicked(const QMouseEvent& event);
  void hover(const QPoint& at);
  void left();
  void turned(const QWheelEvent& event);
  void showTooltip(const QHelpEvent& event);
  void zoomAt(double x, double factor, Move move);
  void zoom(double factor);  ///< at the mouse, or in the middle
  void pan(double pixels);
  [[nodiscard]] Hit hitAt(const QPoint& at) const { return geometry().hitAt(at); }
  [[nodiscard]] std::optional<Rank> rankAt(int y) const { return geometry().rankAt(y); }
  [[nodiscard]] Ns timeAt(int x) const { return geometry().timeAt(x); }

  // ---- Editing by hand: editing.cpp ----
  void addEditActions();
  void showEditing();
  [[nodiscard]] std::optional<Action> actionOf(const SourcedSpan& span) const;
  [[nodiscard]] std::optional<SourcedSpan> spanOfAction(const Action& action) const;
  bool pressedWhileEditing(const QMouseEvent& event);
  void takenTo(const QPoint& at);
  void paintEditing(QPainter& painter, const Theme& theme);

  // ---- Painting: paint.cpp ----
  void paint();
  void paintOverlays(QPainter& painter, const QIcon& icon, const Theme& theme);

  TimelineWidget& w;
  Document& document;
  TimelineCanvas* canvas;
  QScrollBar* bar = nullptr;
  FindBar* findBar = nullptr;
  DetailsStrip* strip = nullptr;
  HandEdit* hand = nullptr;
  EditBar* editBar = nullptr;
  QList<QAction*> editActions;

  // What is shown.
  Scene scene;
  RowLayout layout;
  Viewport view;
  int scroll = 0;
  bool showsAll = true;  ///< the view is fitted to all, and stays so
  bool newModel = true;
  std::shared_ptr<const ModelGraph> graph;
  std::shared_ptr<const Prediction> prediction;  ///< of `scene.predicted`
  std::shared_ptr<const Measured> measured;
  std::optional<SavedView> pending;  ///< to restore with the first timeline
  ViewHistory history;
  QTimer rest;  ///< until a view that drifted counts as visited
  QTimer settling, typing;
  bool isLarge = false;  ///< what takes time with its spans is put off
  ProgressLine progress;
  bool paintedNewest = true;
  ScenePainter painter;

  // What is marked.
  std::shared_ptr<const Dependencies> ownDependencies[2];
  Job preparing;
  std::optional<Matches> ownMatches;
  Explainer explainer;
  SpanTag selectedTag;
  std::optional<BubbleRef> gap;
  std::optional<SpanTag> afterGap;  ///< what the gap is before; nothing: the end of the row
  Emphasis emphasis = Emphasis::None;
  bool pathOn = false;
  std::vector<SourcedSpan> also;  ///< put into `scene.highlighted` beside the emphasis
  std::vector<Found> found;
  std::size_t foundAt = 0;
  QString foundQuery, details;

  // Mouse.
  enum class Drag : std::uint8_t { None, Press, Pan, Range, Label, Take };  ///< Take: a block that is edited
  Drag drag = Drag::None;
  QPoint pressedAt, lastAt;
  std::optional<Action> taken;
  std::optional<QPoint> mouse;  ///< over the canvas
  std::optional<Rank> labelRank, draggedRank;
  CommandList commands;
};

}  // namespace pw::gui
