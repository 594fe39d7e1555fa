#include "app/gui/model/stage_list.h"

#include <QHeaderView>
#include <QPixmap>

#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"

namespace pw::gui {

StageList::StageList(QWidget* parent) : QTreeWidget(parent) {
  setHeaderLabels({tr("Stage"), tr("Rank"), tr("Forward"), tr("Backward"), tr("Memory")});
  headerItem()->setToolTip(4, tr("Parameters, gradients, optimizer state and the activations of one microbatch"));
  header()->setStretchLastSection(false);
  setRootIsDecorated(false);
  setUniformRowHeights(true);
  setFrameShape(NoFrame);
  setAccessibleName(tr("Stages"));
  for (int column = 1; column < columnCount(); ++column) headerItem()->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
}

void StageList::setStages(const std::vector<StageTotals>& stages) {
  if (stages == stages_ && topLevelItemCount() == static_cast<int>(stages.size())) return;
  stages_ = stages;
  clear();
  const int side = fontMetrics().height() * 2 / 3;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const StageTotals& t = stages[s];
    const QString rank = t.mirror ? tr("%1, %2").arg(t.rank.value).arg(t.mirror->value) : QString::number(t.rank.value);
    const Bytes memory = t.state + t.activations;
    auto* item = new QTreeWidgetItem(this, {QString::number(s), rank, durationText(t.forward), durationText(t.backward),
                                            memory > 0 ? sizeText(memory) : QStringLiteral("–")});
    QPixmap swatch(QSize(side, side) * devicePixelRatioF());
    swatch.fill(stageColour(Stage(s), currentTheme()));
    item->setIcon(0, swatch);
    for (int column = 1; column < columnCount(); ++column) item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  }
  for (int column = 0; column < columnCount(); ++column) {
    resizeColumnToContents(column);
    setColumnWidth(column, columnWidth(column) + fontMetrics().averageCharWidth() * 2);
  }
}

}  // namespace pw::gui
