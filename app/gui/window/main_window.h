#pragma once

#include <QMainWindow>
#include <memory>
#include <vector>

#include "app/gui/window/panel_names.h"
#include "schedules/schedule.h"

class QAction;

namespace pw::gui {

class Document;
class TimelineWidget;
class RunsPanel;
class CandidatesPanel;
struct Loaded;

/// The window: start page or timeline in the middle, Model left, Plan right, Candidates and Runs below. Opens files in the background,
/// saves projects atomically and by itself, asks before unsaved work is lost.
class MainWindow : public QMainWindow {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(MainWindow)
 public:
  /// `recovers`: looks for work a crash left behind and saves by itself (off for grabbed pictures).
  explicit MainWindow(bool recovers = true, QWidget* parent = nullptr);
  ~MainWindow() override;

  [[nodiscard]] Document& document();
  [[nodiscard]] TimelineWidget& timeline();
  [[nodiscard]] RunsPanel& runs();
  [[nodiscard]] CandidatesPanel& candidates();

  void open(const QStringList& paths);    ///< in the background; what goes wrong shows as a message
  [[nodiscard]] bool isIdle() const;      ///< nothing is loading, predicting, searched for or exporting
  [[nodiscard]] QString message() const;  ///< what the message bar says; empty: it is closed
  [[nodiscard]] bool saveProject(const QString& path);
  /// Writes .png, .svg, .pdf (the timeline), .csv, .json (Chrome trace), or, where the path has no suffix, a folder for torch. Shows what
  /// went wrong; true when written.
  bool exportTo(const QString& path);
  /// All commands of menus, for the palette: each with a text and perhaps a key.
  [[nodiscard]] const std::vector<QAction*>& commands() const;
  void showPanel(Panel panel);
  bool showStep(int step);                    ///< of the trace that is open, from 1; false, and a message, where it has no such step
  void showView(const QByteArray& view);      ///< of the timeline, also of what is still being loaded
  [[nodiscard]] QString viewLink() const;     ///< a command line that opens what is shown here, at the same place; empty: no file is open
  void useSchedule(Schedule schedule);        ///< compute-only, for the open model; shows why where that is not possible
  void showMessage(const QString& sentence);  ///< what went wrong
  void showNote(const QString& sentence);     ///< what is good to know
  void showCommandPalette();
  void showKeys();

 protected:
  void closeEvent(QCloseEvent* event) override;
  void dragEnterEvent(QDragEnterEvent* event) override;
  void dropEvent(QDropEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void changeEvent(QEvent* event) override;
  bool focusNextPrevChild(bool next) override;

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
