#include "simulator/order/greedy.h"

#include <algorithm>
#include <limits>

namespace pw {
namespace {

constexpr Ns kNever = std::numeric_limits<Ns>::max();

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

GreedyOrder::GreedyOrder(const OrderModel& model) : model_(model), rows_(at(model.ranks)) {
  for (const OrderModel::ActionClass& c : model.classes) inputs_.insert(inputs_.end(), at(model.microbatches), c.inputs);
}

/// When the next action of a class has all it needs from others; never: not known yet, or something on its own rank is missing.
Ns GreedyOrder::readyAt(std::int32_t actionClass) const {
  const std::int32_t m = done_[at(actionClass)];
  if (m == model_.microbatches) return kNever;
  for (const std::int32_t before : model_.classes[at(actionClass)].before) {
    if (done_[at(before)] <= m) return kNever;
  }
  const std::size_t action = at(model_.actionOf(actionClass, m));
  if (missing_[action] > 0) return kNever;
  if (!rule_->paced || !isForward(actionClass)) return arrival_[action];
  return std::max(arrival_[action], rule_->offset[at(actionClass)] + m * rule_->period);
}

/// Whether memory and the cap allow the next action of a class.
bool GreedyOrder::admits(std::int32_t rank, std::int32_t actionClass) const {
  const OrderModel::ActionClass& of = model_.classes[at(actionClass)];
  const RankState& state = ranks_[at(rank)];
  if (state.held + of.gain + of.peak > model_.limit[at(rank)] || state.live + of.born > model_.liveLimit[at(rank)]) return false;
  return !isForward(actionClass) || canFinishOldest(rank, actionClass);
}

/// Whether the rank, after this F, could still do the forwards that its oldest microbatch needs, and then its backwards. The cap yields to
/// the oldest microbatch, on whose later forwards everybody waits.
bool GreedyOrder::canFinishOldest(std::int32_t rank, std::int32_t forward) const {
  const RankState& state = ranks_[at(rank)];
  const std::int32_t m = done_[at(forward)];
  std::int32_t oldest = model_.microbatches;
  for (const std::int32_t c : model_.classesOf[at(rank)]) oldest = std::min(oldest, done_[at(c)]);
  if (m == oldest) return true;
  if (!rule_->ahead.empty() && state.waiting >= rule_->ahead[at(rank)]) return false;
  Bytes need = state.held + model_.classes[at(forward)].gain, most = 0;
  std::int32_t pairs = state.live + 1;
  for (const std::int32_t c : model_.classesOf[at(rank)]) {
    const OrderModel::ActionClass& other = model_.classes[at(c)];
    most = std::max(most, other.peak);
    if (!isForward(c) || done_[at(c)] > oldest) continue;
    need += other.gain;
    ++pairs;
  }
  return need + most <= model_.limit[at(rank)] && pairs <= model_.liveLimit[at(rank)];
}

/// Among the actions that could start before the first of them would end (times the patience), the preferred one.
void GreedyOrder::choose(std::int32_t rank) {
  options_.clear();
  RankState& state = ranks_[at(rank)];
  Ns first = kNever;
  for (const std::int32_t c : model_.classesOf[at(rank)]) {
    const Ns ready = readyAt(c);
    if (ready == kNever || !admits(rank, c)) continue;
    const Ns start = std::max(state.free, ready);
    options_.push_back({c, start});
    const Ns patience = static_cast<Ns>(rule_->patience * static_cast<double>(model_.classes[at(c)].time));
    first = std::min(first, start + patience);
  }
  state.next = -1;
  Ns best = kNever;
  for (const Option& option : options_) {
    if (option.start > first) continue;
    const Ns priority = rule_->offset[at(option.actionClass)] + done_[at(option.actionClass)] * rule_->period;
    if (priority >= best && state.next >= 0) continue;
    best = priority;
    state.next = option.actionClass;
    state.start = option.start;
  }
}

void GreedyOrder::perform(std::int32_t rank) {
  RankState& state = ranks_[at(rank)];
  const OrderModel::ActionClass& of = model_.classes[at(state.next)];
  const std::int32_t m = done_[at(state.next)]++;
  const ActionId action = model_.actionOf(state.next, m);
  state.free = state.start + model_.duration[at(action)];
  state.held += of.gain - of.loss;
  state.live += of.born - of.died;
  if (isForward(state.next)) ++state.waiting;
  if (!isForward(state.next) && state.next < 2 * model_.stages) --state.waiting;
  rows_[at(rank)].push_back(action);
  for (const OrderModel::Hop& hop : of.hops) {
    Ns arrives = state.free;
    if (hop.channel >= 0) {
      Ns& channel = channelEnd_[at(hop.channel)];
      arrives = channel = std::max(channel, state.free) + model_.scaled(hop.transfer, m);
    }
    const std::size_t user = at(model_.actionOf(hop.to, m));
    arrival_[user] = std::max(arrival_[user], arrives + hop.latency);
    const std::int32_t other = model_.classes[at(hop.to)].rank;
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
  for (std::int32_t r = 0; r < model_.ranks; ++r) choose(r);
  for (std::size_t done = 0; done < model_.actions(); ++done) {
    std::int32_t of = -1;
    for (std::int32_t r = 0; r < model_.ranks; ++r) {
      const RankState& state = ranks_[at(r)];
      if (state.next >= 0 && (of < 0 || state.start < ranks_[at(of)].start)) of = r;
    }
    if (of < 0) {
      for (auto& row : rows_) row.clear();
      break;
    }
    perform(of);
  }
  return rows_;
}

}  // namespace pw
