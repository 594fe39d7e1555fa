#include "simulator/order/problem/model.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "simulator/step/recost.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

constexpr std::int32_t kKinds = 3;  ///< F, I, W

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

/// F of a stage, and its I and W.
struct StageClasses {
  std::int32_t forward, input, weight;
  StageClasses(std::size_t stage, std::int32_t stages)
      : forward(static_cast<std::int32_t>(stage)), input(forward + stages), weight(input + stages) {}
};

void addStage(OrderModel& model, const OrderProblem& problem, std::size_t s) {
  const StageCost& cost = problem.costs.stages[s];
  const std::int32_t rank = problem.placement.rankOfStage[s].value;
  const StageClasses of(s, model.stages);
  const Bytes kept = cost.activationBytes, freed = cost.freedByInput - cost.addedByInput;
  OrderModel::ActionClass& forward = model.classes[at(of.forward)];
  forward = {rank, cost.forward, kept, std::max<Bytes>(0, cost.forwardPeak - kept), 0, 1, 0, {}, {}, {of.input}, 0};
  OrderModel::ActionClass& input = model.classes[at(of.input)];
  input = {rank, cost.backwardInput, 0, cost.inputPeak, freed, 0, 0, {}, {of.forward}, {of.weight}, 0};
  OrderModel::ActionClass& weight = model.classes[at(of.weight)];
  weight = {rank, cost.backwardWeight, 0, cost.weightPeak, kept - freed, 0, 1, {}, {of.input}, {}, 0};
}

void addMessage(OrderModel& model, const OrderProblem& problem, const MessageCost& message, bool exchanges,
                std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t>& channels) {
  const StageClasses from(message.from.index(), model.stages), to(message.to.index(), model.stages);
  const std::int32_t sender = message.backward ? from.input : from.forward, user = message.backward ? to.input : to.forward;
  OrderModel::ActionClass &sends = model.classes[at(sender)], &uses = model.classes[at(user)];
  if (sends.rank == uses.rank) {
    if (std::find(uses.before.begin(), uses.before.end(), sender) != uses.before.end()) return;
    uses.before.push_back(sender);
    sends.after.push_back(user);
    return;
  }
  const std::pair pair{sends.rank, uses.rank};
  const bool held = std::any_of(problem.costs.messages.begin(), problem.costs.messages.end(), [&](const MessageCost& m) {
    return m.transfer > 0 && problem.placement.rankOfStage[m.from.index()].value == pair.first &&
           problem.placement.rankOfStage[m.to.index()].value == pair.second;
  });
  std::int32_t channel = -1;
  if (held) channel = channels.try_emplace(pair, static_cast<std::int32_t>(channels.size())).first->second;
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
  for (std::size_t s = 0; s < problem.costs.stages.size(); ++s) addStage(*this, problem, s);
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> pairs;
  const std::vector<MessageCost> messages = messagesOf(problem.costs);
  for (std::size_t i = 0; i < messages.size(); ++i) addMessage(*this, problem, messages[i], i < problem.costs.messages.size(), pairs);
  channels = static_cast<std::int32_t>(pairs.size());
  for (std::size_t c = 0; c < classes.size(); ++c) {
    classesOf[at(classes[c].rank)].push_back(static_cast<std::int32_t>(c));
    for (std::int32_t m = 0; m < microbatches; ++m) {
      classOfAction.push_back(static_cast<std::int32_t>(c));
      duration.push_back(scaled(classes[c].time, m));
    }
  }
  for (std::size_t r = 0; r < problem.limits.size(); ++r)
    limit[r] = problem.limits[r] - heldThroughout(problem.placement, microbatches, problem.costs, Rank(r));
  for (std::size_t r = 0; r < problem.liveLimits.size(); ++r) liveLimit[r] = problem.liveLimits[r];
}

Ns OrderModel::scaled(Ns time, std::int32_t microbatch) const { return pw::scaled(time, scale[at(microbatch)]); }

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
      channelEnd_(at(model.channels)) {
  inputs_.reserve(model.actions());
  for (const OrderModel::ActionClass& of : model.classes) {
    inputs_.insert(inputs_.end(), at(model.microbatches), of.inputs);
    for (std::int32_t m = 0; m < model.microbatches; ++m) {
      firstSend_.push_back(static_cast<std::int32_t>(sends_.size()));
      for (const OrderModel::Hop& hop : of.hops)
        sends_.push_back(
            {model.actionOf(hop.to, m), model.classes[at(hop.to)].rank, hop.channel, hop.latency, model.scaled(hop.transfer, m)});
    }
  }
  firstSend_.push_back(static_cast<std::int32_t>(sends_.size()));
  ready_.reserve(model.actions());
}

