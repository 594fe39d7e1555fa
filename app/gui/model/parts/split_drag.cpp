#include "app/gui/model/parts/split_drag.h"

#include <QScrollBar>
#include <utility>

namespace pw::gui {
namespace {

constexpr int kTick = 50;       // ms
constexpr int kOpenAfter = 12;  // ticks

}  // namespace

SplitDrag::SplitDrag(Document& document, SplitSurface surface, QObject* parent)
    : QObject(parent), document_(document), surface_(std::move(surface)) {
  timer_.setInterval(kTick);
  connect(&timer_, &QTimer::timeout, this, &SplitDrag::tick);
}

bool SplitDrag::isRefused() const { return refused_; }

void SplitDrag::begin(const SplitRules& rules, std::size_t split) {
  if (split_ || split >= document_.design().request.begins.size()) return;
  rules_ = &rules;
  split_ = split;
  waitingOn_ = -1;
  document_.beginDrag(tr("Move split"));
  timer_.start();
}

void SplitDrag::moveTo(double y) {
  if (!split_) return;
  y_ = y;
  const NodeId node = surface_.nearest(y);
  const auto& begins = document_.design().request.begins;
  const QString refusal = rules_->refusalToMove(begins, *split_, node);
  if (refused_ != !refusal.isEmpty()) {
    refused_ = !refusal.isEmpty();
    emit refusalChanged(refused_);
  }
  if (!refused_ && begins[*split_] != node) {
    document_.edit(tr("Move split"), [&](Design& design) { design.request.begins[*split_] = node; });
  }
  surface_.setMark(DropMark{node, refusal});
}

void SplitDrag::end(bool keep) {
  if (!split_) return;
  split_.reset();
  timer_.stop();
  surface_.setMark(std::nullopt);
  if (refused_) {
    refused_ = false;
    emit refusalChanged(false);
  }
  document_.endDrag(keep);
}

void SplitDrag::tick() {
  const int height = surface_.area->viewport()->height(), edge = surface_.edge();
  const int step = y_ < edge ? -edge / 2 : y_ > height - edge ? edge / 2 : 0;
  if (step != 0) {
    const int before = surface_.area->verticalScrollBar()->value();
    surface_.area->verticalScrollBar()->setValue(before + step);
    if (surface_.area->verticalScrollBar()->value() != before) moveTo(y_);
    return;
  }
  const int closed = surface_.closedUnder(y_);
  waited_ = closed == waitingOn_ ? waited_ + 1 : 0;
  waitingOn_ = closed;
  if (closed < 0 || waited_ < kOpenAfter) return;
  waited_ = 0;
  surface_.open(closed);
  moveTo(y_);
}

}  // namespace pw::gui
