#include "app/gui/plan/results.h"

#include <QFileInfo>
#include <QGridLayout>
#include <QLabel>
#include <QTimer>
#include <QVBoxLayout>
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/common/jobs.h"
#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"
#include "app/gui/document/job_design.h"
#include "app/gui/plan/memory_bars.h"
#include "app/gui/plan/past_runs.h"
#include "backends/store/past_error.h"
#include "backends/store/run_store.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/costs/uncertainty.h"
#include "simulator/model/batch.h"
#include "simulator/plan/excess.h"
#include "simulator/plan/one_rank.h"
#include "simulator/report/lower_bound.h"

namespace pw::gui {
namespace {

QLabel* figure(const QString& name) {
  auto* label = new QLabel(QStringLiteral("–"));
  label->setAccessibleName(name);
  label->setWordWrap(true);
  label->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  return label;
}

/// What stands in brackets is wrapped as a whole.
QString withWhole(const QString& text) {
  const auto from = text.indexOf(QLatin1Char('('));
  QString bracket = text.mid(from);
  bracket.replace(QLatin1Char(' '), QChar::Nbsp).replace(QLatin1String("/"), QStringLiteral("/\u2060"));
  return text.left(from) + bracket;
}

}  // namespace

struct PlanResults::Private {
  PlanResults& widget;
  Document& document;
  QLabel* hint = nullptr;
  QLabel *order = nullptr, *orderName = nullptr;
  QLabel *bar = nullptr, *barName = nullptr, *errorName = nullptr;  ///< the error bar stands in place of the error, where it is known
  QLabel *step = nullptr, *rate = nullptr, *bubble = nullptr, *lower = nullptr, *makespan = nullptr, *error = nullptr;
  QLabel *mfu = nullptr, *mfuName = nullptr, *alone = nullptr, *aloneName = nullptr;  ///< shown where known
  QLabel *cuts = nullptr, *cutsName = nullptr;                                        ///< where replicas have splits of their own
  QLabel *rateName = nullptr, *makespanName = nullptr, *memoryName = nullptr;
  std::vector<QLabel*> predictedOnly;  ///< figures that a trace does not have, and their names
  MemoryBars* memory = nullptr;
  Job lowerJob;
  QTimer lowerTimer;
  QTimer soon;  ///< shows a drag's results
  std::shared_ptr<const Prediction> lowerOf;
  PastRuns runs;  ///< of the store

