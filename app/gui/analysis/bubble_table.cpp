#include "app/gui/analysis/bubble_table.h"

#include <QHeaderView>
#include <QPixmap>
#include <algorithm>

#include "app/gui/analysis/bubble_bars.h"
#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"

namespace pw::gui {
namespace {

constexpr int kCauses = static_cast<int>(countOf<BubbleCause>());
constexpr int kAll = kCauses + 1, kReady = kCauses + 2;  ///< columns after those of the causes

QString timeIn(Ns time, Ns makespan) {
  if (time == 0) return QStringLiteral("–");
  const double share = makespan > 0 ? static_cast<double>(time) / static_cast<double>(makespan) : 0;
  return QStringLiteral("%1  %2").arg(durationText(time), percentText(share));
}

}  // namespace

BubbleTable::BubbleTable(QWidget* parent) : QTreeWidget(parent) {
  QStringList heads{tr("Rank")};
  for (const BubbleCause cause : valuesOf<BubbleCause>()) heads << nameOfCause(cause);
  heads << tr("all") << tr("work ready");
  setHeaderLabels(heads);
  for (const BubbleCause cause : valuesOf<BubbleCause>()) headerItem()->setToolTip(1 + static_cast<int>(cause), meaningOf(cause));
  headerItem()->setToolTip(kReady, tr("idle although an action that the row computes later had all it needs"));
  setRootIsDecorated(false);
  setUniformRowHeights(true);
  setAlternatingRowColors(true);
  setAccessibleName(tr("Bubble by cause, as a table"));
  header()->setSectionsMovable(false);
  header()->setStretchLastSection(false);
  connect(this, &QTreeWidget::itemClicked, this, [this](QTreeWidgetItem* item, int column) { choose(*item, column); });
  connect(this, &QTreeWidget::itemActivated, this, [this](QTreeWidgetItem* item, int column) { choose(*item, column); });
}

void BubbleTable::show(const std::vector<CausedIdle>& ranks, Ns makespan) {
  ranks_ = ranks;
  clear();
  IdleByCause sum;
  const auto add = [&](const QString& name, const IdleByCause& by, Ns whole) {
    auto* item = new QTreeWidgetItem(this);
    item->setText(0, name);
    for (const BubbleCause cause : valuesOf<BubbleCause>()) item->setText(1 + static_cast<int>(cause), timeIn(by.of(cause), whole));
    item->setText(kAll, timeIn(by.sum(), whole));
    item->setText(kReady, timeIn(by.workReady, whole));
    for (int column = 1; column <= kReady; ++column) item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  };
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    add(QString::number(r), ranks[r].by, makespan);
    sum += ranks[r].by;
  }
  if (ranks.size() > 1) add(tr("all"), sum, makespan * ranks.size());
  for (const BubbleCause cause : valuesOf<BubbleCause>()) {
    QPixmap colour(10, 10);
    colour.fill(colourOf(cause, currentTheme()));
    headerItem()->setIcon(1 + static_cast<int>(cause), QIcon(colour));
  }
  for (int column = 1; column <= kReady; ++column) headerItem()->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  for (int column = 0; column <= kReady; ++column) resizeColumnToContents(column);
}

/// The largest cause of a row where no single one is chosen; in the row of all, of the rank that has most of it.
void BubbleTable::choose(QTreeWidgetItem& item, int column) {
  if (ranks_.empty()) return;
  auto rank = static_cast<std::size_t>(indexOfTopLevelItem(&item));
  const bool isCause = column >= 1 && column <= kCauses;
  auto cause = isCause ? static_cast<BubbleCause>(column - 1) : BubbleCause::StartUp;
  if (rank >= ranks_.size()) {
    const auto most =
        std::ranges::max_element(ranks_, {}, [&](const CausedIdle& one) { return isCause ? one.by.of(cause) : one.by.sum(); });
    rank = static_cast<std::size_t>(most - ranks_.begin());
  }
  const CausedIdle& one = ranks_[rank];
  if (!isCause) cause = static_cast<BubbleCause>(std::ranges::max_element(one.by.idle) - one.by.idle.begin());
  if (one.by.of(cause) > 0) emit chosen(Rank(rank), one.longestFrom[static_cast<std::size_t>(cause)]);
}

}  // namespace pw::gui
