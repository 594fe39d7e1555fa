#include "app/gui/cluster/fields.h"

#include <QCheckBox>
#include <QComboBox>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QSignalBlocker>
#include <QSpinBox>
#include <QToolButton>

#include "app/gui/cluster/figures.h"
#include "app/gui/common/elided_label.h"
#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"
#include "simulator/costs/profile.h"

namespace pw::gui {
namespace {

constexpr std::array kPrecisions{DType::Unknown, DType::BFloat16, DType::Float16, DType::Float8};
constexpr int kMostNodes = 65536, kMostPerNode = 4096;

constexpr std::size_t at(ClusterField field) { return static_cast<std::size_t>(field); }

void addRow(QFormLayout& rows, const QString& label, QWidget* row, QWidget* buddy) {
  auto* words = new QLabel(label);
  words->setBuddy(buddy);
  words->setToolTip(buddy->toolTip());
  rows.addRow(words, row);
}

/// Widgets beside each other; texts share what room there is.
QWidget* beside(std::initializer_list<QWidget*> widgets) {
  auto* row = new QWidget;
  auto* line = new QHBoxLayout(row);
  line->setContentsMargins({});
  for (QWidget* widget : widgets) line->addWidget(widget, qobject_cast<QLineEdit*>(widget) != nullptr ? 1 : 0);
  return row;
}

}  // namespace

ClusterFields::ClusterFields(const std::vector<NamedLink>& links, QWidget* parent)
    : QWidget(parent),
      device_(new ElidedLabel),
      count_(new QLabel),
      precisionProblem_(problemLabel()),
      nodes_(new QSpinBox),
      perNode_(new QSpinBox),
      limits_(new QCheckBox(tr("Memory limit of the &plan, too"))),
      precision_(new QComboBox) {
  auto* rows = new QFormLayout(this);
  rows->setContentsMargins(0, 0, 6, 0);
  rows->setFieldGrowthPolicy(QFormLayout::AllNonFixedFieldsGrow);
  rows->setLabelAlignment(Qt::AlignRight);
  addName(*rows);
  addDevices(*rows);
  addMemory(*rows);
  for (const DType one : kPrecisions) {
    const std::string_view name = precisionName(one);
    precision_->addItem(one == DType::Unknown ? tr("as traced") : textOf(name), static_cast<int>(one));
  }
  precision_->setAccessibleName(tr("Precision of the plan"));
  precision_->setToolTip(tr("Type that estimates count matrix products in (autocast); a setting of the plan, not of the cluster's file"));
  connect(precision_, &QComboBox::currentIndexChanged, this, &ClusterFields::changed);
  addRow(*rows, tr("Pr&ecision"), precision_, precision_);
  rows->addRow(QString(), precisionProblem_);
  addLink(*rows, tr("Wit&hin a node: latency"), tr("within a node"), ClusterField::NodeLatency, knownLinks(links, false));
  addLink(*rows, tr("Between nodes: latenc&y"), tr("between nodes"), ClusterField::NetworkLatency, knownLinks(links, true));
}

QLabel* ClusterFields::problemLabel() {
  auto* label = new QLabel;
  label->setWordWrap(true);
  label->setTextFormat(Qt::PlainText);
  label->hide();
  return label;
}

void ClusterFields::addText(ClusterField field, const QString& name, const QString& tip) {
  auto* text = new QLineEdit;
  text->setAccessibleName(name);
  text->setToolTip(tip);
  connect(text, &QLineEdit::textEdited, this, &ClusterFields::changed);
  texts_[at(field)] = text;
}

void ClusterFields::addName(QFormLayout& rows) {
  addText(ClusterField::Name, tr("Name of the cluster"), tr("What the cluster is called in lists and reports"));
  QLineEdit* name = texts_[at(ClusterField::Name)];
  addRow(rows, tr("&Name"), name, name);
  rows.addRow(QString(), problems_[at(ClusterField::Name)] = problemLabel());
  device_->setAccessibleName(tr("Device"));
  rows.addRow(tr("Device"), device_);
}

void ClusterFields::addDevices(QFormLayout& rows) {
  nodes_->setRange(0, kMostNodes);
  nodes_->setSpecialValueText(tr("as needed"));
  nodes_->setAccessibleName(tr("Nodes"));
  nodes_->setToolTip(tr("How many nodes there are; 0: as many as a plan needs"));
  perNode_->setRange(1, kMostPerNode);
  perNode_->setAccessibleName(tr("Devices per node"));
  perNode_->setToolTip(tr("Devices of one node, which the link within a node connects"));
  for (QSpinBox* box : {nodes_, perNode_}) {
    connect(box, &QSpinBox::valueChanged, this, [this] {
      showCount();
      emit changed();
    });
  }
  count_->setAccessibleName(tr("Devices in all"));
  auto* row = beside({nodes_, new QLabel(QStringLiteral("×")), perNode_, count_});
  static_cast<QHBoxLayout*>(row->layout())->addStretch(1);
  addRow(rows, tr("Nodes × de&vices"), row, nodes_);
  rows.addRow(QString(), problems_[at(ClusterField::Nodes)] = problemLabel());
}

void ClusterFields::addMemory(QFormLayout& rows) {
  addText(ClusterField::Memory, tr("Memory per device"), tr("Of each device: 80 GB, 64 GiB"));
  QLineEdit* memory = texts_[at(ClusterField::Memory)];
  addRow(rows, tr("&Memory per device"), memory, memory);
  rows.addRow(QString(), problems_[at(ClusterField::Memory)] = problemLabel());
  limits_->setAccessibleName(tr("Memory limit of the plan, too"));
  limits_->setToolTip(tr("Applying makes this memory the memory limit of a rank under Plan; otherwise that stays as it is"));
  connect(limits_, &QCheckBox::toggled, this, &ClusterFields::changed);
  rows.addRow(QString(), limits_);
}

/// A button whose menu fills in the figures of a link.
QWidget* ClusterFields::knownLinks(const std::vector<NamedLink>& links, bool betweenNodes) {
  auto* button = new QToolButton;
  button->setText(betweenNodes ? tr("&Known") : tr("Kno&wn"));
  button->setAccessibleName(betweenNodes ? tr("Known links between nodes") : tr("Known links within a node"));
  button->setToolTip(tr("Figures of a link that is sold"));
  button->setPopupMode(QToolButton::InstantPopup);
  button->setFocusPolicy(Qt::StrongFocus);
  auto* menu = new QMenu(button);
  menu->setToolTipsVisible(true);
  for (const NamedLink& known : links) {
    if (known.betweenNodes != betweenNodes) continue;
    const LinkForm form{latencyInput(known.link.latency), bandwidthInput(known.link.bytesPerSecond)};
    QAction* action = menu->addAction(QStringLiteral("%1: %2, %3").arg(QString::fromStdString(known.name), form.latency, form.bandwidth));
    action->setToolTip(QString::fromStdString(known.source));
    connect(action, &QAction::triggered, this, [this, form, betweenNodes] {
      const ClusterField latency = betweenNodes ? ClusterField::NetworkLatency : ClusterField::NodeLatency;
      texts_[at(latency)]->setText(form.latency);
      texts_[at(latency) + 1]->setText(form.bandwidth);
    });
    connect(action, &QAction::triggered, this, &ClusterFields::changed);
  }
  button->setMenu(menu);
  return button;
}

void ClusterFields::addLink(QFormLayout& rows, const QString& label, const QString& where, ClusterField latency, QWidget* known) {
  const auto bandwidth = static_cast<ClusterField>(at(latency) + 1);
  addText(latency, tr("Latency %1").arg(where), tr("From the start of a message to its first byte: 5 µs, 0.2 ms"));
  addText(bandwidth, tr("Bandwidth %1").arg(where),
          tr("Of one direction: 50 GB/s; 400 Gb/s counts bits. 0: messages take the latency only"));
  addRow(rows, label, texts_[at(latency)], texts_[at(latency)]);
  rows.addRow(QString(), problems_[at(latency)] = problemLabel());
  addRow(rows, tr("bandwidth"), beside({texts_[at(bandwidth)], known}), texts_[at(bandwidth)]);
  rows.addRow(QString(), problems_[at(bandwidth)] = problemLabel());
}

void ClusterFields::showCount() {
  const int nodes = nodes_->value();
  count_->setText(nodes == 0 ? QString() : tr("= %1 devices").arg(std::int64_t{nodes} * perNode_->value()));
}

void ClusterFields::setForm(const ClusterForm& form, const QString& device, const QString& deviceDetails) {
  const QSignalBlocker quiet(this);
  texts_[at(ClusterField::Name)]->setText(form.name);
  texts_[at(ClusterField::Memory)]->setText(form.memory);
  texts_[at(ClusterField::NodeLatency)]->setText(form.sameNode.latency);
  texts_[at(ClusterField::NodeBandwidth)]->setText(form.sameNode.bandwidth);
  texts_[at(ClusterField::NetworkLatency)]->setText(form.network.latency);
  texts_[at(ClusterField::NetworkBandwidth)]->setText(form.network.bandwidth);
  nodes_->setValue(form.nodes);
  perNode_->setValue(form.devicesPerNode);
  device_->setText(device);
  device_->setToolTip(deviceDetails);
  showCount();
}

ClusterForm ClusterFields::form() const {
  const auto text = [this](ClusterField field) { return texts_[at(field)]->text(); };
  return {text(ClusterField::Name),
          nodes_->value(),
          perNode_->value(),
          text(ClusterField::Memory),
          {text(ClusterField::NodeLatency), text(ClusterField::NodeBandwidth)},
          {text(ClusterField::NetworkLatency), text(ClusterField::NetworkBandwidth)},
          {}};
}

void ClusterFields::setPrecision(DType precision) {
  const QSignalBlocker quiet(precision_);
  precision_->setCurrentIndex(precision_->findData(static_cast<int>(precision)));
}

DType ClusterFields::precision() const { return static_cast<DType>(precision_->currentData().toInt()); }

void ClusterFields::setLimits(bool limits) {
  const QSignalBlocker quiet(limits_);
  limits_->setChecked(limits);
}

bool ClusterFields::limits() const { return limits_->isChecked(); }

void ClusterFields::mark(QWidget* field, QLabel* label, const QString& sentence) {
  QPalette colours = palette();
  colours.setColor(QPalette::WindowText, currentTheme().error);
  label->setPalette(colours);
  label->setText(sentence);
  label->setVisible(!sentence.isEmpty());
  QPalette own = palette();
  if (!sentence.isEmpty()) own.setColor(QPalette::Text, currentTheme().error);
  field->setPalette(own);
  field->setAccessibleDescription(sentence);
}

void ClusterFields::showProblems(const std::vector<FieldProblem>& problems, const QString& precision) {
  for (std::size_t f = 0; f < kFields; ++f) {
    QString sentence;
    for (const FieldProblem& problem : problems) {
      if (at(problem.field) == f && sentence.isEmpty()) sentence = problem.sentence;
    }
    QWidget* field = texts_[f] != nullptr ? static_cast<QWidget*>(texts_[f]) : nodes_;
    mark(field, problems_[f], sentence);
  }
  mark(precision_, precisionProblem_, precision);
}

}  // namespace pw::gui
