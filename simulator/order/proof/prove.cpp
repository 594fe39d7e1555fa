#include "simulator/order/proof/prove.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "schedules/lower.h"
#include "simulator/order/problem/judge.h"
#include "simulator/order/problem/made_schedules.h"
#include "simulator/order/problem/recomputation.h"
#include "simulator/order/proof/exact.h"
#include "simulator/order/proof/windows.h"
#include "simulator/text/parallel_for.h"

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

  ChoiceSearch(const OrderProblem& problem, Ns time, std::int64_t windows, bool probes, ShouldContinue shouldContinue)
      : problem_(problem),
        time_(time),
        windows_(windows),
        probes_(probes),
        shouldContinue_(std::move(shouldContinue)),
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
    ExactOrder exact =
        exactOrder(windows, time_, {{}, left, [&](std::int64_t more) { return shouldContinue_(examined_ + more); }, probes_});
    examined_ += exact.windows + static_cast<std::int64_t>(model.actions());
    complete_ = complete_ && exact.proven;
    rows_ = std::move(exact.rows);
    return rows_.empty();
  }

  const OrderProblem& problem_;
  Ns time_;
  std::int64_t windows_;
  bool probes_;
  ShouldContinue shouldContinue_;
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

/// A bound and a time that are brought together by one search after the other.
class Prover {
 public:
  using ShouldContinue = std::function<bool(OrderWork work)>;

  Prover(const OrderProblem& problem, Ns bound, Ns time, const ProofEffort& effort, const ShouldContinue& shouldContinue)
      : problem_(problem), time_(time), effort_(effort), shouldContinue_(shouldContinue), proof_{bound, std::nullopt, 0} {
    const OrderModel model = relaxedModel(problem, openChoice(problem));
    least_ = workOfWindows(model);
    ofWindow_ = workOfWindow(model);
    large_ = !isSmall(model);
  }

  OrderProof run() {
    if (least_ > effort_.work) return std::move(proof_);  // not even the windows of one time
    if (large_) raise();
    meet();
    if (proof_.better) proof_.better->certificate.lowerBound = proof_.bound;
    return std::move(proof_);
  }

 private:
  static constexpr std::int64_t kPart = 4;  ///< of the work left, for one time
  static constexpr int kWays = 2;           ///< of searching a large one: with and without probes

  [[nodiscard]] OrderWork left() const { return effort_.work - proof_.work; }
  [[nodiscard]] bool mayContinue() const { return time_ > proof_.bound && !stopped_ && left() > 0; }
  [[nodiscard]] double between() const { return static_cast<double>(time_ - proof_.bound); }

  /// Counts work on the way.
  bool count(OrderWork work) {
    const std::scoped_lock lock(mutex_);
    counted_ += work;
    stopped_ = stopped_ || (shouldContinue_ && !shouldContinue_(proof_.work + counted_));
    return !stopped_;
  }

  /// Whether that much work decides if an order takes less than this share of what lies between the bound and the time.
  bool decide(double share, OrderWork work) {
    const Ns trial = time_ - static_cast<Ns>((1 - share) * between());
    const int ways = large_ ? kWays : 1;
    std::vector<std::optional<ChoiceSearch>> searches(static_cast<std::size_t>(ways));
    counted_ = 0;
    parallelFor(ways, effort_.threads, [&](int way) {
      std::int64_t told = 0;
      ChoiceSearch& search = searches[static_cast<std::size_t>(way)].emplace(
          problem_, trial, work / ways / ofWindow_, way > 0,
          [&](std::int64_t windows) { return count((windows - std::exchange(told, windows)) * ofWindow_); });
      search.run();
    });
    bool decided = false;
    for (const auto& search : searches) proof_.work += search->examined() * ofWindow_;
    for (const auto& search : searches) {
      if (search->proven()) proof_.bound = trial;
      std::optional<FoundOrder> better;
      if (!search->rows().empty()) better = orderOf(problem_, *search);
      decided = decided || search->proven();
      if (!better || better->certificate.time >= time_) continue;
      time_ = better->certificate.time;
      proof_.better = std::move(better);
      decided = true;
    }
    return decided;
  }

  /// Of a large problem no search ends but by luck: times close to the bound are those that can be refuted.
  void raise() {
    constexpr double kClose = 0.001;  // of the time
    for (double share = 0.5; mayContinue() && share * between() > kClose * static_cast<double>(time_);) {
      if (!decide(share, left() / kPart)) share /= 2;
    }
  }

  void meet() {
    constexpr std::array shares{0.5, 0.75, 0.9, 1.0};
    for (std::size_t i = 0; i < shares.size() && mayContinue();) {
      if (!decide(shares[i], left() / (shares[i] < 1 ? kPart : 1))) ++i;
    }
  }

  const OrderProblem& problem_;
  Ns time_;
  const ProofEffort& effort_;
  const ShouldContinue& shouldContinue_;
  OrderProof proof_;
  OrderWork least_ = 0, ofWindow_ = 0;
  bool large_ = false;
  std::mutex mutex_;  ///< of `counted_`, `stopped_` while threads run
  OrderWork counted_ = 0;
  bool stopped_ = false;
};

}  // namespace

OrderProof proveOrder(const OrderProblem& problem, Ns bound, Ns time, const ProofEffort& effort,
                      const std::function<bool(OrderWork)>& shouldContinue) {
  return Prover(problem, bound, time, effort, shouldContinue).run();
}

}  // namespace pw
