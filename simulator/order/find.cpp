#include "simulator/order/find.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "schedules/error.h"
#include "simulator/order/problem/index.h"
#include "simulator/order/problem/model.h"
#include "simulator/order/problem/recomputation.h"
#include "simulator/order/proof/bound.h"
#include "simulator/order/proof/prove.h"
#include "simulator/order/search.h"
#include "simulator/report/lower_bound.h"

namespace pw {
namespace {

/// A choice of what is recomputed, and the best order met while choosing.
struct Choice {
  std::vector<bool> recomputed;  ///< by stage
  std::optional<FoundOrder> found;

  [[nodiscard]] bool beats(const Choice& other) const {
    return found && (!other.found || found->certificate.time < other.found->certificate.time);
  }
};

Ns boundOn(const OrderProblem& problem, const CostTable& relaxed) {
  const Schedule any = serialSchedule(problem.placement, problem.ranks, problem.microbatches);
  const LowerBounds bounds = lowerBounds(any, relaxed, problem.liveLimits, problem.limits);
  switch (problem.clock) {
    case StepClock::Flush: return bounds.flush;
    case StepClock::Window: return bounds.window;
  }
  return 0;
}

/// All choices of what is recomputed with the time that their orders take at least, ascending; empty where there are many, or their bounds
/// take more than that work.
std::vector<std::pair<Ns, std::vector<bool>>> choicesByBound(const OrderProblem& problem, OrderWork work) {
  constexpr std::size_t kFewStages = 8;
  const std::vector<Recomputed> open = openChoice(problem);
  std::vector<std::size_t> stages;
  for (std::size_t s = 0; s < open.size(); ++s) {
    if (open[s] == Recomputed::Open) stages.push_back(s);
  }
  std::vector<std::pair<Ns, std::vector<bool>>> choices;
  const std::int64_t count = std::int64_t{1} << std::min(stages.size(), kFewStages);
  if (stages.size() > kFewStages || count * workOfBound(problem) > work) return choices;
  for (std::int64_t bits = 0; bits < count; ++bits) {
    std::vector<Recomputed> decided(open.size(), Recomputed::No);
    std::vector<bool> recomputed(open.size(), false);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if ((bits >> i & 1) == 0) continue;
      decided[stages[i]] = Recomputed::Yes;
      recomputed[stages[i]] = true;
    }
    choices.emplace_back(boundOn(problem, relaxedCosts(problem, decided)), std::move(recomputed));
  }
  std::sort(choices.begin(), choices.end());
  return choices;
}

/// Looks for what to recompute, by short searches for an order with one choice after the other; the best of these go on for longer.
class Chooser {
 public:
  using ShouldContinue = std::function<bool(OrderWork)>;

  Chooser(const OrderProblem& problem, Ns bound, const OrderEffort& effort, OrderWork work, const ShouldContinue& shouldContinue)
      : problem_(problem),
        open_(openChoice(problem)),
        choices_(choicesByBound(problem, work / 8)),
        bound_(choices_.empty() ? bound : std::max(bound, choices_.front().first)),
        effort_(effort),
        work_(work),
        forAttempts_(work * 3 / 5),
        shouldContinue_(shouldContinue),
        spent_(static_cast<std::int64_t>(choices_.size()) * workOfBound(problem)) {}

  /// The best of none, all, and others: of few stages all choices, those first whose orders may take least, else neighbours of the best.
  /// Where something fits, one of them is found, whatever work that takes.
  Choice run() {
    attempt(Recomputation(open_.size(), false));
    attempt(whole());
    const Recomputation smallest = smallestRecomputation(problem_);
    best_.found ? attempt(smallest) : tryOut(smallest);
    choices_.empty() ? tryNeighbours() : tryAll();
    continueBest();
    return best_;
  }
  /// The search that found it, to be continued.
  [[nodiscard]] std::unique_ptr<OrderSearch> takeSearch() {
    const auto best = std::ranges::find(promising_, best_.recomputed, [](const Attempt& a) { return a.choice.recomputed; });
    return best == promising_.end() ? nullptr : std::move(best->search);
  }
  [[nodiscard]] OrderWork spent() const { return spent_; }
  [[nodiscard]] Ns bound() const { return bound_; }  ///< of all choices: no order takes less

 private:
  using Recomputation = std::vector<bool>;
  static constexpr std::int64_t kParts = 24;    ///< of the work for attempts
  static constexpr std::size_t kPromising = 4;  ///< attempts that are continued

  [[nodiscard]] Recomputation whole() const {
    Recomputation all;
    for (const Recomputed value : open_) all.push_back(value == Recomputed::Open);
    return all;
  }
  [[nodiscard]] bool ends() const {
    return stopped_ || spent_ >= (best_.found ? forAttempts_ : work_) || (best_.found && best_.found->certificate.time <= bound_);
  }

