#include "app/gui/analysis/panel.h"

#include <QLabel>
#include <QScrollArea>
#include <QTabWidget>
#include <QVBoxLayout>
#include <functional>
#include <optional>

#include "app/gui/analysis/bubble_bars.h"
#include "app/gui/analysis/memory_view.h"
#include "app/gui/analysis/tornado.h"
#include "app/gui/common/format.h"
#include "app/gui/common/jobs.h"
#include "app/gui/document/document.h"
#include "simulator/plan/made_order.h"
#include "simulator/report/explain.h"

namespace pw::gui {
namespace {

constexpr double kChange = 0.1;      ///< of a stage's or link's time
constexpr double kMostWork = 500e6;  ///< actions to simulate: some seconds

constexpr double kOrderSeconds = 0.5;  ///< of the search for an order with another memory limit

struct Analysis {
  SensitivityReport sensitivity;
  QString refusal;  ///< why there is none
  PlanMemory memory;
  Explanation explanation;
  Ns makespan = 0;
  std::optional<LimitSensitivity> limit;
};

/// Of a design with a model; null without.
struct Modelled {
  PlanRequest request;
  std::shared_ptr<const ModelGraph> graph;
  std::shared_ptr<const Profile> profile;
};

Analysis analysisOf(const Prediction& prediction, const Modelled& modelled, const std::function<bool(double)>& goOn) {
  Analysis analysis;
  const Schedule& rows = *prediction.rows;
  if (modelled.graph) {
    ModelCosts model(*modelled.graph, *modelled.profile, modelled.request.microbatch);
    analysis.memory = memoryOf(modelled.request, model, rows, prediction.priced.partition);
    analysis.limit = limitSensitivity(modelled.request, model, rows, kChange, {.seconds = kOrderSeconds, .goOn = goOn});
  } else {
    analysis.memory.ranks = memoryOf(rows, prediction.costs);
  }
  analysis.explanation = explain(rows, prediction.costs, prediction.program, prediction.times, false);
  analysis.makespan = prediction.makespan;
  double actions = 0;
  for (const auto& row : rows.rows) actions += static_cast<double>(row.size());
  const double passes = 2.0 * static_cast<double>(rows.placement.stages()) + static_cast<double>(prediction.costs.messages.size());
  if (actions * passes > kMostWork) {
    analysis.refusal = AnalysisPanel::tr("This step of %1 actions is too large to simulate it again for each of its stages and links here.")
                           .arg(countText(actions));
  } else {
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
  QLabel* sentence = nullptr;
  Tornado* tornado = nullptr;
  BubbleBars* bubble = nullptr;
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
  auto* sensitivity = new QWidget;
  auto* column = new QVBoxLayout(sensitivity);
  column->addWidget(sentence);
  column->addWidget(bars, 1);
  memory = new MemoryView;
  bubble = new BubbleBars;
  auto* bubbles = new QScrollArea;
  bubbles->setWidget(bubble);
  bubbles->setWidgetResizable(true);
  bubbles->setFrameShape(QFrame::NoFrame);
  pages = new QTabWidget;
  pages->setDocumentMode(true);
  pages->addTab(sensitivity, AnalysisPanel::tr("Sensitivity"));
  pages->addTab(bubbles, AnalysisPanel::tr("Bubble"));
  pages->addTab(memory, AnalysisPanel::tr("Memory"));
  auto* all = new QVBoxLayout(&w);
  all->setContentsMargins(0, 0, 0, 0);
  all->addWidget(pages);
  QObject::connect(&document, &Document::predictionChanged, &w, [this] { update(); });
  QObject::connect(bubble, &BubbleBars::chosen, &w, &AnalysisPanel::bubbleChosen);
  QObject::connect(&job, &Job::failed, &w, [this](const QString& problem) { sentence->setText(problem); });
  take({});
}

void AnalysisPanel::Private::update() {
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
    const auto goOn = [&](double) { return !control.isCancelled(); };
    auto analysis = std::make_shared<const Analysis>(analysisOf(*prediction, modelled, goOn));
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
    sentence->setText(AnalysisPanel::tr("Makespan %1: how it changes where the compute of a stage, or the messages of a link, take %2 less "
                                        "or more; on the right their share of the critical path.")
                          .arg(durationText(report.makespan), percentText(report.change, 0)) +
                      limitText(analysis.limit));
  }
  tornado->show(report);
  bubble->show(analysis.explanation, analysis.makespan);
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
