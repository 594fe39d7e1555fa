#include "app/gui/analysis/panel.h"

#include <QLabel>
#include <QScrollArea>
#include <QSplitter>
#include <QTabWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <functional>
#include <optional>

#include "app/gui/analysis/bubble_bars.h"
#include "app/gui/analysis/bubble_table.h"
#include "app/gui/analysis/memory_view.h"
#include "app/gui/analysis/tornado.h"
#include "app/gui/common/body.h"
#include "app/gui/common/format.h"
#include "app/gui/common/jobs.h"
#include "app/gui/document/document.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/costs/topology.h"
#include "simulator/plan/made_order.h"
#include "simulator/report/explain.h"

namespace pw::gui {
namespace {

constexpr double kChange = 0.1;      ///< of a stage's or link's time
constexpr double kMostWork = 500e6;  ///< actions to simulate: some seconds

constexpr std::size_t kMostCauses = 20'000'000;  ///< actions × ranks: a gap may have a cause on each rank

constexpr double kOrderSeconds = 0.5;  ///< of the search for an order with another memory limit

struct Analysis {
  SensitivityReport sensitivity;
  bool isOfAverages = false;  ///< then its makespan is not the prediction's, which has times of single actions
  QString refusal;            ///< why there is none
  PlanMemory memory;
  std::vector<CausedIdle> bubble;
  Ns makespan = 0;
  std::optional<LimitSensitivity> limit;
};

/// Of a design with a model; null without.
struct Modelled {
  PlanRequest request;
  std::shared_ptr<const ModelGraph> graph;
  std::shared_ptr<const Profile> profile;
};

/// How many times as long each rank computes as the fastest; empty where all are alike.
std::vector<double> slownessOf(const Prediction& prediction, const Modelled& modelled) {
  if (!modelled.profile || allAtFullSpeed(modelled.profile->topology)) return {};
  const Replicas pipeline{static_cast<int>(prediction.rows->rows.size())};
  std::vector<double> slowness;
  for (Rank rank(0); rank.value < pipeline.ranks; ++rank.value) {
    double slowest = 0;
    for (int d = 0; d < modelled.request.replicas; ++d)
      slowest = std::max(slowest, 1 / speedOf(*modelled.profile, pipeline.jobRank(d, rank)));
    slowness.push_back(slowest);
  }
  const double fastest = slowness.empty() ? 1 : std::ranges::min(slowness);
  for (double& one : slowness) one /= fastest;
  return slowness;
}

std::vector<CausedIdle> bubbleOf(const Prediction& prediction, const Modelled& modelled) {
  const Schedule& rows = *prediction.rows;
  std::size_t actions = 0;
  for (const auto& row : rows.rows) actions += row.size();
  if (actions * rows.rows.size() > kMostCauses) {  // by group: a cause of each gap would take too much memory
    std::vector<CausedIdle> ranks;
    const Explanation explanation = explain(rows, prediction.costs, prediction.program, prediction.times, false);
    for (const IdleByCause& by : idleByCause(explanation)) ranks.push_back({by, {}});
    for (std::size_t g = explanation.groups.size(); g-- > 0;) {  // the largest comes first, and so last here
      const BubbleGroup& group = explanation.groups[g];
      ranks[group.rank.index()].longestFrom[static_cast<std::size_t>(causeOf(group.phase, group.message))] = group.longestFrom;
    }
    return ranks;
  }
  CauseContext context;
  context.slowness = slownessOf(prediction, modelled);
  context.memoryLimit = modelled.request.memoryLimit;
  context.memoryAt = [&](Rank rank, Ns time) -> Bytes {
    const MemoryTrack& memory = prediction.timeline.ranks.at(rank.index()).memory;
    const auto after = std::ranges::upper_bound(memory.time, time) - memory.time.begin();
    return after == 0 ? 0 : memory.bytes[static_cast<std::size_t>(after - 1)];
  };
  return idleByCause(explain(rows, prediction.costs, prediction.program, prediction.times), rows, prediction.costs, prediction.program,
                     prediction.times, context);
}

Analysis analysisOf(const Prediction& prediction, const Modelled& modelled, const std::function<bool(double)>& shouldContinue) {
  Analysis analysis;
  const Schedule& rows = *prediction.rows;
  if (modelled.graph) {
    ModelCosts model(*modelled.graph, *modelled.profile, modelled.request.microbatch);
    analysis.memory = memoryOf(modelled.request, model, rows, prediction.priced.partition);
    analysis.limit = limitSensitivity(modelled.request, model, rows, kChange, {.seconds = kOrderSeconds, .shouldContinue = shouldContinue});
  } else {
    analysis.memory.ranks = memoryOf(rows, prediction.costs);
  }
  analysis.bubble = bubbleOf(prediction, modelled);
  analysis.makespan = prediction.makespan;
  double actions = 0;
  for (const auto& row : rows.rows) actions += static_cast<double>(row.size());
  const double passes = 2.0 * static_cast<double>(rows.placement.stages()) + static_cast<double>(prediction.costs.messages.size());
  if (actions * passes > kMostWork) {
    analysis.refusal = AnalysisPanel::tr("This step of %1 actions is too large to simulate it again for each of its stages and links here.")
                           .arg(countText(actions));
  } else {
    analysis.isOfAverages = !prediction.actionTimes.empty();
    analysis.sensitivity = sensitivityOf(rows, prediction.costs, Sending::Overlapped, kChange);
  }
  return analysis;
}

/// A sentence with a space before; empty without a limit.
QString limitText(const std::optional<LimitSensitivity>& limit) {
  if (!limit) return {};
  const auto change = [&](Ns time) {
    return signedPercentText(limit->now > 0 ? static_cast<double>(time - limit->now) / static_cast<double>(limit->now) : 0);
  };
  const QString less = limit->less ? change(*limit->less) : AnalysisPanel::tr("nothing fits");
  return AnalysisPanel::tr(" With %1 more memory: %2; with %1 less: %3.").arg(percentText(kChange, 0), change(limit->more), less);
}

}  // namespace

struct AnalysisPanel::Private {
  Private(AnalysisPanel& panel, Document& owner) : w(panel), document(owner) { build(); }
  void build();
  void update();
  void take(const Analysis& analysis);

