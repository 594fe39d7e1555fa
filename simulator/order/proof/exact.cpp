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
    const bool all = !possible || (options_.probes && !probe()) || explore();
    return {std::move(found_), all && complete_ && windows_.alike() && windows_.knowsBegins() && exchangesAll(), examined()};
  }

 private:
  [[nodiscard]] std::int64_t examined() const { return windows_.examined() - before_; }

  struct Branch {
    ActionId first = kNoAction, second = kNoAction;
  };

  /// Two actions of a rank that may come in either order, the likelier one, and what the other order leaves: the least.
  struct Probe {
    Ns least = 0;
    Branch likely;
  };

  [[nodiscard]] bool mayContinue() const {
    return examined() < options_.windows && (!options_.shouldContinue || options_.shouldContinue(examined()));
  }

  /// Where neighbouring stages exchange nothing, an order may run faster than it is timed here.
  [[nodiscard]] bool exchangesAll() const {
    return std::ranges::all_of(model_.classes, [](const auto& of) { return std::ranges::all_of(of.hops, &OrderModel::Hop::exchanges); });
  }

  /// Calls `visit` with each two actions of a rank that may come in either order.
  template <class Visit>
  void forOpenPairs(const Visit& visit) const {
    for (Rank rank(0); rank.value < model_.ranks; ++rank.value) {
      const std::vector<ActionId>& actions = windows_.actionsOf(rank);
      for (std::size_t i = 0; i < actions.size(); ++i) {
        for (std::size_t j = i + 1; j < actions.size(); ++j) {
          if (!windows_.precedes(actions[i], actions[j]) && !windows_.precedes(actions[j], actions[i])) visit(actions[i], actions[j]);
        }
      }
    }
  }

  /// Of all open pairs, those first of which one order leaves least.
  [[nodiscard]] std::vector<Probe> probes() const {
    std::vector<Probe> probes;
    forOpenPairs([&](ActionId a, ActionId b) {
      const Ns ahead = slack(a, b), back = slack(b, a);
      probes.push_back({std::min(ahead, back), ahead < back ? Branch{b, a} : Branch{a, b}});
    });
    std::ranges::stable_sort(probes, {}, &Probe::least);
    return probes;
  }

  /// Decides pairs of which one order leaves too little, until few do. False: nothing is left.
  bool probe() {
    constexpr int kMostMisses = 60;
    if (!windows_.narrow()) return false;
    for (int decided = 1; decided > 0;) {
      decided = 0;
      int misses = 0;
      for (const Probe& probe : probes()) {
        const auto [first, second] = probe.likely;
        if (windows_.precedes(first, second) || windows_.precedes(second, first)) continue;
        if (!mayContinue() || misses == kMostMisses) break;
        const Windows::State before = windows_.state();
        const bool holds = windows_.decide(second, first) && windows_.narrow();
        windows_.restore(before);
        misses = holds ? misses + 1 : 0;
        if (holds) continue;
        ++decided;
        if (!windows_.decide(first, second) || !windows_.narrow()) return false;
      }
    }
    return true;
  }

  /// What is left where one action of a rank comes before another.
  [[nodiscard]] Ns slack(ActionId first, ActionId second) const { return windows_.latestStart(second) - windows_.earliestEnd(first); }

  /// False: an order was found, or the search ends.
  bool explore() {
    if (!mayContinue()) return complete_ = false;
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
    forOpenPairs([&](ActionId a, ActionId b) {
      const Ns ahead = slack(a, b), back = slack(b, a);
      const double product = static_cast<double>(ahead + 1) * static_cast<double>(back + 1);
      if (chosen.first != kNoAction && product >= least) return;
      least = product;
      chosen = ahead < back ? Branch{b, a} : Branch{a, b};
    });
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