bool OrderTimer::run(const OrderRows& rows) {
  std::copy(inputs_.begin(), inputs_.end(), missing_.begin());
  std::fill(arrival_.begin(), arrival_.end(), 0);
  std::fill(cause_.begin(), cause_.end(), -1);
  std::fill(next_.begin(), next_.end(), std::size_t{0});
  std::fill(rankEnd_.begin(), rankEnd_.end(), 0);
  std::fill(channelEnd_.begin(), channelEnd_.end(), 0);
  ready_.clear();
  for (std::int32_t r = model_.ranks; r-- > 0;) ready_.push_back(r);
  const Send* const sends = sends_.data();
  const std::int32_t *const firstSend = firstSend_.data(), *const missing = missing_.data();
  const Ns* const duration = model_.duration.data();
  Ns* const arrival = arrival_.data();
  std::size_t done = 0;
  while (!ready_.empty()) {
    const std::size_t rank = at(ready_.back());
    ready_.pop_back();
    const ActionId *const first = rows[rank].data(), *const last = first + rows[rank].size(), *row = first + next_[rank];
    Ns end = rankEnd_[rank];
    for (; row != last; ++row) {
      const std::size_t action = at(*row);
      if (missing[action] > 0) break;
      if (arrival[action] <= end) {
        arrival[action] = end;
        if (row != first) cause_[action] = -1;
      }
      end = arrival[action] + duration[action];
      for (const Send *send = sends + firstSend[action], *const none = sends + firstSend[action + 1]; send != none; ++send)
        deliver(*send, *row, end);
    }
    const std::size_t next = static_cast<std::size_t>(row - first);
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
    const Ns begin = model_.clock == StepClock::Window ? arrival_[at(rows[r].front())] : 0;
    const Ns time = rankEnd_[r] - begin;
    sum += time;
    if (time > objective_) latest_ = static_cast<std::int32_t>(r);
    objective_ = std::max(objective_, time);
  }
  meanEnd_ = sum / model_.ranks;
}

std::size_t firstExcess(const OrderModel& model, std::int32_t rank, std::span<const ActionId> row) {
  const Bytes limit = model.limit[at(rank)];
  const std::int32_t liveLimit = model.liveLimit[at(rank)];
  Bytes held = 0;
  std::int32_t live = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const OrderModel::ActionClass& of = model.classes[at(model.classOf(row[i]))];
    held += of.gain;
    live += of.born;
    if (held + of.peak > limit || live > liveLimit) return i;
    held -= of.loss;
    live -= of.died;
  }
  return row.size();
}

bool fitsLimits(const OrderModel& model, const OrderRows& rows) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (firstExcess(model, static_cast<std::int32_t>(r), rows[r]) < rows[r].size()) return false;
  }
  return true;
}

Schedule scheduleOf(const OrderModel& model, const OrderProblem& problem, const OrderRows& rows) {
  constexpr std::array kinds{ActionKind::Forward, ActionKind::BackwardInput, ActionKind::BackwardWeight};
  Schedule schedule{"auto", problem.microbatches, problem.placement, {}, false};
  for (const auto& row : rows) {
    auto& actions = schedule.rows.emplace_back();
    for (const ActionId action : row) {
      const std::int32_t of = model.classOf(action);
      actions.push_back({Stage(of % model.stages), kinds[at(of / model.stages)], Microbatch(model.microbatchOf(action))});
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
  const auto add = [&](std::vector<ActionId>& row, std::int32_t actionClass) {
    row.push_back(model.actionOf(actionClass, done[at(actionClass)]++));
    ++actions;
  };
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const Action& action : schedule.rows[r]) {
      if (!isCompute(action.kind)) continue;
      const StageClasses of(action.stage.index(), model.stages);
      if (action.kind == ActionKind::Forward) add(rows[r], of.forward);
      if (action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardInput) add(rows[r], of.input);
      if (action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardWeight) add(rows[r], of.weight);
    }
  }
  return actions == model.actions() ? rows : OrderRows{};
}

}  // namespace pw
