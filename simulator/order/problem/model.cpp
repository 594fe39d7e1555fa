#include "simulator/order/problem/model.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "simulator/order/problem/index.h"
#include "simulator/step/recost.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

constexpr std::int32_t kKinds = 3;  ///< F, I, W

using ChannelIds = std::map<std::pair<Rank, Rank>, ChannelId>;  ///< by sender and receiver

void addStage(OrderModel& model, const OrderProblem& problem, Stage stage) {
  const StageCost& cost = problem.costs.stages[stage.index()];
  const Rank rank = problem.placement.rankOfStage[stage.index()];
  const ClassId f = model.forwardOf(stage), i = model.inputOf(stage), w = model.weightOf(stage);
  model.classes[f.index()] = {rank, cost.forward, useOfAction(cost, ActionKind::Forward), {}, {}, {i}, 0};
  model.classes[i.index()] = {rank, cost.backwardInput, useOfAction(cost, ActionKind::BackwardInput), {}, {f}, {w}, 0};
  model.classes[w.index()] = {rank, cost.backwardWeight, useOfAction(cost, ActionKind::BackwardWeight), {}, {i}, {}, 0};
}

void addMessage(OrderModel& model, const OrderProblem& problem, const MessageCost& message, bool exchanges, ChannelIds& channels) {
  const auto classOf = [&](Stage stage) { return message.backward ? model.inputOf(stage) : model.forwardOf(stage); };
  const ClassId sender = classOf(message.from), user = classOf(message.to);
  OrderModel::ActionClass &sends = model.classes[sender.index()], &uses = model.classes[user.index()];
  if (sends.rank == uses.rank) {
    if (std::find(uses.before.begin(), uses.before.end(), sender) != uses.before.end()) return;
    uses.before.push_back(sender);
    sends.after.push_back(user);
    return;
  }
  const std::pair pair{sends.rank, uses.rank};
  const bool held = std::any_of(problem.costs.messages.begin(), problem.costs.messages.end(), [&](const MessageCost& m) {
    return m.transfer > 0 && problem.placement.rankOfStage[m.from.index()] == pair.first &&
           problem.placement.rankOfStage[m.to.index()] == pair.second;
  });
  ChannelId channel = kNoChannel;
  if (held) channel = channels.try_emplace(pair, ChannelId(channels.size())).first->second;
  sends.hops.push_back({user, channel, message.latency, message.transfer, exchanges});
  ++uses.inputs;
}

/// Those of the costs, and an empty one between neighbouring stages that exchange nothing: a schedule has them in order all the same.
std::vector<MessageCost> messagesOf(const CostTable& costs) {
  std::vector<MessageCost> messages = costs.messages;
  const auto addEmpty = [&](std::size_t from, std::size_t to, bool backward) {
    const bool known = std::ranges::any_of(
        costs.messages, [&](const MessageCost& m) { return m.from.index() == from && m.to.index() == to && m.backward == backward; });
    if (!known) messages.push_back({Stage(from), Stage(to), backward, 0, 0, 0});
  };
  for (std::size_t s = 1; s < costs.stages.size(); ++s) {
    addEmpty(s - 1, s, false);
    addEmpty(s, s - 1, true);
  }
  return messages;
}

}  // namespace

OrderModel::OrderModel(const OrderProblem& problem)
    : ranks(problem.ranks),
      stages(static_cast<std::int32_t>(problem.costs.stages.size())),
      microbatches(problem.microbatches),
      classes(at(kKinds * stages)),
      limit(at(ranks), std::numeric_limits<Bytes>::max()),
      liveLimit(at(ranks), std::numeric_limits<std::int32_t>::max()),
      classesOf(at(ranks)),
      clock(problem.clock),
      scale(problem.costs.microbatchScale) {
  assert(!problem.placement.bidirectional() && problem.costs.overlap.empty());
  if (scale.empty()) scale.assign(at(microbatches), 1.0);
  for (std::size_t s = 0; s < problem.costs.stages.size(); ++s) addStage(*this, problem, Stage(s));
  ChannelIds pairs;
  const std::vector<MessageCost> messages = messagesOf(problem.costs);
  for (std::size_t i = 0; i < messages.size(); ++i) addMessage(*this, problem, messages[i], i < problem.costs.messages.size(), pairs);
  channels = static_cast<std::int32_t>(pairs.size());
  for (std::size_t c = 0; c < classes.size(); ++c) {
    classesOf[classes[c].rank.index()].emplace_back(c);
    for (Microbatch m(0); m.value < microbatches; ++m.value) {
      classOfAction.emplace_back(c);
      duration.push_back(scaled(classes[c].time, m));
    }
  }
  for (std::size_t r = 0; r < problem.limits.size(); ++r)
    limit[r] = problem.limits[r] - heldThroughout(problem.placement, microbatches, problem.costs, Rank(r));
  for (std::size_t r = 0; r < problem.liveLimits.size(); ++r) liveLimit[r] = problem.liveLimits[r];
}

