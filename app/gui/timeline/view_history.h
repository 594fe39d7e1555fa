#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace pw::gui {

/// What a timeline showed: a range of time [ns], how far down it was scrolled and how high its rows were. Independent of the window's
/// width.
struct VisitedView {
  double from = 0, to = 0;
  int scroll = 0;
  double rowScale = 1;

  bool operator==(const VisitedView&) const = default;
};

/// Views one can go back to, as a browser does. The widget notes a view when it rested or was jumped to, not at each tick of the wheel.
class ViewHistory {
 public:
  static constexpr std::size_t kMost = 200;

  /// Notes where one is. What was ahead is forgotten, unless it is where one is already.
  void visit(const VisitedView& view);
  /// The view before (after) the current one, which becomes current; nothing at the end.
  std::optional<VisitedView> back();
  std::optional<VisitedView> forward();
  [[nodiscard]] bool canGoBack() const { return at_ > 0; }
  [[nodiscard]] bool canGoForward() const { return at_ + 1 < views_.size(); }
  void clear();

 private:
  std::vector<VisitedView> views_;
  std::size_t at_ = 0;
};

}  // namespace pw::gui
