#include "engine/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <tuple>

#include "engine/failure.h"
#include "schedules/error.h"

namespace pw {
namespace {

std::uint32_t tagOf(std::size_t transfer, Microbatch microbatch, int microbatches, bool backward) {
  return static_cast<std::uint32_t>((transfer * static_cast<std::size_t>(microbatches) + microbatch.index()) * 2 + (backward ? 1 : 0) + 1);
}

std::uint32_t replicatedTag(const Plan& plan, std::size_t replicated) {
  return tagOf(plan.partition.transfers.size(), Microbatch(0), plan.schedule.microbatches, false) + static_cast<std::uint32_t>(replicated);
}

SpanKind spanKind(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward: return SpanKind::Forward;
    case ActionKind::Backward: return SpanKind::Backward;
    case ActionKind::BackwardInput: return SpanKind::BackwardInput;
    case ActionKind::BackwardWeight: return SpanKind::BackwardWeight;
    case ActionKind::SendForward: return SpanKind::SendForward;
    case ActionKind::SendBackward: return SpanKind::SendBackward;
    case ActionKind::RecvForward: return SpanKind::WaitForward;
    case ActionKind::RecvBackward: return SpanKind::WaitBackward;
    case ActionKind::ReduceGrad:
    case ActionKind::Unshard:
    case ActionKind::Reshard:
    case ActionKind::Idle: break;
  }
  return SpanKind::ReduceGrad;
}

}  // namespace

Ns monotonicNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Executor::Executor(const Plan& plan, std::map<Stage, StageModule*> stages, Communicator& communicator)
    : plan_(plan), stages_(std::move(stages)), communicator_(communicator), rank_(communicator.rank()) {
  planReceives();
}

void Executor::planReceives() {
  const auto& row = plan_.schedule.rows.at(rank_.index());
  std::size_t compute = 0;  // the last compute action before the RECV
  postedBy_.assign(row.size(), 0);
  for (std::size_t at = 0; at < row.size(); ++at) {
    const Action& action = row[at];
    if (isCompute(action.kind)) compute = at;
    if (!isReceive(action.kind)) continue;
    const bool backward = action.kind == ActionKind::RecvBackward;
    Incoming in{action, {}, {}};
    for (std::size_t t = 0; t < plan_.partition.transfers.size(); ++t) {
      const Transfer& transfer = plan_.partition.transfers[t];
      if ((backward ? transfer.from : transfer.to) == action.stage && (transfer.gradient || !backward)) in.transfers.push_back(t);
    }
    incomingOf_[action] = incoming_.size();
    incoming_.push_back(std::move(in));
    postedBy_[compute] = incoming_.size();
  }
}

StepLog Executor::step(int number, const std::function<void()>& beforeUpdate) {
  log_ = {};
  posted_ = 0;
  const char* where = "at its start";
  const Action* current = nullptr;
  try {
    for (const auto& [stage, module] : stages_) module->beginStep(number);
    communicator_.barrier();
    sampleMemory();
    const auto& row = plan_.schedule.rows.at(rank_.index());
    for (std::size_t at = 0; at < row.size(); ++at) {
      current = &row[at];
      run(at);
    }
    current = nullptr;
    where = "at its end";
    for (auto& [key, tickets] : backwardSends_) {
      for (const auto ticket : tickets) communicator_.wait(ticket);
      stages_.at(key.first)->releaseInputGradients(key.second);
    }
    backwardSends_.clear();
    while (!forwardSends_.empty()) finishForwardSends(forwardSends_.begin()->first.first, forwardSends_.begin()->first.second);
    reduceReplicated();
    if (beforeUpdate) beforeUpdate();
    optimize();
  } catch (const std::exception& e) {
    const std::string place = current == nullptr ? where : "action " + toString(*current);
    throw Error(fmt::format("Rank {} failed in step {}, {}: {}", rank_.value, number, place, causeOf(e)));
  }
  for (const auto& [stage, module] : stages_) {
    if (const auto loss = module->stepLoss()) log_.loss = loss;
  }
  return std::move(log_);
}

