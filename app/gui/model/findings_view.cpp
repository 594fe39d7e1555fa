#include "app/gui/model/findings_view.h"

#include <QHeaderView>
#include <QLabel>
#include <QTreeWidget>
#include <QVBoxLayout>

#include "app/gui/model/parts/finding_mark.h"
#include "simulator/report/split_verdict.h"

namespace pw::gui {
namespace {

enum Column : int { What, Where, How, Source, ColumnCount };
constexpr int kFinding = Qt::UserRole, kKind = Qt::UserRole + 1;

}  // namespace

FindingsView::FindingsView(QWidget* parent)
    : QWidget(parent), verdict_(new QLabel(this)), list_(new QTreeWidget(this)), explanation_(new QLabel(this)) {
  for (QLabel* label : {verdict_, explanation_}) {
    label->setWordWrap(true);
    label->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
    label->setContentsMargins(6, 4, 6, 4);
  }
  verdict_->setAccessibleName(tr("Whether results depend on the microbatch size"));
  explanation_->setAccessibleName(tr("What the finding means, and what to do"));
  explanation_->setMinimumHeight(explanation_->fontMetrics().lineSpacing() * 4);
  explanation_->setAlignment(Qt::AlignLeft | Qt::AlignTop);
  list_->setColumnCount(ColumnCount);
  list_->setHeaderLabels({tr("Finding"), tr("Where"), tr("How"), tr("Source")});
  list_->header()->setSectionResizeMode(QHeaderView::ResizeToContents);
  list_->setUniformRowHeights(true);
  list_->setSizeAdjustPolicy(QAbstractScrollArea::AdjustToContents);  // a few kinds need little of the panel
  list_->setAllColumnsShowFocus(true);
  list_->setFrameShape(QFrame::NoFrame);
  list_->setAccessibleName(tr("Findings, by kind"));
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->setSpacing(0);
  layout->addWidget(verdict_);
  layout->addWidget(list_, 1);
  layout->addWidget(explanation_);
  connect(list_, &QTreeWidget::currentItemChanged, this, [this](QTreeWidgetItem* item) {
    explain(item);
    if (item != nullptr && item->data(What, kFinding).isValid()) emit chosen(item->data(What, kFinding).toInt());
  });
}

void FindingsView::setFindings(const std::vector<Finding>& findings, const QString& model) {
  list_->clear();
  verdict_->setText(tr("Same results with any microbatch size: %1.").arg(QString::fromStdString(splitVerdict(findings).sentence)));
  const int size = list_->fontMetrics().height();
  QTreeWidgetItem* kind = nullptr;
  for (std::size_t f = 0; f < findings.size(); ++f) {
    const Finding& finding = findings[f];
    if (f == 0 || findings[f - 1].kind != finding.kind) {
      kind = new QTreeWidgetItem(list_, {findingTitle(finding.kind)});
      kind->setData(What, kKind, static_cast<int>(finding.kind));
      kind->setIcon(What, findingIcon(factsOf(finding.kind).effect, size));
    }
    const QString where = finding.module.empty() ? model : QString::fromStdString(finding.module);
    auto* item = new QTreeWidgetItem(
        kind, {QString::fromStdString(finding.op), where, QString::fromStdString(finding.detail), QString::fromStdString(finding.source)});
    item->setData(What, kKind, static_cast<int>(finding.kind));
    item->setData(What, kFinding, static_cast<int>(f));
    kind->setText(Where, kind->childCount() == 1 ? tr("1 place") : tr("%1 places").arg(kind->childCount()));
  }
  explain(nullptr);
}

void FindingsView::explain(const QTreeWidgetItem* item) {
  explanation_->setText(item == nullptr ? tr("Choose a finding to see what it means and where it is.")
                                        : findingExplanation(static_cast<FindingKind>(item->data(What, kKind).toInt())));
}

}  // namespace pw::gui
