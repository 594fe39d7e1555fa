#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "simulator/order/problem/problem.h"
#include "simulator/step/program.h"

namespace pw {

/// What the actions of all microbatches have in common: their kind, of F, I and W, and their stage. Index into `OrderModel::classes`.
using ClassId = Id<struct OrderClassTag>;
/// An action of a problem: class · microbatches + microbatch.
using ActionId = Id<struct OrderActionTag>;
/// The link from one rank to another.
using ChannelId = Id<struct OrderChannelTag>;

inline constexpr ClassId kNoClass{-1};
inline constexpr ActionId kNoAction{-1};
inline constexpr ChannelId kNoChannel{-1};

/// A rank's actions in their order, for each rank.
using OrderRows = std::vector<std::vector<ActionId>>;

/// A problem with all backwards split, laid out for being timed millions of times. All microbatches are alike but for their duration, so
/// the actions of one class come in the order of their microbatches: swapping two that do not changes neither times nor memory.
struct OrderModel {
  /// A message for each microbatch of a class, to a class on another rank.
  struct Hop {
    ClassId to;
    ChannelId channel = kNoChannel;  ///< that it holds for `transfer`
    Ns latency = 0, transfer = 0;
    bool exchanges = true;  ///< false: nothing is sent, only rows have the two in this order; none starts later for that when it runs
  };
  struct ActionClass {
    Rank rank;
    Ns time = 0;
    MemoryUse use;
    std::vector<Hop> hops;
    std::vector<ClassId> before, after;  ///< of its rank that it must follow, and precede, in the same microbatch
    std::int32_t inputs = 0;             ///< messages that it waits for
  };

  std::int32_t ranks = 0, stages = 0, microbatches = 0, channels = 0;
  std::vector<ActionClass> classes;  ///< F of all stages, I of all stages, W of all stages
  std::vector<Ns> duration;          ///< by action
  std::vector<ClassId> classOfAction;
  std::vector<Bytes> limit;                     ///< by rank: above what it holds all the time
  std::vector<std::int32_t> liveLimit;          ///< by rank
  std::vector<std::vector<ClassId>> classesOf;  ///< by rank, ascending
  StepClock clock = StepClock::Flush;
  std::vector<double> scale;  ///< of durations and transfers, by microbatch

  explicit OrderModel(const OrderProblem& problem);

  [[nodiscard]] ClassId classOf(ActionId action) const { return classOfAction[action.index()]; }
  [[nodiscard]] Microbatch microbatchOf(ActionId action) const { return Microbatch(action.value - classOf(action).value * microbatches); }
  [[nodiscard]] ActionId actionOf(ClassId actionClass, Microbatch microbatch) const {
    return ActionId(actionClass.value * microbatches + microbatch.value);
  }
  [[nodiscard]] Rank rankOf(ActionId action) const { return classes[classOf(action).index()].rank; }

  [[nodiscard]] ClassId forwardOf(Stage stage) const { return ClassId(stage.value); }
  [[nodiscard]] ClassId inputOf(Stage stage) const { return ClassId(stages + stage.value); }
  [[nodiscard]] ClassId weightOf(Stage stage) const { return ClassId(2 * stages + stage.value); }
  [[nodiscard]] Stage stageOf(ClassId actionClass) const { return Stage(actionClass.value % stages); }
  [[nodiscard]] bool isForward(ClassId actionClass) const { return actionClass.value < stages; }
  [[nodiscard]] ActionKind kindOf(ClassId actionClass) const {
    if (isForward(actionClass)) return ActionKind::Forward;
    return actionClass.value < 2 * stages ? ActionKind::BackwardInput : ActionKind::BackwardWeight;
  }

  /// A duration or transfer of one microbatch.
  [[nodiscard]] Ns scaled(Ns time, Microbatch microbatch) const;
  [[nodiscard]] double meanDuration() const;  ///< of an action
  [[nodiscard]] std::size_t actions() const { return duration.size(); }
};

/// Times of rows, and the memory that computing them needs: kept between calls, nothing is allocated.
class OrderTimer {
 public:
  explicit OrderTimer(const OrderModel& model);

  /// Starts every action of these rows as early as possible, as `execute` does. False: they deadlock. Cost: linear in actions and messages.
  [[nodiscard]] bool run(const OrderRows& rows);

