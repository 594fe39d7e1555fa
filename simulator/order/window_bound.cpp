#include "simulator/order/window_bound.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "simulator/order/end_tree.h"

namespace pw {
namespace {

constexpr int kMostPasses = 100;  ///< for one time; what is not narrow by then stays wide
constexpr std::size_t kMostCounts = 4'000'000;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

/// The windows of all actions for a trial time.
class Windows {
 public:
  explicit Windows(const OrderModel& model);

  /// False: no order takes at most that time.
  [[nodiscard]] bool hold(Ns time);

 private:
  /// An action that ends, and its message arrives, before another starts.
  struct Arc {
    ActionId from = 0, to = 0;
    Ns lag = 0;
  };
  /// The two directions of time: backwards, starts are ends and those before are those after.
  enum Direction : std::uint8_t { Ahead, Back };

  void addArcs();
  void addRoomArcs(std::int32_t rank);
  void orderArcs();
  void countAncestors();
  [[nodiscard]] Ns timeOf(ActionId action) const { return time_[at(action)]; }
  [[nodiscard]] Ns earliestEnd(ActionId action) const { return earliest_[Ahead][at(action)] + timeOf(action); }
  [[nodiscard]] Ns latestEnd(ActionId action) const { return -earliest_[Back][at(action)]; }
  [[nodiscard]] Ns latestStart(ActionId action) const { return latestEnd(action) - timeOf(action); }
  [[nodiscard]] bool raise(Direction direction, ActionId action, Ns to);
  [[nodiscard]] bool followArcs();
  [[nodiscard]] bool keepSpans(Ns time);
  [[nodiscard]] bool keepRoom(std::int32_t rank);
  [[nodiscard]] bool tighten(std::int32_t rank, Direction direction);
  void sortBy(std::vector<std::int32_t>& order, std::span<const Ns> keys) const;
  [[nodiscard]] bool findEdges(std::span<const ActionId> actions);
  void detectPrecedences(std::span<const ActionId> actions);
  void followAncestors(std::int32_t rank, Direction direction);

  const OrderModel& model_;
  std::vector<Ns> time_;                                 ///< by action
  std::vector<Arc> arcs_;                                ///< by their ends, those of earlier actions first
  std::vector<std::vector<ActionId>> actions_;           ///< by rank
  std::vector<std::vector<std::int32_t>> ancestors_[2];  ///< by direction and action: how many of each class of its rank come before it
  std::vector<Ns> earliest_[2];                          ///< by direction and action; Back: minus the latest end
  bool changed_ = false;

