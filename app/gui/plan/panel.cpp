#include "app/gui/plan/panel.h"

#include <QComboBox>
#include <QFileInfo>
#include <QFormLayout>
#include <QGridLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPainter>
#include <QPushButton>
#include <QScrollArea>
#include <QSignalBlocker>
#include <QSpinBox>
#include <QStandardItemModel>
#include <QStyle>
#include <QTimer>
#include <QVBoxLayout>

#include "app/gui/common/format.h"
#include "app/gui/common/jobs.h"
#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "backends/resources/resources.h"
#include "backends/store/past_error.h"
#include "backends/store/run_store.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/units.h"
#include "simulator/report/lower_bound.h"

namespace pw::gui {
namespace {

/// Peak memory of each rank as bars against the limit.
class MemoryBars : public QWidget {
 public:
  MemoryBars() {
    setAccessibleName(PlanPanel::tr("Peak memory per rank"));
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  }
  void show(const std::vector<RankMetrics>& ranks, Bytes limit) {
    ranks_ = ranks;
    limit_ = limit;
    QStringList words;
    for (const RankMetrics& rank : ranks_) words << PlanPanel::tr("rank %1: %2").arg(rank.rank.value).arg(pw::gui::size(rank.peakBytes));
    setAccessibleDescription(words.join(QStringLiteral(", ")));
    updateGeometry();
    update();
  }
  [[nodiscard]] QSize sizeHint() const override { return {160, static_cast<int>(std::min<std::size_t>(ranks_.size(), kMost)) * row() + 4}; }
  [[nodiscard]] QSize minimumSizeHint() const override { return sizeHint(); }

 protected:
  void paintEvent(QPaintEvent*) override {
    QPainter painter(this);
    const Theme& t = currentTheme();
    Bytes most = limit_;
    for (const RankMetrics& rank : ranks_) most = std::max(most, rank.peakBytes);
    const int label = fontMetrics().horizontalAdvance(QStringLiteral("rank 000 ")),
              value = fontMetrics().horizontalAdvance(QStringLiteral("1023.0 MiB "));
    const double bar = std::max(10, width() - label - value);
    const std::size_t shown = std::min<std::size_t>(ranks_.size(), kMost);
    for (std::size_t i = 0; i < shown; ++i) {
      const RankMetrics& rank = ranks_[i];
      const int y = static_cast<int>(i) * row();
      const bool over = limit_ > 0 && rank.peakBytes > limit_;
      painter.setPen(t.faintText);
      painter.drawText(QRect(0, y, label, row()), Qt::AlignVCenter,
                       i + 1 == kMost && ranks_.size() > kMost ? QStringLiteral("…") : PlanPanel::tr("rank %1").arg(rank.rank.value));
      const double length = most > 0 ? bar * static_cast<double>(rank.peakBytes) / static_cast<double>(most) : 0;
      painter.fillRect(QRectF(label, y + 3, bar, row() - 6), t.bubble);
      painter.fillRect(QRectF(label, y + 3, length, row() - 6), over ? t.error : t.accent);
      painter.setPen(over ? t.error : t.text);
      painter.drawText(QRect(width() - value, y, value, row()), Qt::AlignVCenter | Qt::AlignRight, pw::gui::size(rank.peakBytes));
    }
    if (limit_ > 0 && most > 0) {
      const double x = label + bar * static_cast<double>(limit_) / static_cast<double>(most);
      painter.setPen(QPen(t.error, 1.5, Qt::DashLine));
      painter.drawLine(QPointF(x, 0), QPointF(x, static_cast<double>(shown) * row()));
    }
  }

