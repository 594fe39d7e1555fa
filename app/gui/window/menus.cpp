#include <QAbstractItemView>
#include <QActionGroup>
#include <QApplication>
#include <QClipboard>
#include <QDesktopServices>
#include <QFileDialog>
#include <QFileInfo>
#include <QHeaderView>
#include <QMenuBar>
#include <QMessageBox>
#include <QPainter>
#include <QSettings>
#include <QStatusBar>
#include <QTableWidget>
#include <QToolBar>
#include <QVBoxLayout>

#include "app/gui/document/loading.h"
#include "app/gui/document/project.h"
#include "app/gui/plan/cost_controls.h"
#include "app/gui/window/command_palette.h"
#include "app/gui/window/window_parts.h"
#include "backends/host/files.h"
#include "backends/traces/formats.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/order/find.h"
#include "simulator/plan/planner.h"

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
  const auto choice = [&](QActionGroup* group, const QString& text, bool on, const std::function<void()>& run) {
    QAction* action = command(menu, text, {}, run);
    action->setCheckable(true);
    action->setChecked(on);
    group->addAction(action);
    return action;
  };
  auto* colours = new QActionGroup(&window);
  QAction* byKind = choice(colours, MainWindow::tr("Colour by &kind"), true, [this] { timeline->setColourBy(ColourBy::Kind); });
  QAction* byStage = choice(colours, MainWindow::tr("Colour by s&tage"), false, [this] { timeline->setColourBy(ColourBy::Stage); });
  QAction* byMicrobatch =
      choice(colours, MainWindow::tr("Colour by mi&crobatch"), false, [this] { timeline->setColourBy(ColourBy::Microbatch); });
  menu->addSeparator();
  auto* arrangements = new QActionGroup(&window);
  QAction* below =
      choice(arrangements, MainWindow::tr("Measured &below predicted"), true, [this] { timeline->setArrangement(Arrangement::Below); });
  QAction* above =
      choice(arrangements, MainWindow::tr("Measured abov&e predicted"), false, [this] { timeline->setArrangement(Arrangement::Above); });
  QAction* over =
      choice(arrangements, MainWindow::tr("Measured o&ver predicted"), false, [this] { timeline->setArrangement(Arrangement::Over); });
  const auto toggle = [&](const QString& text, const QKeySequence& key, const std::function<void(bool)>& run) {
    auto* action = new QAction(text, &window);
    action->setShortcut(key);
    action->setCheckable(true);
    QObject::connect(action, &QAction::toggled, &window, run);
    menu->addAction(action);
    commands.push_back(action);
    return action;
  };
  QAction* differences =
      toggle(MainWindow::tr("Show &differences"), QKeySequence(Qt::CTRL | Qt::Key_D), [this](bool on) { timeline->setDifferences(on); });
  toggle(MainWindow::tr("Show critical &path"), QKeySequence(Qt::CTRL | Qt::Key_P), [this](bool on) { timeline->showCriticalPath(on); });
  QObject::connect(timeline, &TimelineWidget::viewChanged, &window, [=, this] {  // the timeline has its own keys for these
    const Scene& scene = timeline->scene();
    (scene.colourBy == ColourBy::Kind ? byKind : scene.colourBy == ColourBy::Stage ? byStage : byMicrobatch)->setChecked(true);
    (scene.arrangement == Arrangement::Below ? below : scene.arrangement == Arrangement::Above ? above : over)->setChecked(true);
    const QSignalBlocker quiet(differences);
    differences->setChecked(scene.differences);
  });
  menu->addAction(model->graphAction());
  commands.push_back(model->graphAction());
  menu->addSeparator();
  for (QDockWidget* dock : docks()) menu->addAction(dock->toggleViewAction());
  command(menu, MainWindow::tr("Reset la&yout"), {}, [this] { resetLayout(); });
  menu->addSeparator();
  QMenu* themes = menu->addMenu(MainWindow::tr("T&heme"));
  command(themes, MainWindow::tr("Theme: as the system"), {}, [this] { setTheme(QStringLiteral("system")); });
  command(themes, MainWindow::tr("Theme: light"), {}, [this] { setTheme(QStringLiteral("light")); });
  command(themes, MainWindow::tr("Theme: dark"), {}, [this] { setTheme(QStringLiteral("dark")); });
  command(menu, MainWindow::tr("&Larger text"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_Plus), [this] { scaleFont(1.1); });
  command(menu, MainWindow::tr("S&maller text"), QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_Minus), [this] { scaleFont(1 / 1.1); });
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
  QAction* cluster = command(menu, MainWindow::tr("Edit c&luster…"), {}, [this] { plan->editCluster(); });
  const auto allow = [this, cluster] { cluster->setEnabled(hasCluster(document)); };
  QObject::connect(&document, &Document::modelChanged, &window, allow);
  QObject::connect(&document, &Document::designChanged, &window, allow);
  allow();
  menu->addSeparator();
  command(menu, MainWindow::tr("P&in this plan"), QKeySequence(Qt::CTRL | Qt::Key_I), [this] { pins.pin(); });
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

