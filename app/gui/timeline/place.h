#pragma once

#include <QObject>
#include <QScrollBar>
#include <QTimer>
#include <functional>
#include <optional>
#include <vector>

#include "app/gui/timeline/drawing/drawing_area.h"
#include "app/gui/timeline/drawing/geometry.h"
#include "app/gui/timeline/facts/navigation.h"
#include "app/gui/timeline/view_history.h"

namespace pw::gui {

/// Which part of a scene the canvas shows, and how it is arranged: range of time, scrolling, order and looks of the rows, and the views one
/// can go back to. Of a scene it writes `arrangement`, `colourBy`, `differences`, `ranks`, which rows are shown and how high. What changes
/// is painted anew.
class Place : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(Place)
 public:
  /// `bar` scrolls the rows and hides where all have room.
  Place(Scene& scene, TimelineCanvas& canvas, QScrollBar& bar);

  // ---- Where things are ----
  [[nodiscard]] const Viewport& view() const { return view_; }
  [[nodiscard]] const RowLayout& layout() const { return layout_; }
  [[nodiscard]] int scroll() const { return scroll_; }
  [[nodiscard]] int legendHeight() const { return legendHeight_; }  ///< at the bottom of the canvas
  [[nodiscard]] Geometry geometry() const;

  // ---- Moving ----
  enum class Move : std::uint8_t { Jump, Drift };   ///< Drift: one of many small steps, noted in the history when it rests
  void fitAll();                                    ///< and stays fitted to all
  void fit(Ns from, Ns to);                         ///< with an eighth of the width on either side
  void showTimes(double from, double to);           ///< [ns]; one of many small steps
  void zoomAt(double x, double factor, Move move);  ///< x: from the left of the rows
  void pan(double pixels);                          ///< > 0: later
  void scrollTo(int scroll);
  void scrollPages(int pages);
  void revealRow(const SourcedSpan& span);
  void revealTime(Ns from, Ns to);
  void zoomRows(int y, double factor);  ///< > 1: higher; keeps the rank at y (from the top of the rows) where it is
  void fitHeight();                     ///< rows as high as all have room, and stays so
  void normalHeight();
  void back();
  void forward();

  // ---- Rows and looks ----
  void setArrangement(Arrangement arrangement);
  void setColourBy(ColourBy by);
  void setDifferences(bool on);
  void setRows(bool Scene::*rows, bool shown);
  void setRanks(std::vector<RankView> ranks);
  void changeRank(std::optional<Rank> rank, const std::function<void(RankView&)>& change);
  /// Pins and expands these ranks at normal height, collapses all others, and goes to the top.
  void single(const std::vector<Rank>& ranks);
  [[nodiscard]] std::size_t roomForPinned() const;  ///< expanded ranks of normal height in the upper two thirds; at least one
  void unpinAll();
  /// Collapses all ranks of its group; expands them where all are collapsed. Nothing without groups.
  void toggleGroup(Rank rank);
  void collapseAll(bool collapsed);  ///< or expands all; keeps the rank at the top where it is

  // ---- What it follows ----
  /// Other timelines. Where they have other ranks or tracks all of them is shown; else the view is kept, unless it showed everything and
  /// is not being dragged.
  void takeTimelines(bool isOtherShape, bool isDragging);
  void showUpTo(Ns end) { outlinesEnd_ = end; }  ///< all is no less than that, as outlines reach so far; before `takeTimelines`
  /// Fits all again, where all is shown and has become longer or much shorter; where only the end was in sight, it stays so.
  void settle();
  void resized();  ///< the canvas, or the font

  // ---- What a project remembers ----
  [[nodiscard]] SavedView saved() const;
  void restore(const SavedView& saved);

 signals:
  void changed();

 private:
  void layOut();
  void show(const Viewport& next, Move move);
  void layOutAround(int y);
  void setRowScale(double scale, int y);
  [[nodiscard]] int middle() const { return geometry().tracks().height() / 2; }
  [[nodiscard]] Viewport whole() const;
  [[nodiscard]] VisitedView visited() const { return {view_.start, view_.end(), scroll_, scene_.rowScale}; }
  void revisit(const VisitedView& place);

  Scene& scene_;
  TimelineCanvas& canvas_;
  QScrollBar& bar_;
  RowLayout layout_;
  Viewport view_;
  int scroll_ = 0, legendHeight_ = 0;
  Ns outlinesEnd_ = 0;
  Ns end_ = 0;               ///< of the timelines that last settled
  bool showsAll_ = true;     ///< the view is fitted to all, and stays so
  bool fitsHeight_ = false;  ///< so are the rows' heights
  ViewHistory history_;
  QTimer rest_;  ///< until a view that drifted counts as visited
};

}  // namespace pw::gui