  [[nodiscard]] Ns objective() const { return objective_; }  ///< on the model's clock
  [[nodiscard]] Ns startOf(ActionId action) const { return arrival_[action.index()]; }
  /// What annealing lowers: the objective, and a little of the mean, which leads across its plateaus.
  [[nodiscard]] double energy() const { return static_cast<double>(objective_) + 0.1 * static_cast<double>(meanEnd_); }
  [[nodiscard]] Rank latestRank() const { return latest_; }  ///< whose end is the objective
  /// The action on another rank whose message started this one; none: the one before it in its row did (or nothing).
  [[nodiscard]] ActionId causeOf(ActionId action) const { return cause_[action.index()]; }

  /// Prepares `estimate` for the rows that were just timed. Cost: linear in actions and messages.
  void measureTails(const OrderRows& rows);
  /// About the objective if the actions at positions `first` to `last` of a rank's row come as in this row, and all others as before, or
  /// less than it: the longest path through one of them, by when its messages have arrived and what follows it so far (after Balas and
  /// Vazacopoulos, Guided local search with shifting bottleneck for job shop scheduling, Management Science 44, 1998). It is that path
  /// unless one of them waits for another by way of other ranks, or for a channel. Cost: linear in these positions.
  [[nodiscard]] Ns estimate(std::span<const ActionId> row, Rank rank, std::size_t first, std::size_t last);

 private:
  /// Positions of a rank's row that were timed one after the other.
  struct Stretch {
    Rank rank;
    std::size_t first = 0, end = 0;
  };
  /// A message of one action.
  struct Send {
    ActionId user;
    Rank rank;
    ChannelId channel = kNoChannel;
    Ns latency = 0, transfer = 0;
  };

  void deliver(const Send& message, ActionId sender, Ns end);
  void finish(const OrderRows& rows);

  const OrderModel& model_;
  std::vector<Send> sends_;                     ///< of all actions, one after the other
  std::vector<std::int32_t> firstSend_;         ///< by action, and one more
  std::vector<std::int32_t> inputs_, missing_;  ///< by action
  std::vector<Ns> arrival_;                     ///< by action: of its messages, then its start
  std::vector<ActionId> cause_;
  std::vector<std::size_t> next_;  ///< by rank: position in its row
  std::vector<Ns> rankEnd_, channelEnd_;
  std::vector<Rank> ready_;         ///< that may proceed
  std::vector<Stretch> stretches_;  ///< all actions, each after those that it waits for
  std::vector<Ns> received_;        ///< by action: when its messages have arrived
  std::vector<Ns> tail_, sent_;     ///< by action, on the longest path to the objective: from its start, from its end by a message
  std::vector<Ns> rankTail_;        ///< by rank: from the end of its row
  std::vector<Ns> scratch_;         ///< by rank, or position
  Ns objective_ = 0, meanEnd_ = 0;
  Rank latest_;
};

/// The sender ends at `end`.
inline void OrderTimer::deliver(const Send& message, ActionId sender, Ns end) {
  const std::size_t user = message.user.index();
  Ns arrives = end;
  if (message.channel != kNoChannel) {
    Ns& channel = channelEnd_[message.channel.index()];
    arrives = channel = std::max(channel, end) + message.transfer;
  }
  arrives += message.latency;
  if (arrives >= arrival_[user]) {
    arrival_[user] = arrives;
    cause_[user] = sender;
  }
  if (--missing_[user] == 0) ready_.push_back(message.rank);
}

/// What a rank holds before an action of its row.
struct Held {
  Bytes bytes = 0;
  std::int32_t live = 0;  ///< pairs
};

/// The first of the positions from `first` to `end` at which a row exceeds its rank's limits; `end` where it does not. Adds to `held`.
[[nodiscard]] std::size_t firstExcess(const OrderModel& model, Rank rank, std::span<const ActionId> row, std::size_t first, std::size_t end,
                                      Held& held);
/// Whether no row exceeds its rank's limits.
[[nodiscard]] bool fitsLimits(const OrderModel& model, const OrderRows& rows);

/// The rows as a schedule; where whole backwards take no longer than their parts, W that directly follows its I becomes B.
[[nodiscard]] Schedule scheduleOf(const OrderModel& model, const OrderProblem& problem, const OrderRows& rows);
/// A schedule's rows, every B as I and W; nothing where it is for another placement, or not a training step.
[[nodiscard]] OrderRows rowsOf(const OrderModel& model, const OrderProblem& problem, const Schedule& schedule);

}  // namespace pw
