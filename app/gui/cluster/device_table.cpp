#include "app/gui/cluster/device_table.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QPushButton>
#include <QSignalBlocker>
#include <QTableWidget>
#include <QVBoxLayout>

#include "app/gui/common/theme.h"

namespace pw::gui {
namespace {

bool isBlank(const DeviceForm& device) { return (device.devices + device.speed + device.memory).trimmed().isEmpty(); }

}  // namespace

DeviceTable::DeviceTable(QWidget* parent)
    : QWidget(parent), table_(new QTableWidget(0, 3)), add_(new QPushButton(tr("A&dd"))), remove_(new QPushButton(tr("&Remove"))) {
  table_->setAccessibleName(tr("Devices that differ"));
  table_->setHorizontalHeaderLabels({tr("Devices"), tr("Speed"), tr("Memory")});
  table_->horizontalHeaderItem(0)->setToolTip(tr("Numbers of ranks: 3, or 0-3, 8"));
  table_->horizontalHeaderItem(1)->setToolTip(tr("Relative to the others: 0.5 takes twice as long; empty: 1"));
  table_->horizontalHeaderItem(2)->setToolTip(tr("Limits what a plan puts there, such as 40 GB; empty: as the others"));
  table_->verticalHeader()->hide();
  table_->horizontalHeader()->setSectionResizeMode(QHeaderView::Stretch);
  table_->setTabKeyNavigation(false);
  table_->setSelectionBehavior(QAbstractItemView::SelectRows);
  add_->setAccessibleName(tr("Add devices that differ"));
  remove_->setAccessibleName(tr("Remove devices that differ"));
  for (QPushButton* button : {add_, remove_}) button->setAutoDefault(false);
  connect(add_, &QPushButton::clicked, this, [this] { add(); });
  connect(remove_, &QPushButton::clicked, this, [this] { remove(); });
  connect(table_, &QTableWidget::itemChanged, this, [this] { emit changed(); });
  auto* buttons = new QHBoxLayout;
  buttons->addStretch(1);
  buttons->addWidget(add_);
  buttons->addWidget(remove_);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins({});
  column->addWidget(table_, 1);
  column->addLayout(buttons);
  setFocusProxy(table_);
  setDevices({});
}

void DeviceTable::addRow(const DeviceForm& device) {
  const int row = table_->rowCount();
  table_->insertRow(row);
  int column = 0;
  for (const QString& text : {device.devices, device.speed, device.memory}) table_->setItem(row, column++, new QTableWidgetItem(text));
}

void DeviceTable::setDevices(const std::vector<DeviceForm>& devices) {
  const QSignalBlocker quiet(table_);
  table_->setRowCount(0);
  for (const DeviceForm& device : devices) addRow(device);
  remove_->setEnabled(!devices.empty());
}

std::vector<DeviceForm> DeviceTable::devices() const {
  std::vector<DeviceForm> devices;
  for (int row = 0; row < table_->rowCount(); ++row) {
    const DeviceForm device{table_->item(row, 0)->text(), table_->item(row, 1)->text(), table_->item(row, 2)->text()};
    if (!isBlank(device)) devices.push_back(device);
  }
  return devices;
}

void DeviceTable::mark(const std::vector<FieldProblem>& problems) {
  const QSignalBlocker quiet(table_);
  std::vector<int> rows;  // of the form's devices, which leave out blank ones
  for (int row = 0; row < table_->rowCount(); ++row) {
    bool blank = true;
    for (int column = 0; column < table_->columnCount(); ++column) {
      QTableWidgetItem* cell = table_->item(row, column);
      blank = blank && cell->text().trimmed().isEmpty();
      cell->setData(Qt::ForegroundRole, {});
      cell->setToolTip({});
    }
    if (!blank) rows.push_back(row);
  }
  for (const FieldProblem& problem : problems) {
    if (problem.field != ClusterField::Devices || problem.row < 0 || static_cast<std::size_t>(problem.row) >= rows.size()) continue;
    QTableWidgetItem* cell = table_->item(rows[static_cast<std::size_t>(problem.row)], problem.column);
    cell->setForeground(currentTheme().error);
    cell->setToolTip(problem.sentence);
  }
}

void DeviceTable::add() {
  {
    const QSignalBlocker quiet(table_);
    addRow({});
  }
  remove_->setEnabled(true);
  const int row = table_->rowCount() - 1;
  table_->setFocus();
  table_->setCurrentCell(row, 0);
  table_->editItem(table_->item(row, 0));
}

void DeviceTable::remove() {
  const int row = table_->currentRow() >= 0 ? table_->currentRow() : table_->rowCount() - 1;
  if (row < 0) return;
  table_->removeRow(row);
  remove_->setEnabled(table_->rowCount() > 0);
  emit changed();
}

}  // namespace pw::gui
