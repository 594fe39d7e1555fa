#include "app/gui/cluster/dialog.h"

#include <QComboBox>
#include <QFileDialog>
#include <QFileInfo>
#include <QGridLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QMessageBox>
#include <QPushButton>
#include <QScrollArea>
#include <QScrollBar>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "app/gui/cluster/device_table.h"
#include "app/gui/cluster/fields.h"
#include "app/gui/cluster/message_table.h"
#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"
#include "app/gui/document/balanced.h"
#include "app/gui/document/cluster_title.h"
#include "app/gui/document/document.h"
#include "backends/host/files.h"
#include "backends/resources/resources.h"
#include "schedules/error.h"
#include "simulator/costs/estimate.h"

namespace pw::gui {
namespace {

/// Peaks by precision, and what memory gives.
QString detailsOf(const Cluster& cluster) {
  QStringList lines{ClusterDialog::tr("Figures of the device, as in the preset or file:")};
  for (const auto& [precision, flops] : cluster.peakFlops)
    lines << ClusterDialog::tr("%1: %2 TFLOP/s at most").arg(textOf(precision)).arg(flops / 1e12, 0, 'g', 4);
  lines << ClusterDialog::tr("memory: %1 GB/s at most").arg(cluster.memoryBytesPerSecond / 1e9, 0, 'g', 4);
  return lines.join(QLatin1Char('\n'));
}

QLabel* sentenceLabel(const QString& name) {
  auto* label = new QLabel;
  label->setWordWrap(true);
  label->setTextFormat(Qt::PlainText);
  label->setAccessibleName(name);
  label->hide();
  return label;
}

}  // namespace

ClusterDialog::ClusterDialog(Document& document, QWidget* parent)
    : QDialog(parent),
      document_(document),
      start_(new QComboBox),
      fields_(new ClusterFields(linkPresets())),
      devices_(new DeviceTable),
      messages_(new MessageTable),
      hidden_(sentenceLabel(tr("What stays as it is"))),
      deviceProblem_(sentenceLabel(tr("Problem of devices that differ"))),
      state_(new QLabel),
      save_(new QPushButton(tr("&Save as file…"))),
      apply_(new QPushButton(tr("&Apply"))),
      accept_(new QPushButton(tr("&OK"))) {
  setWindowTitle(tr("Cluster"));
  setAccessibleName(tr("Cluster"));
  layOut();
  fields_->setPrecision(document_.design().precision);
  startFrom(document_.design().cluster);
  const PlanRequest& request = document_.design().request;
  fields_->setLimits(request.memoryLimit > 0 && request.memoryLimit == base_.memoryBytes);
  kept_ = edited();
  fillStarts();
  refresh();
  const auto refreshed = [this] {
    note_.clear();
    refresh();
  };
  connect(fields_, &ClusterFields::changed, this, refreshed);
  connect(devices_, &DeviceTable::changed, this, refreshed);
  connect(&document_, &Document::designChanged, this, &ClusterDialog::refresh);
  connect(&document_, &Document::predictionChanged, this, &ClusterDialog::refresh);
  connect(&document_, &Document::modelChanged, this, &ClusterDialog::refresh);
}

void ClusterDialog::layOut() {
  auto* grid = new QGridLayout(this);
  auto* top = new QHBoxLayout;
  auto* label = new QLabel(tr("Start &from"));
  label->setBuddy(start_);
  start_->setAccessibleName(tr("Start from"));
  start_->setToolTip(tr("A preset or a file whose figures to go on from; nothing is applied by choosing"));
  top->addWidget(label);
  top->addWidget(start_);
  top->addStretch(1);
  grid->addLayout(top, 0, 0, 1, 2);
  auto* scroll = new QScrollArea;
  scroll->setWidget(fields_);
  scroll->setWidgetResizable(true);
  scroll->setFrameShape(QFrame::NoFrame);
  scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  scroll->setFocusPolicy(Qt::NoFocus);
  scroll->setMinimumWidth(fields_->minimumSizeHint().width() + scroll->verticalScrollBar()->sizeHint().width() + 6);
  grid->addWidget(scroll, 1, 0);
  grid->addWidget(buildRight(), 1, 1);
  grid->setColumnStretch(0, 4);
  grid->setColumnStretch(1, 5);
  grid->setRowStretch(1, 1);
  state_->setAccessibleName(tr("State of the cluster"));
  state_->setWordWrap(true);
  state_->setTextFormat(Qt::PlainText);
  grid->addWidget(state_, 2, 0, 1, 2);
  buildButtons();
  const QSize most = parentWidget() != nullptr ? parentWidget()->window()->size() - QSize(40, 40) : QSize(980, 640);
  resize(QSize(980, 620).boundedTo(most).expandedTo({640, 400}));
}

QWidget* ClusterDialog::buildRight() {
  auto* right = new QWidget;
  auto* column = new QVBoxLayout(right);
  column->setContentsMargins({});
  auto* devices = new QLabel(tr("Devices that d&iffer in speed or memory"));
  devices->setBuddy(devices_);
  column->addWidget(devices);
  column->addWidget(devices_, 2);
  column->addWidget(deviceProblem_);
  column->addWidget(hidden_);
  auto* messages = new QLabel(tr("Messages of the &current splits, per microbatch"));
  messages->setBuddy(messages_);
  column->addWidget(messages);
  column->addWidget(messages_, 3);
  return right;
}

void ClusterDialog::buildButtons() {
  auto* row = new QHBoxLayout;
  auto* cancel = new QPushButton(tr("C&lose"));
  save_->setToolTip(tr("Writes a file that `pipewright plan --cluster FILE` plans for"));
  apply_->setToolTip(tr("Estimates and simulates the plan on this cluster; Undo restores the one before"));
  accept_->setToolTip(tr("Applies and closes"));
  accept_->setDefault(true);
  for (QPushButton* button : {save_, apply_, cancel}) button->setAutoDefault(false);
  row->addWidget(save_);
  row->addStretch(1);
  for (QPushButton* button : {apply_, accept_, cancel}) row->addWidget(button);
  static_cast<QGridLayout*>(layout())->addLayout(row, 3, 0, 1, 2);
  // The focus leaves a cell that is still being typed in, which takes its text.
  connect(save_, &QPushButton::clicked, this, [this] {
    save_->setFocus();
    chooseAndSave();
  });
  connect(apply_, &QPushButton::clicked, this, [this] {
    apply_->setFocus();
    apply();
  });
  connect(accept_, &QPushButton::clicked, this, [this] {
    accept_->setFocus();
    if (apply()) accept();
  });
  connect(cancel, &QPushButton::clicked, this, &QDialog::reject);
  connect(start_, &QComboBox::activated, this, [this](int index) {
    if (!start_->itemData(index).isValid()) return startFromFile();
    startFrom(start_->itemData(index).toString().toStdString());
    note_.clear();
    refresh();
  });
}

QString ClusterDialog::state() const { return state_->text(); }

/// What the plan is for now, the presets, and files that were opened.
void ClusterDialog::fillStarts() {
  const std::string& now = document_.design().cluster;
  const std::vector<std::string> presets = clusterPresets();
  if (std::ranges::find(presets, now) == presets.end()) start_->addItem(tr("%1 (this plan's)").arg(clusterTitle(now)), textOf(now));
  for (const std::string& preset : presets) start_->addItem(textOf(preset), textOf(preset));
  start_->insertSeparator(start_->count());
  start_->addItem(tr("Open a file…"));
  start_->setCurrentIndex(start_->findData(textOf(now)));
}

void ClusterDialog::startFrom(const std::string& name) {
  try {
    base_ = loadCluster(name);
  } catch (const Error& e) {
    note_ = QString::fromUtf8(e.what());
    if (base_.name.empty()) base_ = loadCluster(Design().cluster);
    return refresh();
  }
  fields_->setForm(formOf(base_), textOf(base_.deviceName), detailsOf(base_));
  devices_->setDevices(formOf(base_).devices);
  const QString stays = hiddenIn(base_);
  hidden_->setText(stays);
  hidden_->setVisible(!stays.isEmpty());
}

void ClusterDialog::startFromFile() {
  const int before = start_->findData(textOf(base_.origin));
  const QString path = QFileDialog::getOpenFileName(this, tr("Open cluster"), {}, tr("Clusters (*.json)"));
  start_->setCurrentIndex(before);
  if (path.isEmpty()) return;
  const QString name = QFileInfo(path).absoluteFilePath();
  note_.clear();
  startFrom(name.toStdString());
  if (note_.isEmpty() && start_->findData(name) < 0) start_->insertItem(0, QFileInfo(name).fileName(), name);
  if (note_.isEmpty()) start_->setCurrentIndex(start_->findData(name));
  refresh();
}

ClusterDialog::Edited ClusterDialog::edited() const {
  ClusterForm form = fields_->form();
  form.devices = devices_->devices();
  return {form, fields_->precision(), fields_->limits()};
}

ReadForm ClusterDialog::read() const { return readForm(edited().form, base_); }

void ClusterDialog::reject() {
  setFocus();  // a cell that is still being typed in takes its text
  if (edited() == kept_) return QDialog::reject();
  const bool canApply = apply_->isEnabled();
  const QString sentence = tr("The changes of this cluster are neither applied nor saved.") + QLatin1Char(' ') +
                           (canApply ? tr("Apply them?") : tr("Discard them?"));
  const auto apply = canApply ? QMessageBox::Apply : QMessageBox::NoButton;
  const auto answer = QMessageBox::question(this, tr("Cluster"), sentence, apply | QMessageBox::Discard | QMessageBox::Cancel,
                                            canApply ? QMessageBox::Apply : QMessageBox::Cancel);
  if (answer == QMessageBox::Apply && this->apply()) return accept();
  if (answer == QMessageBox::Discard) QDialog::reject();
}

QString ClusterDialog::precisionProblem(const Cluster& cluster) const {
  if (!obstacleToPrecision(cluster, fields_->precision())) return {};
  return tr("Precision: the device has no peak in %1; choose another, or start from a cluster that has it.")
      .arg(textOf(precisionName(fields_->precision())));
}

std::string ClusterDialog::nameOf(const Cluster& cluster) const {
  return haveSameFigures(cluster, base_) && !base_.origin.empty() ? base_.origin : toJson(cluster);
}

bool ClusterDialog::changesPlan(const Cluster& cluster) const {
  const Design& design = document_.design();
  return nameOf(cluster) != design.cluster || fields_->precision() != design.precision ||
         (fields_->limits() && design.request.memoryLimit != cluster.memoryBytes);
}

void ClusterDialog::refresh() {
  const ReadForm form = read();
  const QString precision = precisionProblem(form.cluster);
  fields_->showProblems(form.problems, precision);
  devices_->mark(form.problems);
  const auto first = std::ranges::find(form.problems, ClusterField::Devices, &FieldProblem::field);
  QPalette colours = palette();
  colours.setColor(QPalette::WindowText, currentTheme().error);
  deviceProblem_->setPalette(colours);
  deviceProblem_->setText(first == form.problems.end() ? QString() : first->sentence);
  deviceProblem_->setVisible(first != form.problems.end());
  const std::vector<StageMessage> messages = messagesOf(document_);
  const auto isRead = [&](ClusterField latency, ClusterField bandwidth) {
    return std::ranges::none_of(form.problems, [&](const FieldProblem& p) { return p.field == latency || p.field == bandwidth; });
  };
  messages_->show(messages, form.cluster.topology, isRead(ClusterField::NodeLatency, ClusterField::NodeBandwidth),
                  isRead(ClusterField::NetworkLatency, ClusterField::NetworkBandwidth));
  const auto problems = static_cast<int>(form.problems.size()) + (precision.isEmpty() ? 0 : 1);
  const bool hasModel = document_.graph() != nullptr, changes = changesPlan(form.cluster) || !isCounted();
  apply_->setEnabled(problems == 0 && hasModel && changes);
  accept_->setEnabled(problems == 0 && hasModel);
  save_->setEnabled(form.problems.empty());
  const auto profile = document_.design().profile;
  const bool measured = profile && !profile->estimated && changes && isCounted();
  state_->setText(!note_.isEmpty() ? note_
                  : problems == 1  ? tr("One field cannot be used; what is wrong stands below it.")
                  : problems > 1   ? tr("%1 fields cannot be used; what is wrong stands below them.").arg(problems)
                  : !hasModel      ? tr("Open a model to plan for this cluster; it can be saved as a file.")
                  : measured       ? tr("Applying replaces measured times by estimates.")
                  : !isCounted()
                      ? tr("The plan has the layer table's times alone; applying counts this cluster's links, speeds and memory.")
                  : changes                        ? tr("Not applied yet.")
                  : !document_.problem().isEmpty() ? document_.problem()
                                                   : tr("The plan is for this cluster."));
}

/// False after a layer table is opened, until the user applies a cluster: the table has times of its own.
bool ClusterDialog::isCounted() const {
  const auto& profile = document_.design().profile;
  return !profile || profile->sent.empty();
}

bool ClusterDialog::apply() {
  const ReadForm form = read();
  if (!form.problems.empty() || !precisionProblem(form.cluster).isEmpty() || !document_.graph()) return false;
  kept_ = edited();
  if (!changesPlan(form.cluster) && isCounted()) return true;
  const std::string name = nameOf(form.cluster);
  document_.edit(tr("Edit cluster %1").arg(textOf(form.cluster.name)), [&](Design& design) {
    if (name != design.cluster) balanceAnew(document_, design);
    if (name != design.cluster || fields_->precision() != design.precision || !isCounted()) design.profile.reset();
    design.cluster = name;
    design.precision = fields_->precision();
    if (fields_->limits()) design.request.memoryLimit = form.cluster.memoryBytes;
  });
  return true;
}

bool ClusterDialog::save(const QString& path) {
  const ReadForm form = read();
  if (!form.problems.empty()) return false;
  try {
    writeFile(path.toStdString(), toJson(form.cluster) + "\n");
  } catch (const Error& e) {
    note_ = QString::fromUtf8(e.what());
    refresh();
    return false;
  }
  kept_.form = edited().form;  // the rest is of the plan
  note_ = tr("Wrote %1; `pipewright plan --cluster` reads it.").arg(path);
  refresh();
  return true;
}

void ClusterDialog::chooseAndSave() {
  QString name = fields_->form().name.trimmed();
  name.replace(QLatin1Char('/'), QLatin1Char('-'));
  QString path = QFileDialog::getSaveFileName(this, tr("Save cluster"), name + QStringLiteral(".json"), tr("Clusters (*.json)"));
  if (path.isEmpty()) return;
  if (QFileInfo(path).suffix().isEmpty()) path += QStringLiteral(".json");
  save(path);
}

}  // namespace pw::gui
