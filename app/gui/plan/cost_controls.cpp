#include "app/gui/plan/cost_controls.h"

#include <QComboBox>
#include <QFileDialog>
#include <QFileInfo>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QPointer>
#include <QPushButton>
#include <QSettings>
#include <QToolButton>
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "app/gui/cluster/dialog.h"
#include "app/gui/common/elided_label.h"
#include "app/gui/common/format.h"
#include "app/gui/document/balanced.h"
#include "app/gui/document/cluster_title.h"
#include "app/gui/document/document.h"
#include "backends/resources/resources.h"
#include "engine/planning/job_subject.h"
#include "schedules/error.h"
#include "simulator/costs/attention.h"
#include "simulator/costs/cluster_name.h"

namespace pw::gui {
namespace {

constexpr std::array kPrecisions{DType::Unknown, DType::BFloat16, DType::Float16, DType::Float8};
constexpr std::array kAttentions{Attention::AsTraced, Attention::Fused, Attention::Unfused};

/// A design's cluster without the links that were added to it, and those: `h100-nvlink`, `ethernet-25`.
struct ClusterName {
  std::string cluster, links;
};
ClusterName partsOf(const std::string& name, const std::vector<NamedLink>& links) {
  ClusterName parts{name, {}};
  if (isClusterText(name)) return parts;
  for (auto plus = name.rfind('+'); plus != std::string::npos; plus = parts.cluster.rfind('+')) {
    const std::string last = parts.cluster.substr(plus + 1);
    if (std::ranges::find(links, last, &NamedLink::name) == links.end()) break;
    parts.links = parts.links.empty() ? last : last + "+" + parts.links;
    parts.cluster.resize(plus);
  }
  return parts;
}

QString gigabytesPerSecond(const LinkSpec& link) { return QString::number(link.bytesPerSecond / 1e9, 'g', 3); }

}  // namespace

bool hasCluster(const Document& document) { return document.graph() != nullptr && !document.design().job; }

struct CostControls::Private {
  CostControls& controls;
  Document& document;
  std::vector<NamedLink> links = linkPresets();
  QComboBox *cluster = new QComboBox, *link = new QComboBox, *precision = new QComboBox, *attention = new QComboBox;
  ElidedLabel* costs = new ElidedLabel;
  QPushButton* estimate = new QPushButton;
  QToolButton* edit = new QToolButton;
  QPointer<ClusterDialog> dialog;

  Private(CostControls& c, Document& d) : controls(c), document(d) {}
  void addCluster(QFormLayout& form);
  void addLink(QFormLayout& form);
  void addHow(QFormLayout& form);
  void addSource(QFormLayout& form);
  void openFile();
  void showCluster(const std::string& name);
  void rememberCluster(const std::string& name);

