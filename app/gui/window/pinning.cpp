#include <QMenu>
#include <QPointer>
#include <QStatusBar>

#include "app/gui/window/window_parts.h"

namespace pw::gui {

void MainWindow::Private::pin() {
  const std::size_t before = pins.plans().size();
  pins.pin();
  if (pins.plans().size() <= before) return;
  window.statusBar()->showMessage(
      MainWindow::tr("Pinned as %1. Change the plan, then compare the two: Pinned plans, in the tool bar.").arg(pins.plans().back().name),
      8000);
}

/// On the timeline, with the table of differences.
void MainWindow::Private::compareWith(std::size_t pinned) {
  pins.compareWith(pinned);
  if (pins.compared() != nullptr) window.showPanel(Panel::Runs);
}

/// For each pinned plan what can be done with it.
void MainWindow::Private::fillPinsMenu() {
  pinsMenu->clear();
  const bool isAny = !pins.plans().empty() || pins.unpinned() != nullptr;
  pinsMenu->setEnabled(isAny);
  if (pinsAction != nullptr) pinsAction->setVisible(isAny);
  for (std::size_t i = 0; i < pins.plans().size(); ++i) {
    const PinnedPlan& pinned = pins.plans()[i];
    QMenu* own = pinsMenu->addMenu(QLatin1Char('&') + pinned.title().replace(QLatin1Char('&'), QLatin1String("&&")));
    QAction* compare = own->addAction(MainWindow::tr("&Compare with the current plan"));
    compare->setCheckable(true);
    compare->setChecked(pins.compared() == &pinned);
    QObject::connect(compare, &QAction::triggered, &window, [this, i](bool on) { on ? compareWith(i) : pins.compareWithNone(); });
    for (std::size_t other = 0; other < pins.plans().size(); ++other) {
      if (other == i) continue;
      QAction* both = own->addAction(MainWindow::tr("Compare it with plan &%1").arg(pins.plans()[other].name));
      QObject::connect(both, &QAction::triggered, &window, [this, i, other] {
        pins.compare(i, other);
        window.showPanel(Panel::Runs);
      });
    }
    QObject::connect(own->addAction(MainWindow::tr("&Go back to it")), &QAction::triggered, &window, [this, i] { pins.goBackTo(i); });
    QObject::connect(own->addAction(MainWindow::tr("&Unpin")), &QAction::triggered, &window, [this, i] { pins.unpin(i); });
  }
  if (pins.unpinned() == nullptr) return;
  pinsMenu->addSeparator();
  QObject::connect(
      pinsMenu->addAction(MainWindow::tr("Pi&n plan %1 again").arg(pins.unpinned()->name)), &QAction::triggered, &window,
      [this] { pins.pinAgain(); }, Qt::QueuedConnection);  // the menu, and with it the action, is made anew
}

/// What the menu offers, each with its plan's title.
std::vector<Command> MainWindow::Private::pinCommands() const {
  std::vector<Command> all;
  for (const QAction* pinned : pinsMenu->actions()) {
    if (pinned->menu() == nullptr) continue;
    for (QAction* action : pinned->menu()->actions()) {
      QString text = MainWindow::tr("Pinned plan %1: %2").arg(pinned->text().mid(1), action->text().remove(QLatin1Char('&')));
      text.replace(QLatin1String("&&"), QLatin1String("&"));
      all.push_back({text, {}, [action = QPointer<QAction>(action)] {
                       if (action) action->trigger();
                     }});
    }
  }
  return all;
}

}  // namespace pw::gui
