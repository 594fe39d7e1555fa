#include "simulator/order/proof/windows.h"

#include <algorithm>
#include <numeric>

#include "simulator/order/problem/index.h"
#include "simulator/order/proof/room.h"

namespace pw {
namespace {

constexpr int kMostPasses = 100;  ///< for one time; what is not narrow by then stays wide

Microbatch smallestMicrobatch(const OrderModel& model) {
  return Microbatch(static_cast<std::size_t>(std::ranges::min_element(model.scale) - model.scale.begin()));
}

}  // namespace

Windows::Windows(const OrderModel& model)
    : model_(model),
      arcs_(windowArcs(model, smallestMicrobatch(model))),
      ancestors_(windowAncestors(model, arcs_)),
      actions_(at(model.ranks)),
      position_(model.actions()) {
  const Microbatch smallest = smallestMicrobatch(model);
  const double least = model.scale[smallest.index()];
  alike_ = std::ranges::all_of(model.scale, [&](double scale) { return scale == least; });
  for (std::size_t a = 0; a < model.actions(); ++a) {
    const ActionId action(a);
    time_.push_back(alike_ ? model.duration[a] : model.duration[model.actionOf(model.classOf(action), smallest).index()]);
    std::vector<ActionId>& ofRank = actions_[model.rankOf(action).index()];
    position_[a] = ofRank.size();
    ofRank.push_back(action);
  }
  for (const std::vector<ActionId>& actions : actions_) words_ = std::max(words_, (actions.size() + 63) / 64);
  always_.assign(model.actions() * words_, 0);
  for (std::size_t a = 0; a < model.actions(); ++a) {
    const std::vector<std::int32_t>& before = ancestors_.before[a];
    for (std::size_t c = 0; c < before.size(); ++c) {
      for (std::size_t k = 0; k < at(before[c]); ++k) {
        const std::size_t position = c * at(model.microbatches) + k;
        always_[a * words_ + position / 64] |= std::uint64_t{1} << (position % 64);
      }
    }
  }
}

bool Windows::raise(Direction direction, ActionId action, Ns to) {
  Ns& own = now_.earliest[direction][action.index()];
  if (to <= own) return true;
  own = to;
  changed_[model_.rankOf(action).index()] = true;
  return own + timeOf(action) <= -now_.earliest[1 - direction][action.index()];
}

bool Windows::decide(ActionId first, ActionId second) {
  if (!knows(first, second)) {
    now_.decided.push_back({first, second, 0});
    const Rank rank = model_.rankOf(first);
    const std::size_t position = position_[first.index()];
    for (const ActionId later : actionsOf(rank)) {
      if (later != second && !knows(second, later)) continue;
      for (std::size_t word = 0; word < words_; ++word) beforeOf(later)[word] |= beforeOf(first)[word];
      beforeOf(later)[position / 64] |= std::uint64_t{1} << (position % 64);
    }
    changed_[rank.index()] = true;
  }
  return raise(Ahead, second, earliestEnd(first)) && raise(Back, first, -latestStart(second));
}

bool Windows::followArcs() {
  for (const WindowArc& arc : arcs_) {
    if (!raise(Ahead, arc.to, now_.earliest[Ahead][arc.from.index()] + timeOf(arc.from) + arc.lag)) return false;
  }
  for (const WindowArc& arc : now_.decided) {
    if (!raise(Ahead, arc.to, earliestEnd(arc.from)) || !raise(Back, arc.from, -latestStart(arc.to))) return false;
  }
  return std::all_of(arcs_.rbegin(), arcs_.rend(), [&](const WindowArc& arc) {
    return raise(Back, arc.from, now_.earliest[Back][arc.to.index()] + timeOf(arc.to) + arc.lag);
  });
}

/// On the window's clock: each rank ends that time after its own first action at the latest.
bool Windows::keepSpans() {
  for (const std::vector<ActionId>& actions : actions_) {
    if (actions.empty()) continue;
    const ActionId first = actions.front();  // F of its first stage and microbatch
    const Ns start = latestStart(first);
    for (const ActionId action : actions) {
      if (!raise(Back, action, -(start + trial_)) || !raise(Ahead, first, earliestEnd(action) - trial_)) return false;
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
  leaves_.clear();
  for (const std::int32_t i : byStart_) leaves_.push_back({start_[at(i)], timeOf(actions[at(i)])});
  edges_.fill(leaves_);
  sortBy(byOther_, end_);
  for (std::size_t q = count; q-- > 0;) {
    const auto last = at(byOther_[q]);
    if (edges_.end() > end_[last]) return false;
    if (q == 0) return true;
    edges_.makeOptional(at(leaf_[last]));
    const Ns before = end_[at(byOther_[q - 1])];
    if (edges_.end() > before) return false;
    while (edges_.endWithOptional() > before) {
      const auto later = static_cast<std::size_t>(edges_.optional());
      Ns& raised = raised_[at(byStart_[later])];
      raised = std::max(raised, edges_.end());
      edges_.remove(later);
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

void Windows::followAncestors(Rank rank, Direction direction) {
  const std::vector<ActionId>& actions = actionsOf(rank);
  const std::size_t classes = model_.classesOf[rank.index()].size();
  const std::int32_t microbatches = model_.microbatches;
  std::vector<std::int32_t> taken(classes);
  const auto position = [&](std::size_t c, std::int32_t k) {  // of the k-th of a class in this direction
    return c * at(microbatches) + at(direction == Ahead ? k : microbatches - 1 - k);
  };
  for (std::size_t c = 0; c < classes; ++c) {
    tree_.reset(actions.size());
    std::ranges::fill(taken, 0);
    for (std::int32_t k = 0; k < microbatches; ++k) {
      const std::size_t own = position(c, k);
      const std::vector<std::int32_t>& before = (direction == Ahead ? ancestors_.before : ancestors_.after)[actions[own].index()];
      for (std::size_t other = 0; other < classes; ++other) {
        for (; taken[other] < before[other]; ++taken[other]) {
          const std::size_t i = position(other, taken[other]);
          tree_.insert(at(leaf_[i]), start_[i], timeOf(actions[i]));
        }
      }
      raised_[own] = std::max(raised_[own], tree_.end());
    }
  }
}

/// Raises the earliest starts of a rank in one direction.
bool Windows::tighten(Rank rank, Direction direction) {
  const std::vector<ActionId>& actions = actionsOf(rank);
  const std::size_t count = actions.size();
  for (std::vector<Ns>* const column : {&start_, &raised_, &end_, &latest_, &ends_}) column->resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    start_[i] = raised_[i] = now_.earliest[direction][actions[i].index()];
    end_[i] = -now_.earliest[1 - direction][actions[i].index()];
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

void Windows::restore(const State& state) {
  now_ = state;
  changed_.assign(changed_.size(), false);
}

void Windows::open(Ns time) {
  trial_ = time;
  changed_.assign(at(model_.ranks), true);
  now_.before = always_;
  now_.decided.clear();
  now_.earliest[Ahead].assign(model_.actions(), 0);
  now_.earliest[Back].assign(model_.actions(), -time);
  if (model_.clock == StepClock::Window) {  // a rank's first action is within that time, as I of the first microbatch comes back in it
    const Rank first = model_.classes.front().rank;
    for (std::size_t a = 0; a < model_.actions(); ++a) {
      if (model_.rankOf(ActionId(a)) != first) now_.earliest[Back][a] = -2 * time;
    }
    if (alike_) beginAtOnce();
  }
}

/// Where the first microbatch meets each rank for the first time, its F is the rank's first action and starts as its messages arrive:
/// nothing that the order decides comes before. Where several messages of an action share a channel, that ends.
void Windows::beginAtOnce() {
  std::vector<bool> met(at(model_.ranks), false);
  begun_ = 0;
  std::vector<Ns> arrival(model_.classes.size(), 0);
  for (Stage stage(0); stage.value < model_.stages; ++stage.value) {
    const ClassId forward = model_.forwardOf(stage);
    const ActionId action = model_.actionOf(forward, Microbatch(0));
    const std::size_t rank = model_.rankOf(action).index();
    if (met[rank]) return;
    met[rank] = true;
    ++begun_;
    const Ns end = arrival[forward.index()] + timeOf(action);
    now_.earliest[Back][action.index()] = -end;
    const auto& hops = model_.classes[forward.index()].hops;
    for (const OrderModel::Hop& hop : hops) {
      if (!hop.exchanges) continue;
      if (hop.channel != kNoChannel && std::ranges::count(hops, hop.channel, &OrderModel::Hop::channel) > 1) return;
      Ns& arrives = arrival[hop.to.index()];
      arrives = std::max(arrives, end + hop.latency + model_.scaled(hop.transfer, Microbatch(0)));
    }
  }
}

bool Windows::narrow() {
  for (int pass = 0; pass < kMostPasses; ++pass) {
    ++examined_;
    if (!followArcs() || (model_.clock == StepClock::Window && !keepSpans())) return false;
    bool narrowed = false;
    for (Rank rank(0); rank.value < model_.ranks; ++rank.value) {
      if (!changed_[rank.index()]) continue;
      changed_[rank.index()] = false;
      narrowed = true;
      examined_ += static_cast<std::int64_t>(actionsOf(rank).size());
      if (!tighten(rank, Ahead) || !tighten(rank, Back) || !keepRoom(*this, rank)) return false;
    }
    if (!narrowed) break;
  }
  return true;
}

bool Windows::hold(Ns time) {
  open(time);
  return narrow();
}

}  // namespace pw