Ns OrderModel::scaled(Ns time, Microbatch microbatch) const { return pw::scaled(time, scale[microbatch.index()]); }

double OrderModel::meanDuration() const {
  const Ns sum = std::accumulate(duration.begin(), duration.end(), Ns{0});
  return static_cast<double>(sum) / static_cast<double>(std::max<std::size_t>(1, actions()));
}

OrderTimer::OrderTimer(const OrderModel& model)
    : model_(model),
      missing_(model.actions()),
      arrival_(model.actions()),
      cause_(model.actions()),
      next_(at(model.ranks)),
      rankEnd_(at(model.ranks)),
      channelEnd_(at(model.channels)),
      received_(model.actions()),
      tail_(model.actions()),
      sent_(model.actions()),
      rankTail_(at(model.ranks)) {
  inputs_.reserve(model.actions());
  for (const OrderModel::ActionClass& of : model.classes) {
    inputs_.insert(inputs_.end(), at(model.microbatches), of.inputs);
    for (Microbatch m(0); m.value < model.microbatches; ++m.value) {
      firstSend_.push_back(static_cast<std::int32_t>(sends_.size()));
      for (const OrderModel::Hop& hop : of.hops)
        sends_.push_back(
            {model.actionOf(hop.to, m), model.classes[hop.to.index()].rank, hop.channel, hop.latency, model.scaled(hop.transfer, m)});
    }
  }
  firstSend_.push_back(static_cast<std::int32_t>(sends_.size()));
  ready_.reserve(model.actions());
}

bool OrderTimer::run(const OrderRows& rows) {
  std::copy(inputs_.begin(), inputs_.end(), missing_.begin());
  std::fill(arrival_.begin(), arrival_.end(), Ns{0});
  std::fill(cause_.begin(), cause_.end(), kNoAction);
  std::fill(next_.begin(), next_.end(), std::size_t{0});
  std::fill(rankEnd_.begin(), rankEnd_.end(), Ns{0});
  std::fill(channelEnd_.begin(), channelEnd_.end(), Ns{0});
  ready_.clear();
  stretches_.clear();
  for (std::int32_t r = model_.ranks; r-- > 0;) ready_.emplace_back(r);
  const Send* const sends = sends_.data();
  const std::int32_t *const firstSend = firstSend_.data(), *const missing = missing_.data();
  const Ns* const duration = model_.duration.data();
  Ns *const arrival = arrival_.data(), *const received = received_.data();
  std::size_t done = 0;
  while (!ready_.empty()) {
    const std::size_t rank = ready_.back().index();
    ready_.pop_back();
    const ActionId *const first = rows[rank].data(), *const last = first + rows[rank].size(), *row = first + next_[rank];
    Ns end = rankEnd_[rank];
    for (; row != last; ++row) {
      const std::size_t action = row->index();
      if (missing[action] > 0) break;
      received[action] = arrival[action];
      if (arrival[action] <= end) {
        arrival[action] = end;
        if (row != first) cause_[action] = kNoAction;
      }
      end = arrival[action] + duration[action];
      for (const Send *send = sends + firstSend[action], *const none = sends + firstSend[action + 1]; send != none; ++send)
        deliver(*send, *row, end);
    }
    const std::size_t next = static_cast<std::size_t>(row - first);
    if (next > next_[rank]) stretches_.push_back({Rank(rank), next_[rank], next});
    done += next - next_[rank];
    next_[rank] = next;
    rankEnd_[rank] = end;
  }
  if (done != model_.actions()) return false;
  finish(rows);
  return true;
}

void OrderTimer::finish(const OrderRows& rows) {
  objective_ = -1;
  Ns sum = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].empty()) continue;
    const Ns begin = model_.clock == StepClock::Window ? arrival_[rows[r].front().index()] : 0;
    const Ns time = rankEnd_[r] - begin;
    sum += time;
    if (time > objective_) latest_ = Rank(r);
    objective_ = std::max(objective_, time);
  }
  meanEnd_ = sum / model_.ranks;
}

