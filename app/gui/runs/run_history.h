#pragma once

#include <QStackedWidget>
#include <string>
#include <vector>

#include "app/gui/common/jobs.h"
#include "backends/store/run_store.h"

class QLabel;
class QTreeView;

namespace pw::gui {

class RunList;

/// The runs of a store, newest first, in a list of which one or more are selected; a sentence where there are none.
class RunHistory : public QStackedWidget {
  Q_OBJECT
 public:
  explicit RunHistory(QWidget* parent = nullptr);
  ~RunHistory() override;

  void list(const QString& store);  ///< lists the store in the background; what is selected stays
  /// Selects these as soon as a store is listed; not where the first is another run, which was not started then (empty: not known).
  void choose(const std::vector<RunId>& ids, const std::string& startedAt = {});
  void selectNone();                                          ///< silently
  [[nodiscard]] std::vector<RunId> selected() const;          ///< ascending
  [[nodiscard]] const std::vector<RunSummary>& runs() const;  ///< oldest first

 signals:
  void selectionChanged();              ///< by the user, or to what was chosen
  void listed();                        ///< `runs` is up to date
  void noted(const QString& sentence);  ///< about the store
  void failed(const QString& sentence);
  void planRequested();     ///< of the selected run
  void nothingRequested();  ///< no run is to be shown
  void refreshRequested();

 private:
  void show(std::vector<RunSummary> runs, const QString& store);
  void select(const std::vector<RunId>& ids);
  [[nodiscard]] QString whyNotThere(RunId id, const std::string& startedAt, const QString& file) const;

  RunList* runs_;
  QLabel* nothing_;
  QTreeView* view_;
  std::vector<RunId> wanted_;  ///< runs to choose when the store is listed
  std::string wantedStart_;    ///< of the first; empty: not known
  bool isSilent_ = false;      ///< the selection changes, not the choice
  Job listing_;
};

}  // namespace pw::gui