  Private(PlanResults& w, Document& d) : widget(w), document(d) {}
  void build();
  void follow();
  void showProblem(const QString& sentence);
  void showResults();
  void showTrace(const Metrics& metrics);
  void showOrder();
  void showCuts();
  void showBar(Ns predicted);
  void showOneRank(const std::optional<OneRank>& one, bool hasModel, Ns pipelined);
  void showUtilisation(const Prediction& p);
  void findLowerBound();
  void readRuns();
};

PlanResults::PlanResults(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(*this, document)) {
  d->build();
  d->lowerTimer.setSingleShot(true);
  d->lowerTimer.setInterval(200);  // during a drag only the final state is worth it
  connect(&d->lowerTimer, &QTimer::timeout, this, [this] { d->findLowerBound(); });
  d->soon.setSingleShot(true);
  d->soon.setInterval(kReadableMs);
  connect(&d->soon, &QTimer::timeout, this, [this] { d->showResults(); });
  connect(&document, &Document::predictionChanged, this, [this] { d->follow(); });
  connect(&document, &Document::measuredChanged, this, [this, &document] {
    if (!document.prediction()) d->showResults();
  });
  connect(&document, &Document::storeChanged, this, [this] { d->readRuns(); });
  d->showResults();
}

PlanResults::~PlanResults() = default;

bool PlanResults::isIdle() const { return !d->soon.isActive() && !d->lowerTimer.isActive() && !d->lowerJob.isRunning(); }

void PlanResults::showProblem(const QString& sentence) { d->showProblem(sentence); }

void PlanResults::Private::build() {
  auto* column = new QVBoxLayout(&widget);
  column->setContentsMargins(0, 0, 0, 8);
  hint = new QLabel;
  hint->setWordWrap(true);
  hint->setVisible(false);
  hint->setAccessibleName(PlanResults::tr("Problem"));
  column->addWidget(hint);
  column->addSpacing(8);
  auto* grid = new QGridLayout;
  grid->setHorizontalSpacing(12);
  int row = 0;
  const auto add = [&](const QString& name, QLabel*& value, const QString& tip) {
    auto* label = new QLabel(name);
    value = figure(name);
    for (QLabel* one : {label, value}) one->setToolTip(tip);
    grid->addWidget(label, row, 0, Qt::AlignRight | (row == 0 ? Qt::AlignVCenter : Qt::AlignTop));
    grid->addWidget(value, row++, 1);
    return label;
  };
  add(PlanResults::tr("Step"), step, PlanResults::tr("Time of a whole step: the pipeline, reductions of gradients and the optimizer"));
  QFont large = step->font();
  large.setPointSizeF(large.pointSizeF() * 1.5);
  large.setBold(true);
  step->setFont(large);
  barName = add(PlanResults::tr("Error bar"), bar, {});
  errorName =
      add(PlanResults::tr("Prediction error so far"), error,
          PlanResults::tr("Median difference between predicted and measured steps over past runs of this model that were predicted from "
                          "times like these: measured or estimated as they are, of the same cluster, and on CPUs only where these are of "
                          "CPUs"));
  rateName = add(PlanResults::tr("Samples/s"), rate, PlanResults::tr("Of all replicas, at the predicted step"));
  mfuName =
      add(PlanResults::tr("MFU"), mfu,
          PlanResults::tr("Model FLOPs utilisation: the FLOPs of forward and backward, of what the ranks do in a step at their peak"));
  add(PlanResults::tr("Bubble"), bubble, PlanResults::tr("Idle time of all ranks as a share of the makespan"));
  QLabel* const lowerName =
      add(PlanResults::tr("Lower bound"), lower, PlanResults::tr("No order of these actions can finish earlier within the memory limits"));
  orderName = add(PlanResults::tr("Order"), order, PlanResults::tr("How much faster another order of the actions could be"));
  order->setWordWrap(true);
  makespanName = add(PlanResults::tr("Pipeline makespan"), makespan, {});
  aloneName = add(PlanResults::tr("On one rank"), alone, PlanResults::tr("Step of the whole model on one rank with the same samples"));
  cutsName = add(PlanResults::tr("Replica splits"), cuts,
                 PlanResults::tr("Each replica is cut for its own ranks; moving a split gives all replicas the splits shown"));
  cuts->setWordWrap(true);
  predictedOnly = {error, errorName, rate, rateName, lower, lowerName};
  grid->setColumnStretch(1, 1);
  column->addLayout(grid);
  memoryName = new QLabel(PlanResults::tr("Peak memory"));
  memoryName->setToolTip(PlanResults::tr("Most memory of each rank at any moment, against its limit"));
  column->addWidget(memoryName);
  memory = new MemoryBars;
  column->addWidget(memory);
}

/// Immediately or, during a drag, only as often as it can be read, so that the time goes to the timeline.
void PlanResults::Private::follow() {
  if (!document.isDragging()) return showResults();
  if (!soon.isActive()) soon.start();
}

void PlanResults::Private::showProblem(const QString& sentence) {
  hint->setVisible(!sentence.isEmpty());
  hint->setText(capitalised(sentence));
  QPalette colours = hint->palette();
  colours.setColor(QPalette::WindowText, currentTheme().error);
  hint->setPalette(colours);
}

/// How good the order of the schedule `auto` is.
void PlanResults::Private::showOrder() {
  const auto& certificate = document.certificate();
  const bool shown = certificate || document.isOrdering();
  order->setVisible(shown);
  orderName->setVisible(shown);
  order->setToolTip(certificate ? PlanResults::tr("Found by %1; %2")
                                      .arg(QString::fromStdString(certificate->foundBy), QString::fromStdString(toString(*certificate)))
                                : orderName->toolTip());
  if (!certificate) {
    order->setText(PlanResults::tr("searching…"));
  } else if (certificate->optimal()) {
    order->setText(PlanResults::tr("proven: none is faster"));
  } else {
    order->setText(PlanResults::tr("none is more than %1 faster").arg(percentText(std::max(0.001, certificate->gap()))));
  }
}

/// Which replica is shown where each is cut for its own ranks.
void PlanResults::Private::showCuts() {
  const auto p = document.prediction();
  const bool shown = p && p->priced.cuts;
  cuts->setVisible(shown);
  cutsName->setVisible(shown);
  if (!shown) return;
  cuts->setText(PlanResults::tr("each its own; shown is replica %1, the slowest").arg(p->priced.cuts->shown));
}

void PlanResults::Private::showResults() {
  soon.stop();
  const QString problem = document.problem();
  showProblem(problem);
  emit widget.shown();
  const auto p = document.prediction();
  showOrder();
  showCuts();
  for (QWidget* figure : std::initializer_list<QWidget*>{step, bar, rate, mfu, bubble, lower, order, makespan, alone, error, memory})
    figure->setEnabled(problem.isEmpty());
  const auto measured = document.measured();
  const bool isTrace = !p && problem.isEmpty() && measured && measured->metrics && !document.graph() && !document.design().customCosts;
  for (QLabel* label : predictedOnly) label->setVisible(!isTrace);
  for (QLabel* label : {makespan, makespanName})
    label->setToolTip(isTrace ? PlanResults::tr("From the first action to the last one of any rank, as in the trace")
                              : PlanResults::tr("From the first action to the last one of any rank, without reductions and the optimizer"));
  showBar(p && !isTrace ? p->step : 0);
  if (isTrace) return showTrace(*measured->metrics);
  if (!p) {
    for (QLabel* label : {step, rate, bubble, lower, makespan, error}) label->setText(QStringLiteral("–"));
    memory->show({}, {});
    return;
  }
  const PlanRequest& r = document.predicted();  // not of a refused design
  step->setText(durationText(p->step));
  bubble->setText(percentText(p->bubbleFraction));
  makespan->setText(durationText(p->makespan));
  const double samplesPerStep = static_cast<double>(samplesOf(r));
  const double seconds = static_cast<double>(p->step) * 1e-9;
  const std::int64_t tokens = document.graph() ? tokensPerSample(*document.graph()) : 0;
  const bool hasSamples = document.graph() && !document.design().job;  // a job does not say how many samples a microbatch has
  rateName->setText(hasSamples ? PlanResults::tr("Samples/s") : PlanResults::tr("Microbatches/s"));
  const double perSecond = seconds > 0 ? (hasSamples ? samplesPerStep : r.microbatches) / seconds : 0;
  const double tokensPerSecond = perSecond * static_cast<double>(tokens);
  rate->setText(tokens > 0 ? withWhole(PlanResults::tr("%1 (%2 tokens/s)").arg(countText(perSecond), countText(tokensPerSecond)))
                           : countText(perSecond));
  memory->show(p->ranks, document.rankLimits());
  const bool known = std::ranges::any_of(p->ranks, [](const RankMetrics& rank) { return rank.peakBytes > 0; });
  memory->setVisible(known);
  memoryName->setVisible(known);
  const CostSource costs = document.profile() && document.profile()->estimated ? CostSource::Estimated : CostSource::Measured;
  error->setText(document.graph() ? PlanResults::tr("no comparable runs yet") : QStringLiteral("–"));
  const auto past = document.profile() && document.graph()
                        ? pastError(runs.onLikeDevices(*document.profile(), document.cluster()), document.graph()->name, r.schedule, costs,
                                    document.profile()->cluster)
                        : std::nullopt;
  if (past) {
    const auto scaled = [&](double factor) { return durationText(static_cast<Ns>(static_cast<double>(p->step) * factor)); };
    error->setText(PlanResults::tr("%1: from %2 to %3").arg(percentText(*past), scaled(1 / (1 + *past)), scaled(1 + *past)));
  }
  if (problem.isEmpty()) showUtilisation(*p);  // else the document's profile is not the prediction's
  if (lowerOf == p) return;
  for (QLabel* label : {lower, alone}) label->setEnabled(false);  // still of the plan before
  if (!lowerOf || lowerOf->rows != p->rows) lower->setText(QStringLiteral("…"));
  if (!lowerOf || lowerOf->rows != p->rows) alone->setText(QStringLiteral("…"));
  lowerTimer.start();
}

/// The error bar of the step, in the words of `pipewright plan`.
void PlanResults::Private::showBar(Ns predicted) {
  const auto profile = document.profile();
  const auto& job = document.design().job;
  std::optional<Uncertainty> uncertainty;
  if (predicted > 0 && document.graph() && profile) uncertainty = job ? uncertaintyOf(*job, *document.prediction()) : profile->uncertainty;
  const bool isOfJobs = uncertainty && (uncertainty->ofJobs || uncertainty->runs == 0);
  for (QLabel* label : {bar, barName}) {
    label->setVisible(uncertainty.has_value());
    label->setToolTip(
        isOfJobs ? PlanResults::tr("Four of five steps are within it; it comes from how far the job's steps are from what its other "
                                   "steps predict, and for a plan that the job did not run, from what is known of such plans")
                 : PlanResults::tr("Four of five steps are within it; it comes from the past runs that corrected the times of "
                                   "this plan"));
  }
  if (!uncertainty) return;
  for (QLabel* label : {error, errorName}) label->setVisible(false);
  const std::string both = formatPrediction(predicted, uncertainty);
  bar->setText(QString::fromStdString(both.substr(formatDuration(predicted).size() + 1)));
}

/// The figures of another tool's trace.
void PlanResults::Private::showTrace(const Metrics& metrics) {
  step->setText(durationText(std::max(metrics.step, metrics.makespan)));
  bubble->setText(percentText(metrics.bubbleFraction));
  makespan->setText(durationText(metrics.makespan));
  for (QLabel* label : {mfu, mfuName, alone, aloneName}) label->setVisible(false);
  const bool known = std::ranges::any_of(metrics.ranks, [](const RankMetrics& rank) { return rank.peakBytes > 0; });
  memory->show(metrics.ranks, {});
  memory->setVisible(known);
  memoryName->setVisible(known);
}

/// Of a model whose FLOPs and whose ranks' peak are known.
void PlanResults::Private::showUtilisation(const Prediction& p) {
  const auto profile = document.profile();
  const PlanRequest& r = document.predicted();
  const std::int64_t samples = samplesOf(r);
  const bool counts = profile && document.graph() && p.program.basis.trains;
  const double share = counts ? flopUtilisation(*profile, samples, p.step, r.ranks * r.replicas) : 0;
  mfu->setVisible(share > 0);
  mfuName->setVisible(share > 0);
  if (share > 0) mfu->setText(percentText(share));
}

void PlanResults::Private::readRuns() {
  runs = PastRuns();
  try {
    if (QFileInfo::exists(document.storePath()))
      runs = PastRuns(RunStore(document.storePath().toStdString(), RunStore::Mode::ReadOnly).list());
  } catch (const Error&) {
    // the Runs panel says what is wrong with the store
  }
  showResults();
}

void PlanResults::Private::findLowerBound() {
  const auto p = document.prediction();
  if (!p || lowerOf == p) return;
  const auto& certificate = document.certificate();
  const bool isProven = certificate && certificate->time == p->makespan;
  const std::optional<Ns> proven = isProven ? std::optional(certificate->lowerBound) : std::nullopt;
  std::vector<Bytes> limits;
  if (document.graph()) limits = document.rankLimits();
  for (std::size_t r = 0; r < limits.size() && r < p->ranks.size(); ++r) {
    if (excessOf(p->ranks[r].peakBytes, limits[r]) > 0) limits.clear();  // then the plan is not bound by them
  }
  const auto graph = document.graph();
  const auto profile = document.profile();
  const PlanRequest request = document.predicted();
  lowerJob.start(PlanResults::tr("Lower bound"), [this, p, proven, limits, graph, profile, request](JobControl&) -> std::function<void()> {
    std::optional<Ns> found = proven;
    try {
      if (!found) found = lowerBoundsOf(*p->rows, p->costs, p->actionTimes, p->ranks, {}, limits).flush;
    } catch (const Error&) {
      // no bound is known for such rows
    }
    std::optional<OneRank> one;
    const bool hasModel = graph && profile && p->rows->placement.stages() > 1;
    try {
      if (hasModel) {
        ModelCosts model(*graph, *profile, request.microbatch);
        one = onOneRank(request, model, p->program.basis.trains);
      }
    } catch (const Error&) {
      // it cannot be one stage
    }
    return [this, p, found, one, hasModel] {
      const Ns bound = found.value_or(Ns{0});
      lowerOf = p;
      if (document.prediction() != p) return;
      for (QLabel* label : {lower, alone}) label->setEnabled(true);
      showOneRank(one, hasModel, p->step);
      if (bound == 0) return lower->setText(QStringLiteral("–"));
      const double above = bound > 0 ? static_cast<double>(p->makespan) / static_cast<double>(bound) - 1 : 0;
      lower->setText(withWhole(PlanResults::tr("%1 (plan: %2)").arg(durationText(bound), signedPercentText(std::max(0.0, above)))));
    };
  });
}

/// What the whole model takes on one rank, where there is a model and the plan has several stages.
void PlanResults::Private::showOneRank(const std::optional<OneRank>& one, bool hasModel, Ns pipelined) {
  alone->setVisible(hasModel);
  aloneName->setVisible(hasModel);
  alone->setToolTip(one ? QString::fromStdString(toString(*one, pipelined))
                        : PlanResults::tr("The whole model needs more memory than a rank has"));
  if (!one) return alone->setText(PlanResults::tr("does not fit"));
  const double times = pipelined > 0 ? static_cast<double>(one->step) / static_cast<double>(pipelined) : 0;
  alone->setText(times <= 1
                     ? (one->replicas > 1 ? PlanResults::tr("%1: one for each replica suffices") : PlanResults::tr("%1: one rank suffices"))
                           .arg(durationText(one->step))
                     : PlanResults::tr("%1 (%2 times as long)").arg(durationText(one->step)).arg(times, 0, 'f', 2));
}

QString figuresInBrief(const Document& document) {
  const auto p = document.prediction();
  if (!p) return {};
  Bytes peak = 0;
  for (const RankMetrics& rank : p->ranks) peak = std::max(peak, rank.peakBytes);
  QStringList figures{PlanResults::tr("Step %1").arg(durationText(p->step)),
                      PlanResults::tr("bubble %1").arg(percentText(p->bubbleFraction))};
  if (peak > 0) figures << PlanResults::tr("peak memory %1").arg(sizeText(peak));
  return figures.join(QStringLiteral(" · "));
}

}  // namespace pw::gui
