#include "app/gui/model/layout_line.h"

#include <QApplication>
#include <QClipboard>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QToolButton>

namespace pw::gui {

LayoutLine::LayoutLine(QWidget* parent) : QWidget(parent), text_(new QLineEdit), copy_(new QToolButton) {
  auto* label = new QLabel(tr("Me&gatron"));
  label->setBuddy(text_);
  const QString tip =
      tr("What --pipeline-model-parallel-layout of Megatron-LM takes for these splits: E embedding, t transformer layer, m MTP layer, L "
         "loss, | "
         "ends a stage");
  label->setToolTip(tip);
  text_->setReadOnly(true);
  text_->setAccessibleName(tr("Megatron layout"));
  text_->setObjectName(QStringLiteral("layoutString"));
  text_->setAccessibleDescription(tip);
  copy_->setText(tr("Cop&y"));
  copy_->setAccessibleName(tr("Copy Megatron layout"));
  copy_->setToolTip(tr("Copies the layout string"));
  copy_->setAutoRaise(true);
  connect(copy_, &QToolButton::clicked, this, [this] { QApplication::clipboard()->setText(text_->text()); });
  auto* row = new QHBoxLayout(this);
  row->setContentsMargins(6, 3, 4, 3);
  row->addWidget(label);
  row->addWidget(text_, 1);
  row->addWidget(copy_);
  hide();
}

void LayoutLine::setModel(const ModelGraph* graph) { blocks_ = graph != nullptr ? blocksOf(*graph) : std::vector<LayoutBlock>(); }

void LayoutLine::setBegins(const std::vector<NodeId>& begins, bool replicasDiffer) {
  setVisible(!blocks_.empty());
  if (blocks_.empty()) return;
  const CutLayout cut = layoutOf(blocks_, begins);
  const bool whole = cut.inside.empty() && !replicasDiffer;
  const QString text = replicasDiffer ? tr("replicas have splits of their own")
                       : whole        ? QString::fromStdString(toString(cut.layout))
                                      : tr("stage %1 begins inside %2").arg(cut.stage.value).arg(QString::fromStdString(cut.inside));
  copy_->setEnabled(whole);
  if (text == text_->text()) return;  // a selection stays
  text_->setText(text);
  text_->setToolTip(text + QLatin1Char('\n') + text_->accessibleDescription());
  text_->setCursorPosition(0);
}

}  // namespace pw::gui
