#pragma once

// Internal to the main window: explaining.cpp, export_choices.cpp, main_window.cpp, menus.cpp and opening.cpp.

#include <QAction>
#include <QActionGroup>
#include <QComboBox>
#include <QDockWidget>
#include <QLabel>
#include <QMenu>
#include <QProgressBar>
#include <QPushButton>
#include <QStackedWidget>
#include <QTimer>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "app/gui/analysis/panel.h"
#include "app/gui/candidates/panel.h"
#include "app/gui/common/jobs.h"
#include "app/gui/document/document.h"
#include "app/gui/document/pinned_plans.h"
#include "app/gui/document/project.h"
#include "app/gui/editor/csv_panel.h"
#include "app/gui/explain/panel.h"
#include "app/gui/model/panel.h"
#include "app/gui/notes/panel.h"
#include "app/gui/plan/panel.h"
#include "app/gui/runs/panel.h"
#include "app/gui/statistics/panel.h"
#include "app/gui/timeline/widget.h"
#include "app/gui/window/command_palette.h"
#include "app/gui/window/main_window.h"
#include "app/gui/window/message_bar.h"
#include "app/gui/window/start_page.h"

namespace pw::hang {
struct Dumps;
}

namespace pw::gui {

struct MainWindow::Private {
  MainWindow& window;
  const bool recovers;
  Document document;
  PinnedPlans pins{document};
  Job loading, exporting, replaying;
  QTimer autosave;
  StartPage* start = nullptr;
  TimelineWidget* timeline = nullptr;
  QStackedWidget* stack = nullptr;
  MessageBar* message = nullptr;
  ModelPanel* model = nullptr;
  PlanPanel* plan = nullptr;
  CandidatesPanel* candidates = nullptr;
  RunsPanel* runs = nullptr;
  AnalysisPanel* analysis = nullptr;
  ExplainPanel* explain = nullptr;
  CsvPanel* schedule = nullptr;
  StatisticsPanel* statistics = nullptr;
  NotesPanel* notes = nullptr;
  QDockWidget *modelDock = nullptr, *planDock = nullptr, *candidatesDock = nullptr, *runsDock = nullptr, *analysisDock = nullptr,
              *explainDock = nullptr, *scheduleDock = nullptr, *statisticsDock = nullptr, *notesDock = nullptr;
  QLabel *figures = nullptr, *busyText = nullptr;
  QProgressBar* busyBar = nullptr;
  QPushButton* busyCancel = nullptr;
  QMenu *recentMenu = nullptr, *pinsMenu = nullptr;
  QComboBox* step = nullptr;  ///< of an imported trace
  QAction *undo = nullptr, *redo = nullptr, *stepAction = nullptr, *replan = nullptr, *pinsAction = nullptr;
  std::vector<QAction*> commands;
  std::vector<std::shared_ptr<const Measured>> steps;
  std::shared_ptr<const hang::Dumps> dumps;  ///< to be explained as soon as the schedule's timeline is there
  std::shared_ptr<const Schedule> ran;       ///< by that job; null: what is open
  QStringList opened;                        ///< the files that are shown
  std::optional<Arrangement> beforeJob;      ///< how the timeline was before a job was opened, which changed it
  struct {
    QStringList paths;
    std::vector<Note> notes;
  } keptNotes;  ///< notes that stay when these are opened: a run's plan; nothing: a plan made from what is shown
  struct ViewOfRun {
    QByteArray view;
    RunName run;
  };
  std::optional<ViewOfRun> viewOfRun;  ///< restored when a project's run is shown: what it selects may be the run's; nothing: no more
  QByteArray docksState;
  bool docksShown = true;
  bool wasCompared = false;              ///< a measured step, the last time
  std::set<const QDockWidget*> hadRoom;  ///< that were given room when they first came to the front
  bool isNarrow = false;                 ///< the window: Plan is a tab beside Model

  Private(MainWindow& w, bool r) : window(w), recovers(r) {}
  void build();
  [[nodiscard]] std::array<QDockWidget*, 9> docks() const {
    return {modelDock, planDock, candidatesDock, runsDock, analysisDock, explainDock, scheduleDock, statisticsDock, notesDock};
  }
  void connectAll();
  void showBusy(const QString& title, Job* job);
  void showTitle();
  void take(const Loaded& loaded, const QStringList& paths);
  void arrangeFor(const Loaded& loaded);
  void takeCluster(const QString& path);
  void restoreWithRun();
  void openPlanOfRun(const QStringList& paths);
  void offerClusters(const std::vector<std::string>& clusters);
  void explainHang(bool marks);
  enum class ScheduleUse : std::uint8_t { Model, Alone, None };
  [[nodiscard]] bool mayBeForModel(const QStringList& paths) const;
  ScheduleUse useOf(const Loaded& loaded, const QStringList& paths);
  void remember(const QStringList& paths);
  /// Else there is a trace or a run alone, or nothing.
  [[nodiscard]] bool hasPlan() const { return document.graph() || document.design().customCosts; }
  bool maySave();
  bool save();
  bool saveAs();
  [[nodiscard]] Project project() const;  ///< what is open, as it is saved
  bool keep();
  void recover();
  void restore(const QString& path);  ///< what was kept there

  // docks.cpp
  QDockWidget* addDock(const QString& title, const QString& name, QWidget* widget, Qt::DockWidgetArea area);
  void arrangeDocks();
  void placePlan();
  void fitDocks();
  void makeRoom(QDockWidget& dock);
  void makeFirstRoom(QDockWidget& dock);
  void raiseWhatSaysMore();
  [[nodiscard]] QDockWidget* dockOf(QWidget* widget) const;  ///< null: in none
  [[nodiscard]] static bool isInFront(const QDockWidget& dock);
  void resetLayout();
  void showDocks(bool visible);
  void saveLayout();
  void restoreLayout();

  // explaining.cpp
  void connectExplaining();
  void showReplan();
  void replanJob();
  void calibrate();
  void goTo(const ExplainedPlace& at);
  std::function<std::shared_ptr<const Measured>()> stepOf(const ExplainedPlace& at);
  void select(const ExplainedPlace& at);
  void showReplayed(const std::shared_ptr<const Measured>& replayed);
  void select(Source source, const StepPlace& place, Rank rank);

  // pinning.cpp
  void fillPinsMenu();
  [[nodiscard]] std::vector<Command> pinCommands() const;
  void pin();
  void compareWith(std::size_t pinned);

  // menus.cpp
  void buildMenus();
  QAction* command(QMenu* menu, const QString& text, const QKeySequence& key, const std::function<void()>& run);
  void fileMenu();
  void editMenu();
  void viewMenu();
  void timelineLook(QMenu* menu);
  QAction* choice(QMenu* menu, QActionGroup* group, const QString& text, const std::function<void()>& run);
  QAction* toggle(QMenu* menu, const QString& text, const QKeySequence& key, const std::function<void(bool)>& run);
  void planMenu();
  void helpMenu();
  void toolBar();
  void chooseAndOpen();
  void savePlan();
  void copyLink();
  void showRecent();
  void showSteps(std::size_t chosen);
  [[nodiscard]] static QString stepTitle(const Measured& measured);  ///< in the tool bar's list

  // export_choices.cpp
  void chooseAndExport(const QString& what, const QString& filter, const QString& suffix);
  void chooseAndExportTable();
  void chooseAndExportSchedule();
  void showFigure();
};

}  // namespace pw::gui
