#include "app/gui/plan/panel.h"

#include <QComboBox>
#include <QFormLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QScrollArea>
#include <QSignalBlocker>
#include <QSpinBox>
#include <QStyle>
#include <QVBoxLayout>
#include <algorithm>
#include <initializer_list>

#include "app/gui/common/format.h"
#include "app/gui/document/document.h"
#include "app/gui/document/execution.h"
#include "app/gui/document/loading.h"
#include "app/gui/plan/cost_controls.h"
#include "app/gui/plan/default_times_fields.h"
#include "app/gui/plan/results.h"
#include "app/gui/plan/schedule_box.h"
#include "engine/planning/inputs/limits.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/plan/planner.h"

namespace pw::gui {
namespace {

/// The stages of each rank, while they fit a line.
QString customText(const Schedule& rows) {
  constexpr std::size_t kMostStages = 8;
  const auto& rankOf = rows.placement.rankOfStage;
  if (rankOf.size() > kMostStages) return PlanPanel::tr("custom");
  QStringList ranks;
  for (std::size_t r = 0; r < rows.rows.size(); ++r) {
    QStringList stages;
    for (std::size_t s = 0; s < rankOf.size(); ++s) {
      if (rankOf[s].index() == r) stages << QString::number(s);
    }
    ranks << stages.join(QLatin1Char(' '));
  }
  return PlanPanel::tr("custom: stages %1").arg(ranks.join(QStringLiteral(" | ")));
}

QString placementText(const Schedule& rows) {
  switch (kindOf(rows.placement, shapeOf(rows))) {
    case PlacementKind::Loop: return PlanPanel::tr("loop, rank by rank");
    case PlacementKind::V: return PlanPanel::tr("V, down and back up");
    case PlacementKind::Wave: return PlanPanel::tr("wave, in zigzag");
    case PlacementKind::Bidirectional: return PlanPanel::tr("two mirrored copies");
    case PlacementKind::Custom: return customText(rows);
  }
  return {};
}

/// Shows a value that the design has already, without a signal.
void setQuietly(QSpinBox* box, int value) {
  const QSignalBlocker quiet(box);
  box->setValue(value);
}

/// Those of their fields, where they have none.
void giveLabelsTheirTips(QFormLayout& form) {
  for (int row = 0; row < form.rowCount(); ++row) {
    const QLayoutItem *label = form.itemAt(row, QFormLayout::LabelRole), *field = form.itemAt(row, QFormLayout::FieldRole);
    if (label != nullptr && field != nullptr && label->widget()->toolTip().isEmpty())
      label->widget()->setToolTip(field->widget()->toolTip());
  }
}

/// What the box offers, in its order: each kind, and with a momentum where it has one.
std::vector<OptimizerSpec> offeredOptimizers() {
  std::vector<OptimizerSpec> offered;
  for (const OptimizerFacts& facts : kOptimizers) {
    offered.emplace_back().kind = facts.kind;
    if (!facts.hasMomentum) continue;
    offered.emplace_back(offered.back()).momentum = 0.9;
  }
  return offered;
}

}  // namespace

struct PlanPanel::Private {
  PlanPanel& panel;
  Document& document;
  ScheduleBox* schedule = nullptr;
  QComboBox *recompute = nullptr, *sharing = nullptr, *optimizer = nullptr;
  CostControls* costs = nullptr;
  DefaultTimesFields* times = nullptr;
  QSpinBox *ranks = nullptr, *chunks = nullptr, *microbatches = nullptr, *microbatch = nullptr, *replicas = nullptr;
  QLineEdit* limit = nullptr;
  QLabel* placement = nullptr;
  QFormLayout* settings = nullptr;
  PlanResults* results = nullptr;
  QPushButton *run = nullptr, *profile = nullptr, *replan = nullptr;
  std::optional<Design> shown;  ///< without its splits

