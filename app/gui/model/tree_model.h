#pragma once

#include <QAbstractItemModel>
#include <vector>

#include "app/gui/model/parts/call_tree.h"
#include "app/gui/model/parts/row_findings.h"

namespace pw::gui {

/// The tree of calls as a Qt model. Rows of the tree are the internal ids of the indexes; nothing is sorted, as split handles need the
/// order of execution.
class TreeModel : public QAbstractItemModel {
  Q_OBJECT
 public:
  enum Column : int { Name, Forward, Backward, Parameters, Activations, ColumnCount };
  enum Role : int {
    RowRole = Qt::UserRole,  ///< row of the tree
    StageRole,               ///< the first stage that computes a part of it
    FractionRole,            ///< length of the bar, 0 … 1; −1: no bar
  };

  explicit TreeModel(QObject* parent = nullptr);

  /// Takes another tree; empty: no model.
  void setTree(CallTree tree);
  /// Sets times and bytes of all rows (see setCosts of call_tree.h) and says so.
  void setProfile(const Profile* profile);
  /// Where stages 1, 2, … begin. Does not notify views, which repaint changes themselves, because a drag does this for every step.
  void setBegins(const std::vector<NodeId>& begins) { begins_ = begins; }

  /// Takes the findings of the tree's model; a new tree keeps them.
  void setFindings(std::vector<Finding> findings);

  [[nodiscard]] const CallTree& tree() const { return tree_; }
  [[nodiscard]] const RowFindings& findings() const { return findings_; }
  [[nodiscard]] const BarScale& scale() const { return scale_; }
  [[nodiscard]] const std::vector<NodeId>& begins() const { return begins_; }
  [[nodiscard]] QModelIndex indexOf(int row, int column = Name) const;  ///< of a row of the tree; invalid for −1
  [[nodiscard]] int rowOf(const QModelIndex& index) const;              ///< of the tree; −1 for an invalid one
  /// What the row is, in one line: name, class, which call.
  [[nodiscard]] QString title(int row) const;

  [[nodiscard]] QModelIndex index(int row, int column, const QModelIndex& parent = {}) const override;
  [[nodiscard]] QModelIndex parent(const QModelIndex& index) const override;
  [[nodiscard]] int rowCount(const QModelIndex& parent = {}) const override;
  [[nodiscard]] int columnCount(const QModelIndex& parent = {}) const override;
  [[nodiscard]] QVariant data(const QModelIndex& index, int role) const override;
  [[nodiscard]] QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

 private:
  [[nodiscard]] QString number(const CallRow& row, Column column) const;
  [[nodiscard]] double fraction(int row, Column column) const;
  [[nodiscard]] QString toolTip(int row) const;

  CallTree tree_;
  BarScale scale_;
  RowFindings findings_;
  std::vector<NodeId> begins_;
};

}  // namespace pw::gui
