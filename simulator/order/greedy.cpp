#include "simulator/order/greedy.h"

#include <algorithm>
#include <limits>

#include "simulator/order/problem/index.h"

namespace pw {
namespace {

constexpr Ns kNever = std::numeric_limits<Ns>::max();

}  // namespace

GreedyOrder::GreedyOrder(const OrderModel& model) : model_(model), rows_(at(model.ranks)) {
  for (const OrderModel::ActionClass& c : model.classes) inputs_.insert(inputs_.end(), at(model.microbatches), c.inputs);
}

/// When the next action of a class has all it needs from others; never: not known yet, or something on its own rank is missing.
Ns GreedyOrder::readyAt(ClassId actionClass) const {
  const Microbatch m = nextOf(actionClass);
  if (m.value == model_.microbatches) return kNever;
  for (const ClassId before : model_.classes[actionClass.index()].before) {
    if (nextOf(before) <= m) return kNever;
  }
  const std::size_t action = model_.actionOf(actionClass, m).index();
  if (missing_[action] > 0) return kNever;
  if (!rule_->paced || !model_.isForward(actionClass)) return arrival_[action];
  return std::max(arrival_[action], rule_->offset[actionClass.index()] + m.value * rule_->period);
}

/// Whether memory and the cap allow the next action of a class.
bool GreedyOrder::admits(Rank rank, ClassId actionClass) const {
  const OrderModel::ActionClass& of = model_.classes[actionClass.index()];
  const RankState& state = ranks_[rank.index()];
  if (state.held + of.use.gain + of.use.peak > model_.limit[rank.index()] || state.live + of.use.born > model_.liveLimit[rank.index()])
    return false;
  return !model_.isForward(actionClass) || canFinishOldest(rank, actionClass);
}

/// Whether the rank, after this F, could still do the forwards that its oldest microbatch needs, and then its backwards. The cap yields to
/// the oldest microbatch, on whose later forwards everybody waits.
bool GreedyOrder::canFinishOldest(Rank rank, ClassId forward) const {
  const RankState& state = ranks_[rank.index()];
  Microbatch oldest(model_.microbatches);
  for (const ClassId c : model_.classesOf[rank.index()]) oldest = std::min(oldest, nextOf(c));
  if (nextOf(forward) == oldest) return true;
  if (!rule_->ahead.empty() && state.waiting >= rule_->ahead[rank.index()]) return false;
  Bytes need = state.held + model_.classes[forward.index()].use.gain, most = 0;
  std::int32_t pairs = state.live + 1;
  for (const ClassId c : model_.classesOf[rank.index()]) {
    const MemoryUse& other = model_.classes[c.index()].use;
    most = std::max(most, other.peak);
    if (!model_.isForward(c) || nextOf(c) > oldest) continue;
    need += other.gain;
    ++pairs;
  }
  return need + most <= model_.limit[rank.index()] && pairs <= model_.liveLimit[rank.index()];
}

/// Among the actions that could start before the first of them would end (times the patience), the preferred one.
void GreedyOrder::choose(Rank rank) {
  options_.clear();
  RankState& state = ranks_[rank.index()];
  Ns first = kNever;
  for (const ClassId c : model_.classesOf[rank.index()]) {
    const Ns ready = readyAt(c);
    if (ready == kNever || !admits(rank, c)) continue;
    const Ns start = std::max(state.free, ready);
    options_.push_back({c, start});
    const Ns patience = static_cast<Ns>(rule_->patience * static_cast<double>(model_.classes[c.index()].time));
    first = std::min(first, start + patience);
  }
  state.next = kNoClass;
  Ns best = kNever;
  for (const Option& option : options_) {
    if (option.start > first) continue;
    const Ns priority = rule_->offset[option.actionClass.index()] + nextOf(option.actionClass).value * rule_->period;
    if (priority >= best && state.next != kNoClass) continue;
    best = priority;
    state.next = option.actionClass;
    state.start = option.start;
  }
}

void GreedyOrder::perform(Rank rank) {
  RankState& state = ranks_[rank.index()];
  const OrderModel::ActionClass& of = model_.classes[state.next.index()];
  const Microbatch m(done_[state.next.index()]++);
  const ActionId action = model_.actionOf(state.next, m);
  state.free = state.start + model_.duration[action.index()];
  state.held += of.use.gain - of.use.loss;
  state.live += of.use.born - of.use.died;
  const ActionKind kind = model_.kindOf(state.next);
  if (kind == ActionKind::Forward) ++state.waiting;
  if (kind == ActionKind::BackwardInput) --state.waiting;
  rows_[rank.index()].push_back(action);
  for (const OrderModel::Hop& hop : of.hops) {
    Ns arrives = state.free;
    if (hop.channel != kNoChannel) {
      Ns& channel = channelEnd_[hop.channel.index()];
      arrives = channel = std::max(channel, state.free) + model_.scaled(hop.transfer, m);
    }
    const std::size_t user = model_.actionOf(hop.to, m).index();
    arrival_[user] = std::max(arrival_[user], arrives + hop.latency);
    const Rank other = model_.classes[hop.to.index()].rank;
    if (--missing_[user] == 0 && other != rank) choose(other);
  }
  choose(rank);
}

const OrderRows& GreedyOrder::build(const GreedyRule& rule) {
  rule_ = &rule;
  for (auto& row : rows_) row.clear();
  ranks_.assign(at(model_.ranks), {});
  done_.assign(model_.classes.size(), 0);
  missing_ = inputs_;
  arrival_.assign(model_.actions(), 0);
  channelEnd_.assign(at(model_.channels), 0);
  for (Rank r(0); r.value < model_.ranks; ++r.value) choose(r);
  for (std::size_t done = 0; done < model_.actions(); ++done) {
    const RankState* first = nullptr;
    for (const RankState& state : ranks_) {
      if (state.next != kNoClass && (first == nullptr || state.start < first->start)) first = &state;
    }
    if (first == nullptr) {
      for (auto& row : rows_) row.clear();
      break;
    }
    perform(Rank(static_cast<std::size_t>(first - ranks_.data())));
  }
  return rows_;
}

}  // namespace pw