  // What the next start opens models with is the last cluster that was chosen and not undone.
  std::shared_ptr<const ModelGraph> opened;
  QVariant settingBefore;
  std::string openedCluster, remembered;
};

CostControls::CostControls(Document& document, QFormLayout& form, QObject* parent)
    : QObject(parent), d(std::make_unique<Private>(*this, document)) {
  d->addCluster(form);
  d->addLink(form);
  d->addHow(form);
  d->addSource(form);
}

CostControls::~CostControls() = default;

void CostControls::Private::addCluster(QFormLayout& form) {
  for (const std::string& preset : clusterPresets()) cluster->addItem(textOf(preset), textOf(preset));
  cluster->insertSeparator(cluster->count());
  cluster->addItem(tr("Open a file…"));
  cluster->setAccessibleName(tr("Cluster"));
  cluster->setToolTip(tr("Hardware that times are estimated for: a preset, or a file with a cluster of your own"));
  QObject::connect(cluster, &QComboBox::activated, &controls, [this](int index) {
    if (!cluster->itemData(index).isValid()) return openFile();
    const std::string added = partsOf(document.design().cluster, links).links;
    controls.useCluster(cluster->itemData(index).toString().toStdString() + (added.empty() ? "" : "+" + added));
  });
  edit->setText(tr("Edi&t…"));
  edit->setAccessibleName(tr("Edit cluster"));
  edit->setFocusPolicy(Qt::StrongFocus);
  edit->setToolTip(tr("Nodes, devices, links, memory and precision of this cluster"));
  QObject::connect(edit, &QAbstractButton::clicked, &controls, &CostControls::editCluster);
  auto* row = new QWidget;
  row->setToolTip(cluster->toolTip());
  auto* line = new QHBoxLayout(row);
  line->setContentsMargins({});
  line->addWidget(cluster, 1);
  line->addWidget(edit);
  auto* label = new QLabel(tr("Cluster"));
  label->setBuddy(cluster);
  form.addRow(label, row);
}

void CostControls::Private::addLink(QFormLayout& form) {
  link->addItem(tr("as in the cluster"), QString());
  for (const NamedLink& one : links) {
    link->addItem(textOf(one.name), textOf(one.name));
    link->setItemData(link->count() - 1,
                      one.betweenNodes ? tr("Between nodes: %1 GB/s. %2").arg(gigabytesPerSecond(one.link), textOf(one.source))
                                       : tr("Inside a node: %1 GB/s. %2").arg(gigabytesPerSecond(one.link), textOf(one.source)),
                      Qt::ToolTipRole);
  }
  link->setAccessibleName(tr("Links"));
  link->setToolTip(tr("A link in place of the cluster's own, between its nodes or inside them"));
  QObject::connect(link, &QComboBox::activated, &controls, [this](int index) {
    const std::string name = link->itemData(index).toString().toStdString();
    const std::string own = partsOf(document.design().cluster, links).cluster;
    if (!isClusterText(own)) return controls.useCluster(own + (name.empty() ? "" : "+" + name));
    const auto added = std::ranges::find(links, name, &NamedLink::name);
    if (added != links.end()) controls.useCluster(toJson(withLink(loadCluster(own), *added)));
  });
  form.addRow(tr("Links"), link);
}

void CostControls::Private::addHow(QFormLayout& form) {
  for (const DType one : kPrecisions) {
    precision->addItem(one == DType::Unknown ? tr("as traced") : textOf(precisionName(one)), static_cast<int>(one));
  }
  precision->setAccessibleName(tr("Estimated precision"));
  precision->setToolTip(tr("Type that estimates count matrix products in (autocast); parameters and gradients stay as traced"));
  QObject::connect(precision, &QComboBox::activated, &controls, [this](int index) {
    document.edit(tr("Estimate in %1").arg(precision->itemText(index)), [&](Design& design) {
      design.precision = static_cast<DType>(precision->itemData(index).toInt());
      design.profile.reset();
    });
  });
  form.addRow(tr("Precision"), precision);
  for (const Attention one : kAttentions) {
    attention->addItem(one == Attention::AsTraced ? tr("as traced") : textOf(nameOf(one)), static_cast<int>(one));
  }
  attention->setAccessibleName(tr("Estimated attention"));
  attention->setToolTip(tr("Whether estimates count attention as a fused kernel, which never writes its scores to memory"));
  QObject::connect(attention, &QComboBox::activated, &controls, [this](int index) {
    document.edit(tr("Estimate attention %1").arg(attention->itemText(index)), [&](Design& design) {
      design.attention = static_cast<Attention>(attention->itemData(index).toInt());
      design.profile.reset();
    });
  });
  form.addRow(tr("Attention"), attention);
}

void CostControls::Private::addSource(QFormLayout& form) {
  costs->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Preferred);
  costs->setAccessibleName(tr("Where times come from"));
  auto* label = new QLabel(tr("Times"));
  label->setToolTip(tr("Whether the times are estimated, measured, or those of a job"));
  form.addRow(label, costs);
  QObject::connect(estimate, &QAbstractButton::clicked, &controls,
                   [this] { document.edit(tr("Use estimated times"), [](Design& design) { design.profile.reset(); }); });
  form.addRow(QString(), estimate);
}

void CostControls::Private::openFile() {
  showCluster(document.design().cluster);  // until a file is chosen
  const QString path = QFileDialog::getOpenFileName(cluster, tr("Open cluster"), {}, tr("Clusters (*.json)"));
  if (!path.isEmpty()) controls.useClusterFile(path);
}

void CostControls::useCluster(const std::string& name) {
  d->document.edit(tr("Choose cluster %1").arg(clusterTitle(name)), [&](Design& design) {
    balanceAnew(d->document, design);
    design.cluster = name;
    design.profile.reset();
  });
}