  /// Whether that is the best so far.
  bool attempt(const Recomputation& recomputed) { return !ends() && tryOut(recomputed); }
  bool tryOut(const Recomputation& recomputed) {
    if (std::ranges::find(tried_, recomputed) != tried_.end()) return false;
    tried_.push_back(recomputed);
    auto search = std::make_unique<OrderSearch>(problem_, withRecomputation(problem_, recomputed), bound_, effort_);
    Choice choice{recomputed, std::nullopt};
    if (search->begin()) {
      if (!ends()) stopped_ = !search->improve(forAttempts_ / kParts, [&](OrderWork done) { return shouldContinue_(spent_ + done); });
      choice.found = search->result();
    }
    spent_ += search->spent();
    if (choice.found) keep({choice, std::move(search)});
    if (!choice.beats(best_) && !best_.recomputed.empty()) return false;
    best_ = std::move(choice);
    return true;
  }

  struct Attempt {
    Choice choice;
    std::unique_ptr<OrderSearch> search;
  };

  void keep(Attempt attempt) {
    const auto isBefore = [](const Attempt& a, const Attempt& b) {
      return a.choice.found->certificate.time < b.choice.found->certificate.time;
    };
    promising_.insert(std::upper_bound(promising_.begin(), promising_.end(), attempt, isBefore), std::move(attempt));
    if (promising_.size() > kPromising) promising_.pop_back();
  }

  void continueBest() {
    if (promising_.size() < 2) return;
    const OrderWork part = (work_ - spent_) / static_cast<std::int64_t>(promising_.size());
    for (Attempt& attempt : promising_) {
      if (stopped_ || part <= OrderWork(0) || best_.found->certificate.time <= bound_) return;
      const OrderWork before = attempt.search->spent();
      stopped_ = !attempt.search->improve(part, [&](OrderWork done) { return shouldContinue_(spent_ + done - before); });
      spent_ += attempt.search->spent() - before;
      attempt.choice.found = attempt.search->result();
      if (attempt.choice.beats(best_)) best_ = attempt.choice;
    }
  }

  void tryAll() {
    for (const auto& [bound, recomputed] : choices_) {
      if (best_.found && bound >= best_.found->certificate.time) return;
      attempt(recomputed);
    }
  }

  /// With one stage, or all of a rank, changed, as long as that is faster.
  void tryNeighbours() {
    for (bool better = true; better && best_.found && !ends();) {
      better = false;
      for (std::size_t change = 0; change < open_.size() + at(problem_.ranks) && !ends(); ++change) {
        Recomputation next = best_.recomputed;
        for (std::size_t s = 0; s < open_.size(); ++s) {
          const bool changes = change < open_.size() ? s == change : problem_.placement.rankOfStage[s].index() == change - open_.size();
          if (changes && open_[s] == Recomputed::Open) next[s] = !next[s];
        }
        if (attempt(next)) better = true;
      }
    }
  }

  const OrderProblem& problem_;
  std::vector<Recomputed> open_;
  std::vector<std::pair<Ns, Recomputation>> choices_;  ///< by bound; empty: too many
  Ns bound_;
  const OrderEffort& effort_;
  OrderWork work_;
  OrderWork forAttempts_;  ///< of the work; the rest continues the best of them
  const ShouldContinue& shouldContinue_;
  std::vector<Recomputation> tried_;
  std::vector<Attempt> promising_;  ///< the best few, by time until they are continued
  Choice best_;
  OrderWork spent_ = 0;
  bool stopped_ = false;
};

}  // namespace

Ns orderBound(const OrderProblem& problem) { return boundOn(problem, relaxedCosts(problem, openChoice(problem))); }

namespace {

/// By windows alone, where that takes at most a quarter of so much work.
Ns boundOfWindows(const OrderProblem& problem, Ns found, double seconds) {
  const Ns bound = orderBound(problem);
  OrderProblem relaxed = problem;
  relaxed.costs = relaxedCosts(problem, openChoice(problem));
  const OrderModel model(relaxed);
  return workOfWindows(model) > workOf(seconds / 4) ? bound : windowBound(model, bound, found);
}

}  // namespace

Ns orderBound(const OrderProblem& problem, Ns found, double seconds) {
  const Ns bound = boundOfWindows(problem, found, seconds);
  return proveOrder(problem, bound, found, {workOf(seconds / 4)}).bound;
}

namespace {

/// Search and proof under the choice of recomputation that seems best.
class OrderFinder {
 public:
  OrderFinder(const OrderProblem& problem, const OrderEffort& effort)
      : problem_(problem), effort_(effort), work_(workOf(std::clamp(effort.seconds, 0.001, 1e6))) {}