void Executor::run(std::size_t position) {
  const Action& action = plan_.schedule.rows.at(rank_.index())[position];
  postReceives(postedBy_[position]);
  switch (action.kind) {
    case ActionKind::Forward: return compute(action, false);
    case ActionKind::Backward: return compute(action, true);
    case ActionKind::SendForward: return send(action, false);
    case ActionKind::SendBackward: return send(action, true);
    case ActionKind::RecvForward:
    case ActionKind::RecvBackward:
    case ActionKind::Idle: return;
    case ActionKind::BackwardInput:
    case ActionKind::BackwardWeight:
    case ActionKind::ReduceGrad:
    case ActionKind::Unshard:
    case ActionKind::Reshard:
      throw Error(toString(action) + " cannot be run by this version; use a schedule with forward and full backward actions (gpipe, 1f1b).");
  }
}

void Executor::compute(const Action& action, bool backward) {
  awaitReceive(action, backward);
  const Ns start = monotonicNow();
  StageModule& stage = *stages_.at(action.stage);
  if (backward) finishForwardSends(action.stage, action.microbatch);
  backward ? stage.backward(action.microbatch) : stage.forward(action.microbatch);
  record(spanKind(action.kind), action.stage, action.microbatch, start);
  sampleMemory();
}

void Executor::postReceives(std::size_t upTo) {
  for (; posted_ < upTo; ++posted_) {
    Incoming& in = incoming_[posted_];
    const bool backward = in.receive.kind == ActionKind::RecvBackward;
    StageModule& stage = *stages_.at(in.receive.stage);
    in.tickets.clear();
    for (const std::size_t t : in.transfers) {
      const Transfer& transfer = plan_.partition.transfers[t];
      const Rank from = plan_.schedule.placement.rankOf(backward ? transfer.to : transfer.from, in.receive.microbatch);
      const Buffer buffer = backward ? stage.outputGradientBuffer(t, in.receive.microbatch) : stage.inputBuffer(t, in.receive.microbatch);
      in.tickets.push_back(communicator_.receive(from, tagOf(t, in.receive.microbatch, plan_.schedule.microbatches, backward), buffer));
    }
  }
}

/// Waits for what a forward or backward needs from other ranks.
void Executor::awaitReceive(const Action& action, bool backward) {
  const Action receive{action.stage, backward ? ActionKind::RecvBackward : ActionKind::RecvForward, action.microbatch};
  const auto found = incomingOf_.find(receive);
  if (found == incomingOf_.end()) return;
  const Incoming& in = incoming_[found->second];
  const Ns start = monotonicNow();
  for (std::size_t i = 0; i < in.transfers.size(); ++i) {
    communicator_.wait(in.tickets.at(i));
    const Transfer& transfer = plan_.partition.transfers[in.transfers[i]];
    const Stage sender = backward ? transfer.to : transfer.from;
    const Ns now = monotonicNow();
    log_.spans.push_back({plan_.schedule.placement.rankOf(sender, action.microbatch), backward ? SpanKind::SendBackward : SpanKind::SendForward, sender,
                          action.microbatch, rank_, 0, now, now});
  }
  record(spanKind(receive.kind), action.stage, action.microbatch, start);
}

void Executor::send(const Action& action, bool backward) {
  StageModule& stage = *stages_.at(action.stage);
  auto& tickets = (backward ? backwardSends_ : forwardSends_)[{action.stage, action.microbatch}];
  for (std::size_t t = 0; t < plan_.partition.transfers.size(); ++t) {
    const Transfer& transfer = plan_.partition.transfers[t];
    if ((backward ? transfer.to : transfer.from) != action.stage || (backward && !transfer.gradient)) continue;
    const Rank peer = plan_.schedule.placement.rankOfStage.at((backward ? transfer.from : transfer.to).index());
    const Buffer buffer = backward ? stage.inputGradientBuffer(t, action.microbatch) : stage.outputBuffer(t, action.microbatch);
    const Ns now = monotonicNow();
    tickets.push_back(communicator_.send(peer, tagOf(t, action.microbatch, plan_.schedule.microbatches, backward), buffer));
    log_.spans.push_back({rank_, backward ? SpanKind::SendBackward : SpanKind::SendForward, action.stage, action.microbatch, peer, transfer.bytes, now, now});
  }
}

