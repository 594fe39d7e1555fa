#include "app/gui/statistics/panel.h"

#include <QComboBox>
#include <QEvent>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QSplitter>
#include <QTimer>
#include <QTreeWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <optional>
#include <utility>

#include "app/gui/common/body.h"
#include "app/gui/common/format.h"
#include "app/gui/common/jobs.h"
#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"
#include "app/gui/statistics/histogram_delegate.h"
#include "app/gui/statistics/summary.h"
#include "app/gui/timeline/facts/details.h"
#include "app/gui/timeline/facts/explanations.h"
#include "app/gui/timeline/widget.h"

namespace pw::gui {
namespace {

constexpr int kPauseMs = 80;                  ///< until a selection that changes with the mouse is summed up
constexpr std::size_t kMostAtOnce = 100'000;  ///< blocks; more are summed up in the background
constexpr int kMostSteps = 65;                ///< of a stored run that are read for the spread between them
constexpr int kSpanRole = Qt::UserRole + 3;   ///< place in `spans`

enum Column : int { Kind, StageOf, Count, Total, Share, Least, Median, Most, Distribution, Spread };
constexpr int kColumns = Spread + 1;
enum SlowColumn : int { What, Where, Start, Duration, Above };
constexpr int kSlowColumns = Above + 1;

/// What is to be summed up.
struct Question {
  std::shared_ptr<const Timeline> timeline;
  Source source = Source::Predicted;
  std::optional<std::pair<Ns, Ns>> range;
  std::vector<SourcedSpan> marked;                     ///< without a range; empty: the whole step
  std::vector<std::shared_ptr<const Measured>> steps;  ///< of a trace
  std::shared_ptr<const Measured> stored;              ///< a step of a stored run

  bool operator==(const Question&) const = default;
};

/// The means of a stored run's steps, which are kept while its steps are looked at.
struct StoredMeans {
  std::string store;
  RunId run;
  std::vector<int> numbers;
  std::vector<StepMeans> means;
};

/// Those of the run of a step, from `known` where it has not got others since; without the first step, which warms up.
std::shared_ptr<const StoredMeans> meansOfRun(const Measured& step, const std::shared_ptr<const StoredMeans>& known) {
  const RunStore store(step.from.store, RunStore::Mode::ReadOnly);
  std::vector<int> numbers = store.stepNumbers(step.run->id, kMostSteps);
  if (!numbers.empty()) numbers.erase(numbers.begin());
  if (known && known->store == step.from.store && known->run == step.run->id && known->numbers == numbers) return known;
  auto read = std::make_shared<StoredMeans>();
  *read = {step.from.store, step.run->id, std::move(numbers), {}};
  for (const int number : read->numbers) read->means.push_back(meansOf(timelineOf(store.loadStep(*step.run, number).measured)));
  return read;
}

Summary answerTo(const Question& question, const std::vector<StepMeans>& means) {
  const Timeline& timeline = *question.timeline;
  std::vector<Block> blocks;
  if (question.range)
    blocks = blocksIn(timeline, question.source, question.range->first, question.range->second);
  else if (!question.marked.empty())
    blocks = blocksOf(timeline, question.source, question.marked);
  else
    blocks = blocksIn(timeline, question.source, 0, timeline.end + 1);
  Summary summary = summaryOf(blocks);
  addSpread(summary, means);
  return summary;
}

std::size_t sizeOf(const Timeline& timeline) {
  std::size_t size = 0;
  for (const auto& rank : timeline.ranks) size += rank.compute.size() + rank.communication.size();
  return size;
}

QString lettersOf(SpanKind kind) { return textOf(nameOf(kind)); }

QTreeWidget* table(const QStringList& heads, const QString& name) {
  auto* made = new QTreeWidget;
  made->setHeaderLabels(heads);
  made->setRootIsDecorated(false);
  made->setUniformRowHeights(true);
  made->setAlternatingRowColors(true);
  made->setAllColumnsShowFocus(true);
  made->setAccessibleName(name);
  made->header()->setSectionsMovable(false);
  made->header()->setStretchLastSection(false);
  return made;
}

}  // namespace

struct StatisticsPanel::Private {
  Private(StatisticsPanel& panel, Document& owner, TimelineWidget& of) : w(panel), document(owner), timeline(of) { build(); }
  void build();
  void update();
  void take(const Summary& summary);
  void fillGroups(const Summary& summary);
  void fillSlowest(const Summary& summary);
  [[nodiscard]] Question question() const;
  [[nodiscard]] QString sentenceOf(const Summary& summary) const;
  void goTo(const QTreeWidgetItem& item);