  // Of the rank and direction at hand.
  EndTree tree_;
  std::vector<Ns> start_, raised_, end_;  ///< by position in `actions_`
  std::vector<Ns> latest_, ends_;         ///< latest starts, earliest ends
  std::vector<std::int32_t> leaf_;        ///< by position: its place by earliest start
  std::vector<std::int32_t> byStart_, byOther_, byEnd_;
};

Windows::Windows(const OrderModel& model) : model_(model), actions_(at(model.ranks)) {
  const double least = *std::ranges::min_element(model.scale);
  const bool alike = std::ranges::all_of(model.scale, [&](double scale) { return scale == least; });
  const auto smallest = static_cast<std::int32_t>(std::ranges::min_element(model.scale) - model.scale.begin());
  for (std::size_t a = 0; a < model.actions(); ++a) {
    const auto action = static_cast<ActionId>(a);
    const std::int32_t c = model.classOf(action);
    time_.push_back(alike ? model.duration[a] : model.duration[at(model.actionOf(c, smallest))]);
    actions_[at(model.classes[at(c)].rank)].push_back(action);
  }
  addArcs();
  for (std::int32_t rank = 0; rank < model.ranks; ++rank) addRoomArcs(rank);
  orderArcs();
  countAncestors();
}

void Windows::addArcs() {
  const auto smallest = static_cast<std::int32_t>(std::ranges::min_element(model_.scale) - model_.scale.begin());
  for (std::size_t c = 0; c < model_.classes.size(); ++c) {
    const auto from = static_cast<std::int32_t>(c);
    const OrderModel::ActionClass& of = model_.classes[c];
    for (std::int32_t m = 0; m < model_.microbatches; ++m) {
      const ActionId action = model_.actionOf(from, m);
      for (const std::int32_t to : of.after) arcs_.push_back({action, model_.actionOf(to, m), 0});
      for (const OrderModel::Hop& hop : of.hops)
        arcs_.push_back({action, model_.actionOf(hop.to, m), hop.latency + model_.scaled(hop.transfer, smallest)});
      if (m > 0) arcs_.push_back({model_.actionOf(from, m - 1), action, 0});
    }
  }
}

/// Stages of the rank in the order of the chain. When F of microbatch m of stage s starts, its rank has started m + 1 of s and of each
/// stage before it, and ended at most m I and W of these; what later stages hold is at least nothing.
void Windows::addRoomArcs(std::int32_t rank) {
  std::vector<std::int32_t> stages;
  for (const std::int32_t c : model_.classesOf[at(rank)]) {
    if (c < model_.stages) stages.push_back(c);
  }
  const auto input = [&](std::int32_t s) { return s + model_.stages; };
  const auto weight = [&](std::int32_t s) { return s + 2 * model_.stages; };
  for (std::size_t own = 0; own < stages.size(); ++own) {
    for (std::int32_t m = 1; m < model_.microbatches; ++m) {
      /// Whether it fits when I of the stage at `t` has ended `inputs` times, W `weights` times, and all else as often as it can.
      const auto fits = [&](std::size_t t, std::int32_t inputs, std::int32_t weights) {
        Bytes held = model_.classes[at(stages[own])].peak;
        std::int64_t live = 0;
        for (std::size_t i = 0; i <= own; ++i) {
          const std::int32_t s = stages[i];
          const std::int32_t ended = i <= t ? std::min(m, inputs) : m;  // I of earlier stages comes after that of later ones
          const std::int32_t died = i == t ? std::min(ended, weights) : ended;
          held +=
              model_.classes[at(s)].gain * (m + 1) - model_.classes[at(input(s))].loss * ended - model_.classes[at(weight(s))].loss * died;
          live += m + 1 - died;
        }
        return held <= model_.limit[at(rank)] && live <= model_.liveLimit[at(rank)];
      };
      const ActionId forward = model_.actionOf(stages[own], m);
      for (std::size_t t = 0; t <= own; ++t) {
        std::int32_t inputs = 0, weights = 0;
        while (inputs < m && !fits(t, inputs, inputs)) ++inputs;
        while (weights < m && !fits(t, m, weights)) ++weights;
        if (inputs > 0) arcs_.push_back({model_.actionOf(input(stages[t]), inputs - 1), forward, 0});
        if (weights > 0) arcs_.push_back({model_.actionOf(weight(stages[t]), weights - 1), forward, 0});
      }
    }
  }
}

/// By the place of their ends in the order of one microbatch after the other, which keeps all of them.
void Windows::orderArcs() {
  const auto placeOf = [&](ActionId action) {
    const std::int32_t c = model_.classOf(action), kind = c / model_.stages, s = c % model_.stages;
    const std::int32_t inChain = kind == 0 ? s : model_.stages + 2 * (model_.stages - 1 - s) + (kind - 1);
    return std::int64_t{model_.microbatchOf(action)} * 3 * model_.stages + inChain;
  };
  std::stable_sort(arcs_.begin(), arcs_.end(), [&](const Arc& a, const Arc& b) { return placeOf(a.to) < placeOf(b.to); });
}

void Windows::countAncestors() {
  const std::size_t classes = model_.classes.size();
  for (const Direction direction : {Ahead, Back}) {
    std::vector<std::int32_t> counts(model_.actions() * classes, 0);
    const auto follow = [&](ActionId from, ActionId to) {
      std::int32_t* const of = &counts[at(to) * classes];
      const std::int32_t* const before = &counts[at(from) * classes];
      for (std::size_t c = 0; c < classes; ++c) of[c] = std::max(of[c], before[c]);
      const std::int32_t m = model_.microbatchOf(from);
      std::int32_t& own = of[model_.classOf(from)];
      own = std::max(own, direction == Ahead ? m + 1 : model_.microbatches - m);
    };
    if (direction == Ahead) {
      for (const Arc& arc : arcs_) follow(arc.from, arc.to);
    } else {
      for (const Arc& arc : std::views::reverse(arcs_)) follow(arc.to, arc.from);
    }
    ancestors_[direction].resize(model_.actions());
    for (std::size_t a = 0; a < model_.actions(); ++a) {
      const OrderModel::ActionClass& of = model_.classes[at(model_.classOf(static_cast<ActionId>(a)))];
      for (const std::int32_t c : model_.classesOf[at(of.rank)]) ancestors_[direction][a].push_back(counts[a * classes + at(c)]);
    }
  }
}

/// False: its window is too short.
bool Windows::raise(Direction direction, ActionId action, Ns to) {
  Ns& own = earliest_[direction][at(action)];
  if (to <= own) return true;
  own = to;
  changed_ = true;
  return own + timeOf(action) <= -earliest_[1 - direction][at(action)];
}

/// What a rank surely holds at each time: a pair from the latest start of its F, all of it until the earliest end of its I, what W needs
/// until the earliest end of that. Where that leaves no room for another pair, it is not held: its F starts later, or its I or W ended
/// before (time table filtering; Le Pape 1988). False: more is held than there is room for.
bool Windows::keepRoom(std::int32_t rank) {
  const Bytes limit = model_.limit[at(rank)];
  const std::int32_t most = model_.liveLimit[at(rank)];
  if (limit == std::numeric_limits<Bytes>::max() && most == std::numeric_limits<std::int32_t>::max()) return true;
  struct Pair {
    ActionId forward, input, weight;
    Bytes before, after;
  };
  std::vector<Pair> pairs;
  struct Change {
    Ns time;
    Bytes bytes;
    std::int32_t live;
  };
  std::vector<Change> changes;
  const auto hold = [&](Ns from, Ns to, Bytes bytes, std::int32_t live) {
    if (from >= to) return;
    changes.push_back({from, bytes, live});
    changes.push_back({to, -bytes, -live});
  };
  for (const std::int32_t c : model_.classesOf[at(rank)]) {
    if (c >= model_.stages) continue;
    for (std::int32_t m = 0; m < model_.microbatches; ++m) {
      const ActionId action = model_.actionOf(c, m);
      hold(latestStart(action), earliestEnd(action), model_.classes[at(c)].peak, 0);
    }
    const Bytes before = model_.classes[at(c)].gain, after = before - model_.classes[at(c + model_.stages)].loss;
    for (std::int32_t m = 0; m < model_.microbatches; ++m) {
      const Pair pair{model_.actionOf(c, m), model_.actionOf(c + model_.stages, m), model_.actionOf(c + 2 * model_.stages, m), before,
                      std::min(before, after)};
      const Ns start = latestStart(pair.forward), middle = std::max(start, earliestEnd(pair.input)), end = earliestEnd(pair.weight);
      hold(start, std::min(middle, end), pair.before, 1);
      hold(middle, end, pair.after, 1);
      pairs.push_back(pair);
    }
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.time < b.time; });
  struct Stretch {
    Ns from, to;
    Bytes bytes;
    std::int32_t live;
  };
  std::vector<Stretch> stretches;
  Bytes bytes = 0;
  std::int32_t live = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    bytes += changes[i].bytes;
    live += changes[i].live;
    if (i + 1 == changes.size() || changes[i + 1].time == changes[i].time) continue;
    if (bytes > limit || live > most) return false;
    stretches.push_back({changes[i].time, changes[i + 1].time, bytes, live});
  }
  const auto firstFrom = [&](Ns time) {
    return std::upper_bound(stretches.begin(), stretches.end(), time, [](Ns t, const Stretch& stretch) { return t < stretch.to; });
  };
  for (const Pair& pair : pairs) {
    const Ns start = latestStart(pair.forward), inputEnd = earliestEnd(pair.input), weightEnd = earliestEnd(pair.weight);
    Ns forward = earliest_[Ahead][at(pair.forward)];
    for (auto s = firstFrom(forward); s != stretches.end() && s->from < start; ++s) {  // its own bytes are not in there
      const Ns held = std::max(s->from, forward);
      const bool fits = held >= weightEnd || (s->live < most && s->bytes + (held < inputEnd ? pair.before : pair.after) <= limit);
      if (!fits) forward = std::min(s->to, start);
    }
    if (!raise(Ahead, pair.forward, forward)) return false;
    const auto endBefore = [&](ActionId action, Ns from, Bytes holds) {
      for (auto s = firstFrom(from); s != stretches.end() && s->from < latestEnd(action); ++s) {
        const Ns held = std::max(s->from, from);
        if (held < start) continue;
        const bool counted = held < weightEnd;  // its own, which W needs
        if (s->bytes + holds - (counted ? pair.after : 0) > limit || s->live + (counted ? 0 : 1) > most) return raise(Back, action, -held);
      }
      return true;
    };
    if (!endBefore(pair.input, inputEnd, pair.before) || !endBefore(pair.weight, weightEnd, pair.after)) return false;
  }
  return true;
}

