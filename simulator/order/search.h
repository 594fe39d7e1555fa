#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulator/order/find.h"
#include "simulator/order/greedy.h"
#include "simulator/order/problem/model.h"
#include "simulator/order/problem/work.h"

namespace pw {

/// The search under one choice of recomputation.
class OrderSearch {
 public:
  OrderSearch(const OrderProblem& problem, CostTable costs, Ns bound, const OrderEffort& effort);

  /// Families and greedy orders: false where nothing fits.
  bool begin();
  /// Improves what it has with this much work; false: it was stopped.
  bool improve(OrderWork work, const std::function<bool(OrderWork done)>& shouldContinue);

  [[nodiscard]] bool isSmall() const { return pw::isSmall(model_); }
  void raiseBound(Ns bound) { bound_ = std::max(bound_, bound); }
  [[nodiscard]] Ns best() const { return best_; }
  [[nodiscard]] OrderWork spent() const { return spent_; }
  FoundOrder result();

 private:
  struct Start {
    OrderRows rows;
    Ns time = 0;
    std::string by;
  };

  static constexpr std::size_t kStarts = 8;
  static constexpr double kStartShare = 0.3;     ///< of the work, for greedy orders
  static constexpr int kChains = kOrderThreads;  ///< that anneal side by side

  void addFamilies();
  void addGreedy();
  void addGreedy(const GreedyRule& rule);
  void consider(const OrderRows& rows, std::string_view by);
  void tryWhole(const Schedule& schedule, std::string_view by);
  bool count(OrderWork work);
  void settle(OrderWork work);
  void tune(OrderWork work);
  void anneal(OrderWork work, int round);
  void polish(OrderWork work);
  void finish();

  OrderProblem problem_;  ///< with the costs of this choice, and limits lowered by what the model leaves out
  const OrderProblem& given_;
  Ns bound_;
  const OrderEffort& effort_;
  OrderModel model_;
  OrderTimer timer_;
  GreedyOrder greedy_;
  std::vector<Start> starts_;                     ///< best first
  std::vector<std::pair<Ns, GreedyRule>> rules_;  ///< best first
  std::optional<Schedule> whole_;                 ///< the best that the simulator has judged
  std::string wholeBy_;
  Ns best_ = 0;
  OrderWork spent_ = 0;
  int round_ = 0;  ///< of annealing, over all calls
  std::function<bool(OrderWork)> shouldContinue_;
  std::mutex mutex_;       ///< of `counted_`, `stopped_` while threads run
  OrderWork counted_ = 0;  ///< work on the way to be in `spent_`
  bool stopped_ = false;
};

}  // namespace pw
