#pragma once

#include <QObject>

#include "app/gui/common/jobs.h"
#include "app/gui/model/parts/split_rules.h"

class QMenu;

namespace pw::gui {

class TreeView;

/// Commands on splits, each one undo step. An impossible command changes nothing and emits `refused` with the reason.
class SplitCommands : public QObject {
  Q_OBJECT
 public:
  SplitCommands(Document& document, TreeView& view, QObject* parent = nullptr);

  void setRules(SplitRules rules) { rules_ = std::move(rules); }
  [[nodiscard]] const SplitRules& rules() const { return rules_; }

  void splitBefore(int row);   ///< a stage begins where the row does
  void removeBefore(int row);  ///< the split there
  void remove(std::size_t split);
  void step(std::size_t split, int direction);  ///< to the next place above (−1) or below where a stage may begin
  void balanceSplits(Balance by);               ///< in the background
  /// Balances times as far as the memory limits of the ranks allow; of a schedule made for costs the splits with which it ends earliest. In
  /// the background.
  void fitSplits();
  /// That balances or fits, one at a time.
  [[nodiscard]] Job& job() { return balancing_; }

  /// Adds what can be done at a row, or to a split; −1: none.
  void fillMenu(QMenu& menu, int row, int split);

 signals:
  void refused(const QString& sentence);
  void done();  ///< a command changed the design

 private:
  void edit(const QString& what, const StageChange& change);
  [[nodiscard]] int splitAt(int row) const;  ///< −1: none
  Document& document_;
  TreeView& view_;
  SplitRules rules_;
  [[nodiscard]] bool hasMemoryLimit() const;
  Job balancing_;
};

}  // namespace pw::gui
