#include "app/gui/analysis/memory_view.h"

#include <QHeaderView>
#include <QStringList>
#include <algorithm>
#include <functional>
#include <set>

#include "app/gui/common/format.h"

namespace pw::gui {
namespace {

constexpr int kWhat = 0, kBytes = 1, kShare = 2;  // columns; then stage and microbatches

QTreeWidgetItem* row(const QString& what, const QString& bytes, const QString& share = {}, const QString& stage = {},
                     const QString& microbatches = {}) {
  auto* item = new QTreeWidgetItem({what, bytes, share, stage, microbatches});
  for (const int column : {kBytes, kShare}) item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  return item;
}

QString shareOf(Bytes part, Bytes whole) {
  return whole > 0 ? percentText(static_cast<double>(part) / static_cast<double>(whole)) : QString();
}

/// The modules of a stage that keep the most, for each microbatch.
void addModules(QTreeWidgetItem& parent, std::vector<ModuleMemory> modules, Bytes ModuleMemory::*bytes, std::size_t times) {
  std::ranges::stable_sort(modules, std::greater<>(), bytes);
  for (const ModuleMemory& m : modules) {
    const Bytes all = m.*bytes * times;
    if (all <= 0) break;
    parent.addChild(row(m.module.empty() ? translated("outside of modules") : QString::fromStdString(m.module), sizeText(all)));
  }
}

void addParts(QTreeWidgetItem& item, const RankMemory& rank, const PlanMemory& memory) {
  for (const MemoryPart& part : rank.parts) {
    auto* child = row(textOf(nameOf(part.kind)), sizeText(part.bytes), shareOf(part.bytes, rank.peak), QString::number(part.stage.value),
                      QString::fromStdString(rangesOf(part.microbatches)));
    item.addChild(child);
    if (part.stage.index() >= memory.modules.size()) continue;
    const std::vector<ModuleMemory>& modules = memory.modules[part.stage.index()];
    if (part.kind == MemoryKind::Activations) addModules(*child, modules, &ModuleMemory::activations, part.microbatches.size());
    if (part.kind == MemoryKind::Parameters) addModules(*child, modules, &ModuleMemory::parameters, 1);
  }
}

QString savingText(const MemorySaving& saving, Ns step) {
  const auto what = [&]() -> QString {
    switch (saving.by) {
      case MemorySaving::By::Recomputing: return translated("Recompute stage %1").arg(saving.stage.value);
      case MemorySaving::By::Zero1: return translated("Spread the optimizer's state over the replicas (ZeRO-1)");
      case MemorySaving::By::Schedule: return translated("Schedule %1").arg(QString::fromStdString(saving.schedule));
      case MemorySaving::By::Splits: return translated("Splits balanced by memory");
    }
    return {};
  };
  const double change = step > 0 ? static_cast<double>(saving.step - step) / static_cast<double>(step) : 0;
  return translated("%1: step %2 (%3)").arg(what(), durationText(saving.step), signedPercentText(change));
}

}  // namespace

MemoryView::MemoryView(QWidget* parent) : QTreeWidget(parent) {
  setAccessibleName(tr("What memory is used for at each rank's peak"));
  setHeaderLabels({tr("Peak of"), tr("Size"), tr("Share"), tr("Stage"), tr("Microbatches")});
  setUniformRowHeights(true);
  header()->setStretchLastSection(true);
  header()->setSectionResizeMode(QHeaderView::ResizeToContents);
}

void MemoryView::show(const PlanMemory& memory) {
  std::set<int> open;  // ranks, which stay unfolded
  for (int i = 0; i < topLevelItemCount(); ++i) {
    const QVariant rank = topLevelItem(i)->data(kWhat, Qt::UserRole);
    if (rank.isValid() && topLevelItem(i)->isExpanded()) open.insert(rank.toInt());
  }
  clear();
  if (!memory.ranks.empty() && std::ranges::all_of(memory.ranks, [](const RankMemory& rank) { return rank.peak == 0; })) {
    addTopLevelItem(row(tr("not known: these times say nothing of memory"), QString()));
    return;
  }
  for (const RankMemory& rank : memory.ranks) {
    const QString at = rank.at.kind == ActionKind::Idle ? QString() : QString::fromStdString(toString(rank.at));
    auto* item =
        row(at.isEmpty() ? tr("rank %1").arg(rank.rank.value) : tr("rank %1, during %2").arg(rank.rank.value).arg(at), sizeText(rank.peak));
    item->setData(kWhat, Qt::UserRole, rank.rank.value);
    addParts(*item, rank, memory);
    addTopLevelItem(item);
    item->setExpanded(open.contains(rank.rank.value));
  }
  if (!memory.savings.empty()) {
    auto* savings = row(tr("What would free memory"), QString());
    for (const MemorySaving& saving : memory.savings)
      savings->addChild(row(savingText(saving, memory.step), sizeText(saving.freed), {}, {}, tr("of rank %1").arg(saving.rank.value)));
    addTopLevelItem(savings);
  }
  doItemsLayout();  // now, for Qt 6.4 draws only some of the rows anew where it lays them out while it draws
}

void MemoryView::showRank(Rank rank) {
  for (int i = 0; i < topLevelItemCount(); ++i) {
    QTreeWidgetItem* item = topLevelItem(i);
    const QVariant value = item->data(kWhat, Qt::UserRole);
    const bool isIt = value.isValid() && value.toInt() == rank.value;
    if (value.isValid()) item->setExpanded(isIt);
    if (!isIt) continue;
    setCurrentItem(item);
    scrollToItem(item, QAbstractItemView::PositionAtTop);
  }
}

}  // namespace pw::gui
