#pragma once

#include <QString>
#include <QStringList>
#include <QWidget>
#include <array>
#include <optional>

#include "simulator/job/times_of.h"
#include "simulator/report/verdict.h"

class QComboBox;
class QLabel;
class QTabBar;
class QTreeView;

namespace pw::gui {

class GroupTable;

/// The verdict of a comparison in words, the choice of the run's step, and the groups by kind, stage or rank.
class ComparisonView : public QWidget {
  Q_OBJECT
 public:
  explicit ComparisonView(QWidget* parent = nullptr);

  /// Nothing is compared; `sentence` says why.
  void clear(const QString& sentence);
  /// Of a step and its prediction; `times` are the step's: measured or rehearsed. `notes`: sentences after the verdict's. Without stages
  /// (of other splits) it offers no groups by stage.
  void show(const Verdict& verdict, TimesOf times, const QStringList& notes);
  /// Of two runs or plans of these names. `perSample`: the verdict that counts where their batches differ, before that of the steps.
  void show(const Verdict& verdict, const QString& before, const QString& after, Happened happened, const QString& perSample,
            const QStringList& notes);
  /// The available steps: `Median (step 3)`, then each. Empty: none.
  void setSteps(const std::vector<int>& steps, int medianStep, std::optional<int> chosen);
  [[nodiscard]] QString sentence() const;
  [[nodiscard]] const GroupTable& table() const { return *table_; }

 signals:
  void stepChosen(std::optional<int> step);  ///< nothing: the median

 private:
  struct Words {
    QString sentence, before, after;  ///< the last two head the table
  };
  void show(const Verdict& verdict, const Words& words);
  void showTabs();
  void showGroups();

  QLabel* sentence_;
  QComboBox* steps_;
  QTabBar* tabs_;
  QTreeView* view_;
  GroupTable* table_;
  std::optional<Verdict> verdict_;
  QString before_, after_;
  int chosenTab_ = 0;
};

}  // namespace pw::gui
