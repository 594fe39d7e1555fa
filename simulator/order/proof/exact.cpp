#include "simulator/order/proof/exact.h"

#include <algorithm>
#include <utility>

namespace pw {
namespace {

class BranchAndBound {
 public:
  BranchAndBound(Windows& windows, Ns time, const ExactOptions& options)
      : model_(windows.model()), time_(time), options_(options), windows_(windows), timer_(model_), before_(windows.examined()) {}

  ExactOrder run() {
    windows_.open(time_ - 1);
    const bool possible = std::ranges::all_of(options_.decided, [&](const auto& pair) { return windows_.decide(pair.first, pair.second); });
    const bool all = !possible || explore();
    return {std::move(found_), all && complete_ && windows_.alike() && windows_.knowsBegins() && exchangesAll(), examined()};
  }

 private:
  [[nodiscard]] std::int64_t examined() const { return windows_.examined() - before_; }

  struct Branch {
    ActionId first = kNoAction, second = kNoAction;
  };

  /// Where neighbouring stages exchange nothing, an order may run faster than it is timed here.
  [[nodiscard]] bool exchangesAll() const {
    return std::ranges::all_of(model_.classes, [](const auto& of) { return std::ranges::all_of(of.hops, &OrderModel::Hop::exchanges); });
  }

  /// False: an order was found, or the search ends.
  bool explore() {
    if (examined() >= options_.windows || (options_.shouldContinue && !options_.shouldContinue(examined()))) {
      complete_ = false;
      return false;
    }
    if (!windows_.narrow()) return true;
    const Branch branch = choose();
    if (branch.first == kNoAction) return judge();
    const Windows::State before = windows_.state();
    if (windows_.decide(branch.first, branch.second) && !explore()) return false;
    windows_.restore(before);
    return !windows_.decide(branch.second, branch.first) || explore();
  }

  /// Two actions of a rank that may come in either order: those with the least product of what both orders leave.
  [[nodiscard]] Branch choose() const {
    Branch chosen;
    double least = 0;
    for (Rank rank(0); rank.value < model_.ranks; ++rank.value) {
      const std::vector<ActionId>& actions = windows_.actionsOf(rank);
      for (std::size_t i = 0; i < actions.size(); ++i) {
        for (std::size_t j = i + 1; j < actions.size(); ++j) {
          ActionId a = actions[i], b = actions[j];
          if (windows_.precedes(a, b) || windows_.precedes(b, a)) continue;
          const Ns ahead = windows_.latestStart(b) - windows_.earliestEnd(a), back = windows_.latestStart(a) - windows_.earliestEnd(b);
          const double product = static_cast<double>(ahead + 1) * static_cast<double>(back + 1);
          if (chosen.first != kNoAction && product >= least) continue;
          least = product;
          if (ahead < back) std::swap(a, b);
          chosen = {a, b};
        }
      }
    }
    return chosen;
  }

  /// Of an order that is complete.
  bool judge() {
    OrderRows rows;
    for (Rank rank(0); rank.value < model_.ranks; ++rank.value) {
      std::vector<ActionId>& row = rows.emplace_back(windows_.actionsOf(rank));
      std::vector<std::size_t> before(model_.actions());
      for (const ActionId action : row)
        before[action.index()] = static_cast<std::size_t>(
            std::ranges::count_if(row, [&](ActionId other) { return other != action && windows_.precedes(other, action); }));
      std::ranges::stable_sort(row, {}, [&](ActionId action) { return before[action.index()]; });
    }
    if (!timer_.run(rows)) {
      complete_ = false;
      return false;
    }
    if (timer_.objective() >= time_ || !fitsLimits(model_, rows)) return true;
    found_ = std::move(rows);
    return false;
  }

  const OrderModel& model_;
  Ns time_;
  const ExactOptions& options_;
  Windows& windows_;
  OrderTimer timer_;
  std::int64_t before_;  ///< examined
  OrderRows found_;
  bool complete_ = true;
};

}  // namespace

ExactOrder exactOrder(Windows& windows, Ns time, const ExactOptions& options) { return BranchAndBound(windows, time, options).run(); }

}  // namespace pw
