#include "app/gui/runs/comparison_view.h"

#include <QComboBox>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QSignalBlocker>
#include <QTabBar>
#include <QTreeView>
#include <QVBoxLayout>

#include "app/gui/common/body.h"
#include "app/gui/runs/group_table.h"
#include "simulator/report/compare.h"

namespace pw::gui {
namespace {

enum Tab : int { ByCause, ByKind, ByStage, ByRank };

/// The notes begin in the line of the verdict, and have a line each.
QString withNotes(const std::string& sentence, const QStringList& notes) {
  const QString verdict = QString::fromStdString(sentence);
  return notes.isEmpty() ? verdict : verdict + QLatin1Char(' ') + notes.join(QLatin1Char('\n'));
}

}  // namespace

ComparisonView::ComparisonView(QWidget* parent)
    : QWidget(parent),
      sentence_(new QLabel(this)),
      steps_(new QComboBox(this)),
      tabs_(new QTabBar(this)),
      view_(new QTreeView(this)),
      table_(new GroupTable(this)) {
  sentence_->setWordWrap(true);
  sentence_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  sentence_->setAccessibleName(tr("What the comparison says"));
  steps_->setAccessibleName(tr("Step of the run"));
  steps_->setToolTip(tr("The step that is shown and compared"));
  steps_->setSizeAdjustPolicy(QComboBox::AdjustToContents);
  steps_->setSizePolicy(QSizePolicy::Fixed, QSizePolicy::Fixed);  // the tabs can be scrolled, its text cannot
  for (const QString& name : {tr("By kind and stage"), tr("By kind"), tr("By stage"), tr("By rank")}) tabs_->addTab(name);
  tabs_->setAccessibleName(tr("Group differences by"));
  tabs_->setDrawBase(false);
  tabs_->setExpanding(false);
  tabs_->setDocumentMode(true);
  view_->setModel(table_);
  view_->setItemDelegateForColumn(GroupTable::Difference, new DifferenceDelegate(view_));
  view_->setRootIsDecorated(false);
  view_->setUniformRowHeights(true);
  view_->setAlternatingRowColors(true);
  view_->setAccessibleName(tr("Differences, largest error first"));
  QHeaderView* header = view_->header();
  header->setStretchLastSection(true);
  header->setSectionsMovable(false);
  for (const int column : {GroupTable::Group, GroupTable::Before, GroupTable::After})
    header->setSectionResizeMode(column, QHeaderView::ResizeToContents);

  auto* line = new QHBoxLayout;
  line->addWidget(tabs_);
  line->addStretch();
  line->addWidget(steps_);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(sentence_);
  layout->addLayout(line);
  layout->addWidget(view_, 1);
  takeHeightLeft(*view_);
  connect(tabs_, &QTabBar::currentChanged, this, [this](int tab) {
    chosenTab_ = tab;
    showGroups();
  });
  connect(steps_, &QComboBox::currentIndexChanged, this, [this](int index) {
    if (index < 0) return;
    const QVariant step = steps_->itemData(index);
    emit stepChosen(step.isValid() ? std::optional<int>(step.toInt()) : std::nullopt);
  });
  clear({});
  setSteps({}, 0, {});
}

void ComparisonView::clear(const QString& sentence) {
  verdict_.reset();
  sentence_->setText(sentence);
  showGroups();
}

void ComparisonView::show(const Verdict& verdict, TimesOf times, const QStringList& notes) {
  const bool isRehearsed = times == TimesOf::Rehearsed;
  const std::string sentence = isRehearsed ? verdictText(verdict, "its prediction", "the rehearsal") : verdictText(verdict);
  show(verdict, Words{withNotes(sentence, notes), tr("predicted"), isRehearsed ? tr("rehearsed") : tr("measured")});
}

void ComparisonView::show(const Verdict& verdict, const QString& before, const QString& after, Happened happened, const QString& perSample,
                          const QStringList& notes) {
  const QString sentence = withNotes(verdictText(verdict, before.toStdString(), after.toStdString(), happened), notes);
  show(verdict, Words{perSample.isEmpty() ? sentence : tr("%1\nMakespan: %2").arg(perSample, sentence), before, after});
}

void ComparisonView::show(const Verdict& verdict, const Words& words) {
  sentence_->setText(words.sentence);
  if (verdict_ == verdict && words.before == before_ && words.after == after_) return;  // keeps what is selected
  verdict_ = verdict;
  before_ = words.before;
  after_ = words.after;
  showTabs();
  showGroups();
}

/// The tab that was chosen comes back with the stages.
void ComparisonView::showTabs() {
  const bool hasStages = !verdict_->comparison.byStage.empty();
  const QSignalBlocker silent(tabs_);
  for (const Tab tab : {ByCause, ByStage}) tabs_->setTabVisible(tab, hasStages);
  tabs_->updateGeometry();  // Qt keeps the width of those that were there
  tabs_->setCurrentIndex(hasStages || chosenTab_ == ByRank ? chosenTab_ : ByKind);
}

void ComparisonView::showGroups() {
  const bool any = verdict_.has_value();
  sentence_->setAlignment(any ? Qt::AlignLeft | Qt::AlignTop : Qt::AlignCenter);
  sentence_->setForegroundRole(any ? QPalette::WindowText : QPalette::PlaceholderText);
  sentence_->setMargin(any ? 0 : 16);
  tabs_->setVisible(any);
  view_->setVisible(any);
  if (!any) return table_->setGroups({}, {}, {});
  const Comparison& c = verdict_->comparison;
  const std::array<const std::vector<GroupError>*, 4> groups{&c.byCause, &c.byKind, &c.byStage, &c.byRank};
  table_->setGroups(*groups.at(static_cast<std::size_t>(std::max(0, tabs_->currentIndex()))), before_, after_);
}

void ComparisonView::setSteps(const std::vector<int>& steps, int medianStep, std::optional<int> chosen) {
  const QSignalBlocker silent(steps_);
  steps_->clear();
  steps_->setVisible(!steps.empty());
  if (steps.empty()) return;
  steps_->addItem(tr("Median (step %1)").arg(medianStep));
  for (const int step : steps) steps_->addItem(tr("Step %1").arg(step), step);
  const int at = chosen ? steps_->findData(*chosen) : 0;
  steps_->setCurrentIndex(std::max(0, at));
}

QString ComparisonView::sentence() const { return sentence_->text(); }

}  // namespace pw::gui