  Private(PlanPanel& p, Document& d) : panel(p), document(d) {}
  void build();
  QSpinBox* addSpin(QFormLayout& form, const QString& name, int low, int high, const QString& tip,
                    const std::function<void(PlanRequest&, int)>& change);
  void addShape(QFormLayout& form);
  void addRecompute(QFormLayout& form);
  void addSharing(QFormLayout& form);
  void addOptimizer(QFormLayout& form);
  void addLimit(QFormLayout& form);
  [[nodiscard]] Design unsplit() const;
  void showDesign();
  void showShape();
  void allowWhatThereIs();
  void allowRun();
  bool isBusy = false;
  void showPlacement();
  void showTrace();
  [[nodiscard]] std::shared_ptr<const Measured> traceAlone() const;
};

PlanPanel::PlanPanel(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(*this, document)) {
  setAccessibleName(tr("Plan"));
  d->build();
  connect(&document, &Document::designChanged, this, [this] {
    if (d->shown != d->unsplit()) d->showDesign();
  });
  connect(&document, &Document::modelChanged, this, [this] { d->showDesign(); });
  connect(&document, &Document::measuredChanged, this, [this] {
    d->showDesign();
    d->showPlacement();
  });
  connect(d->results, &PlanResults::shown, this, [this] {
    d->costs->showSource();
    d->showPlacement();
    d->allowRun();
  });
  d->showDesign();
  d->showPlacement();
}

PlanPanel::~PlanPanel() {
  for (QLineEdit* line : {d->limit, d->recompute->lineEdit()}) line->blockSignals(true);  // they lose the focus when `d` is gone
}

void PlanPanel::setBusy(bool busy) {
  d->isBusy = busy;
  d->allowRun();
}

bool PlanPanel::isIdle() const { return d->results->isIdle(); }

void PlanPanel::editCluster() { d->costs->editCluster(); }

void PlanPanel::useCluster(const std::string& name) { d->costs->useCluster(name); }

void PlanPanel::Private::build() {
  auto* inside = new QWidget;
  auto* column = new QVBoxLayout(inside);
  auto* form = settings = new QFormLayout;
  form->setFieldGrowthPolicy(QFormLayout::ExpandingFieldsGrow);
  form->setLabelAlignment(Qt::AlignRight);
  form->setRowWrapPolicy(QFormLayout::WrapLongRows);  // in a narrow window
  schedule = new ScheduleBox(document);
  schedule->setToolTip(PlanPanel::tr("Order of the forwards and backwards on each rank"));
  form->addRow(PlanPanel::tr("Schedule"), schedule);
  addShape(*form);
  times = new DefaultTimesFields(document, *form, &panel);
  addRecompute(*form);
  addSharing(*form);
  addOptimizer(*form);
  costs = new CostControls(document, *form, &panel);
  addLimit(*form);
  giveLabelsTheirTips(*form);
  column->addLayout(form);
  results = new PlanResults(document);
  column->addWidget(results);
  QObject::connect(costs, &CostControls::problem, results, &PlanResults::showProblem);
  QObject::connect(times, &DefaultTimesFields::problem, results, &PlanResults::showProblem);
  auto* buttons = new QHBoxLayout;
  profile = new QPushButton(PlanPanel::tr("Profile here"));
  run = new QPushButton(PlanPanel::tr("&Run"));
  QObject::connect(profile, &QAbstractButton::clicked, &panel, &PlanPanel::profileRequested);
  QObject::connect(run, &QAbstractButton::clicked, &panel, &PlanPanel::runRequested);
  replan = new QPushButton(PlanPanel::tr("Re-plan from this &trace"));
  replan->setObjectName(QStringLiteral("replan"));
  replan->setToolTip(PlanPanel::tr("Make a plan whose costs are the job's usual times, and try other schedules and numbers on it"));
  QObject::connect(replan, &QAbstractButton::clicked, &panel, &PlanPanel::replanRequested);
  buttons->addWidget(replan);
  buttons->addWidget(profile);
  buttons->addWidget(run);
  column->addStretch();
  auto* scroll = new QScrollArea;
  scroll->setFrameShape(QFrame::NoFrame);
  scroll->setFocusPolicy(Qt::NoFocus);
  scroll->setWidgetResizable(true);
  scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  scroll->setWidget(inside);
  for (QComboBox* box : inside->findChildren<QComboBox*>()) {
    box->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
    box->setMinimumContentsLength(12);
    box->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  }
  panel.setMinimumWidth(inside->minimumSizeHint().width() + panel.style()->pixelMetric(QStyle::PM_ScrollBarExtent));
  auto* all = new QVBoxLayout(&panel);
  all->setContentsMargins(0, 0, 0, 0);
  all->addWidget(scroll);
  const int margin = panel.style()->pixelMetric(QStyle::PM_LayoutLeftMargin);
  buttons->setContentsMargins(margin, 0, margin, margin);
  all->addLayout(buttons);  // in sight however much there is above
}

QSpinBox* PlanPanel::Private::addSpin(QFormLayout& form, const QString& name, int low, int high, const QString& tip,
                                      const std::function<void(PlanRequest&, int)>& change) {
  auto* box = new QSpinBox;
  box->setRange(low, high);
  box->setKeyboardTracking(false);
  box->setAccessibleName(name);
  box->setToolTip(tip);
  QObject::connect(box, &QSpinBox::valueChanged, &panel, [this, name, change](int value) {
    changeShape(document, PlanPanel::tr("Change %1").arg(name.toLower()), [&](PlanRequest& r) { change(r, value); });
  });
  auto* label = new QLabel(name);
  label->setBuddy(box);
  form.addRow(label, box);
  return box;
}

void PlanPanel::Private::addShape(QFormLayout& form) {
  ranks = addSpin(form, PlanPanel::tr("Ranks"), 1, kMaxRanks, PlanPanel::tr("Devices that the pipeline of one replica is on"),
                  [](PlanRequest& r, int value) { r.ranks = value; });
  chunks = addSpin(form, PlanPanel::tr("Chunks"), 1, kMostPlanChunks, PlanPanel::tr("Stages on each rank"),
                   [](PlanRequest& r, int value) { r.chunks = value; });
  placement = new QLabel;
  placement->setEnabled(false);
  placement->setToolTip(PlanPanel::tr("Which rank has which stage"));
  form.addRow(PlanPanel::tr("Placement"), placement);
  microbatches =
      addSpin(form, PlanPanel::tr("Microbatches"), 1, kMaxMicrobatches,
              PlanPanel::tr("Parts that the samples of a step are divided into, in each replica"), [](PlanRequest& r, int value) {
                r.microbatches = value;
                r.batch = 0;
              });
  microbatch = addSpin(form, PlanPanel::tr("Microbatch size"), 1, static_cast<int>(kMostMicrobatchSamples),
                       PlanPanel::tr("Samples in each microbatch"), [](PlanRequest& r, int value) {
                         r.microbatch = value;
                         r.batch = 0;
                       });
  replicas = addSpin(form, PlanPanel::tr("Replicas"), 1, kMaxReplicas, PlanPanel::tr("Data-parallel copies of the pipeline"),
                     [](PlanRequest& r, int value) {
                       r.replicas = value;
                       r.batch = 0;
                     });
}

void PlanPanel::Private::addRecompute(QFormLayout& form) {
  recompute = new QComboBox;
  recompute->setEditable(true);
  recompute->setInsertPolicy(QComboBox::NoInsert);
  recompute->addItems({QStringLiteral("none"), QStringLiteral("full"), QStringLiteral("auto")});
  recompute->setAccessibleName(PlanPanel::tr("Recompute"));
  recompute->setToolTip(
      PlanPanel::tr("Activations to recompute in the backward instead of keeping them: none, full (whole stages), auto (as little as the "
                    "memory limit allows), or module names"));
  const auto takeRecompute = [this] {
    recompute->lineEdit()->setModified(false);
    std::vector<std::string> names;
    for (const QString& part : recompute->currentText().split(QLatin1Char(','), Qt::SkipEmptyParts))
      names.push_back(part.trimmed().toStdString());
    document.edit(PlanPanel::tr("Change recomputation"), [&](Design& design) { design.request.recompute = parseRecompute(names); });
  };
  QObject::connect(recompute, &QComboBox::activated, &panel, takeRecompute);
  QObject::connect(recompute->lineEdit(), &QLineEdit::editingFinished, &panel, takeRecompute);
  form.addRow(PlanPanel::tr("Recompute"), recompute);
}

void PlanPanel::Private::addSharing(QFormLayout& form) {
  sharing = new QComboBox;
  sharing->addItems({PlanPanel::tr("fastest"), PlanPanel::tr("replicated"), PlanPanel::tr("transmitted")});
  sharing->setAccessibleName(PlanPanel::tr("Shared parameters"));
  sharing->setToolTip(
      PlanPanel::tr("Parameters used by several stages: each updates a copy (replicated), or one updates and sends it (transmitted)"));
  QObject::connect(sharing, &QComboBox::activated, &panel, [this](int index) {
    document.edit(PlanPanel::tr("Change shared parameters"), [&](Design& design) {
      design.request.sharing = index == 0 ? std::nullopt : std::optional(index == 1 ? Sharing::Replicate : Sharing::Transmit);
    });
  });
  form.addRow(PlanPanel::tr("Shared parameters"), sharing);
}

void PlanPanel::Private::addOptimizer(QFormLayout& form) {
  optimizer = new QComboBox;
  for (const OptimizerSpec& offered : offeredOptimizers()) {
    const QString kind = QString::fromUtf8(factsOf(offered.kind).className);
    optimizer->addItem(offered.momentum > 0 ? PlanPanel::tr("%1, momentum %2").arg(kind).arg(offered.momentum) : kind);
  }
  optimizer->setAccessibleName(PlanPanel::tr("Optimizer"));
  optimizer->setToolTip(PlanPanel::tr("Optimizer whose state is counted in memory and time"));
  QObject::connect(optimizer, &QComboBox::activated, &panel, [this](int index) {
    document.edit(PlanPanel::tr("Change optimizer"),
                  [&](Design& design) { design.request.optimizer = offeredOptimizers().at(static_cast<std::size_t>(index)); });
  });
  form.addRow(PlanPanel::tr("Optimizer"), optimizer);
}

void PlanPanel::Private::addLimit(QFormLayout& form) {
  limit = new QLineEdit;
  limit->setPlaceholderText(PlanPanel::tr("none, or for example 24GiB"));
  limit->setAccessibleName(PlanPanel::tr("Memory limit of a rank"));
  limit->setToolTip(PlanPanel::tr("Memory that a rank may need; plans that need more do not fit"));
  QObject::connect(limit, &QLineEdit::editingFinished, &panel, [this] {
    limit->setModified(false);  // taken: undo is the document's from here on
    const std::string text = QString(limit->text()).remove(QLatin1Char(' ')).toStdString();
    const Answer<Bytes> bytes = text.empty() ? Bytes(0) : trySize(text);
    if (!bytes) return results->showProblem(QString::fromStdString(bytes.refusal().why));
    document.edit(PlanPanel::tr("Change memory limit"), [&](Design& design) { design.request.memoryLimit = *bytes; });
  });
  form.addRow(PlanPanel::tr("Memory limit"), limit);
}

/// Everything of the design that this panel shows. A drag of a block changes the order of a drawn schedule only, which it does not.
Design PlanPanel::Private::unsplit() const {
  Design design = document.design();
  design.request.begins.clear();
  if (document.isDragging()) design.drawn.clear();
  return design;
}

void PlanPanel::Private::showDesign() {
  shown = unsplit();
  const PlanRequest& r = document.design().request;
  schedule->showDesign();
  showShape();
  QStringList names;
  for (const std::string& n : wordsOf(r.recompute)) names << QString::fromStdString(n);
  if (!recompute->lineEdit()->hasFocus()) recompute->setEditText(names.join(QLatin1Char(',')));
  sharing->setCurrentIndex(!r.sharing ? 0 : *r.sharing == Sharing::Replicate ? 1 : 2);
  const std::vector<OptimizerSpec> offered = offeredOptimizers();
  const auto chosen = std::ranges::find(offered, r.optimizer);
  optimizer->setCurrentIndex(chosen == offered.end() ? -1 : static_cast<int>(chosen - offered.begin()));
  if (!limit->isModified()) limit->setText(r.memoryLimit > 0 ? sizeText(r.memoryLimit) : QString());
  allowWhatThereIs();
  showTrace();
  costs->showDesign();  // after it, as the next: a row of its own may be hidden
  times->showDesign();
}

void PlanPanel::Private::showShape() {
  const Design& design = document.design();
  const PlanRequest& r = design.request;
  setQuietly(ranks, r.ranks);
  setQuietly(microbatches, r.microbatches);
  setQuietly(microbatch, static_cast<int>(std::min(r.microbatch, kMostMicrobatchSamples)));
  setQuietly(replicas, r.replicas);
  int stages = 0;
  try {
    stages = document.graph() || design.customCosts ? stagesOf(design) : 0;
  } catch (const UsageError&) {}  // a project may name a schedule that is none; the prediction says so
  setQuietly(chunks, r.ranks > 0 ? std::max(1, stages / r.ranks) : 1);
}

/// Enables the settings of a model. There is none behind a job's times, which are of its own microbatches and replicas; its memory is known
/// where its traces show it.
void PlanPanel::Private::allowWhatThereIs() {
  const bool model = document.graph() != nullptr;
  const auto& job = document.design().job;
  for (QWidget* w : std::initializer_list<QWidget*>{schedule, ranks, chunks, microbatches}) w->setEnabled(model);
  for (QWidget* w : std::initializer_list<QWidget*>{microbatch, replicas, recompute, sharing, optimizer}) w->setEnabled(model && !job);
  limit->setEnabled(model && (!job || !job->job.memory.empty()));
  allowRun();
}

/// A plan that cannot be predicted cannot be run either; the buttons say why.
void PlanPanel::Private::allowRun() {
  const QString busy = isBusy ? PlanPanel::tr("Another run or measurement is in progress; wait for its end, or cancel it.") : QString();
  const QString problem = isBusy ? busy : obstacleToRun(document), unmeasured = isBusy ? busy : obstacleToProfile(document);
  run->setEnabled(problem.isEmpty());
  run->setToolTip(!problem.isEmpty() ? problem
                  : rehearses(document)
                      ? PlanPanel::tr("Rehearse a few steps of this plan on this machine: stages take as long as the layer "
                                      "table says and compute nothing, messages are sent")
                      : PlanPanel::tr("Train a few steps of this plan on this machine and measure them"));
  profile->setEnabled(unmeasured.isEmpty());
  profile->setToolTip(!unmeasured.isEmpty() ? unmeasured
                                            : PlanPanel::tr("Measure the model's operators on this machine instead of estimating them"));
}

void PlanPanel::Private::showPlacement() {
  const auto p = document.prediction();
  const auto trace = traceAlone();
  const Schedule* const rows = p ? p->rows.get() : trace && trace->executed ? &*trace->executed : nullptr;
  placement->setText(rows != nullptr ? placementText(*rows) : QStringLiteral("–"));
}

/// The trace of another tool where nothing else is open: then there is no plan to show.
std::shared_ptr<const Measured> PlanPanel::Private::traceAlone() const {
  const bool hasDesign = document.graph() != nullptr || document.design().customCosts != nullptr;
  const auto measured = document.measured();
  return !hasDesign && measured && measured->metrics ? measured : nullptr;
}

/// What a trace says of its plan takes the place of a plan's settings, and those that it does not say are hidden.
void PlanPanel::Private::showTrace() {
  const auto trace = traceAlone();
  const std::vector<const QWidget*> said{schedule, ranks, chunks, placement, microbatches};
  for (int row = 0; row < settings->rowCount(); ++row) {
    const QLayoutItem* const field = settings->itemAt(row, QFormLayout::FieldRole);
    settings->setRowVisible(row, !trace || (field != nullptr && std::ranges::find(said, field->widget()) != said.end()));
  }
  for (QPushButton* button : {run, profile}) button->setVisible(!trace);
  replan->setVisible(trace && !trace->from.paths.empty());
  ranks->setSuffix({});
  if (!trace) return;
  schedule->showExecuted(trace->executed ? &*trace->executed : nullptr);
  const int own = trace->executed ? static_cast<int>(trace->executed->rows.size()) : trace->trace.ranks;
  const int copies = trace->trace.ranks / std::max(1, own);
  if (copies > 1) ranks->setSuffix(PlanPanel::tr(" in each of %1 copies").arg(copies));
  setQuietly(ranks, own);
  settings->setRowVisible(chunks, trace->executed.has_value());
  settings->setRowVisible(microbatches, trace->executed.has_value());
  if (!trace->executed) return;
  setQuietly(chunks, static_cast<int>(trace->executed->placement.stages()) / std::max(1, own));
  setQuietly(microbatches, trace->executed->microbatches);
}

}  // namespace pw::gui
