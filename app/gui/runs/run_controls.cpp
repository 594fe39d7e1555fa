#include "app/gui/runs/run_controls.h"

#include <QComboBox>
#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <QSpinBox>
#include <QStandardItemModel>
#include <QVBoxLayout>
#include <algorithm>

#include "app/gui/common/flow_layout.h"
#include "app/gui/common/format.h"
#include "app/gui/runs/run_task.h"

namespace pw::gui {

RunControls::RunControls(QWidget* parent)
    : QWidget(parent),
      run_(new QPushButton(tr("▶ R&un"), this)),
      profile_(new QPushButton(tr("Profi&le"), this)),
      cancel_(new QPushButton(tr("&Cancel"), this)),
      steps_(new QSpinBox(this)),
      transport_(new QComboBox(this)),
      precision_(new QComboBox(this)),
      progress_(new QProgressBar(this)),
      status_(new QLabel(this)) {
  run_->setAccessibleName(tr("Run the plan on this machine"));
  steps_->setRange(1, 100'000);
  steps_->setValue(5);
  steps_->setSuffix(tr(" steps"));
  steps_->setAccessibleName(tr("Steps to run"));
  steps_->setToolTip(tr("Training steps; the first one warms up and is not counted as typical"));
  std::vector<TransportHere> unknown;
  for (const Transport transport : valuesOf<Transport>()) {  // each in the row of its value
    transport_->addItem(textOf(nameOf(transport)));
    unknown.push_back({transport, !factsOf(transport).onGpu, ""});
  }
  setTransports(unknown);
  transport_->setAccessibleName(tr("How ranks exchange messages"));
  transport_->setToolTip(tr("How ranks exchange messages; with nccl they compute on GPUs, otherwise on CPUs"));
  transport_->setObjectName(QStringLiteral("transport"));
  precision_->addItem(tr("as traced"), static_cast<int>(DType::Unknown));
  for (const DType precision : {DType::BFloat16, DType::Float16})
    precision_->addItem(precisionWord(precision), static_cast<int>(precision));
  precision_->setAccessibleName(tr("Precision of matrix products"));
  precision_->setToolTip(tr("Type for matrix products and similar operators (autocast); parameters, gradients and sums stay as traced"));
  profile_->setAccessibleName(tr("Measure the model's operators on this machine"));
  cancel_->setAccessibleName(tr("Cancel the run or profile"));
  progress_->setAccessibleName(tr("Progress of the run or profile"));
  progress_->setTextVisible(false);
  progress_->setFixedWidth(16 * fontMetrics().averageCharWidth());
  status_->setAccessibleName(tr("Progress of the run or profile, or its result"));
  QSizePolicy wraps(QSizePolicy::Ignored, QSizePolicy::Preferred);
  wraps.setHeightForWidth(true);
  status_->setSizePolicy(wraps);
  status_->setWordWrap(true);
  status_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  auto* row = new FlowLayout;
  for (QWidget* widget : std::initializer_list<QWidget*>{run_, steps_, transport_, precision_, profile_, progress_, cancel_})
    row->addWidget(widget);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(2);
  column->addLayout(row);
  column->addWidget(status_);
  connect(run_, &QPushButton::clicked, this, [this] { emit runRequested(steps_->value()); });
  connect(profile_, &QPushButton::clicked, this, &RunControls::profileRequested);
  connect(cancel_, &QPushButton::clicked, this, &RunControls::cancelRequested);
  setState(false, {});
}

void RunControls::setState(bool busy, const Possible& possible) {
  const bool hadFocus = run_->hasFocus() || profile_->hasFocus() || cancel_->hasFocus();
  run_->setEnabled(!busy && possible.runProblem.isEmpty());
  profile_->setEnabled(!busy && possible.profileProblem.isEmpty());
  steps_->setEnabled(!busy);
  transport_->setEnabled(!busy);
  precision_->setEnabled(!busy);
  progress_->setVisible(busy);
  cancel_->setVisible(busy);
  if (hadFocus) (busy ? cancel_ : run_)->setFocus();  // a keyboard stays where it was
  possible_ = possible;
  tip();
}

/// Says why there is nothing to run or to profile, else what that does and what should be known before it.
void RunControls::tip() {
  const QString run = possible_.rehearses
                          ? tr("Rehearses the plan: one process per rank, whose stages take as long as the layer table says "
                               "and compute nothing; messages are sent and measured")
                          : tr("Executes the plan: one process per rank, real training steps, measured spans");
  run_->setToolTip(!possible_.runProblem.isEmpty() ? possible_.runProblem
                                                   : run + (hint_.isEmpty() ? QString() : QStringLiteral("\n") + hint_));
  profile_->setToolTip(!possible_.profileProblem.isEmpty()
                           ? possible_.profileProblem
                           : tr("Measures the time of every operator here, on GPUs if nccl is chosen and in the chosen precision, so that "
                                "predictions use measured costs"));
}

void RunControls::setProgress(qint64 done, qint64 all, const QString& text) {
  constexpr qint64 kMost = 1'000'000'000;
  progress_->setRange(0, static_cast<int>(std::clamp<qint64>(all, 0, kMost)));
  progress_->setValue(static_cast<int>(std::clamp<qint64>(done, 0, kMost)));
  say(text);
}

void RunControls::say(const QString& text) {
  said_ = text;
  status_->setText(text.isEmpty() ? hint_ : text);
  status_->setToolTip(status_->text());
}

void RunControls::setHint(const QString& text) {
  if (text == hint_) return;
  hint_ = text;
  tip();
  say(said_);
}

void RunControls::setSteps(int steps) { steps_->setValue(steps); }

void RunControls::setTransports(const std::vector<TransportHere>& transports) {
  for (const TransportHere& here : transports) {
    auto* const item = qobject_cast<QStandardItemModel*>(transport_->model())->item(static_cast<int>(here.transport));
    item->setEnabled(here.available);
    item->setToolTip(QString::fromStdString(here.note));
  }
  if (gpuWanted_) use(defaultTransport(true));
}

void RunControls::follow(const Computing& computing) {
  gpuWanted_ = computing.onGpu;
  if (computing.onGpu != factsOf(transport()).onGpu) use(defaultTransport(computing.onGpu));
  precision_->setCurrentIndex(precision_->findData(static_cast<int>(computing.precision)));
}

Computing RunControls::computing() const {
  Computing computing;
  computing.onGpu = factsOf(transport()).onGpu;
  computing.precision = static_cast<DType>(precision_->currentData().toInt());
  return computing;
}

Transport RunControls::transport() const { return static_cast<Transport>(transport_->currentIndex()); }

/// Chooses it if it can be used here.
void RunControls::use(Transport transport) {
  const int row = static_cast<int>(transport);
  if (qobject_cast<QStandardItemModel*>(transport_->model())->item(row)->isEnabled()) transport_->setCurrentIndex(row);
}

QString RunControls::text() const { return status_->text(); }

}  // namespace pw::gui
