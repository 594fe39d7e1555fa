#include <QActionGroup>
#include <QApplication>
#include <QClipboard>
#include <QDesktopServices>
#include <QFileDialog>
#include <QFileInfo>
#include <QMenuBar>
#include <QMessageBox>
#include <QPainter>
#include <QSettings>
#include <QStatusBar>
#include <QToolBar>
#include <QToolButton>
#include <algorithm>
#include <iterator>

#include "app/gui/document/execution.h"
#include "app/gui/document/loading.h"
#include "app/gui/document/project.h"
#include "app/gui/plan/cost_controls.h"
#include "app/gui/timeline/hand_edit.h"
#include "app/gui/window/appearance.h"
#include "app/gui/window/command_palette.h"
#include "app/gui/window/keys_dialog.h"
#include "app/gui/window/palette_commands.h"
#include "app/gui/window/window_parts.h"
#include "backends/host/files.h"
#include "backends/traces/formats.h"
#include "schedules/error.h"

namespace pw::gui {

QAction* MainWindow::Private::command(QMenu* menu, const QString& text, const QKeySequence& key, const std::function<void()>& run) {
  auto* action = new QAction(text, &window);
  if (!key.isEmpty()) action->setShortcut(key);
  QObject::connect(action, &QAction::triggered, &window, [run] { run(); });
  menu->addAction(action);
  commands.push_back(action);
  return action;
}

void MainWindow::Private::buildMenus() {
  fileMenu();
  editMenu();
  viewMenu();
  planMenu();
  helpMenu();
  toolBar();
}

void MainWindow::Private::fileMenu() {
  QMenu* menu = window.menuBar()->addMenu(MainWindow::tr("&File"));
  command(menu, MainWindow::tr("&Open…"), QKeySequence::Open, [this] { chooseAndOpen(); });
  command(menu, MainWindow::tr("Open &folder of traces…"), {}, [this] {
    const QString folder = QFileDialog::getExistingDirectory(&window, MainWindow::tr("Folder of traces, one for each rank"));
    if (!folder.isEmpty()) window.open({folder});
  });
  command(menu, MainWindow::tr("Open dumps of a &hang…"), {}, [this] {
    const QString folder = QFileDialog::getExistingDirectory(&window, MainWindow::tr("Folder of dumps, one for each rank"));
    if (!folder.isEmpty()) window.open({folder});
  });
  recentMenu = menu->addMenu(MainWindow::tr("Open &recent"));
  QMenu* sampleMenu = menu->addMenu(MainWindow::tr("Open sa&mple"));
  for (const Sample& sample : samples())
    command(sampleMenu, MainWindow::tr("Sample: %1").arg(sample.title), {}, [this, sample] { window.open({sample.path}); });
  command(menu, MainWindow::tr("Start &page"), {}, [this] { window.showPanel(Panel::Start); });
  menu->addSeparator();
  command(menu, MainWindow::tr("&Save project"), QKeySequence::Save, [this] { save(); });
  command(menu, MainWindow::tr("Save project &as…"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_S), [this] { saveAs(); });
  command(menu, MainWindow::tr("Save p&lan for the command line…"), {}, [this] { savePlan(); });
  command(menu, MainWindow::tr("Fi&gure…"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_E), [this] { showFigure(); });
  QMenu* out = menu->addMenu(MainWindow::tr("&Export"));
  command(out, MainWindow::tr("Export timeline as PNG…"), {},
          [this] { chooseAndExport(MainWindow::tr("PNG picture"), QStringLiteral("*.png"), QStringLiteral("png")); });
  command(out, MainWindow::tr("Export timeline as SVG…"), {},
          [this] { chooseAndExport(MainWindow::tr("SVG drawing"), QStringLiteral("*.svg"), QStringLiteral("svg")); });
  command(out, MainWindow::tr("Export timeline as PDF…"), {},
          [this] { chooseAndExport(MainWindow::tr("PDF document"), QStringLiteral("*.pdf"), QStringLiteral("pdf")); });
  command(out, MainWindow::tr("Export spans as CSV…"), {},
          [this] { chooseAndExport(MainWindow::tr("Table of spans"), QStringLiteral("*.csv"), QStringLiteral("csv")); });
  command(out, MainWindow::tr("Export trace for Perfetto…"), {},
          [this] { chooseAndExport(MainWindow::tr("Chrome trace"), QStringLiteral("*.json"), QStringLiteral("json")); });
  command(out, MainWindow::tr("Export schedule as CSV…"), {}, [this] { chooseAndExportSchedule(); });
  command(out, MainWindow::tr("Export table as CSV…"), {}, [this] { chooseAndExportTable(); });
  command(out, MainWindow::tr("Export plan for torch…"), {}, [this] {
    const QString folder = QFileDialog::getExistingDirectory(&window, MainWindow::tr("Folder for split points, schedule and script"));
    if (!folder.isEmpty()) window.exportTo(folder);
  });
  menu->addSeparator();
  command(menu, MainWindow::tr("&Quit"), QKeySequence::Quit, [this] { window.close(); });
}

void MainWindow::Private::editMenu() {
  QMenu* menu = window.menuBar()->addMenu(MainWindow::tr("&Edit"));
  undo = command(menu, MainWindow::tr("&Undo"), QKeySequence::Undo, [this] { document.undo(); });
  redo = command(menu, MainWindow::tr("&Redo"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_Z), [this] { document.redo(); });
  const auto name = [this] {
    undo->setEnabled(!document.undoText().isEmpty());
    redo->setEnabled(!document.redoText().isEmpty());
    undo->setText(document.undoText().isEmpty() ? MainWindow::tr("&Undo") : MainWindow::tr("&Undo: %1").arg(document.undoText()));
    redo->setText(document.redoText().isEmpty() ? MainWindow::tr("&Redo") : MainWindow::tr("&Redo: %1").arg(document.redoText()));
  };
  QObject::connect(&document, &Document::undoChanged, &window, name);
  name();
  menu->addSeparator();
  command(menu, MainWindow::tr("&Copy timeline as picture"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_C), [this] {
    QPixmap picture(timeline->size() * 2);
    picture.setDevicePixelRatio(2);
    QPainter painter(&picture);
    timeline->render(painter, timeline->size(), currentTheme());
    painter.end();
    QApplication::clipboard()->setPixmap(picture);
    window.statusBar()->showMessage(MainWindow::tr("The timeline is on the clipboard."), 4000);
  });
  command(menu, MainWindow::tr("Copy &link to this view"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_L), [this] { copyLink(); });
  menu->addSeparator();
  menu->addAction(timeline->handAction());
  QMenu* hand = menu->addMenu(MainWindow::tr("Selected &actions"));
  hand->addActions(timeline->handActions());
  QObject::connect(menu, &QMenu::aboutToShow, hand, [this, hand] { hand->setEnabled(timeline->hand().isOn()); });
  menu->addSeparator();
  menu->addMenu(MainWindow::tr("&Notes"))->addActions(timeline->noteActions());
  command(menu, MainWindow::tr("&Find in timeline"), QKeySequence::Find, [this] { timeline->find(); });
  command(menu, MainWindow::tr("Command &palette"), QKeySequence(Qt::CTRL | Qt::Key_K), [this] { window.showCommandPalette(); });
}

void MainWindow::Private::viewMenu() {
  QMenu* menu = window.menuBar()->addMenu(MainWindow::tr("&View"));
  command(menu, MainWindow::tr("Fit &all"), {}, [this] { timeline->fitAll(); });
  command(menu, MainWindow::tr("Fit &selection"), {}, [this] { timeline->fitSelection(); });
  command(menu, MainWindow::tr("Zoom &in"), QKeySequence::ZoomIn, [this] { timeline->zoomIn(); });
  command(menu, MainWindow::tr("Zoom &out"), QKeySequence::ZoomOut, [this] { timeline->zoomOut(); });
  command(menu, MainWindow::tr("Previous view"), QKeySequence(Qt::ALT | Qt::Key_Left), [this] { timeline->viewBack(); });
  command(menu, MainWindow::tr("Next view"), QKeySequence(Qt::ALT | Qt::Key_Right), [this] { timeline->viewForward(); });
  menu->addSeparator();
  menu->addMenu(MainWindow::tr("&Rows"))->addActions(timeline->rowActions());
  menu->addActions(timeline->overviewActions());
  menu->addSeparator();
  timelineLook(menu);
  menu->addAction(model->graphAction());
  commands.push_back(model->graphAction());
  menu->addSeparator();
  QMenu* panels = menu->addMenu(MainWindow::tr("Pa&nels"));
  for (QDockWidget* dock : docks()) {
    QAction* const shown = dock->toggleViewAction();
    shown->setText(dock->windowTitle().insert(dock == statisticsDock ? 1 : 0, QLatin1Char('&')));  // one letter each
    panels->addAction(shown);
  }
  command(menu, MainWindow::tr("Reset la&yout"), {}, [this] { resetLayout(); });
  menu->addSeparator();
  QMenu* themes = menu->addMenu(MainWindow::tr("T&heme"));
  command(themes, MainWindow::tr("Theme: as the system"), {}, [this] {
    if (!chooseTheme(QStringLiteral("system")))
      window.statusBar()->showMessage(MainWindow::tr("The system theme is used from the next start."), 4000);
  });
  command(themes, MainWindow::tr("Theme: light"), {}, [] { chooseTheme(QStringLiteral("light")); });
  command(themes, MainWindow::tr("Theme: dark"), {}, [] { chooseTheme(QStringLiteral("dark")); });
  command(menu, MainWindow::tr("&Larger text"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_Plus), [] { scaleFont(1.1); });
  command(menu, MainWindow::tr("S&maller text"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_Minus), [] { scaleFont(1 / 1.1); });
}

/// One of several: exactly one of the group is checked, at first its first.
QAction* MainWindow::Private::choice(QMenu* menu, QActionGroup* group, const QString& text, const std::function<void()>& run) {
  QAction* action = command(menu, text, {}, run);
  action->setCheckable(true);
  action->setChecked(group->actions().isEmpty());
  group->addAction(action);
  return action;
}

QAction* MainWindow::Private::toggle(QMenu* menu, const QString& text, const QKeySequence& key, const std::function<void(bool)>& run) {
  auto* action = new QAction(text, &window);
  action->setShortcut(key);
  action->setCheckable(true);
  QObject::connect(action, &QAction::toggled, &window, run);
  menu->addAction(action);
  commands.push_back(action);
  return action;
}

/// Colours, what stands above what, and what is shown beside the blocks.
void MainWindow::Private::timelineLook(QMenu* menu) {
  auto* colours = new QActionGroup(&window);
  QAction* byKind = choice(menu, colours, MainWindow::tr("Colour by &kind"), [this] { timeline->setColourBy(ColourBy::Kind); });
  QAction* byStage = choice(menu, colours, MainWindow::tr("Colour by s&tage"), [this] { timeline->setColourBy(ColourBy::Stage); });
  QAction* byMicrobatch =
      choice(menu, colours, MainWindow::tr("Colour by mi&crobatch"), [this] { timeline->setColourBy(ColourBy::Microbatch); });
  menu->addSeparator();
  auto* arrangements = new QActionGroup(&window);
  QAction* below =
      choice(menu, arrangements, MainWindow::tr("Measured &below predicted"), [this] { timeline->setArrangement(Arrangement::Below); });
  QAction* above =
      choice(menu, arrangements, MainWindow::tr("Measured abov&e predicted"), [this] { timeline->setArrangement(Arrangement::Above); });
  QAction* over =
      choice(menu, arrangements, MainWindow::tr("Measured o&ver predicted"), [this] { timeline->setArrangement(Arrangement::Over); });
  QAction* differences = toggle(menu, MainWindow::tr("Show &differences"), QKeySequence(Qt::CTRL | Qt::Key_D),
                                [this](bool on) { timeline->setDifferences(on); });
  toggle(menu, MainWindow::tr("Show critical &path"), QKeySequence(Qt::CTRL | Qt::Key_P),
         [this](bool on) { timeline->showCriticalPath(on); });
  QObject::connect(timeline, &TimelineWidget::viewChanged, &window, [=, this] {  // the timeline has its own keys for these
    const Scene& scene = timeline->scene();
    (scene.colourBy == ColourBy::Kind ? byKind : scene.colourBy == ColourBy::Stage ? byStage : byMicrobatch)->setChecked(true);
    (scene.arrangement == Arrangement::Below ? below : scene.arrangement == Arrangement::Above ? above : over)->setChecked(true);
    const QSignalBlocker quiet(differences);
    differences->setChecked(scene.differences);
  });
}

void MainWindow::Private::planMenu() {
  QMenu* menu = window.menuBar()->addMenu(MainWindow::tr("&Plan"));
  command(menu, MainWindow::tr("&Run this plan"), QKeySequence(Qt::CTRL | Qt::Key_R), [this] { emit plan->runRequested(); });
  command(menu, MainWindow::tr("&Profile the model here"), {}, [this] { emit plan->profileRequested(); });
  command(menu, MainWindow::tr("Cali&brate by past runs"), {}, [this] { calibrate(); });
  command(menu, MainWindow::tr("&Search for plans"), QKeySequence(Qt::CTRL | Qt::Key_E), [this] {
    window.showPanel(Panel::Candidates);
    candidates->search();
  });
  replan =
      command(menu, MainWindow::tr("Re-plan from this &trace"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_R), [this] { replanJob(); });
  QMenu* balance = menu->addMenu(MainWindow::tr("Balanc&e splits"));
  command(balance, MainWindow::tr("Balance splits by &time"), {}, [this] { model->balanceSplits(Balance::Time); });
  command(balance, MainWindow::tr("Balance splits by &memory"), {}, [this] { model->balanceSplits(Balance::Memory); });
  command(balance, MainWindow::tr("Balance splits by &parameters"), {}, [this] { model->balanceSplits(Balance::Parameters); });
  command(balance, MainWindow::tr("Balance splits by number of &layers"), {}, [this] { model->balanceSplits(Balance::Layers); });
  QAction* cluster = command(menu, MainWindow::tr("Edit c&luster…"), {}, [this] { plan->editCluster(); });
  const auto allow = [this, cluster] { cluster->setEnabled(hasCluster(document)); };
  QObject::connect(&document, &Document::modelChanged, &window, allow);
  QObject::connect(&document, &Document::designChanged, &window, allow);
  allow();
  menu->addSeparator();
  command(menu, MainWindow::tr("P&in this plan"), QKeySequence(Qt::CTRL | Qt::Key_I), [this] { pin(); });
  command(menu, MainWindow::tr("Compare with &no plan"), {}, [this] { pins.compareWithNone(); });
  pinsMenu = menu->addMenu(MainWindow::tr("Pinne&d plans"));
  QObject::connect(&pins, &PinnedPlans::changed, &window, [this] { fillPinsMenu(); });
  QObject::connect(&pins, &PinnedPlans::refused, &window, &MainWindow::showNote);
  fillPinsMenu();
  menu->addSeparator();
  command(menu, MainWindow::tr("&Cancel"), {}, [this] {
    runs->cancel();
    model->cancel();
    loading.cancel();
    exporting.cancel();
    replaying.cancel();
  });
}

void MainWindow::Private::helpMenu() {
  QMenu* menu = window.menuBar()->addMenu(MainWindow::tr("&Help"));
  command(menu, MainWindow::tr("&Keys"), QKeySequence(Qt::Key_Question), [this] { window.showKeys(); });
  command(menu, MainWindow::tr("&About Pipewright"), {}, [this] {
    QMessageBox::about(
        &window, MainWindow::tr("About Pipewright"),
        MainWindow::tr(
            "<b>Pipewright %1</b><p>Design, predict, run and compare pipeline-parallel training.<p>Apache-2.0. Built with Qt (LGPL).")
            .arg(QApplication::applicationVersion()));
  });
}

void MainWindow::Private::toolBar() {
  auto* bar = window.addToolBar(MainWindow::tr("Main"));
  bar->setObjectName(QStringLiteral("toolbar"));
  bar->setMovable(false);
  bar->setToolButtonStyle(Qt::ToolButtonTextOnly);
  const auto add = [&](const QString& text, const QString& tip, const std::function<void()>& run) {
    QAction* action = bar->addAction(text);
    action->setToolTip(tip);
    QObject::connect(action, &QAction::triggered, &window, [run] { run(); });
    return action;
  };
  add(MainWindow::tr("Open"), MainWindow::tr("Open a model, plan, trace, schedule, project or run store (Ctrl+O)"),
      [this] { chooseAndOpen(); });
  QAction* const back = add(MainWindow::tr("Undo"), MainWindow::tr("Undo (Ctrl+Z)"), [this] { document.undo(); });
  QAction* const again = add(MainWindow::tr("Redo"), MainWindow::tr("Redo (Ctrl+Shift+Z)"), [this] { document.redo(); });
  bar->addAction(timeline->handAction());
  bar->addSeparator();
  const QString runTip = MainWindow::tr("Run this plan (Ctrl+R)");
  QAction* const run = add(MainWindow::tr("Run"), runTip, [this] { emit plan->runRequested(); });
  QAction* const search = add(MainWindow::tr("Search"), MainWindow::tr("Search for plans (Ctrl+E)"), [this] {
    window.showPanel(Panel::Candidates);
    candidates->search();
  });
  QAction* const keep = add(MainWindow::tr("Pin"), MainWindow::tr("Keep this plan to compare others with it (Ctrl+I)"), [this] { pin(); });
  const auto allow = [=, this] {
    back->setEnabled(!document.undoText().isEmpty());
    again->setEnabled(!document.redoText().isEmpty());
    const QString problem = runs->isBusy() ? MainWindow::tr("Another run or measurement is in progress; wait for its end, or cancel it.")
                                           : obstacleToRun(document);
    run->setEnabled(problem.isEmpty());
    run->setToolTip(problem.isEmpty() ? runTip : problem);
    search->setEnabled(document.graph() != nullptr);
    keep->setEnabled(document.prediction() != nullptr && document.problem().isEmpty());
    QAction* const byHand = timeline->handAction();
    byHand->setEnabled(hasPlan());
    byHand->setToolTip(hasPlan() ? MainWindow::tr("Change the order of actions on the timeline (E)")
                                 : MainWindow::tr("Open a model or a schedule first; a measured step cannot be edited."));
  };
  QObject::connect(&document, &Document::undoChanged, &window, allow);
  QObject::connect(&document, &Document::modelChanged, &window, allow);
  QObject::connect(&document, &Document::predictionChanged, &window, allow);
  QObject::connect(runs, &RunsPanel::busyChanged, &window, allow);
  allow();
  auto* pinned = new QToolButton;
  pinned->setText(MainWindow::tr("Pinned plans"));
  pinned->setMenu(pinsMenu);
  pinned->setPopupMode(QToolButton::InstantPopup);
  pinsAction = bar->addWidget(pinned);
  pinsAction->setVisible(!pins.plans().empty());
  bar->addSeparator();
  step = new QComboBox;
  step->setAccessibleName(MainWindow::tr("Step of the imported trace"));
  step->setSizeAdjustPolicy(QComboBox::AdjustToContents);
  stepAction = bar->addWidget(step);
  stepAction->setVisible(false);
  QObject::connect(step, &QComboBox::activated, &window,
                   [this](int index) { document.setMeasured(steps.at(static_cast<std::size_t>(index))); });
  QObject::connect(&document, &Document::measuredChanged, &window,
                   [this] { stepAction->setVisible(steps.size() > 1 && std::ranges::find(steps, document.measured()) != steps.end()); });
  auto* space = new QWidget;
  space->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Preferred);
  bar->addWidget(space);
  add(MainWindow::tr("Commands"), MainWindow::tr("Command palette (Ctrl+K)"), [this] { window.showCommandPalette(); });
  add(MainWindow::tr("Keys"), MainWindow::tr("Keyboard shortcuts (?)"), [this] { window.showKeys(); });
}

