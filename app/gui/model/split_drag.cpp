#include "app/gui/model/split_drag.h"

#include <QScrollBar>

#include "app/gui/model/tree_view.h"

namespace pw::gui {
namespace {

constexpr int kTick = 50;       // ms
constexpr int kOpenAfter = 12;  // ticks

}  // namespace

SplitDrag::SplitDrag(Document& document, TreeView& view, QObject* parent) : QObject(parent), document_(document), view_(view) {
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
  const NodeId node = view_.visibleRows().nearest(view_.rowAt(y));
  const auto& begins = document_.design().request.begins;
  const QString refusal = rules_->refusalToMove(begins, *split_, node);
  if (refused_ != !refusal.isEmpty()) {
    refused_ = !refusal.isEmpty();
    emit refusalChanged(refused_);
  }
  if (!refused_ && begins[*split_] != node) {
    document_.edit(tr("Move split"), [&](Design& design) { design.request.begins[*split_] = node; });
  }
  view_.setDropMark(DropMark{node, refusal});
}

void SplitDrag::end(bool keep) {
  if (!split_) return;
  split_.reset();
  timer_.stop();
  view_.setDropMark(std::nullopt);
  if (refused_) {
    refused_ = false;
    emit refusalChanged(false);
  }
  document_.endDrag(keep);
}

void SplitDrag::tick() {
  const int height = view_.viewport()->height(), edge = view_.rowHeight();
  const int step = y_ < edge ? -edge / 2 : y_ > height - edge ? edge / 2 : 0;
  if (step != 0) {
    const int before = view_.verticalScrollBar()->value();
    view_.verticalScrollBar()->setValue(before + step);
    if (view_.verticalScrollBar()->value() != before) moveTo(y_);
    return;
  }
  const int closed = view_.visibleRows().closedUnder(view_.rowAt(y_));
  waited_ = closed == waitingOn_ ? waited_ + 1 : 0;
  waitingOn_ = closed;
  if (closed < 0 || waited_ < kOpenAfter) return;
  waited_ = 0;
  view_.open(closed);
  moveTo(y_);
}

}  // namespace pw::gui
