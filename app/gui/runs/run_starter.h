#pragma once

#include <QObject>
#include <memory>
#include <optional>
#include <utility>

#include "app/gui/common/jobs.h"
#include "app/gui/document/document.h"
#include "app/gui/runs/run_task.h"

namespace pw::gui {

class RunControls;

/// Starts runs and profiles of the document's plan as `pipewright` child processes, with what the controls choose, and says there how far
/// they are. While a run is in progress the document shows its steps.
class RunStarter : public QObject {
  Q_OBJECT
 public:
  /// Both must outlive this.
  RunStarter(Document& document, RunControls& controls, QObject* parent = nullptr);

  void startRun(int steps);  ///< the document's plan (once it is predicted), recorded in its store; asks nothing
  void startProfile();       ///< measures the model; the profile becomes part of the design (one undo step)
  void cancel();             ///< ends the running child process
  [[nodiscard]] bool isBusy() const { return pendingSteps_.has_value() || task_.isRunning(); }
  void stopFollowing() { follows_ = false; }  ///< the document shows something else than the run that is in progress
  void setProgram(const QString& program) { task_.setProgram(program); }

 signals:
  void recorded(RunId run);  ///< a run that completed is in the store
  void runFinished(bool ok);
  void profileFinished(bool ok);
  void failed(const QString& sentence);
  void busyChanged(bool busy);

 private:
  void connectAll();
  void lookForGpus();
  void updateControls();
  void followCosts();
  void showCrowding();
  void begin();
  void endRun(bool ok, std::optional<RunId> id, const QString& error);
  void endProfile(const std::shared_ptr<const Profile>& result, const QString& error);

  Document& document_;
  RunControls& controls_;
  RunTask task_;
  Job looking_;
  std::shared_ptr<const Measured> shownBefore_;  ///< what was shown before a run began
  std::shared_ptr<const ModelGraph> profiled_;
  std::shared_ptr<const Profile> followed_;  ///< the costs that the controls follow
  std::optional<int> pendingSteps_;          ///< of a run that waits for its prediction
  bool isRun_ = false, follows_ = false, wasBusy_ = false;
  bool isRefused_ = false;  ///< and the line says so, until there is a plan
  int cores_ = 0;           ///< of this machine; 0: not known yet
};

}  // namespace pw::gui
