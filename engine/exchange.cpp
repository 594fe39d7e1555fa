#include "engine/exchange.h"

#include <algorithm>
#include <cstdint>

#include "backends/messages/tags.h"

namespace pw {
namespace {

SpanKind messageKind(Direction direction) { return direction == Direction::Forward ? SpanKind::SendForward : SpanKind::SendBackward; }

/// At both ends a message is named after the action that made its values.
FlightEntry messageEntry(Stage sender, Microbatch microbatch, Direction direction) {
  return {.what = FlightEntry::What::Value,
          .action = {sender, direction == Direction::Forward ? ActionKind::Forward : ActionKind::Backward, microbatch}};
}

/// Of a replica: tags after those of values are the same in all.
std::size_t mostTransfers(const Plan& plan) {
  std::size_t most = plan.partition.transfers.size();
  for (int d = 0; plan.cuts && d < plan.replicas; ++d)
    most = std::max(most, plan.cuts->replicas[static_cast<std::size_t>(d)].partition.transfers.size());
  return most;
}

}  // namespace

Exchange::Exchange(const Plan& plan, const std::map<Stage, StageModule*>& stages, Communicator& communicator, FlightRecord& flights)
    : plan_(plan),
      stages_(stages),
      communicator_(communicator),
      flights_(flights),
      replicas_(replicasOf(plan.schedule)),
      rank_(replicas_.rank(communicator.rank())) {
  requireTags(kPlanTags, 2 * std::uint64_t{mostTransfers(plan)} * static_cast<std::uint64_t>(plan.schedule.microbatches) + 2);
  for (auto* lists : {&valuesIn_, &valuesOut_, &gradientsIn_, &gradientsOut_}) lists->resize(plan.partition.stages.size());
  for (std::size_t t = 0; t < plan.partition.transfers.size(); ++t) {
    const Transfer& transfer = plan.partition.transfers[t];
    valuesOut_[transfer.from.index()].push_back(t);
    valuesIn_[transfer.to.index()].push_back(t);
    if (!transfer.gradient) continue;
    gradientsOut_[transfer.to.index()].push_back(t);
    gradientsIn_[transfer.from.index()].push_back(t);
  }
}

Exchange::~Exchange() {
  for (auto& [key, list] : incoming_) {
    for (Incoming& in : list) communicator_.keep(std::move(in.buffer));
  }
  for (Outgoing& out : outgoing_) communicator_.keep(std::move(out.buffer));
}

Rank Exchange::peer(std::size_t transfer, Stage stage, Microbatch microbatch) const {
  const Transfer& t = plan_.partition.transfers[transfer];
  return plan_.schedule.placement.rankOf(t.from == stage ? t.to : t.from, microbatch);
}

std::uint32_t Exchange::tag(std::size_t transfer, Microbatch microbatch, Direction direction) const {
  const auto index = transfer * static_cast<std::size_t>(plan_.schedule.microbatches) + microbatch.index();
  return static_cast<std::uint32_t>(index * 2 + (direction == Direction::Backward ? 1 : 0) + 1);
}

std::uint32_t Exchange::firstFreeTag() const { return tag(mostTransfers(plan_), Microbatch(0), Direction::Forward); }

bool Exchange::sendsAway(Stage stage, Microbatch microbatch, Direction direction) const {
  return std::ranges::any_of(outOf(stage, direction), [&](std::size_t t) { return peer(t, stage, microbatch) != rank_; });
}

bool Exchange::receives(Stage stage, Microbatch microbatch, Direction direction) const {
  return std::ranges::any_of(into(stage, direction), [&](std::size_t t) { return peer(t, stage, microbatch) != rank_; });
}

void Exchange::post(Stage stage, Microbatch microbatch, Direction direction) {
  const auto [found, isNew] = incoming_.try_emplace({stage, microbatch, direction});
  if (!isNew) return;
  for (const std::size_t t : into(stage, direction)) {
    const Rank from = peer(t, stage, microbatch);
    if (from == rank_) continue;
    HeldBuffer buffer = stages_.at(stage)->allocate(t, microbatch);
    const Transfer& transfer = plan_.partition.transfers[t];
    FlightEntry entry = messageEntry(transfer.from == stage ? transfer.to : transfer.from, microbatch, direction);
    entry.peer = processOf(from);
    entry.tag = tag(t, microbatch, direction);
    entry.bytes = buffer.buffer.bytes;
    entry.request = communicator_.receive(entry.peer, entry.tag, buffer.buffer);
    found->second.push_back({t, *entry.request, flights_.add(entry), std::move(buffer)});
  }
}

bool Exchange::isReady(Stage stage, Microbatch microbatch, Direction direction) {
  const auto found = incoming_.find({stage, microbatch, direction});
  if (found == incoming_.end()) return !receives(stage, microbatch, direction);
  return std::ranges::all_of(found->second, [&](const Incoming& in) { return communicator_.isDone(in.request).value_or(false); });
}

bool Exchange::await(Stage stage, Microbatch microbatch, Direction direction, StepLog& log) {
  if (!receives(stage, microbatch, direction)) return false;
  post(stage, microbatch, direction);
  const auto found = incoming_.find(Key{stage, microbatch, direction});
  StageModule& module = *stages_.at(stage);
  for (Incoming& in : found->second) {
    const Ns now = flights_.await(communicator_, in.request, in.flight);
    const Transfer& transfer = plan_.partition.transfers[in.transfer];
    const Stage sender = transfer.from == stage ? transfer.to : transfer.from;
    if (module.device().index >= 0) timed_.emplace_back(log.spans.size(), in.request);
    log.spans.push_back(
        {plan_.schedule.placement.rankOf(sender, microbatch), messageKind(direction), sender, microbatch, rank_, 0, now, now});
    direction == Direction::Forward ? module.setInput(in.transfer, microbatch, std::move(in.buffer))
                                    : module.setOutputGradient(in.transfer, microbatch, std::move(in.buffer));
  }
  incoming_.erase(found);
  return true;
}

void Exchange::handOver(Stage stage, Microbatch microbatch, Direction direction) {
  StageModule& module = *stages_.at(stage);
  for (const std::size_t t : outOf(stage, direction)) {
    if (peer(t, stage, microbatch) != rank_) continue;
    const Transfer& transfer = plan_.partition.transfers[t];
    direction == Direction::Forward ? stages_.at(transfer.to)->setInput(t, microbatch, module.takeOutput(t, microbatch))
                                    : stages_.at(transfer.from)->setOutputGradient(t, microbatch, module.takeInputGradient(t, microbatch));
  }
}

void Exchange::send(Stage stage, Microbatch microbatch, Direction direction, StepLog& log) {
  StageModule& module = *stages_.at(stage);
  for (const std::size_t t : outOf(stage, direction)) {
    const Rank to = peer(t, stage, microbatch);
    if (to == rank_) continue;
    HeldBuffer buffer = direction == Direction::Forward ? module.takeOutput(t, microbatch) : module.takeInputGradient(t, microbatch);
    FlightEntry entry = messageEntry(stage, microbatch, direction);
    entry.sending = true;
    entry.peer = processOf(to);
    entry.tag = tag(t, microbatch, direction);
    entry.bytes = buffer.buffer.bytes;
    const Ns now = monotonicNow();
    entry.request = communicator_.send(entry.peer, entry.tag, buffer.buffer);
    outgoing_.push_back({{stage, microbatch, direction}, *entry.request, flights_.add(entry, now), std::move(buffer)});
    if (module.device().index >= 0) timed_.emplace_back(log.spans.size(), *entry.request);
    log.spans.push_back({rank_, messageKind(direction), stage, microbatch, to, static_cast<Bytes>(entry.bytes), now, now});
  }
}

void Exchange::release(Stage stage, Microbatch microbatch) {
  const Key answered{stage, microbatch, Direction::Forward};
  std::erase_if(outgoing_, [&](const Outgoing& out) {
    if (out.key != answered && !communicator_.isDone(out.request).value_or(false)) return false;
    flights_.await(communicator_, out.request, out.flight);
    return true;
  });
}

void Exchange::finish() {
  for (const Outgoing& out : outgoing_) flights_.await(communicator_, out.request, out.flight);
  outgoing_.clear();
  incoming_.clear();
}

void Exchange::settleTimes(StepLog& log) {
  std::erase_if(timed_, [&](const auto& timed) {
    const auto times = communicator_.timesOf(timed.second);
    if (!times) return false;
    Span& span = log.spans[timed.first];
    const bool sent = span.rank == rank_;
    span.start = span.end = sent ? times->first : times->second;
    return true;
  });
}

std::vector<Communicator::Request> Exchange::awaited() const {
  std::vector<Communicator::Request> requests;
  for (const auto& [key, list] : incoming_) {
    for (const Incoming& in : list) requests.push_back(in.request);
  }
  return requests;
}

}  // namespace pw
