#pragma once

#include <QWidget>
#include <vector>

#include "app/gui/cluster/form.h"

class QPushButton;
class QTableWidget;

namespace pw::gui {

/// Devices that are not as the others: a table to type in, with buttons that add and remove rows.
class DeviceTable : public QWidget {
  Q_OBJECT
 public:
  explicit DeviceTable(QWidget* parent = nullptr);

  void setDevices(const std::vector<DeviceForm>& devices);
  /// Without rows in which nothing is written.
  [[nodiscard]] std::vector<DeviceForm> devices() const;
  /// Marks the cells of problems of `Devices`, which their tips say; the others are not marked.
  void mark(const std::vector<FieldProblem>& problems);

 signals:
  void changed();

 private:
  void add();
  void remove();
  void addRow(const DeviceForm& device);

  QTableWidget* table_;
  QPushButton *add_, *remove_;
};

}  // namespace pw::gui