 private:
  static constexpr std::size_t kMost = 16;
  [[nodiscard]] int row() const { return fontMetrics().height() + 4; }
  std::vector<RankMetrics> ranks_;
  Bytes limit_ = 0;
};

QLabel* figure(const QString& name) {
  auto* label = new QLabel(QStringLiteral("–"));
  label->setAccessibleName(name);
  label->setWordWrap(true);
  label->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  return label;
}

/// Elements of the first integer input per sample: tokens, where a model reads them.
std::int64_t tokensPerSample(const ModelGraph& graph) {
  for (const ValueId id : graph.inputs) {
    const auto& tensor = graph.value(id).tensor;
    if (tensor && tensor->dtype == DType::Int64 && tensor->sizes.size() == 2) return tensor->sizes[1].hint;
  }
  return 0;
}

QString placementText(PlacementKind kind) {
  switch (kind) {
    case PlacementKind::Loop: return PlanPanel::tr("loop, rank by rank");
    case PlacementKind::V: return PlanPanel::tr("V, down and back up");
    case PlacementKind::Wave: return PlanPanel::tr("wave, in zigzag");
    case PlacementKind::Bidirectional: return PlanPanel::tr("two mirrored copies");
    case PlacementKind::Custom: return PlanPanel::tr("as in the file");
  }
  return {};
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
  QComboBox *schedule = nullptr, *recompute = nullptr, *sharing = nullptr, *optimizer = nullptr, *cluster = nullptr;
  QSpinBox *ranks = nullptr, *chunks = nullptr, *microbatches = nullptr, *microbatch = nullptr, *replicas = nullptr;
  QLineEdit* limit = nullptr;
  QLabel *placement = nullptr, *costs = nullptr, *hint = nullptr;
  QLabel *step = nullptr, *rate = nullptr, *bubble = nullptr, *lower = nullptr, *makespan = nullptr, *error = nullptr;
  QLabel *rateName = nullptr, *memoryName = nullptr;
  MemoryBars* memory = nullptr;
  QPushButton *run = nullptr, *profile = nullptr, *estimate = nullptr;
  Job lowerJob;
  QTimer lowerTimer;
  QTimer soon;                  ///< shows a drag's results
  std::optional<Design> shown;  ///< without its splits
  std::shared_ptr<const Prediction> lowerOf;
  std::vector<RunSummary> runs;  ///< of the store

  Private(PlanPanel& p, Document& d) : panel(p), document(d) {}
  void build();
  void buildDesign(QFormLayout& form);
  QWidget* buildResults();
  [[nodiscard]] Design unsplit() const;
  void showDesign();
  void follow();
  void showResults();
  void showCosts();
  void refuseSchedules();
  void findLowerBound();
  void readRuns();
  void changeShape(const QString& what, const std::function<void(PlanRequest&)>& change);
};

PlanPanel::PlanPanel(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(*this, document)) {
  setAccessibleName(tr("Plan"));
  d->build();
  d->lowerTimer.setSingleShot(true);
  d->lowerTimer.setInterval(200);  // during a drag only the final state is worth it
  connect(&d->lowerTimer, &QTimer::timeout, this, [this] { d->findLowerBound(); });
  d->soon.setSingleShot(true);
  d->soon.setInterval(kReadableMs);
  connect(&d->soon, &QTimer::timeout, this, [this] { d->showResults(); });
  connect(&document, &Document::designChanged, this, [this] {
    if (d->shown != d->unsplit()) d->showDesign();
  });
  connect(&document, &Document::modelChanged, this, [this] { d->showDesign(); });
  connect(&document, &Document::predictionChanged, this, [this] { d->follow(); });
  connect(&document, &Document::storeChanged, this, [this] { d->readRuns(); });
  d->showDesign();
  d->showResults();
}

PlanPanel::~PlanPanel() = default;

bool PlanPanel::isIdle() const { return !d->soon.isActive() && !d->lowerTimer.isActive() && !d->lowerJob.isRunning(); }

/// Other numbers of ranks or chunks lead to other stages: the splits are balanced again with the prediction.
void PlanPanel::Private::changeShape(const QString& what, const std::function<void(PlanRequest&)>& change) {
  document.edit(what, [&](Design& design) {
    change(design.request);
    design.customRows.reset();
    design.source.clear();
  });
}

void PlanPanel::Private::build() {
  auto* inside = new QWidget;
  auto* column = new QVBoxLayout(inside);
  auto* form = new QFormLayout;
  form->setFieldGrowthPolicy(QFormLayout::ExpandingFieldsGrow);
  form->setLabelAlignment(Qt::AlignRight);
  buildDesign(*form);
  column->addLayout(form);
  hint = new QLabel;
  hint->setWordWrap(true);
  hint->setVisible(false);
  hint->setAccessibleName(PlanPanel::tr("Problem"));
  column->addWidget(hint);
  column->addWidget(buildResults());
  auto* buttons = new QHBoxLayout;
  profile = new QPushButton(PlanPanel::tr("&Profile here"));
  profile->setToolTip(PlanPanel::tr("Measure the model's operators on this machine instead of estimating them"));
  run = new QPushButton(PlanPanel::tr("&Run"));
  run->setToolTip(PlanPanel::tr("Train a few steps of this plan on this machine and measure them"));
  QObject::connect(profile, &QAbstractButton::clicked, &panel, &PlanPanel::profileRequested);
  QObject::connect(run, &QAbstractButton::clicked, &panel, &PlanPanel::runRequested);
  buttons->addWidget(profile);
  buttons->addWidget(run);
  column->addLayout(buttons);
  column->addStretch();
  auto* scroll = new QScrollArea;
  scroll->setFrameShape(QFrame::NoFrame);
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
}

void PlanPanel::Private::buildDesign(QFormLayout& form) {
  const auto spin = [&](const QString& name, int low, int high, const std::function<void(PlanRequest&, int)>& change) {
    auto* box = new QSpinBox;
    box->setRange(low, high);
    box->setKeyboardTracking(false);
    box->setAccessibleName(name);
    QObject::connect(box, &QSpinBox::valueChanged, &panel, [this, name, change](int value) {
      changeShape(PlanPanel::tr("Change %1").arg(name.toLower()), [&](PlanRequest& r) { change(r, value); });
    });
    auto* label = new QLabel(name);
    label->setBuddy(box);
    form.addRow(label, box);
    return box;
  };
  schedule = new QComboBox;
  schedule->setAccessibleName(PlanPanel::tr("Schedule"));
  for (const Generator& g : generators()) {
    schedule->addItem(QString::fromUtf8(g.name.data(), static_cast<qsizetype>(g.name.size())));
    schedule->setItemData(schedule->count() - 1, QString::fromUtf8(g.summary.data(), static_cast<qsizetype>(g.summary.size())),
                          Qt::ToolTipRole);
  }
  QObject::connect(schedule, &QComboBox::activated, &panel, [this](int index) {
    const std::string name = schedule->itemText(index).toStdString();
    if (std::ranges::find(generators(), name, &Generator::name) == generators().end()) return;  // the file's own
    changeShape(PlanPanel::tr("Choose schedule %1").arg(schedule->itemText(index)), [&](PlanRequest& r) {
      r.schedule = name;
      const Generator& family = generatorOf(name);
      const auto allowed = [&](int n) { return !family.refusal({r.ranks, r.ranks * n, r.microbatches}); };
      r.chunks = r.chunks > 0 && allowed(r.chunks) && r.chunks != 1 ? r.chunks : family.chunks;
    });
  });
  form.addRow(PlanPanel::tr("Schedule"), schedule);
  ranks = spin(PlanPanel::tr("Ranks"), 1, kMaxRanks, [](PlanRequest& r, int value) { r.ranks = value; });
  chunks = spin(PlanPanel::tr("Chunks"), 1, 64, [](PlanRequest& r, int value) { r.chunks = value; });
  chunks->setToolTip(PlanPanel::tr("Stages on each rank"));
  placement = new QLabel;
  placement->setEnabled(false);
  placement->setToolTip(PlanPanel::tr("Which rank has which stage"));
  form.addRow(PlanPanel::tr("Placement"), placement);
  microbatches = spin(PlanPanel::tr("Microbatches"), 1, kMaxMicrobatches, [](PlanRequest& r, int value) {
    r.microbatches = value;
    r.batch = 0;
  });
  microbatch = spin(PlanPanel::tr("Microbatch size"), 1, 1 << 20, [](PlanRequest& r, int value) {
    r.microbatch = value;
    r.batch = 0;
  });
  replicas = spin(PlanPanel::tr("Replicas"), 1, kMaxReplicas, [](PlanRequest& r, int value) {
    r.replicas = value;
    r.batch = 0;
  });
  replicas->setToolTip(PlanPanel::tr("Data-parallel copies of the pipeline"));

  recompute = new QComboBox;
  recompute->setEditable(true);
  recompute->setInsertPolicy(QComboBox::NoInsert);
  recompute->addItems({QStringLiteral("none"), QStringLiteral("full"), QStringLiteral("auto")});
  recompute->setAccessibleName(PlanPanel::tr("Recompute"));
  recompute->setToolTip(
      PlanPanel::tr("Activations to recompute in the backward instead of keeping them: none, full (whole stages), auto (as little as the "
                    "memory limit allows), or module names"));
  const auto takeRecompute = [this] {
    std::vector<std::string> names;
    for (const QString& part : recompute->currentText().split(QLatin1Char(','), Qt::SkipEmptyParts))
      names.push_back(part.trimmed().toStdString());
    document.edit(PlanPanel::tr("Change recomputation"), [&](Design& design) { design.request.recompute = parseRecompute(names); });
  };
  QObject::connect(recompute, &QComboBox::activated, &panel, takeRecompute);
  QObject::connect(recompute->lineEdit(), &QLineEdit::editingFinished, &panel, takeRecompute);
  form.addRow(PlanPanel::tr("Recompute"), recompute);

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

  cluster = new QComboBox;
  for (const std::string& preset : clusterPresets()) cluster->addItem(QString::fromStdString(preset));
  cluster->setAccessibleName(PlanPanel::tr("Cluster"));
  cluster->setToolTip(PlanPanel::tr("Hardware that costs are estimated for"));
  QObject::connect(cluster, &QComboBox::activated, &panel, [this](int index) {
    const std::string name = cluster->itemText(index).toStdString();
    document.edit(PlanPanel::tr("Choose cluster %1").arg(cluster->itemText(index)), [&](Design& design) {
      design.cluster = name;
      design.profile.reset();
    });
  });
  form.addRow(PlanPanel::tr("Cluster"), cluster);
  costs = new QLabel;
  costs->setWordWrap(true);
  costs->setAccessibleName(PlanPanel::tr("Where times come from"));
  form.addRow(PlanPanel::tr("Times"), costs);
  estimate = new QPushButton(PlanPanel::tr("Use estimated times again"));
  QObject::connect(estimate, &QAbstractButton::clicked, &panel,
                   [this] { document.edit(PlanPanel::tr("Use estimated times"), [](Design& design) { design.profile.reset(); }); });
  form.addRow(QString(), estimate);

  limit = new QLineEdit;
  limit->setPlaceholderText(PlanPanel::tr("none, or for example 24GiB"));
  limit->setAccessibleName(PlanPanel::tr("Memory limit of a rank"));
  QObject::connect(limit, &QLineEdit::editingFinished, &panel, [this] {
    Bytes bytes = 0;
    try {
      bytes = limit->text().trimmed().isEmpty() ? 0 : parseSize(QString(limit->text()).remove(QLatin1Char(' ')).toStdString());
    } catch (const Error& e) {
      hint->setText(QString::fromUtf8(e.what()));
      hint->setVisible(true);
      return;
    }
    document.edit(PlanPanel::tr("Change memory limit"), [&](Design& design) { design.request.memoryLimit = bytes; });
  });
  form.addRow(PlanPanel::tr("Memory limit"), limit);
}

QWidget* PlanPanel::Private::buildResults() {
  auto* results = new QWidget;
  auto* column = new QVBoxLayout(results);
  column->setContentsMargins(0, 8, 0, 8);
  auto* grid = new QGridLayout;
  grid->setHorizontalSpacing(12);
  int row = 0;
  const auto add = [&](const QString& name, QLabel*& value) {
    auto* label = new QLabel(name);
    value = figure(name);
    grid->addWidget(label, row, 0, Qt::AlignRight | (row == 0 ? Qt::AlignVCenter : Qt::AlignTop));
    grid->addWidget(value, row++, 1);
    return label;
  };
  add(PlanPanel::tr("Step"), step);
  QFont large = step->font();
  large.setPointSizeF(large.pointSizeF() * 1.5);
  large.setBold(true);
  step->setFont(large);
  add(PlanPanel::tr("Prediction error so far"), error);
  rateName = add(PlanPanel::tr("Samples/s"), rate);
  add(PlanPanel::tr("Bubble"), bubble);
  add(PlanPanel::tr("Lower bound"), lower);
  add(PlanPanel::tr("Pipeline makespan"), makespan);
  grid->setColumnStretch(1, 1);
  column->addLayout(grid);
  memoryName = new QLabel(PlanPanel::tr("Peak memory"));
  column->addWidget(memoryName);
  memory = new MemoryBars;
  column->addWidget(memory);
  return results;
}

/// Greys out schedules that do not support the combination, with the reason as their tooltip.
void PlanPanel::Private::refuseSchedules() {
  const PlanRequest& r = document.design().request;
  auto* items = qobject_cast<QStandardItemModel*>(schedule->model());
  for (int i = 0; i < static_cast<int>(generators().size()); ++i) {
    const Generator& family = generators()[static_cast<std::size_t>(i)];
    const int n = r.chunks > 1 ? r.chunks : family.chunks;
    auto refusal = family.refusal({r.ranks, r.ranks * n, r.microbatches});
    if (refusal && n != family.chunks) refusal = family.refusal({r.ranks, r.ranks * family.chunks, r.microbatches});
    QStandardItem* item = items->item(i);
    item->setForeground(refusal ? panel.palette().color(QPalette::Disabled, QPalette::Text) : panel.palette().color(QPalette::Text));
    const QString summary = QString::fromUtf8(family.summary.data(), static_cast<qsizetype>(family.summary.size()));
    item->setToolTip(refusal ? summary + QStringLiteral("\n") + QString::fromStdString(*refusal) : summary);
  }
}

/// Everything of the design that this panel shows.
Design PlanPanel::Private::unsplit() const {
  Design design = document.design();
  design.request.begins.clear();
  return design;
}

void PlanPanel::Private::showDesign() {
  shown = unsplit();
  const Design& design = document.design();
  const PlanRequest& r = design.request;
  const bool model = document.graph() != nullptr, any = model || design.customRows;
  const auto set = [](QSpinBox* box, int value) {
    const QSignalBlocker quiet(box);
    box->setValue(value);
  };
  const QSignalBlocker quiet(schedule);
  const auto known = schedule->findText(QString::fromStdString(r.schedule));
  const int families = static_cast<int>(generators().size());
  while (schedule->count() > families) schedule->removeItem(families);
  if (design.customRows) {
    schedule->addItem(PlanPanel::tr("%1 (as in the file)").arg(QString::fromStdString(r.schedule)));
    schedule->setCurrentIndex(families);
  } else {
    schedule->setCurrentIndex(known);
  }
  set(ranks, r.ranks);
  set(microbatches, r.microbatches);
  set(microbatch, static_cast<int>(std::min<std::int64_t>(r.microbatch, 1 << 20)));
  set(replicas, r.replicas);
  int stages = 0;
  try {
    stages = any ? stagesOf(design) : 0;
  } catch (const Error&) {}
  set(chunks, r.ranks > 0 ? std::max(1, stages / r.ranks) : 1);
  for (QWidget* w :
       {static_cast<QWidget*>(schedule), static_cast<QWidget*>(ranks), static_cast<QWidget*>(chunks), static_cast<QWidget*>(microbatches),
        static_cast<QWidget*>(microbatch), static_cast<QWidget*>(replicas), static_cast<QWidget*>(recompute),
        static_cast<QWidget*>(sharing), static_cast<QWidget*>(optimizer), static_cast<QWidget*>(cluster), static_cast<QWidget*>(limit),
        static_cast<QWidget*>(run), static_cast<QWidget*>(profile)}) {
    w->setEnabled(model);
  }
  QStringList names;
  for (const std::string& n : wordsOf(r.recompute)) names << QString::fromStdString(n);
  if (!recompute->lineEdit()->hasFocus()) recompute->setEditText(names.join(QLatin1Char(',')));
  sharing->setCurrentIndex(!r.sharing ? 0 : *r.sharing == Sharing::Replicate ? 1 : 2);
  const std::vector<OptimizerSpec> offered = offeredOptimizers();
  const auto chosen = std::ranges::find(offered, r.optimizer);
  optimizer->setCurrentIndex(chosen == offered.end() ? -1 : static_cast<int>(chosen - offered.begin()));
  if (cluster->findText(QString::fromStdString(design.cluster)) < 0) cluster->addItem(QString::fromStdString(design.cluster));
  cluster->setCurrentText(QString::fromStdString(design.cluster));
  if (!limit->hasFocus()) limit->setText(r.memoryLimit > 0 ? pw::gui::size(r.memoryLimit) : QString());
  refuseSchedules();
  showCosts();
}

void PlanPanel::Private::showCosts() {
  const auto profileInUse = document.profile();
  const bool isMeasured = document.design().profile != nullptr;
  estimate->setVisible(isMeasured);
  if (!document.graph())
    costs->setText(document.design().customCosts ? PlanPanel::tr("default times") : QStringLiteral("–"));
  else if (isMeasured)
    costs->setText(QString::fromStdString(sourceOf(*document.design().profile, document.design().request.ranks)));
  else
    costs->setText(profileInUse ? PlanPanel::tr("estimated for %1").arg(QString::fromStdString(document.cluster().deviceName))
                                : PlanPanel::tr("estimated"));
}

/// Immediately or, during a drag, only as often as it can be read, so that the time goes to the timeline.
void PlanPanel::Private::follow() {
  if (!document.isDragging()) return showResults();
  if (!soon.isActive()) soon.start();
}

void PlanPanel::Private::showResults() {
  soon.stop();
  showCosts();
  const QString problem = document.problem();
  hint->setVisible(!problem.isEmpty());
  hint->setText(problem);
  QPalette colours = hint->palette();
  colours.setColor(QPalette::WindowText, currentTheme().error);
  hint->setPalette(colours);
  const auto p = document.prediction();
  for (QLabel* label : {step, rate, bubble, lower, makespan, error}) label->setEnabled(problem.isEmpty());
  error->setToolTip(PlanPanel::tr("Median difference between predicted and measured steps over past runs of this model"));
  makespan->setToolTip(PlanPanel::tr("From the first action to the last one of any rank, without reductions and the optimizer"));
  lower->setToolTip(PlanPanel::tr("No order of these actions can finish earlier"));
  if (!p) {
    for (QLabel* label : {step, rate, bubble, lower, makespan, error}) label->setText(QStringLiteral("–"));
    placement->setText(QStringLiteral("–"));
    memory->show({}, 0);
    return;
  }
  const PlanRequest& r = document.design().request;
  placement->setText(placementText(kindOf(p->rows->placement, shapeOf(*p->rows))));
  step->setText(duration(p->step));
  bubble->setText(percent(p->bubbleFraction));
  makespan->setText(duration(p->makespan));
  const double samplesPerStep = static_cast<double>(r.batch > 0 ? r.batch : r.microbatch * r.microbatches * r.replicas);
  const double seconds = static_cast<double>(p->step) * 1e-9;
  const std::int64_t tokens = document.graph() ? tokensPerSample(*document.graph()) : 0;
  rateName->setText(document.graph() ? PlanPanel::tr("Samples/s") : PlanPanel::tr("Microbatches/s"));
  const double perSecond = seconds > 0 ? (document.graph() ? samplesPerStep : r.microbatches) / seconds : 0;
  rate->setText(tokens > 0 ? PlanPanel::tr("%1 (%2 tokens/s)").arg(count(perSecond), count(perSecond * static_cast<double>(tokens)))
                           : count(perSecond));
  memory->show(p->ranks, r.memoryLimit);
  const bool known = std::ranges::any_of(p->ranks, [](const RankMetrics& rank) { return rank.peakBytes > 0; });
  memory->setVisible(known);
  memoryName->setVisible(known);
  error->setText(PlanPanel::tr("no runs of this model yet"));
  if (const auto past = pastError(runs, document.graph() ? document.graph()->name : std::string(), r.schedule)) {
    const auto scaled = [&](double factor) { return duration(static_cast<Ns>(static_cast<double>(p->step) * factor)); };
    error->setText(PlanPanel::tr("%1: from %2 to %3").arg(percent(*past), scaled(1 / (1 + *past)), scaled(1 + *past)));
  }
  if (lowerOf != p) lowerTimer.start();
}

void PlanPanel::Private::readRuns() {
  runs.clear();
  try {
    if (QFileInfo::exists(document.storePath())) runs = RunStore(document.storePath().toStdString(), RunStore::Mode::ReadOnly).list();
  } catch (const Error&) {
    // the Runs panel says what is wrong with the store
  }
  showResults();
}

void PlanPanel::Private::findLowerBound() {
  const auto p = document.prediction();
  if (!p || lowerOf == p) return;
  lowerJob.start(PlanPanel::tr("Lower bound"), [this, p](JobControl&) -> std::function<void()> {
    std::optional<Ns> found;
    try {
      found = lowerBound(*p->rows, p->costs);
    } catch (const Error&) {
      // no bound is known for such rows
    }
    return [this, p, found] {
      const Ns bound = found.value_or(0);
      lowerOf = p;
      if (document.prediction() != p) return;
      if (bound == 0) return lower->setText(QStringLiteral("–"));
      const double above = bound > 0 ? static_cast<double>(p->makespan) / static_cast<double>(bound) - 1 : 0;
      lower->setText(PlanPanel::tr("%1 (plan: +%2)").arg(duration(bound), percent(std::max(0.0, above))));
    };
  });
}

}  // namespace pw::gui