QString MainWindow::Private::stepTitle(const Measured& measured) {
  return measured.isReplayed ? MainWindow::tr("%1, replayed").arg(measured.title) : measured.title;
}

void MainWindow::Private::showSteps(std::size_t chosen) {
  step->clear();
  for (const auto& measured : steps) step->addItem(stepTitle(*measured));
  step->setCurrentIndex(static_cast<int>(chosen));
  stepAction->setVisible(steps.size() > 1);
  statistics->setSteps(steps);
}

void MainWindow::Private::showRecent() {
  QStringList recent = QSettings().value(QStringLiteral("recent")).toStringList();
  recent.removeIf([](const QString& path) { return !QFileInfo::exists(path); });
  start->setRecent(recent);
  recentMenu->clear();
  recentMenu->setEnabled(!recent.isEmpty());
  for (const QString& path : recent) {
    recentMenu->addAction(path, &window, [this, path] { window.open({path}); });
  }
}

void MainWindow::Private::chooseAndOpen() {
  QStringList all{QStringLiteral("*.pt2"), QStringLiteral("*.pwproj"), QStringLiteral("*.db")}, traces;
  for (const std::string& ending : traceEndings()) traces << QLatin1Char('*') + QString::fromStdString(ending);
  const QString list = MainWindow::tr(
      "All supported files (%1);;Traces (%2);;Models (*.pt2);;Plans and clusters (*.json);;"
      "Schedules and layer tables (*.csv *.json);;Projects (*.pwproj);;Run stores and studies (*.db *.sqlite);;"
      "All files (*)");
  const QStringList paths = QFileDialog::getOpenFileNames(&window, MainWindow::tr("Open"), {},
                                                          list.arg((all + traces).join(QLatin1Char(' ')), traces.join(QLatin1Char(' '))));
  if (!paths.isEmpty()) window.open(paths);
}