void OrderTimer::measureTails(const OrderRows& rows) {
  constexpr Ns kNothing = std::numeric_limits<Ns>::lowest() / 2;
  for (std::size_t r = 0; r < rows.size(); ++r)
    rankTail_[r] = model_.clock == StepClock::Window && !rows[r].empty() ? -arrival_[rows[r].front().index()] : Ns(0);
  scratch_ = rankTail_;
  for (auto stretch = stretches_.rbegin(); stretch != stretches_.rend(); ++stretch) {
    const std::vector<ActionId>& row = rows[stretch->rank.index()];
    Ns tail = scratch_[stretch->rank.index()];
    for (std::size_t i = stretch->end; i-- > stretch->first;) {
      const std::size_t action = row[i].index();
      Ns sent = kNothing;
      for (auto s = at(firstSend_[action]); s < at(firstSend_[action + 1]); ++s)
        sent = std::max(sent, sends_[s].transfer + sends_[s].latency + tail_[sends_[s].user.index()]);
      sent_[action] = sent;
      tail_[action] = tail = std::max(tail, sent) + model_.duration[action];
    }
    scratch_[stretch->rank.index()] = tail;
  }
}

Ns OrderTimer::estimate(std::span<const ActionId> row, Rank rank, std::size_t first, std::size_t last) {
  scratch_.resize(std::max(scratch_.size(), last - first + 1));
  Ns end = first == 0 ? Ns(0) : arrival_[row[first - 1].index()] + model_.duration[row[first - 1].index()];
  for (std::size_t i = first; i <= last; ++i) {
    const std::size_t action = row[i].index();
    const Ns start = scratch_[i - first] = std::max(end, received_[action]);
    end = start + model_.duration[action];
  }
  Ns tail = last + 1 < row.size() ? tail_[row[last + 1].index()] : rankTail_[rank.index()], longest = 0;
  for (std::size_t i = last + 1; i-- > first;) {
    const std::size_t action = row[i].index();
    tail = std::max(tail, sent_[action]) + model_.duration[action];
    longest = std::max(longest, scratch_[i - first] + tail);
  }
  return longest;
}

std::size_t firstExcess(const OrderModel& model, Rank rank, std::span<const ActionId> row, std::size_t first, std::size_t end, Held& held) {
  const Bytes limit = model.limit[rank.index()];
  const std::int32_t liveLimit = model.liveLimit[rank.index()];
  for (std::size_t i = first; i < end; ++i) {
    const OrderModel::ActionClass& of = model.classes[model.classOf(row[i]).index()];
    held.bytes += of.use.gain;
    held.live += of.use.born;
    if (held.bytes + of.use.peak > limit || held.live > liveLimit) return i;
    held.bytes -= of.use.loss;
    held.live -= of.use.died;
  }
  return end;
}

bool fitsLimits(const OrderModel& model, const OrderRows& rows) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    Held held;
    if (firstExcess(model, Rank(r), rows[r], 0, rows[r].size(), held) < rows[r].size()) return false;
  }
  return true;
}

Schedule scheduleOf(const OrderModel& model, const OrderProblem& problem, const OrderRows& rows) {
  Schedule schedule{"auto", problem.microbatches, problem.placement, {}, false};
  for (const auto& row : rows) {
    auto& actions = schedule.rows.emplace_back();
    for (const ActionId action : row) {
      const ClassId of = model.classOf(action);
      actions.push_back({model.stageOf(of), model.kindOf(of), model.microbatchOf(action)});
    }
  }
  return schedule;
}

OrderRows rowsOf(const OrderModel& model, const OrderProblem& problem, const Schedule& schedule) {
  if (schedule.lockstep || schedule.placement != problem.placement || schedule.microbatches != problem.microbatches ||
      schedule.rows.size() != at(model.ranks))
    return {};
  OrderRows rows(schedule.rows.size());
  std::vector<std::int32_t> done(model.classes.size(), 0);  // the classes' microbatches in order, whatever the schedule's
  std::size_t actions = 0;
  const auto add = [&](std::vector<ActionId>& row, ClassId actionClass) {
    row.push_back(model.actionOf(actionClass, Microbatch(done[actionClass.index()]++)));
    ++actions;
  };
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const Action& action : schedule.rows[r]) {
      if (!isCompute(action.kind)) continue;
      const bool whole = action.kind == ActionKind::Backward;
      if (action.kind == ActionKind::Forward) add(rows[r], model.forwardOf(action.stage));
      if (whole || action.kind == ActionKind::BackwardInput) add(rows[r], model.inputOf(action.stage));
      if (whole || action.kind == ActionKind::BackwardWeight) add(rows[r], model.weightOf(action.stage));
    }
  }
  return actions == model.actions() ? rows : OrderRows{};
}

}  // namespace pw