bool Windows::followArcs() {
  for (const Arc& arc : arcs_) {
    if (!raise(Ahead, arc.to, earliest_[Ahead][at(arc.from)] + timeOf(arc.from) + arc.lag)) return false;
  }
  return std::all_of(arcs_.rbegin(), arcs_.rend(),
                     [&](const Arc& arc) { return raise(Back, arc.from, earliest_[Back][at(arc.to)] + timeOf(arc.to) + arc.lag); });
}

/// On the window's clock: each rank ends that time after its own first action at the latest.
bool Windows::keepSpans(Ns time) {
  for (const std::vector<ActionId>& actions : actions_) {
    if (actions.empty()) continue;
    const ActionId first = actions.front();  // F of its first stage and microbatch
    const Ns start = latestStart(first);
    for (const ActionId action : actions) {
      if (!raise(Back, action, -(start + time)) || !raise(Ahead, first, earliestEnd(action) - time)) return false;
    }
  }
  return true;
}

void Windows::sortBy(std::vector<std::int32_t>& order, std::span<const Ns> keys) const {
  order.resize(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const Ns first = keys[at(a)], second = keys[at(b)];
    return first != second ? first < second : a < b;
  });
}

/// What must end after all of a set starts after it. False: a set does not fit before the latest end of its last.
bool Windows::findEdges(std::span<const ActionId> actions) {
  const std::size_t count = actions.size();
  tree_.reset(count);
  for (std::size_t i = 0; i < count; ++i) tree_.insert(at(leaf_[i]), start_[i], timeOf(actions[i]));
  sortBy(byOther_, end_);
  for (std::size_t q = count; q-- > 0;) {
    const auto last = at(byOther_[q]);
    if (tree_.end() > end_[last]) return false;
    if (q == 0) return true;
    tree_.makeOptional(at(leaf_[last]));
    const Ns before = end_[at(byOther_[q - 1])];
    if (tree_.end() > before) return false;
    while (tree_.endWithOptional() > before) {
      const auto later = static_cast<std::size_t>(tree_.optional());
      Ns& raised = raised_[at(byStart_[later])];
      raised = std::max(raised, tree_.end());
      tree_.remove(later);
    }
  }
  return true;
}

