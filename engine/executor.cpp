#include "engine/executor.h"
#include "engine/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/processes/failure.h"
#include "schedules/error.h"
#include "simulator/trace/span_kind.h"

namespace pw {
Executor::Executor(const Plan& plan, std::map<Stage, StageModule*> stages, Communicator& communicator, const ExecutorOptions& options)
    : plan_(plan),
      stages_(std::move(stages)),
      communicator_(communicator),
      options_(options),
      device_(stages_.empty() ? hostDevice() : stages_.begin()->second->device()),
      rank_(replicasOf(plan.schedule).rank(communicator.rank())),
      times_(device_),
      exchange_(plan_, stages_, communicator, flights_),
      reducer_(plan_, stages_, communicator, exchange_.firstFreeTag(),
               {.shardOptimizer = options.shardOptimizer, .inRowOrder = options.order == Order::Plan, .deadline = options.deadline},
               flights_, times_),
      lossScale_(options.lossScale),
      ops_(opsOf(plan, rank_, exchange_, false)),
      evaluation_(opsOf(plan, rank_, exchange_, true)),
      checked_{plan_, stages_, communicator.rank()} {}

StepLog Executor::guarded(int number, StepMode mode, const std::function<void()>& work) {
  log_ = {};
  current_.reset();
  phase_ = "at its start";
  if (live_ != nullptr) live_->begin(number);
  flights_.begin(number);
  exchange_.begin();
  times_.begin();
  try {
    for (const auto& [stage, module] : stages_) {
      if (options_.scaleLoss) module->setLossScale(lossScale_.value());
      module->beginStep(number, mode);
    }
    barrier();
    if (!stages_.empty()) {
      static_cast<void>(stages_.begin()->second->peakBytes());
      times_.add(log_, rank_, device_.timestamp(), stages_.begin()->second->bytesAlive());
    }
    work();
    settleTimes();
    if (mode == StepMode::Train && checksLate()) static_cast<void>(exchangeNumbers());
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& e) {
    if (live_ != nullptr && isHost()) live_->write(log_, false);  // what it was when it failed
    throw Error(reportOf(number, e));
  }
  if (live_ != nullptr) live_->write(log_, true);
  return std::move(log_);
}

/// The sentence of a failure; also writes the flight record. Both are shorter if memory has run out.
std::string Executor::reportOf(int number, const std::exception& failure) noexcept {
  std::string sentence;
  try {
    const std::string place = current_ ? "action " + toString(*current_) : phase_;
    sentence = fmt::format("Rank {} failed in step {}, {}: {}", communicator_.rank().value, number, place, causeOf(failure));
    const std::string awaited = flights_.awaited(plan_, communicator_);
    if (!awaited.empty()) sentence += "; it " + awaited;
    if (!options_.flightFiles.empty()) {
      static_cast<void>(writeWhole(flightFile(options_.flightFiles, communicator_.rank()),
                                   flights_.toJson(plan_, communicator_, !isHost(), sentence, options_.flightJob)));
    }
  } catch (const std::exception&) {  // the first failure is the one to report
  }
  return sentence;
}

std::string Executor::reportAfter(int number, const char* phase, const std::exception& failure) noexcept {
  current_.reset();
  phase_ = phase;
  return reportOf(number, failure);
}

/// All actions of the rank's row.
void Executor::runTraining() {
  if (options_.instead) {
    phase_ = "in its calls and backward passes";
    return options_.instead(stages_, communicator_, log_);
  }
  switch (options_.order) {
    case Order::Plan: return runInOrder(ops_);
    case Order::Ready: return runReady();
  }
}

StepLog Executor::step(int number, const std::function<void()>& beforeUpdate) {
  StepLog log = guarded(number, StepMode::Train, [&] {
    runTraining();
    finish();
    update(beforeUpdate);
  });
  if (unlocated_) locateGradient(number, log);
  return log;
}

/// Repeats the step's actions to find the microbatch that makes a parameter's gradient infinite or NaN.
void Executor::locateGradient(int number, StepLog& log) {
  LiveWriter* const live = std::exchange(live_, nullptr);
  watch_.emplace(checked_);
  std::vector<StepNumbers> all;
  static_cast<void>(guarded(number, StepMode::Train, [&] {
    runTraining();
    finish();
    reducer_.sum(log_, false);
    all = reducer_.exchange({.first = watch_->position()});
  }));
  const GradientWatch watched = *std::exchange(watch_, std::nullopt);
  live_ = live;
  const auto first = std::ranges::min_element(all, {}, &StepNumbers::first);
  if (first->first == kAllFinite) return;
  log.notFinite = JobRank(static_cast<std::int32_t>(first - all.begin()));
  log.whatNotFinite = watched.what();
}

StepLog Executor::evaluate(int number) {
  return guarded(number, StepMode::Evaluate, [&] {
    runInOrder(evaluation_);
    finish();
    if (options_.sumLoss) log_.loss = reducer_.allSum(log_.loss.value_or(0));
  });
}

/// Finishes the exchange of values and reads the loss.
void Executor::finish() {
  current_.reset();
  phase_ = "at its end";
  exchange_.finish();
  // Reading the loss waits for the device, and has no deadline.
  if (stages_.contains(Stage(plan_.partition.stages.size() - 1))) finishDevice();
  for (const auto& [stage, module] : stages_) {
    if (const auto loss = module->stepLoss()) log_.loss = *loss;
  }
}

void Executor::finishDevice() {
  device_.finish(options_.deadline, [this] { communicator_.requireAlive(); });
}

void Executor::update(const std::function<void()>& beforeUpdate) {
  reducer_.sum(log_, static_cast<bool>(beforeUpdate));
  if (beforeUpdate) beforeUpdate();
  double scale = 1;
  if (options_.scaleLoss) {
    log_.lossScale = lossScale_.value();
    scale = 1 / lossScale_.value();
  }
  const double norm = checksLate() ? 0 : exchangeNumbers() * scale;
  if (options_.clipNorm > 0) {
    log_.gradientNorm = norm;
    scale *= std::min(1.0, options_.clipNorm / (norm + 1e-6));  // as torch.nn.utils.clip_grad_norm_
  }
  if (options_.scaleLoss) lossScale_.update(!std::isfinite(norm));
  if (!log_.skipped && !log_.notFinite) reducer_.update(scale, log_);
  if (log_.notFinite && options_.skipNonFinite) {
    for (const auto& [stage, module] : stages_) module->undoBuffers();
  }
  if (!stages_.empty()) times_.add(log_, rank_, device_.timestamp(), stages_.begin()->second->peakBytes());
}

/// Exchanges the loss, the norm and what is not finite between all ranks, in one message each; returns the norm, if it is requested.
double Executor::exchangeNumbers() {
  StepNumbers own{.loss = log_.loss.value_or(0)};
  if (wantsNorm()) own.squares = reducer_.squares();
  if (options_.checkFinite) {
    // A sum of squares that is finite is one of finite numbers.
    const auto gradients = wantsNorm() && std::isfinite(own.squares) ? std::nullopt : reducer_.firstNotFinite();
    own.finite = !gradients && std::isfinite(own.loss);
    own.first = firstNonFinite(checked_, gradients, own.loss);
  }
  if (!options_.checkFinite && !options_.sumLoss && !wantsNorm()) return 0;
  const std::vector<StepNumbers> all = reducer_.exchange(own);
  double loss = 0, squares = 0;
  for (const StepNumbers& one : all) {
    loss += one.loss;
    squares += one.squares;
  }
  if (options_.sumLoss) log_.loss = loss;
  noteNonFinite(all, loss);
  if (options_.scaleLoss && !std::isfinite(squares)) log_.skipped = true;
  return std::sqrt(squares);
}

void Executor::noteNonFinite(const std::vector<StepNumbers>& all, double loss) {
  unlocated_ = false;
  if (std::ranges::all_of(all, &StepNumbers::finite)) return;
  if (options_.scaleLoss && std::isfinite(loss) && lossScale_.value() > 1) return;  // an overflow, which a smaller scale avoids
  const auto first = std::ranges::min_element(all, {}, &StepNumbers::first);
  log_.notFinite = JobRank(static_cast<std::int32_t>(first - all.begin()));
  log_.skipped = options_.skipNonFinite;
  // Calls in place of the actions show no microbatch at which to look.
  unlocated_ = lacksMicrobatch(first->first) && !options_.skipNonFinite && !options_.instead && isHost();
  if (*log_.notFinite == communicator_.rank()) log_.whatNotFinite = whatIsNotFinite(checked_, log_.loss.value_or(0));
}

/// Sets the times of what happened on a GPU, once it has finished all work of the step.
void Executor::settleTimes() {
  if (isHost()) return;
  current_.reset();
  phase_ = "at its end";
  finishDevice();
  times_.settle(log_);
  exchange_.settleTimes(log_);
}

void Executor::runInOrder(const std::vector<Op>& ops) {
  for (const Op& op : ops) {
    current_ = op.action;
    run(op);
  }
}

/// Runs the row section by section between barriers; in each, always the first action of the row that is ready.
void Executor::runReady() {
  ReadyOrder row(plan_, rank_, ops_);
  for (const Op& op : ops_) {
    if (op.kind == Op::Kind::Compute) row.open(op.action);
    if (op.kind != Op::Kind::Barrier) continue;
    runOpen(row);
    run(op);
  }
  runOpen(row);
}

void Executor::runOpen(ReadyOrder& row) {
  while (row.hasOpen()) {
    // What had arrived before the scan below. A message that arrives during the scan may make an action ready that was already skipped,
    // so it must end the wait.
    std::vector<Communicator::Request> come = exchange_.awaited();
    std::erase_if(come, [&](auto request) { return !communicator_.isDone(request).value_or(false); });
    const std::optional<Action> action = row.take([&](const Action& candidate) {
      exchange_.post(candidate.stage, candidate.microbatch, directionOf(candidate.kind));
      return exchange_.isReady(candidate.stage, candidate.microbatch, directionOf(candidate.kind));
    });
    if (!action) {
      std::vector<Communicator::Request> requests = exchange_.awaited();
      std::erase_if(requests, [&](auto request) { return std::ranges::count(come, request) > 0; });
      if (!requests.empty()) static_cast<void>(communicator_.waitAny(requests));
      continue;
    }
    current_ = action;
    compute(*action);
    const Direction direction = directionOf(action->kind);
    if (takesValues(action->kind) && exchange_.sendsAway(action->stage, action->microbatch, direction))
      exchange_.send(action->stage, action->microbatch, direction, log_);
    if (row.finish(*action)) reducer_.start(action->stage);
  }
}

void Executor::run(const Op& op) {
  const Action& action = op.action;
  switch (op.kind) {
    case Op::Kind::Post: return exchange_.post(action.stage, action.microbatch, directionOf(action.kind));
    case Op::Kind::Compute: return compute(action);
    case Op::Kind::Send: return exchange_.send(action.stage, action.microbatch, directionOf(action.kind), log_);
    case Op::Kind::Reduce: return reducer_.start(action.stage);
    case Op::Kind::Barrier: barrier(); return exchange_.settleTimes(log_);  // the transport forgets them at a later barrier
  }
}

void Executor::barrier() {
  const auto flight = flights_.add({.what = FlightEntry::What::Barrier});
  flights_.awaits(flight);
  communicator_.barrier();
  flights_.end(flight);
}

void Executor::compute(const Action& action) {
  StageModule& stage = *stages_.at(action.stage);
  if (takesValues(action.kind)) {
    const Timestamp waiting = device_.timestamp();
    const bool forward = action.kind == ActionKind::Forward;
    const bool pauses = live_ != nullptr && isHost() && live_->wantsPause(log_, device_.timeOf(waiting)) &&
                        !exchange_.isReady(action.stage, action.microbatch, directionOf(action.kind));
    if (pauses) live_->write(log_, false);
    if (exchange_.await(action.stage, action.microbatch, directionOf(action.kind), log_))
      times_.add(log_, spanOf(forward ? SpanKind::WaitForward : SpanKind::WaitBackward, action), waiting, device_.timestamp());
    if (!forward) exchange_.release(action.stage, action.microbatch);
  }
  static_cast<void>(stage.peakBytes());
  if (device_.name != nullptr) device_.name(toString(action).c_str());
  const Timestamp start = device_.timestamp();
  const auto flight =
      flights_.add({.what = FlightEntry::What::Compute, .action = action}, isHost() ? device_.timeOf(start) : monotonicNow());
  const Bytes before = stage.bytesAlive();
  switch (action.kind) {
    case ActionKind::Forward: stage.forward(action.microbatch); break;
    case ActionKind::Backward: stage.backward(action.microbatch); break;
    case ActionKind::BackwardInput: stage.backwardInput(action.microbatch); break;
    case ActionKind::BackwardWeight: stage.backwardWeight(action.microbatch); break;
    case ActionKind::SendForward:
    case ActionKind::SendBackward:
    case ActionKind::RecvForward:
    case ActionKind::RecvBackward:
    case ActionKind::ReduceGrad:
    case ActionKind::Unshard:
    case ActionKind::Reshard:
    case ActionKind::Idle: return;
  }
  if (watch_) watch_->look(action);
  const Timestamp end = device_.timestamp();
  if (device_.name != nullptr) device_.name(nullptr);
  flights_.end(flight, isHost() ? device_.timeOf(end) : monotonicNow());
  const Bytes most = stage.peakBytes();
  times_.add(log_, spanOf(*spanKind(action.kind), action), start, end, {before, most, stage.bytesAlive()});
  if (takesValues(action.kind)) exchange_.handOver(action.stage, action.microbatch, directionOf(action.kind));
  if (live_ != nullptr && isHost()) live_->add(log_);
}

/// Without its times.
Span Executor::spanOf(SpanKind kind, const Action& action) const { return {rank_, kind, action.stage, action.microbatch, rank_, 0, 0, 0}; }

}  // namespace pw
