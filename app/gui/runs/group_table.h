#pragma once

#include <QAbstractTableModel>
#include <QStyledItemDelegate>
#include <string>
#include <vector>

#include "simulator/report/compare.h"
#include "simulator/report/metrics.h"

namespace pw::gui {

/// A group's name for display: `F` → `F  forward`, `WAIT_B` → `WAIT_B  waits for gradients`; others as they are.
[[nodiscard]] QString groupLabel(const std::string& group);

/// Groups of a comparison as a table, largest contribution to the error first.
class GroupTable : public QAbstractTableModel {
  Q_OBJECT
 public:
  enum Column : int { Group, Before, After, Difference, ColumnCount };
  /// Of `Difference`: signed part of the largest contribution [−1, 1], for a bar.
  static constexpr int kBarRole = Qt::UserRole;

  explicit GroupTable(QObject* parent = nullptr) : QAbstractTableModel(parent) {}

  /// `groups` in any order; `before` and `after` head the columns.
  void setGroups(const std::vector<GroupError>& groups, const QString& before, const QString& after);
  [[nodiscard]] const std::vector<GroupError>& groups() const { return groups_; }

  [[nodiscard]] int rowCount(const QModelIndex& parent = {}) const override;
  [[nodiscard]] int columnCount(const QModelIndex& parent = {}) const override;
  [[nodiscard]] QVariant data(const QModelIndex& index, int role) const override;
  [[nodiscard]] QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

 private:
  std::vector<GroupError> groups_;  // sorted by contribution
  QString before_, after_;
  Ns largest_ = 0;
};

/// Draws `Difference`: its text, and beside it a bar from the middle to the right (slower) or the left (faster).
class DifferenceDelegate : public QStyledItemDelegate {
  Q_OBJECT
 public:
  using QStyledItemDelegate::QStyledItemDelegate;
  void paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const override;
  [[nodiscard]] QSize sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const override;
};

}  // namespace pw::gui