/// What ends too late before another to come after it comes before it.
void Windows::detectPrecedences(std::span<const ActionId> actions) {
  const std::size_t count = actions.size();
  for (std::size_t i = 0; i < count; ++i) {
    latest_[i] = end_[i] - timeOf(actions[i]);
    ends_[i] = start_[i] + timeOf(actions[i]);
  }
  sortBy(byOther_, latest_);
  sortBy(byEnd_, ends_);
  tree_.reset(count);
  std::size_t next = 0;
  for (const std::int32_t i : byEnd_) {
    while (next < count && ends_[at(i)] > latest_[at(byOther_[next])]) {
      const auto j = at(byOther_[next++]);
      tree_.insert(at(leaf_[j]), start_[j], timeOf(actions[j]));
    }
    const bool inside = ends_[at(i)] > latest_[at(i)];
    if (inside) tree_.remove(at(leaf_[at(i)]));
    raised_[at(i)] = std::max(raised_[at(i)], tree_.end());
    if (inside) tree_.insert(at(leaf_[at(i)]), start_[at(i)], timeOf(actions[at(i)]));
  }
}

void Windows::followAncestors(std::int32_t rank, Direction direction) {
  const std::vector<std::int32_t>& classes = model_.classesOf[at(rank)];
  const std::int32_t microbatches = model_.microbatches;
  std::vector<std::int32_t> taken(classes.size());
  const auto position = [&](std::size_t c, std::int32_t k) {  // of the k-th of a class in this direction
    return c * at(microbatches) + at(direction == Ahead ? k : microbatches - 1 - k);
  };
  for (std::size_t c = 0; c < classes.size(); ++c) {
    tree_.reset(actions_[at(rank)].size());
    std::ranges::fill(taken, 0);
    for (std::int32_t k = 0; k < microbatches; ++k) {
      const std::size_t own = position(c, k);
      const std::vector<std::int32_t>& before = ancestors_[direction][at(actions_[at(rank)][own])];
      for (std::size_t other = 0; other < classes.size(); ++other) {
        for (; taken[other] < before[other]; ++taken[other]) {
          const std::size_t i = position(other, taken[other]);
          tree_.insert(at(leaf_[i]), start_[i], timeOf(actions_[at(rank)][i]));
        }
      }
      raised_[own] = std::max(raised_[own], tree_.end());
    }
  }
}

