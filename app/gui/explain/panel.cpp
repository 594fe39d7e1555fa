#include "app/gui/explain/panel.h"

#include <QAction>
#include <QComboBox>
#include <QHBoxLayout>
#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <QScrollArea>
#include <QSignalBlocker>
#include <QTabWidget>
#include <QVBoxLayout>
#include <array>
#include <optional>
#include <utility>

#include "app/gui/common/body.h"
#include "app/gui/common/jobs.h"
#include "app/gui/explain/row_tree.h"

namespace pw::gui {
namespace {

constexpr int kSideWidth = 244;

/// A page of tables.
enum class Page : std::uint8_t { Path, Bubble, Stragglers, WorstSteps, Stalls };
constexpr std::size_t kPages = 5;

Page pageOf(ExplainTopic topic) {
  switch (topic) {
    case ExplainTopic::Path: return Page::Path;
    case ExplainTopic::Bubble: return Page::Bubble;
    case ExplainTopic::Kinds:
    case ExplainTopic::Stages:
    case ExplainTopic::Ranks:
    case ExplainTopic::Replicas:
    case ExplainTopic::Workers: return Page::Stragglers;
    case ExplainTopic::WorstSteps: return Page::WorstSteps;
    case ExplainTopic::Stalls: return Page::Stalls;
  }
  return Page::Path;
}

QString titleOf(Page page) {
  switch (page) {
    case Page::Path: return ExplainPanel::tr("Critical path");
    case Page::Bubble: return ExplainPanel::tr("Bubble");
    case Page::Stragglers: return ExplainPanel::tr("Stragglers");
    case Page::WorstSteps: return ExplainPanel::tr("Worst steps");
    case Page::Stalls: return ExplainPanel::tr("Stalls");
  }
  return {};
}

}  // namespace

struct ExplainPanel::Private {
  Private(ExplainPanel& panel, Document& owner) : w(panel), document(owner) { build(); }
  void build();
  QWidget* makeSide();
  QLayout* makeProgress();
  QWidget* makePage(Page page);
  void update();
  void follow();
  void start();
  void take(std::shared_ptr<const ShownExplanation> explanation);
  [[nodiscard]] std::optional<Explainable> wanted() const;

  ExplainPanel& w;
  Document& document;
  QComboBox* source = nullptr;
  QLabel *summary = nullptr, *common = nullptr;
  QPushButton *replan = nullptr, *cancel = nullptr;
  QProgressBar* progress = nullptr;
  QTabWidget* pages = nullptr;
  std::array<RowTree*, kPages> trees{};
  std::vector<Explainable> all;
  std::optional<ExplainedOf> chosen;   ///< by the user
  std::optional<Explainable> stopped;  ///< not to be explained until it is chosen again
  std::optional<Explainable> shown;    ///< what is shown, or being computed
  std::shared_ptr<const ShownExplanation> explanation;
  ExplainedOf explainedOf = ExplainedOf::Plan;  ///< what `explanation` is of: while the next one is computed, its rows stay
  Job job;
};

QWidget* ExplainPanel::Private::makeSide() {
  source = new QComboBox;
  source->setAccessibleName(ExplainPanel::tr("What is explained"));
  source->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
  source->setMinimumContentsLength(12);
  QObject::connect(source, &QComboBox::activated, &w, [this](int index) {
    chosen = all[static_cast<std::size_t>(index)].of;
    stopped.reset();
    follow();
  });
  summary = new QLabel;
  summary->setWordWrap(true);
  summary->setAccessibleName(ExplainPanel::tr("Where the step goes"));
  summary->setAlignment(Qt::AlignTop | Qt::AlignLeft);
  summary->setTextInteractionFlags(Qt::TextSelectableByMouse);
  auto* scroll = new QScrollArea;
  scroll->setWidget(summary);
  scroll->setWidgetResizable(true);
  scroll->setFrameShape(QFrame::NoFrame);
  scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  replan = new QPushButton;
  replan->setVisible(false);
  auto* side = new QWidget;
  side->setFixedWidth(kSideWidth);
  auto* column = new QVBoxLayout(side);
  column->setContentsMargins(6, 6, 6, 6);
  column->addWidget(source);
  column->addWidget(scroll, 1);
  takeHeightLeft(*scroll, 2);
  column->addLayout(makeProgress());
  column->addWidget(replan);
  return side;
}

/// Shown while it takes long.
QLayout* ExplainPanel::Private::makeProgress() {
  progress = new QProgressBar;
  progress->setAccessibleName(ExplainPanel::tr("Progress of the explanation"));
  progress->setTextVisible(false);
  cancel = new QPushButton(ExplainPanel::tr("&Cancel"));
  auto* row = new QHBoxLayout;
  row->addWidget(progress, 1);
  row->addWidget(cancel);
  const auto show = [this](bool on) {
    progress->setRange(0, 0);
    progress->setVisible(on);
    cancel->setVisible(on);
  };
  show(false);
  QObject::connect(&job, &Job::started, &w, [show] { show(true); });
  QObject::connect(&job, &Job::finished, &w, [show] { show(false); });
  QObject::connect(&job, &Job::progressed, &w, [this](qint64 done, qint64 of, const QString&) {
    progress->setRange(0, of > 0 ? 1000 : 0);
    if (of > 0) progress->setValue(static_cast<int>(1000.0 * static_cast<double>(done) / static_cast<double>(of)));
  });
  QObject::connect(cancel, &QAbstractButton::clicked, &w, [this] {
    stopped = std::exchange(shown, std::nullopt);
    job.cancel();
    take(nullptr);
    summary->setText(ExplainPanel::tr("Not explained. Choose it above to begin again."));
  });
  return row;
}

QWidget* ExplainPanel::Private::makePage(Page page) {
  auto* tree = trees[static_cast<std::size_t>(page)] = new RowTree(titleOf(page));
  QObject::connect(tree, &RowTree::chosen, &w, [this](const StepPlace& place) {
    if (explanation) emit w.placeChosen({explainedOf, explanation->job, place});
  });
  if (page != Page::WorstSteps) return tree;
  common = new QLabel;
  common->setWordWrap(true);
  common->setContentsMargins(6, 4, 6, 4);
  common->setAccessibleName(ExplainPanel::tr("What the worst steps have in common"));
  auto* both = new QWidget;
  auto* column = new QVBoxLayout(both);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(0);
  column->addWidget(common);
  column->addWidget(tree, 1);
  return both;
}

void ExplainPanel::Private::build() {
  auto* row = new QHBoxLayout(&w);
  row->setContentsMargins(0, 0, 0, 0);
  row->setSpacing(0);
  row->addWidget(makeSide());
  pages = new QTabWidget;
  pages->setDocumentMode(true);
  for (std::size_t p = 0; p < kPages; ++p) pages->addTab(makePage(static_cast<Page>(p)), titleOf(static_cast<Page>(p)));
  row->addWidget(pages, 1);
  takeHeightLeft(*pages);
  QObject::connect(&document, &Document::predictionChanged, &w, [this] { update(); });
  QObject::connect(&document, &Document::measuredChanged, &w, [this] { update(); });
  QObject::connect(&document, &Document::designChanged, &w, [this] { update(); });
  QObject::connect(&job, &Job::failed, &w, [this](const QString& problem) {
    take(nullptr);
    summary->setText(problem.toHtmlEscaped());
  });
  take(nullptr);
}

/// What of the document there is to choose from; what was chosen stays, where there still is such.
void ExplainPanel::Private::update() {
  if (!w.isVisible() || document.isDragging() || document.isPredicting()) return;
  std::vector<Explainable> now = explainableIn(document);
  if (now != all) {
    all = std::move(now);
    const QSignalBlocker quiet(source);
    source->clear();
    int index = all.empty() ? -1 : 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      source->addItem(all[i].title);
      if (chosen && *chosen == all[i].of) index = static_cast<int>(i);
    }
    source->setCurrentIndex(index);
    source->setEnabled(!all.empty());
  }
  follow();
}

