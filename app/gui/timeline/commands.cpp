#include "app/gui/timeline/commands.h"

#include <QAction>
#include <algorithm>

#include "app/gui/common/format.h"

namespace pw::gui {
namespace {

constexpr double kPanStep = 0.1;  ///< of the width, for A and D

QKeySequence key(int code) { return QKeySequence(code); }

void addMoves(CommandList& commands, const CommandTargets& of) {
  commands.beginGroup();
  commands.add(translated("Zoom in"), {key(Qt::Key_W), key(Qt::Key_Plus)}, [of] { of.widget.zoomIn(); });
  commands.add(translated("Zoom out"), {key(Qt::Key_S), key(Qt::Key_Minus)}, [of] { of.widget.zoomOut(); });
  commands.add(translated("Earlier"), {key(Qt::Key_A)}, [of] { of.place.pan(-kPanStep * of.place.view().width); });
  commands.add(translated("Later"), {key(Qt::Key_D)}, [of] { of.place.pan(kPanStep * of.place.view().width); });
  commands.add(translated("Fit selection"), {key(Qt::Key_F), key(Qt::Key_Return), key(Qt::Key_Enter)}, [of] { of.selection.fit(); });
  commands.add(translated("Fit all"), {QKeySequence(Qt::SHIFT | Qt::Key_F), key(Qt::Key_Home)}, [of] { of.place.fitAll(); });
  commands.add(translated("Previous view"), {QKeySequence(Qt::ALT | Qt::Key_Left)}, [of] { of.place.back(); });
  commands.add(translated("Next view"), {QKeySequence(Qt::ALT | Qt::Key_Right)}, [of] { of.place.forward(); });
}

void addSelecting(CommandList& commands, const CommandTargets& of) {
  commands.beginGroup();
  commands.add(translated("Next on the track"), {key(Qt::Key_Period), key(Qt::Key_Right)}, [of] { of.selection.walk(1); });
  commands.add(translated("Previous on the track"), {key(Qt::Key_Comma), key(Qt::Key_Left)}, [of] { of.selection.walk(-1); });
  commands.add(translated("Row above"), {key(Qt::Key_Up)}, [of] { of.selection.walkRows(-1); });
  commands.add(translated("Row below"), {key(Qt::Key_Down)}, [of] { of.selection.walkRows(1); });
  commands.add(translated("Go to consumer"), {key(Qt::Key_BracketRight)}, [of] { of.selection.follow(1); });
  commands.add(translated("Go to cause"), {key(Qt::Key_BracketLeft)}, [of] { of.selection.follow(-1); });
  commands.addToggle(
      translated("Critical path"), key(Qt::Key_X), [of] { return of.selection.showsPath(); },
      [of](bool on) { of.selection.setShowsPath(on); });
  commands.add(translated("Find…"), {QKeySequence(Qt::CTRL | Qt::Key_F), key(Qt::Key_Slash)}, [of] { of.widget.find(); });
  commands.add(translated("Clear selection"), {key(Qt::Key_Escape)}, [of] {
    if (of.mouse.cancelDrag()) return;
    of.widget.dismissChange();
    of.editing.clearSelection();
    if (of.selection.isEmpty() && of.selection.showsPath()) of.selection.setShowsPath(false);
    of.selection.leave();
  });
}

void addRanks(CommandList& commands, const CommandTargets& of) {
  commands.beginGroup();
  const auto isRank = [of](bool RankView::*state) {
    const auto rank = of.mouse.currentRank();
    const auto& ranks = of.scene.ranks;
    return std::any_of(ranks.begin(), ranks.end(), [&](const RankView& r) { return rank && r.rank == *rank && r.*state; });
  };
  commands.addToggle(
      translated("Pin rank"), key(Qt::Key_P), [isRank] { return isRank(&RankView::pinned); }, [of](bool) { of.widget.togglePin(); });
  commands.addToggle(
      translated("Collapse rank"), key(Qt::Key_C), [isRank] { return isRank(&RankView::collapsed); },
      [of](bool) { of.widget.toggleCollapse(); });
  commands.add(translated("Move rank up"), {QKeySequence(Qt::ALT | Qt::Key_Up)}, [of] { of.widget.moveRank(-1); });
  commands.add(translated("Move rank down"), {QKeySequence(Qt::ALT | Qt::Key_Down)}, [of] { of.widget.moveRank(1); });
  commands.add(translated("Scroll up"), {key(Qt::Key_PageUp)}, [of] { of.place.scrollPages(-1); });
  commands.add(translated("Scroll down"), {key(Qt::Key_PageDown)}, [of] { of.place.scrollPages(1); });
}

/// How high rows are, and which ranks are expanded.
void addHeights(CommandList& commands, const CommandTargets& of) {
  constexpr double kStep = 1.25;  // from one height to the next
  commands.beginGroup(kRowCommands);
  commands.add(translated("Taller rows"), {QKeySequence(Qt::CTRL | Qt::Key_Up)}, [of] { of.mouse.zoomRows(kStep); });
  commands.add(translated("Lower rows"), {QKeySequence(Qt::CTRL | Qt::Key_Down)}, [of] { of.mouse.zoomRows(1 / kStep); });
  commands.add(translated("Fit height"), {key(Qt::Key_H)}, [of] { of.place.fitHeight(); });
  commands.add(translated("Normal height"), {QKeySequence(Qt::SHIFT | Qt::Key_H)}, [of] { of.place.normalHeight(); });
  commands.add(translated("Collapse or expand node"), {key(Qt::Key_G)}, [of] {
    if (const auto rank = of.mouse.currentRank()) of.place.toggleGroup(*rank);
  });
  commands.add(translated("Collapse all ranks"), {QKeySequence(Qt::SHIFT | Qt::Key_C)}, [of] { of.place.collapseAll(true); });
  commands.add(translated("Expand all ranks"), {QKeySequence(Qt::SHIFT | Qt::Key_E)}, [of] { of.place.collapseAll(false); });
  commands.add(translated("Ranks that differ most"), {QKeySequence(Qt::SHIFT | Qt::Key_D)}, [of] { of.widget.showDifferingRanks(); });
  commands.add(translated("Unpin all ranks"), {QKeySequence(Qt::SHIFT | Qt::Key_U)}, [of] { of.place.unpinAll(); });
  commands.beginGroup(kOverviewCommands);
  commands.addToggle(
      translated("Overview"), QKeySequence(Qt::SHIFT | Qt::Key_V), [of] { return of.scene.showsOverview; },
      [of](bool on) { of.place.setRows(&Scene::showsOverview, on); });
}

/// Colours, arrangement and rows.
void addLooks(CommandList& commands, const CommandTargets& of) {
  commands.beginGroup();
  const auto colour = [&](const QString& text, int code, ColourBy by) {
    commands.addToggle(
        text, key(code), [of, by] { return of.scene.colourBy == by; }, [of, by](bool) { of.place.setColourBy(by); });
  };
  colour(translated("Colour by kind"), Qt::Key_1, ColourBy::Kind);
  colour(translated("Colour by stage"), Qt::Key_2, ColourBy::Stage);
  colour(translated("Colour by microbatch"), Qt::Key_3, ColourBy::Microbatch);
  commands.addToggle(
      translated("Measured over predicted"), key(Qt::Key_O), [of] { return of.scene.arrangement == Arrangement::Over; },
      [of](bool on) { of.place.setArrangement(on ? Arrangement::Over : Arrangement::Below); });
  commands.addToggle(
      translated("Colour differences"), key(Qt::Key_V), [of] { return of.scene.differences; },
      [of](bool on) { of.place.setDifferences(on); });
  const auto rows = [&](const QString& text, int code, bool Scene::*shown) {
    commands.addToggle(
        text, key(code), [of, shown] { return of.scene.*shown; }, [of, shown](bool on) { of.place.setRows(shown, on); });
  };
  rows(translated("Messages"), Qt::Key_M, &Scene::showsCommunication);
  rows(translated("Memory"), Qt::Key_B, &Scene::showsMemory);
  commands.addToggle(
      translated("Arrows of messages"), QKeySequence(Qt::SHIFT | Qt::Key_M), [of] { return of.scene.showsArrows; },
      [of](bool on) { of.place.setRows(&Scene::showsArrows, on); });
}

}  // namespace

void addCommands(CommandList& commands, const CommandTargets& of) {
  addMoves(commands, of);
  addSelecting(commands, of);
  addRanks(commands, of);
  addHeights(commands, of);
  addLooks(commands, of);
  of.editing.addCommands(commands);
  commands.updateToggles();
}

}  // namespace pw::gui