void CostControls::useClusterFile(const QString& path) {
  const std::string name = QFileInfo(path).absoluteFilePath().toStdString();
  try {
    static_cast<void>(loadCluster(name));
  } catch (const Error& e) {
    emit problem(QString::fromUtf8(e.what()));
    return;
  }
  useCluster(name);
}

void CostControls::editCluster() {
  if (!hasCluster(d->document)) return;
  if (!d->dialog) {
    d->dialog = new ClusterDialog(d->document, d->cluster->window());
    d->dialog->setAttribute(Qt::WA_DeleteOnClose);
  }
  d->dialog->show();
  d->dialog->raise();
  d->dialog->activateWindow();
}

void CostControls::Private::showCluster(const std::string& name) {
  const ClusterName parts = partsOf(name, links);
  const QString own = textOf(parts.cluster), added = textOf(parts.links);
  for (int i = cluster->count() - 3; i >= 0; --i) {  // edited before
    const QString item = cluster->itemData(i).toString();
    if (item != own && isClusterText(item.toStdString())) cluster->removeItem(i);
  }
  if (cluster->findData(own) < 0) {  // a file's, before the separator
    cluster->insertItem(cluster->count() - 2, clusterTitle(parts.cluster), own);
    cluster->setItemData(cluster->count() - 3, isClusterText(parts.cluster) ? clusterTitle(parts.cluster) : own, Qt::ToolTipRole);
  }
  cluster->setCurrentIndex(cluster->findData(own));
  if (link->findData(added) < 0) link->addItem(added, added);
  link->setCurrentIndex(link->findData(added));
}

void CostControls::Private::rememberCluster(const std::string& name) {
  if (!document.graph()) return;  // nothing is planned
  const QString key = QStringLiteral("cluster");
  if (document.graph() != opened) {
    opened = document.graph();
    openedCluster = name;
    settingBefore = QSettings().value(key);
  } else if (name != remembered) {
    const QVariant value = name == openedCluster ? settingBefore : QVariant(textOf(name));
    value.isValid() ? QSettings().setValue(key, value) : QSettings().remove(key);
  }
  remembered = name;
}

void CostControls::showDesign() {
  const Design& design = d->document.design();
  const bool model = hasCluster(d->document);
  for (QWidget* w : std::initializer_list<QWidget*>{d->cluster, d->edit, d->link, d->precision, d->attention}) w->setEnabled(model);
  if (!model && d->dialog) d->dialog->close();  // it was opened for another model
  d->showCluster(design.cluster);
  d->rememberCluster(design.cluster);
  d->precision->setCurrentIndex(d->precision->findData(static_cast<int>(design.precision)));
  d->attention->setCurrentIndex(d->attention->findData(static_cast<int>(design.attention)));
  showSource();
}

void CostControls::showSource() {
  const auto profile = d->document.profile();
  const Design& design = d->document.design();
  const bool own = design.profile != nullptr, isMeasured = own && !design.profile->estimated, ofLayers = profile && !profile->sent.empty();
  d->estimate->setVisible(isMeasured || (own && ofLayers));
  d->estimate->setText(ofLayers ? tr("Count the cluster's lin&ks") : tr("Use estimated times again"));
  d->precision->setEnabled(profile && !ofLayers);
  d->attention->setEnabled(profile && !ofLayers);
  if (design.job) {
    for (QComboBox* box : {d->cluster, d->link, d->precision, d->attention}) box->setEnabled(false);
    d->estimate->setVisible(false);
    const auto prediction = d->document.prediction();
    d->costs->setText(QString::fromStdString(jobTimesText(design.job->job, prediction && !prediction->actionTimes.empty())));
  } else if (!d->document.graph()) {
    d->costs->setText(design.defaultTimes  ? tr("default times")
                      : design.customCosts ? tr("those of the plan's file")
                                           : QStringLiteral("–"));
  } else if (own || ofLayers) {
    d->costs->setText(QString::fromStdString(sourceOf(own ? *design.profile : *profile, design.request.ranks)));
  } else {
    d->costs->setText(profile ? tr("estimated for %1").arg(QString::fromStdString(d->document.cluster().deviceName)) : tr("estimated"));
  }
}

}  // namespace pw::gui