/// When the backward of a microbatch begins, its consumers have answered: so this wait ends at once, and the outputs' memory may go.
void Executor::finishForwardSends(Stage stage, Microbatch microbatch) {
  const auto found = forwardSends_.find({stage, microbatch});
  if (found == forwardSends_.end()) return;
  for (const auto ticket : found->second) communicator_.wait(ticket);
  stages_.at(stage)->releaseOutputs(microbatch);
  forwardSends_.erase(found);
}

/// Every holder sends its gradient to all others and sums all in stage order: the same bits everywhere, one latency.
void Executor::reduceReplicated() {
  for (std::size_t i = 0; i < plan_.partition.replicated.size(); ++i) {
    const ReplicatedParameter& shared = plan_.partition.replicated[i];
    const auto rankOf = [&](Stage s) { return plan_.schedule.placement.rankOfStage.at(s.index()); };
    const auto own = std::find_if(shared.stages.begin(), shared.stages.end(), [&](Stage s) { return rankOf(s) == rank_; });
    if (own == shared.stages.end()) continue;
    const Ns start = monotonicNow();
    StageModule& stage = *stages_.at(*own);
    const Buffer gradient = stage.replicatedGradient(i);
    std::vector<std::vector<std::byte>> received(shared.stages.size());
    std::vector<Communicator::Ticket> tickets;
    std::vector<Buffer> parts;
    for (std::size_t k = 0; k < shared.stages.size(); ++k) {
      if (shared.stages[k] == *own) {
        parts.push_back(gradient);
        continue;
      }
      received[k].resize(gradient.bytes);
      parts.push_back({received[k].data(), received[k].size()});
      const Rank peer = rankOf(shared.stages[k]);
      tickets.push_back(communicator_.receive(peer, replicatedTag(plan_, i), parts.back()));
      tickets.push_back(communicator_.send(peer, replicatedTag(plan_, i), gradient));
    }
    for (const auto ticket : tickets) communicator_.wait(ticket);
    stage.sumReplicatedGradient(i, parts);
    record(SpanKind::ReduceGrad, *own, Microbatch(0), start);
  }
}

void Executor::optimize() {
  for (const auto& [stage, module] : stages_) {
    const Ns start = monotonicNow();
    module->optimizerStep();
    record(SpanKind::Optimizer, stage, Microbatch(0), start);
  }
  sampleMemory();
}

void Executor::record(SpanKind kind, Stage stage, Microbatch microbatch, Ns start) {
  log_.spans.push_back({rank_, kind, stage, microbatch, rank_, 0, start, monotonicNow()});
}

void Executor::sampleMemory() {
  if (!stages_.empty()) log_.memory.push_back({rank_, monotonicNow(), stages_.begin()->second->bytesAlive()});
}

Trace joinTraces(const std::vector<StepLog>& ranks) {
  Trace trace;
  trace.ranks = static_cast<int>(ranks.size());
  std::map<std::tuple<SpanKind, Stage, Microbatch, Rank>, Span> messages;  // one per link: several values make one span
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const Span& span : ranks[r].spans) {
      if (span.kind != SpanKind::SendForward && span.kind != SpanKind::SendBackward) {
        trace.spans.push_back(span);
        continue;
      }
      const auto [found, isNew] = messages.emplace(std::tuple{span.kind, span.stage, span.microbatch, span.peer}, span);
      if (isNew) continue;
      Span& message = found->second;
      message.bytes += span.bytes;  // receivers log none
      message.start = std::min(message.start, span.start);
      message.end = std::max(message.end, span.end);
    }
    trace.memory.insert(trace.memory.end(), ranks[r].memory.begin(), ranks[r].memory.end());
  }
  for (const auto& [key, message] : messages) trace.spans.push_back(message);
  normalize(trace);
  return trace;
}

}  // namespace pw
