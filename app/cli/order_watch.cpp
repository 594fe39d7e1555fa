#include "app/cli/order_watch.h"

#include "app/cli/commands.h"

namespace pw::cli {

OrderWatch::OrderWatch(ProgressStyle style) : show_(progress("order", style)) {}

std::function<bool(double)> OrderWatch::shouldContinue() {
  return [this](double share) {
    constexpr int kParts = 1000;
    if (!interrupts_) interrupts_.emplace();
    if (share < 1) show_(static_cast<int>(share * kParts), kParts, "");
    interrupted_ = interrupted_ || interrupts_->take() != 0;
    return !interrupted_;
  };
}

void OrderWatch::end() {
  if (interrupts_) show_(1, 1, "");
  interrupts_.reset();
}

int OrderWatch::status(int status) const {
  if (!interrupted_) return status;
  return complain("Interrupted: the order is the best so far, and a longer search may find a better one", kNo);
}

}  // namespace pw::cli
