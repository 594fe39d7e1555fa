#include "app/gui/common/work_bar.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>

#include "app/gui/common/jobs.h"

namespace pw::gui {
namespace {

constexpr int kMomentMs = 200;

}  // namespace

WorkBar::WorkBar(Job& job, QWidget* parent)
    : QWidget(parent), text_(new QLabel), cancel_(new QPushButton(tr("&Cancel"))), moment_(new QTimer(this)) {
  auto* row = new QHBoxLayout(this);
  row->setContentsMargins(6, 3, 4, 3);
  row->addWidget(text_, 1);
  row->addWidget(cancel_);
  text_->setAccessibleName(tr("Work in progress"));
  moment_->setSingleShot(true);
  moment_->setInterval(kMomentMs);
  hide();
  connect(moment_, &QTimer::timeout, this, &QWidget::show);
  connect(&job, &Job::started, this, [this](const QString& title) {
    text_->setText(title + QStringLiteral("…"));
    cancel_->setAccessibleName(tr("Cancel: %1").arg(title));
    moment_->start();
  });
  connect(&job, &Job::finished, this, [this] {
    moment_->stop();
    hide();
  });
  connect(cancel_, &QPushButton::clicked, &job, &Job::cancel);
}

}  // namespace pw::gui