  AnalysisPanel& w;
  Document& document;
  QTabWidget* pages = nullptr;
  QLabel *stale = nullptr, *sentence = nullptr;
  Tornado* tornado = nullptr;
  BubbleBars* bubble = nullptr;
  BubbleTable* causes = nullptr;
  MemoryView* memory = nullptr;
  Job job;
  std::shared_ptr<const Prediction> shown;  ///< whose figures these are, or are being computed
  std::optional<Rank> wanted;               ///< to open when there are figures
};

void AnalysisPanel::Private::build() {
  sentence = new QLabel;
  sentence->setWordWrap(true);
  tornado = new Tornado;
  auto* bars = new QScrollArea;
  bars->setWidget(tornado);
  bars->setWidgetResizable(true);
  bars->setFrameShape(QFrame::NoFrame);
  bars->setFocusPolicy(Qt::NoFocus);
  auto* sensitivity = new QWidget;
  auto* column = new QVBoxLayout(sensitivity);
  column->addWidget(sentence);
  column->addWidget(bars, 1);
  memory = new MemoryView;
  bubble = new BubbleBars;
  auto* scroll = new QScrollArea;
  scroll->setWidget(bubble);
  scroll->setWidgetResizable(true);
  scroll->setFrameShape(QFrame::NoFrame);
  scroll->setFocusPolicy(Qt::NoFocus);
  causes = new BubbleTable;
  auto* bubbles = new QSplitter(Qt::Vertical);
  bubbles->setChildrenCollapsible(false);
  bubbles->addWidget(scroll);
  auto* lower = new QWidget;
  auto* below = new QVBoxLayout(lower);
  below->setContentsMargins(0, 0, 0, 0);
  auto* base = new QLabel(AnalysisPanel::tr("Idle time of each rank, and its share of the makespan:"));
  base->setContentsMargins(6, 2, 6, 0);
  below->addWidget(base);
  below->addWidget(causes, 1);
  bubbles->addWidget(lower);
  pages = new QTabWidget;
  pages->setDocumentMode(true);
  pages->addTab(sensitivity, AnalysisPanel::tr("Sensitivity"));
  pages->addTab(bubbles, AnalysisPanel::tr("Bubble"));
  pages->addTab(memory, AnalysisPanel::tr("Memory"));
  stale =
      new QLabel(AnalysisPanel::tr("Figures of the previous plan. The current settings cannot be predicted; the Plan "
                                   "panel shows the reason."));
  stale->setWordWrap(true);
  stale->setContentsMargins(6, 4, 6, 4);
  stale->hide();
  auto* all = new QVBoxLayout(&w);
  all->setContentsMargins(0, 0, 0, 0);
  all->addWidget(stale);
  all->addWidget(pages);
  takeHeightLeft(*bars, 2);
  takeHeightLeft(*scroll, 1);
  takeHeightLeft(*causes, 2);
  takeHeightLeft(*memory);
  QObject::connect(&document, &Document::predictionChanged, &w, [this] { update(); });
  QObject::connect(bubble, &BubbleBars::chosen, &w, &AnalysisPanel::bubbleChosen);
  QObject::connect(causes, &BubbleTable::chosen, &w, &AnalysisPanel::bubbleChosen);
  QObject::connect(&job, &Job::failed, &w, [this](const QString& problem) { sentence->setText(problem); });
  take({});
}

void AnalysisPanel::Private::update() {
  const bool isStale = document.prediction() != nullptr && !document.problem().isEmpty();
  stale->setVisible(isStale);
  pages->setEnabled(!isStale);
  if (!w.isVisible() || document.isDragging() || document.isPredicting()) return;
  const std::shared_ptr<const Prediction> prediction = document.prediction();
  if (prediction == shown) return;
  shown = prediction;
  if (!prediction) {
    job.cancel();
    return take({});
  }
  const Modelled modelled{document.design().request, document.graph(), document.profile()};
  job.start(AnalysisPanel::tr("Analysis"), [this, prediction, modelled](JobControl& control) -> std::function<void()> {
    const auto shouldContinue = [&](double) { return !control.isCancelled(); };
    auto analysis = std::make_shared<const Analysis>(analysisOf(*prediction, modelled, shouldContinue));
    return [this, analysis] { take(*analysis); };
  });
}

void AnalysisPanel::Private::take(const Analysis& analysis) {
  const SensitivityReport& report = analysis.sensitivity;
  if (!analysis.refusal.isEmpty()) {
    sentence->setText(analysis.refusal);
  } else if (report.all.empty()) {
    sentence->setText(AnalysisPanel::tr("Open a model or a schedule to see what its makespan depends on."));
  } else {
    const QString makespan = durationText(report.makespan);
    sentence->setText(AnalysisPanel::tr("Makespan %1: how it changes where the compute of a stage, or the messages of a link, take %2 less "
                                        "or more; on the right their share of the critical path.")
                          .arg(analysis.isOfAverages ? AnalysisPanel::tr("%1 with each stage's average times").arg(makespan) : makespan,
                               percentText(report.change, 0)) +
                      limitText(analysis.limit));
  }
  tornado->show(report);
  bubble->show(analysis.bubble, analysis.makespan);
  causes->show(analysis.bubble, analysis.makespan);
  memory->show(analysis.memory);
  if (wanted && !analysis.memory.ranks.empty()) {
    memory->showRank(*wanted);
    wanted.reset();
  }
}

AnalysisPanel::AnalysisPanel(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(*this, document)) {}
AnalysisPanel::~AnalysisPanel() = default;

void AnalysisPanel::showMemory(Rank rank) {
  d->pages->setCurrentWidget(d->memory);
  d->wanted = rank;
  if (!d->job.isRunning() && d->shown == d->document.prediction()) {
    d->memory->showRank(rank);
    d->wanted.reset();
  }
}

bool AnalysisPanel::isIdle() const { return !isVisible() || (!d->job.isRunning() && d->shown == d->document.prediction()); }

void AnalysisPanel::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  d->update();
}

}  // namespace pw::gui
