#include <QDockWidget>
#include <QLayout>
#include <QScrollArea>
#include <QSettings>
#include <QTabBar>
#include <algorithm>
#include <array>

#include "app/gui/window/window_parts.h"

namespace pw::gui {
namespace {

constexpr int kNarrow = 1250, kNarrowPanel = 300,
              kPlan = 350;                            ///< widths: below the first, panels on both sides leave the timeline too little
constexpr int kFourRanks = 540;                       ///< height of a window with a timeline of four ranks
constexpr int kLeastBottom = 160, kMostBottom = 270;  ///< of the panels below it: with a few rows each

}  // namespace

QDockWidget* MainWindow::Private::addDock(const QString& title, const QString& name, QWidget* widget, Qt::DockWidgetArea area) {
  auto* dock = new QDockWidget(title, &window);
  dock->setObjectName(name);
  if (area == Qt::BottomDockWidgetArea) {  // a small window shows a part of it, instead of laying it over its neighbours
    auto* scroll = new QScrollArea;
    scroll->setWidget(widget);
    scroll->setWidgetResizable(true);
    scroll->setFrameShape(QFrame::NoFrame);
    scroll->setFocusPolicy(Qt::NoFocus);
    dock->setWidget(scroll);
    // Qt lays panels behind another tab outside of the window, where they would compute what nobody sees.
    QObject::connect(dock, &QDockWidget::visibilityChanged, widget, [widget](bool isInFront) { widget->setVisible(isInFront); });
    QObject::connect(&window, &QMainWindow::tabifiedDockWidgetActivated, dock, [this, dock](const QDockWidget* front) {
      if (front == dock) makeFirstRoom(*dock);
    });
    QObject::connect(dock, &QDockWidget::topLevelChanged, widget, [dock, widget] {  // the signal above tells of its place before
      QTimer::singleShot(0, widget, [dock, widget] { widget->setVisible(isInFront(*dock)); });
    });
  } else {
    dock->setWidget(widget);
  }
  window.addDockWidget(area, dock);
  return dock;
}

/// Every panel, shown at the place it has in a new window, with a size that leaves the most to the timeline. They are taken out first: Qt
/// leaves an empty tab bar over the tabs of panels that are added where they already are.
void MainWindow::Private::arrangeDocks() {
  isNarrow = window.width() < kNarrow;
  for (QDockWidget* dock : docks()) {
    dock->setFloating(false);
    window.removeDockWidget(dock);
  }
  window.addDockWidget(Qt::LeftDockWidgetArea, modelDock);
  placePlan();
  const std::array bottom{candidatesDock, runsDock, analysisDock, explainDock, scheduleDock, statisticsDock, notesDock};
  for (QDockWidget* dock : bottom) window.addDockWidget(Qt::BottomDockWidgetArea, dock);
  for (std::size_t i = 1; i < bottom.size(); ++i) window.tabifyDockWidget(bottom[i - 1], bottom[i]);
  for (QDockWidget* dock : docks()) dock->setVisible(true);
  candidatesDock->raise();
  const int low = std::min(kLeastBottom, window.height() * 3 / 10);
  window.resizeDocks({candidatesDock}, {std::clamp(window.height() - kFourRanks, low, kMostBottom)}, Qt::Vertical);
}

/// Model and Plan beside the timeline: left and right of it, or where that leaves it too little, as two tabs on the left.
void MainWindow::Private::placePlan() {
  if (isNarrow) {
    window.tabifyDockWidget(modelDock, planDock);
    window.resizeDocks({modelDock}, {kNarrowPanel}, Qt::Horizontal);
  } else {
    window.addDockWidget(Qt::RightDockWidgetArea, planDock);
    const int forModel = std::clamp(window.width() / 2 - kPlan, kNarrowPanel, 430);
    window.resizeDocks({modelDock, planDock}, {forModel, kPlan}, Qt::Horizontal);
  }
  window.layout()->activate();
  for (QTabBar* tabs : window.findChildren<QTabBar*>(Qt::FindDirectChildrenOnly))
    tabs->setVisible(tabs->count() > 1);  // Qt leaves one of one
}

/// Moves Plan when the window has become narrow or wide, unless it is where the user put it.
void MainWindow::Private::fitDocks() {
  const bool narrow = window.width() < kNarrow;
  if (!docksShown || narrow == isNarrow) return;
  isNarrow = narrow;
  const bool isBeside = window.tabifiedDockWidgets(planDock).isEmpty() && window.dockWidgetArea(planDock) == Qt::RightDockWidgetArea;
  const bool isBehind = window.tabifiedDockWidgets(modelDock).contains(planDock);
  if (!planDock->isFloating() && !planDock->isHidden() && (narrow ? isBeside : isBehind)) placePlan();
}

/// Gives a panel below the timeline the height in which its results can be read, up to nine twentieths of the window's.
void MainWindow::Private::makeRoom(QDockWidget& dock) {
  QTimer::singleShot(0, &dock, [this, &dock] {  // after it came to the front; behind another tab it has no height
    if (dock.isFloating() || !isInFront(dock)) return;
    const auto* scroll = static_cast<QScrollArea*>(dock.widget());
    const int frame = dock.height() - scroll->height(), rows = 8 * window.fontMetrics().lineSpacing();
    const int wanted = std::min(scroll->widget()->minimumSizeHint().height() + frame + rows, window.height() * 9 / 20);
    if (dock.height() < wanted) window.resizeDocks({&dock}, {wanted}, Qt::Vertical);
  });
}

/// The first time that a panel which has results at once comes to the front; after that it has the height that the user gives it.
void MainWindow::Private::makeFirstRoom(QDockWidget& dock) {
  const std::array withResults{analysisDock, explainDock, scheduleDock, statisticsDock};
  if (std::ranges::find(withResults, &dock) == withResults.end()) return;
  QTimer::singleShot(0, &dock, [this, &dock] {  // it may be there for a moment only, while panels are arranged
    if (isInFront(dock) && hadRoom.insert(&dock).second) makeRoom(dock);
  });
}

/// Of Model and Plan, where they are tabs: without a model, there is nothing to see of one.
void MainWindow::Private::raiseWhatSaysMore() {
  if (window.tabifiedDockWidgets(modelDock).contains(planDock)) (document.graph() ? modelDock : planDock)->raise();
}

QDockWidget* MainWindow::Private::dockOf(QWidget* widget) const {
  for (; widget != nullptr && widget != &window; widget = widget->parentWidget()) {
    if (auto* dock = qobject_cast<QDockWidget*>(widget)) return dock;
  }
  return nullptr;
}

bool MainWindow::Private::isInFront(const QDockWidget& dock) { return dock.isFloating() || !dock.visibleRegion().isEmpty(); }

void MainWindow::Private::resetLayout() {
  docksState.clear();
  if (docksShown) arrangeDocks();
}

/// With nothing open, only the start page is shown.
void MainWindow::Private::showDocks(bool visible) {
  if (docksShown == visible) return;
  docksShown = visible;
  for (QDockWidget* dock : docks()) dock->setVisible(visible);
  if (!visible) return;
  if (docksState.isEmpty() || !window.restoreState(docksState)) return arrangeDocks();
  isNarrow = window.tabifiedDockWidgets(modelDock).contains(planDock);
  fitDocks();
}

void MainWindow::Private::saveLayout() {
  if (!recovers) return;
  QSettings settings;
  settings.setValue(QStringLiteral("geometry"), window.saveGeometry());
  settings.setValue(QStringLiteral("model as graph"), model->graphAction()->isChecked());
  if (docksShown) settings.setValue(QStringLiteral("docks"), window.saveState());
}

void MainWindow::Private::restoreLayout() {
  if (!recovers) return;
  const QSettings settings;
  window.restoreGeometry(settings.value(QStringLiteral("geometry")).toByteArray());
  docksState = settings.value(QStringLiteral("docks")).toByteArray();
  model->graphAction()->setChecked(settings.value(QStringLiteral("model as graph")).toBool());
  showRecent();
}

}  // namespace pw::gui
