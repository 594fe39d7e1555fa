#pragma once

#include <QList>
#include <QWidget>
#include <memory>
#include <optional>

#include "app/gui/timeline/drawing/scene.h"
#include "app/gui/timeline/facts/find_query.h"

namespace pw::gui {

class Document;
class HandEdit;

/// The timeline of a document: predicted and measured, with all that mouse and keyboard do there. A details strip below says what is
/// selected, why a bubble is there, or what a range adds up to. `actions()` holds everything it can do, with names and keys, for a menu, a
/// palette, a key help.
class TimelineWidget : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(TimelineWidget)
 public:
  explicit TimelineWidget(Document& document, QWidget* parent = nullptr);
  ~TimelineWidget() override;

  // The menu, the palette and tests use these; each has its key too.
  void fitAll();
  void fitSelection();
  void zoomIn();
  void zoomOut();
  void find();                         ///< opens the find bar
  int findText(const QString& query);  ///< `F 2.5`, `rank 3`, `bubble`: number found; selects the first
  void viewBack();                     ///< Alt+Left, Alt+Right
  void viewForward();
  void showCriticalPath(bool on);
  void setArrangement(Arrangement arrangement);
  void setColourBy(ColourBy by);
  void setDifferences(bool on);
  void togglePin();  ///< of the selected (or hovered) rank
  void toggleCollapse();
  void moveRank(int direction);
  void showDifferingRanks();                   ///< the few whose busy time is furthest from the usual, with a table of them
  void select(const SourcedSpan& span);        ///< and shows it; a span that is not there selects nothing
  void selectWithin(const SourcedSpan& span);  ///< likewise, and a selected range stays, until Escape is pressed twice
  void selectBubble(const BubbleRef& bubble);  ///< with the chain of its causes
  void selectRange(Ns from, Ns to);            ///< with its totals
  void clearSelection();
  void dismissChange();  ///< what the last change of the plan did is not shown any longer
  /// The blocks that are marked: chosen by Ctrl or Shift and a click, found, on the critical path or in a chain of causes.
  [[nodiscard]] std::vector<SourcedSpan> markedSpans() const;
  void markStuck(std::vector<SourcedSpan> spans);     ///< selects and shows the first and highlights all, until something else is
  void writeNote();                                   ///< N: a new one at the selection, or the one that is there
  void goToNote(std::size_t note);                    ///< by its number in the design
  [[nodiscard]] QList<QAction*> noteActions() const;  ///< all that can be done with notes
  [[nodiscard]] std::optional<BubbleRef> selectedBubble() const;
  [[nodiscard]] QAction* handAction() const;              ///< switches editing by hand on and off
  [[nodiscard]] QList<QAction*> handActions() const;      ///< what is done to the selected actions then
  [[nodiscard]] QList<QAction*> rowActions() const;       ///< heights, and which ranks are expanded
  [[nodiscard]] QList<QAction*> overviewActions() const;  ///< whether it is shown
  [[nodiscard]] HandEdit& hand();                         ///< the schedule as it is edited by hand: on with E
  [[nodiscard]] const Scene& scene() const;
  [[nodiscard]] const Viewport& viewport() const;
  [[nodiscard]] QString details() const;  ///< what the strip says
  /// The picture as it stands, for export and copy: paints `size` [device-independent pixels] with legend.
  void render(QPainter& painter, const QSize& size, const Theme& theme) const;
  [[nodiscard]] QSize pictureSize() const;  ///< which shows all rows
  // A project remembers these.
  [[nodiscard]] QByteArray saveView() const;
  [[nodiscard]] QByteArray shortView() const;  ///< the same for a command line, without what is as in a new window
  void restoreView(const QByteArray& view);    ///< before there is a timeline: as soon as there is one

  [[nodiscard]] QSize sizeHint() const override { return {900, 480}; }
  [[nodiscard]] QSize minimumSizeHint() const override { return {320, 180}; }

 signals:
  void viewChanged();
  void detailsChanged(const QString& text);
  void selectionChanged();                    ///< or what is marked, or the timelines
  void memoryClicked(Rank rank);              ///< on a rank's curve
  void editRefused(const QString& sentence);  ///< why an edit by hand is not possible
  void timelinePainted();                     ///< a frame with the newest prediction is on the screen (benches measure this)

 protected:
  bool event(QEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void contextMenuEvent(QContextMenuEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