std::optional<Explainable> ExplainPanel::Private::wanted() const {
  const int index = source->currentIndex();
  return index >= 0 ? std::optional(all[static_cast<std::size_t>(index)]) : std::nullopt;
}

void ExplainPanel::Private::follow() {
  const std::optional<Explainable> what = wanted();
  if (what == shown || (what && what == stopped)) return;
  shown = what;
  if (!what) {
    job.cancel();
    return take(nullptr);
  }
  start();
}

void ExplainPanel::Private::start() {
  summary->setText(ExplainPanel::tr("Explaining %1 …").arg(shown->title.toHtmlEscaped()));
  job.start(ExplainPanel::tr("Explain"), [this, what = *shown](JobControl& control) -> std::function<void()> {
    auto made = explained(what, [&](std::int64_t done, std::int64_t of) {
      if (of > 0) control.progress(done, of);
      return !control.isCancelled();
    });
    return [this, made = std::move(made), madeOf = what.of] {
      if (!made) return;
      explainedOf = madeOf;
      take(made);
    };
  });
}

void ExplainPanel::Private::take(std::shared_ptr<const ShownExplanation> made) {
  explanation = std::move(made);
  std::array<std::vector<const ExplainedTable*>, kPages> tables;
  if (explanation) {
    for (const ExplainedTable& table : explanation->tables) tables[static_cast<std::size_t>(pageOf(table.topic))].push_back(&table);
  }
  for (std::size_t p = 0; p < kPages; ++p) {
    trees[p]->show(tables[p]);
    const bool isAlways = static_cast<Page>(p) == Page::Path || static_cast<Page>(p) == Page::Bubble;
    pages->setTabVisible(static_cast<int>(p), isAlways || !tables[p].empty());
  }
  common->setText(explanation ? explanation->common : QString());
  common->setVisible(explanation && !explanation->common.isEmpty());
  summary->setText(explanation ? explanation->summary
                               : ExplainPanel::tr("Open a trace, a job or a model, or choose a run, to see where its step goes."));
}

ExplainPanel::ExplainPanel(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(*this, document)) {
  setAccessibleName(tr("Explain"));
}
ExplainPanel::~ExplainPanel() = default;

bool ExplainPanel::isIdle() const { return !isVisible() || !d->job.isRunning(); }

void ExplainPanel::setReplanAction(QAction* action) {
  const auto show = [this, action] {
    d->replan->setText(action->text().remove(QLatin1Char('&')));  // the letter is that of the same button beside the plan
    d->replan->setVisible(action->isEnabled());
    d->replan->setToolTip(action->toolTip());
  };
  connect(action, &QAction::changed, this, show);
  connect(d->replan, &QAbstractButton::clicked, action, &QAction::trigger);
  show();
}

void ExplainPanel::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  d->update();
}

}  // namespace pw::gui
