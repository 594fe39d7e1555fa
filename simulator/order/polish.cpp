#include "simulator/order/polish.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "simulator/order/problem/index.h"
#include "simulator/order/proof/exact.h"

namespace pw {
namespace {

class Polisher {
 public:
  Polisher(const OrderModel& model, OrderRows start, const PolishOptions& options)
      : model_(model),
        options_(options),
        timer_(model),
        windows_(model),
        rows_(std::move(start)),
        open_(model.actions()),
        random_(options.seed) {}

  OrderRows run() {
    constexpr std::int64_t nodes = 60;  // of one neighbourhood: about what a decision takes twice
    const auto most = nodes * static_cast<std::int64_t>(model_.actions());
    double size = kFirstSize;  // actions left open
    while (examined_ < options_.windows && timer_.run(rows_) && timer_.objective() > options_.enough) {
      const bool stretch = random_() % 2 == 0;
      const auto decided = stretch ? openStretch(static_cast<std::size_t>(size)) : openMicrobatches(static_cast<std::size_t>(size));
      const ExactOrder exact =
          exactOrder(windows_, timer_.objective(), {decided, most, [&](std::int64_t more) {
                                                      stopped_ = options_.shouldContinue && !options_.shouldContinue(examined_ + more);
                                                      return !stopped_;
                                                    }});
      examined_ += exact.windows + kSetUp;
      if (stopped_) break;
      if (!exact.rows.empty()) {
        rows_ = exact.rows;
      } else {
        size = std::clamp(exact.proven ? size * 1.05 : size * 0.9, kFirstSize / 2, static_cast<double>(model_.actions()));
      }
    }
    return rows_;
  }

 private:
  using Decided = std::vector<std::pair<ActionId, ActionId>>;
  static constexpr double kFirstSize = 24;
  static constexpr std::int64_t kSetUp = 50;  ///< windows that could be examined while a neighbourhood is opened

  [[nodiscard]] std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  /// Actions that start about the same time; those before stay before, and those after after.
  Decided openStretch(std::size_t count) {
    std::vector<ActionId> byStart;
    for (const auto& row : rows_) byStart.insert(byStart.end(), row.begin(), row.end());
    std::ranges::stable_sort(byStart, {}, [&](ActionId action) { return timer_.startOf(action); });
    count = std::min(count, byStart.size());
    const std::size_t first = below(byStart.size() - count + 1);
    open_.assign(open_.size(), false);
    for (std::size_t i = first; i < first + count; ++i) open_[byStart[i].index()] = true;
    Decided decided;
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        std::size_t next = i + 1;
        if (open_[row[i].index()]) {  // before the first that is kept after it
          while (next < row.size() && open_[row[next].index()]) ++next;
          if (next < row.size()) decided.emplace_back(row[i], row[next]);
          continue;
        }
        for (; next < row.size(); ++next) {  // before those that are open after it, and the first that is kept
          decided.emplace_back(row[i], row[next]);
          if (!open_[row[next].index()]) break;
        }
      }
    }
    return decided;
  }

  /// All actions of some microbatches that follow each other; all others keep their order.
  Decided openMicrobatches(std::size_t count) {
    const std::size_t each = model_.classes.size(), all = at(model_.microbatches);
    const std::size_t some = std::clamp<std::size_t>(count / std::max<std::size_t>(1, each), 1, all);
    const std::size_t first = below(all - some + 1);
    Decided decided;
    for (const auto& row : rows_) {
      ActionId last = kNoAction;
      for (const ActionId action : row) {
        const std::size_t m = model_.microbatchOf(action).index();
        if (m >= first && m < first + some) continue;
        if (last != kNoAction) decided.emplace_back(last, action);
        last = action;
      }
    }
    return decided;
  }

  const OrderModel& model_;
  const PolishOptions& options_;
  OrderTimer timer_;
  Windows windows_;
  OrderRows rows_;
  std::vector<bool> open_;  ///< by action
  std::mt19937_64 random_;
  std::int64_t examined_ = 0;
  bool stopped_ = false;
};

}  // namespace

OrderRows polishOrder(const OrderModel& model, const OrderRows& start, const PolishOptions& options) {
  return Polisher(model, start, options).run();
}

}  // namespace pw
