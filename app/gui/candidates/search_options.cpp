#include "app/gui/candidates/search_options.h"

#include <QCheckBox>
#include <QLabel>
#include <QLineEdit>
#include <QRegularExpression>
#include <QSpinBox>

#include "app/gui/common/flow_layout.h"
#include "app/gui/common/format.h"
#include "app/gui/document/document.h"
#include "engine/planning/inputs/limits.h"
#include "schedules/error.h"
#include "schedules/placement.h"

namespace pw::gui {
namespace {

QString listed(const std::vector<int>& counts) {
  QStringList words;
  for (const int count : counts) words << QString::number(count);
  return words.join(QStringLiteral(", "));
}

/// Whether microbatches keep their size: measured costs, or a model exported with a fixed batch.
bool keepsMicrobatch(const Document& document) {
  return document.design().profile || (document.graph() && batchSymbol(*document.graph()).empty());
}

}  // namespace

std::vector<int> countsOf(const QString& text) {
  std::vector<int> counts;
  static const QRegularExpression kBetween(QStringLiteral("[\\s,;]+"));
  for (const QString& word : text.split(kBetween, Qt::SkipEmptyParts)) {
    bool isNumber = false;
    const int count = word.toInt(&isNumber);
    if (!isNumber || count < 1 || count > kMaxMicrobatches) {
      throw UsageError(SearchOptions::tr("“%1” is not a number of microbatches; write numbers like 4, 8, 16.").arg(word).toStdString());
    }
    counts.push_back(count);
  }
  return counts;
}

SearchOptions::SearchOptions(Document& document, QWidget* parent)
    : QWidget(parent),
      document_(document),
      counts_(new QLineEdit),
      batch_(new QSpinBox),
      recompute_(new QCheckBox(tr("Recomp&ute too"))),
      limit_(new QLabel) {
  auto* row = new FlowLayout(this);
  row->setSpacing(fontMetrics().averageCharWidth());
  counts_->setAccessibleName(tr("Numbers of microbatches to try"));
  counts_->setToolTip(tr("Numbers of microbatches to try, separated by commas; empty: 1, 2, 4 and 8 times the ranks"));
  counts_->setFixedWidth(fontMetrics().averageCharWidth() * 24);
  batch_->setAccessibleName(tr("Samples per step"));
  batch_->setRange(0, static_cast<int>(kMostBatchSamples));
  batch_->setMinimumWidth(fontMetrics().horizontalAdvance(tr("microbatches of %1").arg(1024)) + 4 * fontMetrics().height());
  recompute_->setChecked(true);
  recompute_->setToolTip(
      tr("Also search plans that recompute activations in the backward: in all stages, or in as few as the memory limit allows"));
  limit_->setAccessibleName(tr("Memory limit of the search"));
  row->addField(new QLabel(tr("&Microbatches")), counts_);
  row->addField(new QLabel(tr("&Batch")), batch_);
  row->addWidget(recompute_);
  row->addWidget(limit_);
  connect(batch_, &QSpinBox::valueChanged, this, [this] { refresh(); });
  refresh();
}

void SearchOptions::refresh() {
  const PlanRequest& r = document_.design().request;
  const bool keeps = keepsMicrobatch(document_);
  batch_->setEnabled(!keeps);
  limit_->setVisible(document_.graph() != nullptr);
  if (!document_.graph()) {  // then there is no plan that these would be of
    counts_->setPlaceholderText({});
    return batch_->setSpecialValueText(QStringLiteral("–"));
  }
  batch_->setSpecialValueText(keeps ? tr("microbatches of %1").arg(r.microbatch) : tr("as in the plan: %1").arg(samplesOf(r)));
  batch_->setToolTip(
      keeps ? tr("Microbatches keep their size, since %1. Compare samples per second.")
                  .arg(document_.design().profile ? tr("costs were measured at it") : tr("the model was exported with it"))
            : tr("Samples per step over all replicas; the same for all candidates, so that their steps are comparable. 0: as in the plan"));
  if (keeps) batch_->setValue(0);
  counts_->setPlaceholderText(listed(usualCounts(r.ranks, r.replicas, keeps ? 0 : batch_->value() > 0 ? batch_->value() : samplesOf(r))));
  const std::vector<Bytes> limits = document_.rankLimits();
  const bool ofDevices = r.memoryLimit == 0 && std::ranges::any_of(limits, [](Bytes limit) { return limit > 0; });
  limit_->setText(ofDevices           ? tr("Memory limit of each device")
                  : r.memoryLimit > 0 ? tr("Memory limit %1").arg(sizeText(r.memoryLimit))
                                      : tr("No memory limit"));
  limit_->setToolTip(ofDevices ? tr("The memory that the cluster states for each device") : tr("Set in the plan"));
}

SearchSpace SearchOptions::space() const {
  SearchSpace space;
  space.base = document_.design().request;
  space.base.rankOrder.clear();  // the best is searched
  space.microbatches = countsOf(counts_->text());
  space.recompute = recompute_->isChecked();
  space.fixedMicrobatch = keepsMicrobatch(document_);
  if (document_.design().profile) space.base.microbatch = document_.design().profile->microbatch;
  space.base.batch = space.fixedMicrobatch ? 0 : batch_->value() > 0 ? batch_->value() : samplesOf(document_.design().request);
  return space;
}

}  // namespace pw::gui