/// For each pinned plan what can be done with it.
void MainWindow::Private::fillPinsMenu() {
  pinsMenu->clear();
  pinsMenu->setEnabled(!pins.plans().empty());
  for (std::size_t i = 0; i < pins.plans().size(); ++i) {
    const PinnedPlan& pinned = pins.plans()[i];
    QMenu* own = pinsMenu->addMenu(QLatin1Char('&') + pinned.title().replace(QLatin1Char('&'), QLatin1String("&&")));
    QAction* compare = own->addAction(MainWindow::tr("&Compare with the plan at hand"));
    compare->setCheckable(true);
    compare->setChecked(pins.compared() == &pinned);
    QObject::connect(compare, &QAction::triggered, &window, [this, i](bool on) { on ? pins.compareWith(i) : pins.compareWithNone(); });
    for (std::size_t other = 0; other < pins.plans().size(); ++other) {
      if (other == i) continue;
      QAction* both = own->addAction(MainWindow::tr("Compare it with plan &%1").arg(pins.plans()[other].name));
      QObject::connect(both, &QAction::triggered, &window, [this, i, other] { pins.compare(i, other); });
    }
    QObject::connect(own->addAction(MainWindow::tr("&Go back to it")), &QAction::triggered, &window, [this, i] { pins.goBackTo(i); });
    QObject::connect(own->addAction(MainWindow::tr("&Unpin")), &QAction::triggered, &window, [this, i] { pins.unpin(i); });
  }
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
  };
  add(MainWindow::tr("Open"), MainWindow::tr("Open a model, plan, trace, schedule, project or run store (Ctrl+O)"),
      [this] { chooseAndOpen(); });
  add(MainWindow::tr("Undo"), MainWindow::tr("Undo (Ctrl+Z)"), [this] { document.undo(); });
  add(MainWindow::tr("Redo"), MainWindow::tr("Redo (Ctrl+Shift+Z)"), [this] { document.redo(); });
  bar->addSeparator();
  add(MainWindow::tr("Run"), MainWindow::tr("Run this plan (Ctrl+R)"), [this] { emit plan->runRequested(); });
  add(MainWindow::tr("Search"), MainWindow::tr("Search for plans (Ctrl+E)"), [this] {
    window.showPanel(Panel::Candidates);
    candidates->search();
  });
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

void MainWindow::Private::setTheme(const QString& name) {
  QSettings().setValue(QStringLiteral("theme"), name);
  if (name == QStringLiteral("system")) {
    window.statusBar()->showMessage(MainWindow::tr("The system theme is used from the next start."), 4000);
    return;
  }
  applyTheme(name == QStringLiteral("dark"));
}

void MainWindow::Private::scaleFont(double factor) {
  QFont font = QApplication::font();
  font.setPointSizeF(std::clamp(font.pointSizeF() * factor, 6.0, 32.0));
  QApplication::setFont(font);
  QSettings().setValue(QStringLiteral("font size"), font.pointSizeF());
}

void MainWindow::showCommandPalette() {
  std::vector<Command> all;
  for (QAction* action : d->commands) {
    if (!action->isEnabled()) continue;
    QString text = action->text();
    all.push_back({text.remove(QLatin1Char('&')).remove(QStringLiteral("…")), action->shortcut().toString(QKeySequence::NativeText),
                   [action] { action->trigger(); }});
  }
  for (QAction* action : d->timeline->actions()) {
    if (action->isEnabled() && !action->text().isEmpty())
      all.push_back({tr("Timeline: %1").arg(action->text().remove(QLatin1Char('&'))), action->shortcut().toString(QKeySequence::NativeText),
                     [action] { action->trigger(); }});
  }
  if (d->document.graph()) {
    std::vector<std::string> schedules;
    schedules.reserve(std::size(kMadeSchedules) + generators().size());
    for (const MadeSchedule& made : kMadeSchedules) schedules.emplace_back(made.name);
    for (const Generator& g : generators()) schedules.emplace_back(g.name);
    for (const std::string& name : schedules) {
      all.push_back({tr("Schedule: %1").arg(QString::fromStdString(name)), {}, [this, name, chunks = usualChunks(name)] {
                       d->document.edit(tr("Choose schedule %1").arg(QString::fromStdString(name)), [&](Design& design) {
                         design.request.schedule = name;
                         design.request.chunks = chunks;
                         design.customRows.reset();
                         design.source.clear();
                       });
                     }});
    }
  }
  auto* palette = new CommandPalette(std::move(all), this);
  palette->setAttribute(Qt::WA_DeleteOnClose);
  palette->show();
}