bool MainWindow::Private::save() { return document.projectPath().isEmpty() ? saveAs() : window.saveProject(document.projectPath()); }

bool MainWindow::Private::saveAs() {
  QString path = QFileDialog::getSaveFileName(&window, MainWindow::tr("Save project"),
                                              QFileInfo(document.title()).completeBaseName() + QStringLiteral(".pwproj"),
                                              MainWindow::tr("Projects (*.pwproj)"));
  if (path.isEmpty()) return false;
  if (QFileInfo(path).suffix().isEmpty()) path += QStringLiteral(".pwproj");
  return window.saveProject(path);
}

void MainWindow::Private::savePlan() {
  try {
    const std::string text = toJson(document.plan());
    const QString path =
        QFileDialog::getSaveFileName(&window, MainWindow::tr("Save plan"), QStringLiteral("plan.json"), MainWindow::tr("Plans (*.json)"));
    if (!path.isEmpty()) writeFile(path.toStdString(), text);
  } catch (const Error& e) {
    window.showMessage(QString::fromUtf8(e.what()));
  }
}

void MainWindow::Private::copyLink() {
  const QString link = window.viewLink();
  if (link.isEmpty()) return window.showNote(MainWindow::tr("Nothing is open that a command line could open again; save a project first."));
  QApplication::clipboard()->setText(link);
  if (document.isModified())
    return window.showNote(
        MainWindow::tr("The command line on the clipboard opens the file as it was saved, without the changes since; save "
                       "the project to have them there, too."));
  window.statusBar()->showMessage(MainWindow::tr("A command line that opens this view is on the clipboard."), 6000);
}

void MainWindow::showCommandPalette() {
  std::vector<Command> all = paletteCommands(d->commands, d->timeline->actions(), d->document);
  std::ranges::move(d->pinCommands(), std::back_inserter(all));
  auto* palette = new CommandPalette(std::move(all), this);
  palette->setAttribute(Qt::WA_DeleteOnClose);
  palette->show();
}

void MainWindow::showKeys() { KeysDialog(this).exec(); }

}  // namespace pw::gui
