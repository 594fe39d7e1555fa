#pragma once

// Internal to the timeline's widget: widget.cpp and widget_parts.cpp.

#include <QScrollBar>
#include <optional>
#include <vector>

#include "app/gui/timeline/commands.h"
#include "app/gui/timeline/details_strip.h"
#include "app/gui/timeline/drawing/progress_line.h"
#include "app/gui/timeline/drawing/scene_painter.h"
#include "app/gui/timeline/finder.h"
#include "app/gui/timeline/note_marks.h"
#include "app/gui/timeline/overview/strip.h"
#include "app/gui/timeline/widget.h"

namespace pw::gui {

/// The parts of a timeline, and what follows from what happens to them.
struct TimelineWidget::Private {
  Private(TimelineWidget& widget, Document& owner);
  void connectParts();
  void connectDocument();
  void layOut();
  [[nodiscard]] CommandTargets targets() { return {w, scene, place, selection, editing, mouse}; }

  bool handle(QEvent* event);
  void takePrediction();
  void takeLimits();
  void takeMeasured();
  void takeTimelines(bool isOtherShape);
  void restore(const SavedView& view);
  [[nodiscard]] SavedView saved() const;
  void settle();
  void explained();
  void updateDetails();
  void showDetails(const QString& text);
  void updateOverview();
  void updateGroups();
  void showEditing();
  void paint();
  void paintOverlays(QPainter& painter, const QIcon& icon, const Theme& theme);

  TimelineWidget& w;
  Document& document;
  TimelineCanvas* canvas;
  QScrollBar* bar;
  FindBar* findBar;
  OverviewStrip* overview;
  HandEdit* hand;
  DetailsStrip* strip;
  EditBar* editBar = nullptr;

  Scene scene;
  ShownTimelines shown;
  Knowledge knowledge;
  Place place;
  Selection selection;
  Finder finder;
  Editing editing;
  Mouse mouse;
  NoteMarks notes;
  CommandList commands;
  ProgressLine progress;
  ScenePainter painter;
  std::optional<SavedView> pending;  ///< to restore with the first timeline
  bool paintedNewest = true;
  QString details;
  std::vector<CauseStep> steps;  ///< that its links lead to
};

}  // namespace pw::gui
