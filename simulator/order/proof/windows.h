#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "simulator/order/problem/model.h"
#include "simulator/order/proof/arcs.h"
#include "simulator/order/proof/end_tree.h"

namespace pw {

/// The windows that a trial time leaves the actions of a model: each from its earliest start to its latest end. They are narrowed,
/// until nothing changes,
/// - along messages, and along the microbatches of a class, which can be taken in their order;
/// - by room (`keepRoom`);
/// - by what precedes an action on its rank, in any order;
/// - by the rank's capacity: edge finding and detectable precedences (Vilím, Barták, Čepek, 2005), in both directions of time.
/// Transfers do not hold their channels here. Microbatches of different scale count as the smallest. Cost of narrowing: for each of some
/// ten passes, O(actions · log(actions of a rank)) for each class of a rank, and where room is limited O(actions · actions of a rank).
class Windows {
 public:
  /// The two directions of time: backwards, starts are ends and those before are those after.
  enum Direction : std::uint8_t { Ahead, Back };

  /// Windows, and what is decided beyond what every order has.
  struct State {
    std::array<std::vector<Ns>, 2> earliest;  ///< by direction and action; Back: minus the latest end
    std::vector<std::uint64_t> before;        ///< by action, the positions on its rank of those before it, as bits
    std::vector<WindowArc> decided;
  };

  explicit Windows(const OrderModel& model);

  /// As wide as the time allows, with nothing decided.
  void open(Ns time);
  /// False: no order with what is decided takes at most that time.
  [[nodiscard]] bool narrow();
  /// False: no order takes at most that time.
  [[nodiscard]] bool hold(Ns time);

  [[nodiscard]] const OrderModel& model() const { return model_; }
  [[nodiscard]] bool alike() const { return alike_; }  ///< all microbatches have the same times
  [[nodiscard]] const std::vector<ActionId>& actionsOf(Rank rank) const { return actions_[rank.index()]; }
  [[nodiscard]] Ns timeOf(ActionId action) const { return time_[action.index()]; }
  [[nodiscard]] Ns earliestStart(ActionId action) const { return now_.earliest[Ahead][action.index()]; }
  [[nodiscard]] Ns earliestEnd(ActionId action) const { return earliestStart(action) + timeOf(action); }
  [[nodiscard]] Ns latestEnd(ActionId action) const { return -now_.earliest[Back][action.index()]; }
  [[nodiscard]] Ns latestStart(ActionId action) const { return latestEnd(action) - timeOf(action); }

  /// Whether one action comes before another of its rank in every order that is left.
  [[nodiscard]] bool precedes(ActionId first, ActionId second) const;
  /// Decides that. False: their windows are too short for it.
  [[nodiscard]] bool decide(ActionId first, ActionId second);
  /// Raises the earliest start, or lowers the latest end to `-to`. False: the window is too short.
  [[nodiscard]] bool raise(Direction direction, ActionId action, Ns to);

  /// On the window clock: whether it is known when each rank begins. Else an order whose actions take longer may have the shorter window.
  [[nodiscard]] bool knowsBegins() const { return model_.clock == StepClock::Flush || begun_ == model_.ranks; }

  /// How many windows were checked for capacity and room, plus one per pass: what narrowing has cost.
  [[nodiscard]] std::int64_t examined() const { return examined_; }

  [[nodiscard]] const State& state() const { return now_; }
  /// Returns to a state that was narrowed.
  void restore(const State& state);

 private:
  void beginAtOnce();
  [[nodiscard]] bool followArcs();
  [[nodiscard]] bool keepSpans();
  [[nodiscard]] bool tighten(Rank rank, Direction direction);
  void sortBy(std::vector<std::int32_t>& order, std::span<const Ns> keys) const;
  [[nodiscard]] bool findEdges(std::span<const ActionId> actions);
  void detectPrecedences(std::span<const ActionId> actions);
  void followAncestors(Rank rank, Direction direction);
  [[nodiscard]] std::uint64_t* beforeOf(ActionId action) { return &now_.before[action.index() * words_]; }
  [[nodiscard]] const std::uint64_t* beforeOf(ActionId action) const { return &now_.before[action.index() * words_]; }
  [[nodiscard]] bool knows(ActionId first, ActionId second) const {
    const std::size_t position = position_[first.index()];
    return (beforeOf(second)[position / 64] >> (position % 64) & 1) != 0;
  }

  const OrderModel& model_;
  std::vector<WindowArc> arcs_;
  WindowAncestors ancestors_;
  std::vector<std::vector<ActionId>> actions_;  ///< by rank: a class after the other
  std::vector<std::size_t> position_;           ///< by action, in those of its rank
  std::vector<Ns> time_;                        ///< by action
  bool alike_ = true;
  std::size_t words_ = 1;              ///< of a row of `State::before`
  std::vector<std::uint64_t> always_;  ///< before anything is decided
  Ns trial_ = 0;
  State now_;
  std::int32_t begun_ = 0;  ///< ranks that `beginAtOnce` has met
  std::int64_t examined_ = 0;
  std::vector<bool> changed_;  ///< by rank: since its capacity and room were examined

  // Of the rank and direction at hand.
  EndTree tree_;
  OptionalEndTree edges_;
  std::vector<OptionalEndTree::Leaf> leaves_;
  std::vector<Ns> start_, raised_, end_;  ///< by position in `actions_`
  std::vector<Ns> latest_, ends_;         ///< latest starts, earliest ends
  std::vector<std::int32_t> leaf_;        ///< by position: its place by earliest start
  std::vector<std::int32_t> byStart_, byOther_, byEnd_;
};

inline bool Windows::precedes(ActionId first, ActionId second) const {
  return knows(first, second) || earliestEnd(second) > latestStart(first);
}

}  // namespace pw