/// Raises the earliest starts of a rank in one direction.
bool Windows::tighten(std::int32_t rank, Direction direction) {
  const std::vector<ActionId>& actions = actions_[at(rank)];
  const std::size_t count = actions.size();
  for (std::vector<Ns>* const column : {&start_, &raised_, &end_, &latest_, &ends_}) column->resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    start_[i] = raised_[i] = earliest_[direction][at(actions[i])];
    end_[i] = -earliest_[1 - direction][at(actions[i])];
  }
  sortBy(byStart_, start_);
  leaf_.resize(count);
  for (std::size_t place = 0; place < count; ++place) leaf_[at(byStart_[place])] = static_cast<std::int32_t>(place);
  if (!findEdges(actions)) return false;
  detectPrecedences(actions);
  followAncestors(rank, direction);
  for (std::size_t i = 0; i < count; ++i) {
    if (!raise(direction, actions[i], raised_[i])) return false;
  }
  return true;
}

bool Windows::hold(Ns time) {
  earliest_[Ahead].assign(model_.actions(), 0);
  earliest_[Back].assign(model_.actions(), -time);
  if (model_.clock == Clock::Window) {  // a rank's first action is within that time, as I of the first microbatch comes back in it
    const std::int32_t first = model_.classes.front().rank;
    for (std::size_t a = 0; a < model_.actions(); ++a) {
      if (model_.classes[at(model_.classOf(static_cast<ActionId>(a)))].rank != first) earliest_[Back][a] = -2 * time;
    }
  }
  for (int pass = 0; pass < kMostPasses; ++pass) {
    changed_ = false;
    if (!followArcs() || (model_.clock == Clock::Window && !keepSpans(time))) return false;
    for (std::int32_t rank = 0; rank < model_.ranks; ++rank) {
      if (!tighten(rank, Ahead) || !tighten(rank, Back) || !keepRoom(rank)) return false;
    }
    if (!changed_) break;
  }
  return true;
}

}  // namespace

Ns windowBound(const OrderModel& model, Ns lower, Ns upper) {
  if (lower >= upper || model.actions() > kMostWindowActions || model.actions() * model.classes.size() > kMostCounts) return lower;
  Windows windows(model);
  if (!windows.hold(upper - 1)) return upper;
  const Ns close = upper / 5000;
  Ns impossible = lower - 1, possible = upper - 1;  // as far as is known
  while (possible - impossible > 1 + close) {
    const Ns middle = impossible + (possible - impossible) / 2;
    (windows.hold(middle) ? possible : impossible) = middle;
  }
  return impossible + 1;
}

}  // namespace pw