  std::optional<FoundOrder> run() {
    Ns bound = orderBound(problem_);
    if (!problem_.recomputed.empty() && !problem_.limits.empty()) {
      const Chooser::ShouldContinue shouldContinue = [this](OrderWork done) { return continues(done); };
      Chooser chooser(problem_, bound, effort_, work_ * 3 / 5, shouldContinue);
      choice_ = chooser.run();
      bound = chooser.bound();
      search_ = chooser.takeSearch();
      spent_ = chooser.spent() - (search_ ? search_->spent() : OrderWork(0));
    }
    if (!search_) {
      search_ = std::make_unique<OrderSearch>(problem_, withRecomputation(problem_, choice_.recomputed), bound, effort_);
      if (!search_->begin()) return std::nullopt;
    }
    search_->raiseBound(std::max(bound, boundOfWindows(problem_, search_->best(), effort_.seconds)));
    const OrderWork left = std::max(work_ / 4, work_ - spent_ - search_->spent());
    search_->isSmall() ? findSmall(left) : findLarge(left);
    return found_;
  }

 private:
  static constexpr double kFar = 0.025;  ///< a wide gap; chosen on 12 large problems of tests/bench/orders.py

  void findSmall(OrderWork work) {
    const OrderWork forProof = work / 3;
    if (improve(work - forProof)) prove(forProof);
  }

  /// Where a quarter of the proof's work leaves a wide gap, the rest seldom narrows it; the search uses that better.
  void findLarge(OrderWork work) {
    const OrderWork forProof = work / 2, forFirst = forProof / 4;
    if (!improve(work - forProof)) return;
    const OrderWork proved = prove(forFirst), rest = std::max(OrderWork(0), forProof - proved);
    if (stopped_ || found_->certificate.optimal()) return;
    if (proved == OrderWork(0) || found_->certificate.gap() < kFar) {
      prove(rest);
    } else {
      search_->raiseBound(found_->certificate.lowerBound);
      improve(rest);
    }
  }

  /// Tells how much is done, which never falls.
  [[nodiscard]] bool continues(OrderWork done) {
    share_ = std::clamp(static_cast<double>(done) / static_cast<double>(work_), share_, 1.0);
    stopped_ = stopped_ || (effort_.shouldContinue && !effort_.shouldContinue(share_));
    return !stopped_;
  }

  /// False: it was stopped.
  bool improve(OrderWork work) {
    const bool whole = search_->improve(work, [this](OrderWork done) { return continues(spent_ + done); });
    FoundOrder best = search_->result();
    if (found_ && found_->certificate.time <= best.certificate.time) return whole;
    if (found_) best.certificate.lowerBound = found_->certificate.lowerBound;
    for (std::size_t s = 0; s < choice_.recomputed.size(); ++s) {
      if (choice_.recomputed[s]) best.certificate.recomputed.emplace_back(s);
    }
    if (best.certificate.lowerBound > best.certificate.time) best.certificate.lowerBound = 0;  // this order refutes the bound
    found_ = std::move(best);
    return whole;
  }

  /// The work that was done: none where it is too little to begin.
  OrderWork prove(OrderWork work) {
    if (found_->certificate.optimal()) return 0;
    OrderProof proof = proveOrder(problem_, found_->certificate.lowerBound, found_->certificate.time, {work, effort_.threads},
                                  [this](OrderWork done) { return continues(spent_ + search_->spent() + done); });
    spent_ += proof.work;
    if (proof.better) {
      found_ = *std::move(proof.better);
    } else {
      found_->certificate.lowerBound = proof.bound;
    }
    return proof.work;
  }

  const OrderProblem& problem_;
  const OrderEffort& effort_;
  OrderWork work_;
  double share_ = 0;  ///< of it that is done
  bool stopped_ = false;
  OrderWork spent_ = 0;  ///< beside the search
  Choice choice_{std::vector<bool>(problem_.costs.stages.size(), false), std::nullopt};
  std::unique_ptr<OrderSearch> search_;
  std::optional<FoundOrder> found_;
};

}  // namespace

std::optional<FoundOrder> findOrder(const OrderProblem& problem, const OrderEffort& effort) {
  if (problem.placement.bidirectional())
    throw UsageError("an order is searched for one replica of each stage; use a loop, V, wave or custom placement");
  if (!problem.costs.overlap.empty()) throw UsageError("an order is searched without slots of their own duration; omit the overlap");
  if (tooSmall(problem)) return std::nullopt;
  return OrderFinder(problem, effort).run();
}

}  // namespace pw