  StatisticsPanel& w;
  Document& document;
  TimelineWidget& timeline;
  QLabel* sentence = nullptr;
  QComboBox* source = nullptr;
  QTreeWidget *groups = nullptr, *slowest = nullptr;
  QTimer pause;
  Job job;
  std::vector<std::shared_ptr<const Measured>> steps;
  std::optional<Question> asked;
  std::shared_ptr<const StoredMeans> stored;  ///< null: no stored run is shown
  std::vector<SourcedSpan> spans;             ///< of the rows
  bool isBesidePlan = false;                  ///< the second timeline was a pinned plan's
  bool isGoing = false;                       ///< to a row's block, which changes the selection: its figures stay
};

void StatisticsPanel::Private::build() {
  sentence = new QLabel;
  sentence->setWordWrap(true);
  sentence->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  sentence->setAccessibleName(tr("What the statistics are of"));
  source = new QComboBox;
  source->setAccessibleName(tr("Statistics of"));
  source->setSizeAdjustPolicy(QComboBox::AdjustToContents);
  groups = table({tr("Kind"), tr("Stage"), tr("Count"), tr("Total"), tr("Share"), tr("Shortest"), tr("Median"), tr("Longest"),
                  tr("Distribution"), tr("Between steps")},
                 tr("Blocks by kind and stage"));
  groups->headerItem()->setToolTip(Distribution, tr("Durations from the shortest to the longest block of the kind, on any stage"));
  groups->headerItem()->setToolTip(
      Spread, tr("How far the means of whole steps lie apart, as a part of their mean; of a run without its first step, which warms up"));
  groups->setItemDelegateForColumn(Distribution, new HistogramDelegate(groups));
  slowest = table({tr("Block"), tr("Rank"), tr("Start"), tr("Takes"), tr("Above median")}, tr("Slowest blocks"));
  slowest->headerItem()->setToolTip(Above, tr("How much longer than the median of its kind and stage"));
  auto* both = new QSplitter(Qt::Horizontal);
  both->addWidget(groups);
  both->addWidget(slowest);
  both->setStretchFactor(0, 3);
  both->setStretchFactor(1, 2);
  both->setChildrenCollapsible(false);
  takeHeightLeft(*both);
  auto* line = new QHBoxLayout;
  line->addWidget(sentence, 1);
  line->addWidget(source, 0, Qt::AlignTop);
  auto* column = new QVBoxLayout(&w);
  column->setContentsMargins(6, 4, 6, 6);
  column->addLayout(line);
  column->addWidget(both, 1);
  pause.setSingleShot(true);
  pause.setInterval(kPauseMs);
  connect(&pause, &QTimer::timeout, &w, [this] { update(); });
  const auto later = [this] { pause.start(); };
  connect(&timeline, &TimelineWidget::selectionChanged, &w, later);
  connect(&document, &Document::predictionChanged, &w, later);
  connect(&document, &Document::measuredChanged, &w, later);
  connect(source, &QComboBox::activated, &w, later);
  connect(&job, &Job::failed, &w, [this](const QString& problem) { sentence->setText(problem); });
  for (QTreeWidget* one : {groups, slowest}) {
    connect(one, &QTreeWidget::itemClicked, &w, [this](const QTreeWidgetItem* item) { goTo(*item); });
    connect(one, &QTreeWidget::itemActivated, &w, [this](const QTreeWidgetItem* item) { goTo(*item); });
  }
}

Question StatisticsPanel::Private::question() const {
  const Scene& scene = timeline.scene();
  Question question;
  question.source = scene.measured && (!scene.predicted || source->currentIndex() == 0) ? Source::Measured : Source::Predicted;
  question.timeline = question.source == Source::Measured ? scene.measured : scene.predicted;
  question.range = scene.range;
  if (!question.range) question.marked = timeline.markedSpans();
  if (question.source == Source::Measured && std::ranges::find(steps, document.measured()) != steps.end()) question.steps = steps;
  const auto shown = document.measured();
  if (question.source == Source::Measured && shown && shown->run && !shown->live && !shown->from.store.empty()) question.stored = shown;
  return question;
}

void StatisticsPanel::Private::update() {
  if (!w.isVisible() || document.isDragging()) return;
  const Scene& scene = timeline.scene();
  const bool both = scene.predicted && scene.measured;
  source->setVisible(both);
  if (both && source->count() == 0) source->addItems({scene.measuredName, scene.predictedName});
  if (both) {
    source->setItemText(0, scene.measuredName);
    source->setItemText(1, scene.predictedName);
    // Of a measured step its own blocks are the ones to look at, beside a pinned plan those of the plan at hand.
    const auto beside = document.measured();
    const bool isPlan = beside && !beside->pinnedAs.isEmpty();
    if (std::exchange(isBesidePlan, isPlan) != isPlan) source->setCurrentIndex(isPlan ? 1 : 0);
  }
  Question next = question();
  const bool wasGoing = std::exchange(isGoing, false);
  if (asked == next) return;
  // The block that a row led to is not a selection of its own.
  if (wasGoing && asked && next.timeline == asked->timeline && !next.range && next.marked.empty()) return;
  asked = std::move(next);
  if (!asked->timeline) {
    job.cancel();
    return take({});
  }
  const std::size_t size = asked->range || asked->marked.empty() ? sizeOf(*asked->timeline) : asked->marked.size();
  if (size <= kMostAtOnce && asked->steps.empty() && !asked->stored) {
    job.cancel();
    return take(answerTo(*asked, {}));
  }
  job.start(tr("Statistics"), [this, of = *asked, known = stored](JobControl&) -> std::function<void()> {
    std::vector<StepMeans> means;
    for (const auto& step : of.steps) means.push_back(meansOf(step->timeline));
    const auto read = of.stored ? meansOfRun(*of.stored, known) : nullptr;
    auto summary = std::make_shared<const Summary>(answerTo(of, read ? read->means : means));
    return [this, summary, read] {
      stored = read;
      take(*summary);
    };
  });
}

QString StatisticsPanel::Private::sentenceOf(const Summary& summary) const {
  if (!asked || !asked->timeline) return tr("Open a model, a schedule or a trace to see how long its blocks take.");
  QString what = tr("Whole step");
  if (asked->range) {
    const double resolution = static_cast<double>(asked->range->second - asked->range->first) / 100;
    what = tr("Range %1 to %2").arg(timeText(asked->range->first, resolution), timeText(asked->range->second, resolution));
  } else if (!asked->marked.empty()) {
    what = tr("Marked blocks");
  }
  const QString count = summary.count == 1 ? tr("1 block") : tr("%1 blocks").arg(countText(static_cast<double>(summary.count)));
  return tr("%1: %2, together %3. Select a range on the ruler, find (/), or Ctrl+click blocks for theirs; a row here goes to its block.")
      .arg(what, count, durationText(summary.total));
}

void StatisticsPanel::Private::take(const Summary& summary) {
  sentence->setText(sentenceOf(summary));
  spans.clear();
  fillGroups(summary);
  fillSlowest(summary);
}

void StatisticsPanel::Private::fillGroups(const Summary& summary) {
  groups->clear();
  bool hasSpread = false;
  for (const BlockGroup& group : summary.groups) {
    auto* item = new QTreeWidgetItem(groups);
    item->setText(Kind, lettersOf(group.kind));
    item->setText(StageOf, group.stage.value < 0 ? QStringLiteral("–") : QString::number(group.stage.value));
    item->setText(Count, countText(static_cast<double>(group.count)));
    item->setText(Total, durationText(group.total));
    item->setText(Share, percentText(summary.total > 0 ? static_cast<double>(group.total) / static_cast<double>(summary.total) : 0));
    item->setText(Least, durationText(group.least));
    item->setText(Median, durationText(group.median));
    item->setText(Most, durationText(group.most));
    QVariantList bins;
    for (const std::uint32_t bin : group.bins) bins << bin;
    item->setData(Distribution, HistogramDelegate::kBinsRole, bins);
    item->setData(Distribution, HistogramDelegate::kColourRole, kindColour(group.kind, currentTheme()));
    const QString axis = tr("%1 to %2").arg(durationText(group.axisFrom), durationText(group.axisTo));
    item->setToolTip(Distribution, axis);
    item->setData(Distribution, Qt::AccessibleTextRole, axis);
    if (group.spread) item->setText(Spread, percentText(*group.spread));
    hasSpread = hasSpread || group.spread;
    item->setData(Kind, kSpanRole, static_cast<int>(spans.size()));
    spans.push_back(group.longest);
    for (const int column : {StageOf, Count, Total, Share, Least, Median, Most, Spread})
      item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  }
  for (const int column : {StageOf, Count, Total, Share, Least, Median, Most, Spread})
    groups->headerItem()->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  groups->setColumnHidden(Spread, !hasSpread);
  for (int column = 0; column < kColumns; ++column) groups->resizeColumnToContents(column);
}

void StatisticsPanel::Private::fillSlowest(const Summary& summary) {
  slowest->clear();
  for (const SlowBlock& slow : summary.slowest) {
    const SpanRef& ref = slow.block.span.span;
    auto* item = new QTreeWidgetItem(slowest);
    item->setText(What, nameOf(trackOf(*asked->timeline, ref).tags[static_cast<std::size_t>(ref.index)]));
    item->setText(Where, QString::number(ref.rank.value));
    item->setText(Start, timeText(slow.block.start, static_cast<double>(slow.block.duration) / 100));
    item->setText(Duration, durationText(slow.block.duration));
    const Ns above = slow.block.duration - slow.median;
    const bool hasShare = slow.median > 0 && above != 0;
    item->setText(Above, hasShare ? signedPercentText(static_cast<double>(above) / static_cast<double>(slow.median)) : QStringLiteral("–"));
    item->setData(What, kSpanRole, static_cast<int>(spans.size()));
    spans.push_back(slow.block.span);
    for (const int column : {Where, Start, Duration, Above}) item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  }
  for (const int column : {Where, Start, Duration, Above})
    slowest->headerItem()->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  for (int column = 0; column < kSlowColumns; ++column) slowest->resizeColumnToContents(column);
}

void StatisticsPanel::Private::goTo(const QTreeWidgetItem& item) {
  const auto at = static_cast<std::size_t>(item.data(0, kSpanRole).toInt());
  if (at >= spans.size()) return;
  isGoing = true;
  timeline.selectWithin(spans[at]);
}

StatisticsPanel::StatisticsPanel(Document& document, TimelineWidget& timeline, QWidget* parent)
    : QWidget(parent), d(std::make_unique<Private>(*this, document, timeline)) {
  setAccessibleName(tr("Statistics"));
}
StatisticsPanel::~StatisticsPanel() = default;

void StatisticsPanel::setSteps(std::vector<std::shared_ptr<const Measured>> steps) {
  d->steps = std::move(steps);
  d->pause.start();
}

bool StatisticsPanel::isIdle() const { return !isVisible() || (!d->job.isRunning() && !d->pause.isActive()); }

void StatisticsPanel::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  d->pause.start();
}

void StatisticsPanel::changeEvent(QEvent* event) {
  QWidget::changeEvent(event);
  if (d && event->type() == QEvent::PaletteChange) {
    d->job.cancel();  // whose answer would be to nothing
    d->asked.reset();
    d->pause.start();
  }
}

}  // namespace pw::gui
