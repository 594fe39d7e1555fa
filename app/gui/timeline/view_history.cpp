#include "app/gui/timeline/view_history.h"

namespace pw::gui {

void ViewHistory::visit(const VisitedView& view) {
  if (!views_.empty() && views_[at_] == view) return;
  if (!views_.empty()) views_.resize(at_ + 1);
  if (views_.size() == kMost) views_.erase(views_.begin());
  views_.push_back(view);
  at_ = views_.size() - 1;
}

std::optional<VisitedView> ViewHistory::back() {
  if (!canGoBack()) return std::nullopt;
  return views_[--at_];
}

std::optional<VisitedView> ViewHistory::forward() {
  if (!canGoForward()) return std::nullopt;
  return views_[++at_];
}

void ViewHistory::clear() {
  views_.clear();
  at_ = 0;
}

}  // namespace pw::gui
