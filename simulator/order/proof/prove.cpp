#include "simulator/order/proof/prove.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "schedules/lower.h"
#include "simulator/order/problem/judge.h"
#include "simulator/order/problem/made_schedules.h"
#include "simulator/order/problem/recomputation.h"
#include "simulator/order/proof/exact.h"
#include "simulator/order/proof/windows.h"

namespace pw {
namespace {

OrderModel relaxedModel(const OrderProblem& problem, const std::vector<Recomputed>& choice) {
  OrderProblem relaxed = problem;
  relaxed.costs = relaxedCosts(problem, choice);
  return OrderModel(relaxed);
}

/// Searches for an order that takes less than a time, over all choices of what is recomputed.
class ChoiceSearch {
 public:
  using ShouldContinue = std::function<bool(std::int64_t windows)>;

  ChoiceSearch(const OrderProblem& problem, Ns time, std::int64_t windows, const ShouldContinue& shouldContinue)
      : problem_(problem),
        time_(time),
        windows_(windows),
        shouldContinue_(shouldContinue),
        choice_(openChoice(problem)),
        open_(std::ranges::count(choice_, Recomputed::Open) > 0) {}

  void run() { explore(0); }

  [[nodiscard]] bool proven() const { return complete_ && rows_.empty(); }  ///< no order takes less
  [[nodiscard]] const OrderRows& rows() const { return rows_; }             ///< that take less, by what is relaxed; or empty
  [[nodiscard]] const std::vector<Recomputed>& choice() const { return choice_; }
  [[nodiscard]] std::int64_t examined() const { return examined_; }

 private:
  /// Decides from this stage on. False: the search ends.
  bool explore(std::size_t from) {
    if (examined_ >= windows_ || !shouldContinue_(examined_)) return complete_ = false;
    const OrderModel model = relaxedModel(problem_, choice_);
    const auto open = std::find(choice_.begin() + static_cast<std::ptrdiff_t>(from), choice_.end(), Recomputed::Open);
    if (open == choice_.end()) return decide(model);
    Windows windows(model);
    const bool holds = windows.hold(time_ - 1);
    examined_ += windows.examined() + static_cast<std::int64_t>(model.actions());
    if (!holds) return true;
    for (const Recomputed value : {Recomputed::No, Recomputed::Yes}) {
      *open = value;
      if (!explore(static_cast<std::size_t>(open - choice_.begin()) + 1)) return false;
    }
    *open = Recomputed::Open;
    return true;
  }

  bool decide(const OrderModel& model) {
    constexpr std::int64_t part = 4;  // of what is left, so that one choice leaves something for the others
    const std::int64_t left = (windows_ - examined_) / (open_ ? part : 1);
    Windows windows(model);
    ExactOrder exact = exactOrder(windows, time_, {{}, left, [&](std::int64_t more) { return shouldContinue_(examined_ + more); }});
    examined_ += exact.windows + static_cast<std::int64_t>(model.actions());
    complete_ = complete_ && exact.proven;
    rows_ = std::move(exact.rows);
    return rows_.empty();
  }

  const OrderProblem& problem_;
  Ns time_;
  std::int64_t windows_;
  const ShouldContinue& shouldContinue_;
  std::vector<Recomputed> choice_;
  OrderRows rows_;
  std::int64_t examined_ = 0;
  bool open_;  ///< whether there is a choice
  bool complete_ = true;
};

/// Rows as an order of the problem, as the simulator sees it; nothing where it does not fit.
std::optional<FoundOrder> orderOf(const OrderProblem& problem, const ChoiceSearch& search) {
  std::vector<bool> recomputed;
  Certificate certificate{problem.clock, 0, 0, "branch and bound", {}};
  for (std::size_t s = 0; s < search.choice().size(); ++s) {
    recomputed.push_back(search.choice()[s] == Recomputed::Yes);
    if (recomputed.back()) certificate.recomputed.emplace_back(s);
  }
  const CostTable costs = withRecomputation(problem, recomputed);
  const Schedule split = scheduleOf(relaxedModel(problem, search.choice()), problem, search.rows());
  std::optional<FoundOrder> best;
  for (const Schedule& schedule : {split, mergeBackward(split)}) {
    const JudgedOrder judged = judgeOrder(problem, costs, schedule);
    if (!judged.fits || (best && judged.time >= best->certificate.time)) continue;
    certificate.time = judged.time;
    best = FoundOrder{schedule, costs, certificate};
    best->schedule.name = kAutoSchedule;
  }
  return best;
}

}  // namespace

OrderProof proveOrder(const OrderProblem& problem, Ns bound, Ns time, OrderWork work,
                      const std::function<bool(OrderWork)>& shouldContinue) {
  constexpr std::array shares{0.5, 0.75, 0.9, 1.0};  // of what lies between the bound and the time
  constexpr std::int64_t part = 4;                   // of the work left, for all but the last
  OrderProof proof{bound, std::nullopt, 0};
  const OrderModel model = relaxedModel(problem, openChoice(problem));
  if (workOfWindows(model) > work) return proof;  // not even the windows of one time
  const OrderWork cost = workOfWindow(model);
  bool stopped = false;
  for (std::size_t i = 0; i < shares.size() && time > proof.bound && !stopped && proof.work < work;) {
    const Ns trial = time - static_cast<Ns>((1 - shares[i]) * static_cast<double>(time - proof.bound));
    const ChoiceSearch::ShouldContinue polled = [&](std::int64_t windows) {
      stopped = shouldContinue && !shouldContinue(proof.work + windows * cost);
      return !stopped;
    };
    ChoiceSearch search(problem, trial, (work - proof.work) / cost / (shares[i] < 1 ? part : 1), polled);
    search.run();
    proof.work += search.examined() * cost;
    if (search.proven()) {
      proof.bound = trial;
      continue;
    }
    std::optional<FoundOrder> better;
    if (!search.rows().empty()) better = orderOf(problem, search);
    if (better && better->certificate.time < time) {
      time = better->certificate.time;
      proof.better = std::move(better);
    } else {
      ++i;
    }
  }
  if (proof.better) proof.better->certificate.lowerBound = proof.bound;
  return proof;
}

}  // namespace pw
