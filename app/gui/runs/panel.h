#pragma once

#include <QWidget>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/store/run_store.h"

namespace pw::gui {

class Document;

/// Runs of the document's store; selecting one overlays it, selecting two compares them. Next to them the differences between measured and
/// predicted times by kind, stage and rank, largest error first, with a verdict in words above. Starts runs and profiles as `pipewright`
/// child processes and shows their progress. While it is hidden, the comparison does not follow the prediction.
class RunsPanel : public QWidget {
  Q_OBJECT
 public:
  explicit RunsPanel(Document& document, QWidget* parent = nullptr);
  ~RunsPanel() override;

  void startRun(int steps = 5);  ///< the document's plan (once it is predicted), recorded in its store; asks nothing
  void startProfile();           ///< measures the model; the profile becomes part of the design (one undo step)
  void cancel();                 ///< ends the running child process
  [[nodiscard]] bool isBusy() const;
  /// Overlays that step, else its median one, once the store is listed. Of a run of that number that was not started then (empty: not
  /// known) it says so instead.
  void chooseRun(RunId id, std::optional<int> step = {}, const std::string& startedAt = {});
  void compareRuns(RunId id, RunId with);
  void showNothing();
  [[nodiscard]] QString summary() const;  ///< `Measured 3.1 % slower than predicted (…); most of it: B of stage 1, +2.1 ms.`
  [[nodiscard]] const std::vector<RunSummary>& runs() const;  ///< of the store, oldest first; see `pastError`
  void refresh();                                             ///< lists the store again
  void setProgram(const QString& program);                    ///< what is started instead of the `pipewright` beside this app

 signals:
  void runFinished(bool ok);
  void profileFinished(bool ok);
  void failed(const QString& sentence);
  void busyChanged(bool busy);
  void listed();                                 ///< `runs` is up to date
  void compared();                               ///< `summary` is of what the document shows
  void openRequested(const QStringList& paths);  ///< a run's plan, which is of another model than the document's

 protected:
  void showEvent(QShowEvent* event) override;

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
