#include "engine/executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/failure.h"
#include "schedules/error.h"
#include "simulator/span_kind.h"

namespace pw {
namespace {

Direction directionOf(ActionKind kind) { return kind == ActionKind::Forward ? Direction::Forward : Direction::Backward; }

}  // namespace

Executor::Executor(const Plan& plan, std::map<Stage, StageModule*> stages, Communicator& communicator, const ExecutorOptions& options)
    : plan_(plan), stages_(std::move(stages)), communicator_(communicator), options_(options),
      rank_(communicator.rank().value % static_cast<int>(plan.schedule.rows.size())),
      exchange_(plan_, stages_, communicator, Rank(communicator.rank().value - rank_.value)),
      reducer_(plan_, stages_, communicator, exchange_.firstFreeTag(), options.shardOptimizer), moves_(movesOf(plan, rank_, exchange_, false)),
      evaluation_(movesOf(plan, rank_, exchange_, true)) {}

StepLog Executor::guarded(int number, StepMode mode, const std::function<void()>& work) {
  log_ = {};
  current_.reset();
  phase_ = "at its start";
  if (live_ != nullptr) live_->begin(number);
  try {
    for (const auto& [stage, module] : stages_) module->beginStep(number, mode);
    communicator_.barrier();
    if (!stages_.empty()) {
      static_cast<void>(stages_.begin()->second->peakBytes());
      log_.memory.push_back({rank_, monotonicNow(), stages_.begin()->second->bytesAlive()});
    }
    work();
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& e) {
    if (live_ != nullptr) live_->write(log_, false);  // what it was when it failed
    const std::string place = current_ ? "action " + toString(*current_) : phase_;
    throw Error(fmt::format("Rank {} failed in step {}, {}: {}", communicator_.rank().value, number, place, causeOf(e)));
  }
  if (live_ != nullptr) live_->write(log_, true);
  return std::move(log_);
}

StepLog Executor::step(int number, const std::function<void()>& beforeUpdate) {
  return guarded(number, StepMode::Train, [&] {
    options_.order == Order::Plan ? runInOrder(moves_) : runReady();
    finish();
    update(beforeUpdate);
  });
}

StepLog Executor::evaluate(int number) {
  return guarded(number, StepMode::Evaluate, [&] {
    runInOrder(evaluation_);
    finish();
  });
}

/// Ends the exchange of values and takes the loss.
void Executor::finish() {
  current_.reset();
  phase_ = "at its end";
  exchange_.finish();
  for (const auto& [stage, module] : stages_) {
    if (const auto loss = module->stepLoss()) log_.loss = *loss;
  }
  if (options_.sumLoss) log_.loss = reducer_.allSum(log_.loss.value_or(0));
}

void Executor::update(const std::function<void()>& beforeUpdate) {
  reducer_.sum(log_, static_cast<bool>(beforeUpdate));
  if (beforeUpdate) beforeUpdate();
  double scale = 1;
  if (options_.clipNorm > 0) {
    log_.gradientNorm = reducer_.norm();
    scale = std::min(1.0, options_.clipNorm / (*log_.gradientNorm + 1e-6));  // as torch.nn.utils.clip_grad_norm_
  }
  reducer_.update(scale, log_);
  if (!stages_.empty()) log_.memory.push_back({rank_, monotonicNow(), stages_.begin()->second->peakBytes()});
}

void Executor::runInOrder(const std::vector<Move>& moves) {
  for (const Move& move : moves) {
    current_ = move.action;
    run(move);
  }
}

void Executor::run(const Move& move) {
  const Action& action = move.action;
  switch (move.kind) {
    case Move::Kind::Post: return exchange_.post(action.stage, action.microbatch, directionOf(action.kind));
    case Move::Kind::Compute: return compute(action);
    case Move::Kind::Send: return exchange_.send(action.stage, action.microbatch, directionOf(action.kind), log_);
    case Move::Kind::Reduce: return reducer_.start(action.stage);
    case Move::Kind::Barrier: return communicator_.barrier();
  }
}

void Executor::compute(const Action& action) {
  StageModule& stage = *stages_.at(action.stage);
  if (action.kind != ActionKind::BackwardWeight) {
    const Ns waiting = monotonicNow();
    const bool forward = action.kind == ActionKind::Forward;
    const bool pauses = live_ != nullptr && live_->wantsPause(log_, waiting) && !exchange_.isReady(action.stage, action.microbatch, directionOf(action.kind));
    if (pauses) live_->write(log_, false);
    if (exchange_.await(action.stage, action.microbatch, directionOf(action.kind), log_)) record(forward ? SpanKind::WaitForward : SpanKind::WaitBackward, action, waiting);
    if (!forward) exchange_.release(action.stage, action.microbatch);
  }
  static_cast<void>(stage.peakBytes());
  const Ns start = monotonicNow();
  log_.memory.push_back({rank_, start, stage.bytesAlive()});
  switch (action.kind) {
    case ActionKind::Forward: stage.forward(action.microbatch); break;
    case ActionKind::Backward: stage.backward(action.microbatch); break;
    case ActionKind::BackwardInput: stage.backwardInput(action.microbatch); break;
    case ActionKind::BackwardWeight: stage.backwardWeight(action.microbatch); break;
    case ActionKind::SendForward: case ActionKind::SendBackward: case ActionKind::RecvForward: case ActionKind::RecvBackward:
    case ActionKind::ReduceGrad: case ActionKind::Unshard: case ActionKind::Reshard: case ActionKind::Idle: return;
  }
  record(spanKind(action.kind), action, start);
  const Ns end = log_.spans.back().end;
  log_.memory.push_back({rank_, start + (end - start) / 2, stage.peakBytes()});
  log_.memory.push_back({rank_, end, stage.bytesAlive()});
  if (action.kind != ActionKind::BackwardWeight) exchange_.handOver(action.stage, action.microbatch, directionOf(action.kind));
  if (live_ != nullptr) live_->add(log_);
}

void Executor::record(SpanKind kind, const Action& action, Ns start) {
  log_.spans.push_back({rank_, kind, action.stage, action.microbatch, rank_, 0, start, monotonicNow()});
}

}  // namespace pw