void MainWindow::showKeys() {
  static const QList<std::pair<QString, QString>> keys{
      {tr("W, S or Ctrl+wheel"), tr("zoom in, out at the cursor")},
      {tr("A, D, Shift+wheel or drag"), tr("move earlier, later")},
      {tr("Ctrl+Shift+wheel, Ctrl+Up, Ctrl+Down"), tr("taller, lower rows")},
      {tr("H, Shift+H"), tr("all ranks in the window's height, normal height")},
      {tr("F"), tr("fit the selection")},
      {tr("Shift+F, Home"), tr("fit all")},
      {tr("double click"), tr("zoom to a block")},
      {tr("click"), tr("select and show details; on a bubble: the chain of causes")},
      {tr(". and ,"), tr("next and previous on the track")},
      {tr("] and ["), tr("follow dependencies forward and backward")},
      {tr("drag on the ruler"), tr("select a range and see its totals")},
      {tr("Ctrl+F or /"), tr("find: 2F5, B, rank 3, stage 1, bubble; Enter for the next")},
      {tr("P, C, Alt+Up, Alt+Down"), tr("pin, collapse, move the rank")},
      {tr("Shift+C, Shift+E"), tr("collapse all, expand all ranks")},
      {tr("G"), tr("collapse or expand a node or replica")},
      {tr("Shift+D, Shift+U"), tr("ranks whose busy time differs most; unpin all")},
      {tr("Shift+V"), tr("overview: click or drag in it to go there; arrow keys move what it shows")},
      {tr("Alt+Left, Alt+Right"), tr("previous and next view")},
      {tr("Ctrl+click, Shift+click"), tr("choose several blocks, all up to a block; Statistics has them by kind and stage")},
      {tr("Shift+M"), tr("arrows of the messages of the selected block")},
      {tr("N, Ctrl+F2"), tr("write a note, set or delete a bookmark at the selection or the mouse; Delete deletes it")},
      {tr("F2, Shift+F2"), tr("next and previous note")},
      {tr("Ctrl+Shift+L"), tr("copy a command line that opens this view")},
      {tr("E"), tr("edit the schedule by hand: drag blocks; Shift and arrows move, Shift+S splits B")},
      {tr("Esc"), tr("clear the selection, leave a drag")},
      {tr("arrow keys on a split handle"), tr("move the split; S splits here, Del removes")},
      {tr("Ctrl+Z, Ctrl+Shift+Z"), tr("undo and redo; a whole drag is one step")},
      {tr("Ctrl+R, Ctrl+E"), tr("run the plan, search for plans")},
      {tr("Ctrl+Shift+R"), tr("re-plan from the trace, job or run that is open")},
      {tr("Ctrl+P, Ctrl+D"), tr("critical path, differences")},
      {tr("Ctrl+Shift+E"), tr("a figure for a paper")},
      {tr("Ctrl+K"), tr("command palette")},
      {tr("?"), tr("these keys")}};
  QDialog dialog(this);
  dialog.setWindowTitle(tr("Keys"));
  dialog.setAccessibleName(tr("Keys"));
  auto* column = new QVBoxLayout(&dialog);
  auto* table = new QTableWidget(static_cast<int>(keys.size()), 2);
  table->setAccessibleName(tr("Keyboard shortcuts"));
  table->horizontalHeader()->hide();
  table->verticalHeader()->hide();
  table->setShowGrid(false);
  table->setEditTriggers(QAbstractItemView::NoEditTriggers);
  table->setSelectionBehavior(QAbstractItemView::SelectRows);
  for (int i = 0; i < table->rowCount(); ++i) {
    auto* key = new QTableWidgetItem(keys[i].first);
    QFont bold = key->font();
    bold.setBold(true);
    key->setFont(bold);
    table->setItem(i, 0, key);
    table->setItem(i, 1, new QTableWidgetItem(keys[i].second));
  }
  table->resizeColumnsToContents();
  table->horizontalHeader()->setStretchLastSection(true);
  column->addWidget(table);
  auto* close = new QPushButton(tr("Close"));
  QObject::connect(close, &QAbstractButton::clicked, &dialog, &QDialog::accept);
  column->addWidget(close, 0, Qt::AlignRight);
  dialog.resize(620, std::min(height() - 60, (table->rowCount() + 4) * table->rowHeight(0)));
  dialog.exec();
}

}  // namespace pw::gui
