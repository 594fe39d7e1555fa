#include "engine/dynamic/step.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace pw {

DynamicStep::DynamicStep(const DynamicRank& rank, const std::map<Stage, StageModule*>& stages, StepLog& log)
    : rank_(rank),
      stages_(stages),
      log_(log),
      times_(hostDevice()),
      self_(rank.replicas.rank(rank.self)),
      lastStage_(rank.plan.partition.stages.size() - 1),
      idleSince_(monotonicNow()),
      contexts_(static_cast<std::size_t>(rank.plan.schedule.microbatches)),
      incoming_(rank.plan.partition.stages.size()) {
  for (const Transfer& transfer : rank.plan.partition.transfers) ++incoming_[transfer.to.index()];
  for (const auto& [stage, module] : stages) next_[stage] = Microbatch(0);
}

const std::string& DynamicStep::nameOf(Rank rank) const {
  return rank_.remote.nameOf(rank_.replicas.jobRank(rank_.replicas.replica(rank_.self), rank));
}

bool DynamicStep::isDone() const {
  const int all = static_cast<int>(contexts_.size());
  return added_ == all && (!leads() || ended_ == all);
}

/// Calls of all microbatches queue up, and a pass takes as long as all others that compute in between: that many waits.
std::chrono::milliseconds DynamicStep::longest() const { return rank_.deadline * (contexts_.size() + 1); }

/// Its result says nothing but that it went well; otherwise this rank ends with the cause.
void DynamicStep::call(Rank rank, const std::string& function, const RemoteValue& arguments) {
  rank_.remote.rpcAsync(nameOf(rank), function, arguments, longest()).whenDone([&lane = rank_.lane](const RemoteFuture& done) {
    try {
      (void)done.wait();
    } catch (...) {
      lane.post([cause = std::current_exception()] { std::rethrow_exception(cause); });
    }
  });
}

void DynamicStep::begin() {
  if (!leads()) return;
  for (std::size_t m = 0; m < contexts_.size(); ++m) {
    const WithContext within(rank_.autograd.open());
    for (std::size_t s = 0; s < incoming_.size(); ++s) {
      if (incoming_[s] == 0) call(rankOf(Stage(s)), "start", RemoteValue::List{Stage(s).value, Microbatch(m).value});
    }
  }
}

void DynamicStep::start(ContextId context, Stage stage, Microbatch microbatch, Ns came) {
  contexts_.at(microbatch.index()) = context;
  microbatchOf_[context] = microbatch;
  waiting_[stage][microbatch] = {{}, came, true};
  runForwards(stage);
}

void DynamicStep::take(ContextId context, Microbatch microbatch, const std::map<std::size_t, TensorHandle>& values,
                       AutogradMessageId message, Ns came) {
  const Transfer& any = transferOf(values.begin()->first);
  contexts_.at(microbatch.index()) = context;
  microbatchOf_[context] = microbatch;
  if (message) messages_[message] = {any.from, any.to, microbatch};
  noteMessage(SpanKind::SendForward, any.from, microbatch, rankOf(any.from), self_, 0, came);
  Waiting& waiting = waiting_[any.to][microbatch];
  waiting.received.insert(values.begin(), values.end());
  waiting.came = came;
  runForwards(any.to);
}

void DynamicStep::noteMessage(SpanKind kind, Stage stage, Microbatch microbatch, Rank from, Rank to, Bytes bytes, Ns now) {
  if (from != to) log_.spans.push_back({from, kind, stage, microbatch, to, bytes, now, now});
}

bool DynamicStep::isReady(Stage stage, const Waiting& waiting) const {
  return waiting.isStarted || waiting.received.size() == incoming_[stage.index()];
}

void DynamicStep::runForwards(Stage stage) {
  auto& waiting = waiting_[stage];
  Microbatch& next = next_.at(stage);
  for (auto found = waiting.find(next); found != waiting.end() && isReady(stage, found->second); found = waiting.find(next)) {
    Waiting values = std::move(found->second);
    waiting.erase(found);
    forward(stage, next, std::move(values));
    next = Microbatch(next.value + 1);
  }
}

void DynamicStep::timed(const Span& span, Ns came, const std::function<void()>& work) {
  StageModule& stage = *stages_.begin()->second;  // memory is counted for the whole rank
  if (came > idleSince_ && isCompute(span.kind)) {
    Span wait = span;
    wait.kind = span.kind == SpanKind::Forward ? SpanKind::WaitForward : SpanKind::WaitBackward;
    wait.start = idleSince_, wait.end = came;
    log_.spans.push_back(wait);
  }
  static_cast<void>(stage.peakBytes());
  const Timestamp start = hostDevice().timestamp();
  const Bytes before = stage.bytesAlive();
  work();
  const Timestamp end = hostDevice().timestamp();
  const Bytes most = stage.peakBytes();
  times_.add(log_, span, start, end, {before, most, stage.bytesAlive()});
  idleSince_ = hostDevice().timeOf(end);
}

void DynamicStep::forward(Stage stage, Microbatch microbatch, Waiting waiting) {
  const WithContext within(contexts_[microbatch.index()]);
  StageForward done;
  timed({self_, SpanKind::Forward, stage, microbatch, self_, 0, 0, 0}, waiting.came,
        [&] { done = rank_.functions.forward(*stages_.at(stage), microbatch, waiting.received); });
  std::map<Stage, std::vector<StageOutput>> byUser;
  for (StageOutput& output : done.outputs) byUser[transferOf(output.transfer).to].push_back(std::move(output));
  for (const auto& [user, values] : byUser) send({stage, user, microbatch}, values);
  if (stage != lastStage_) return;
  done.loss == nullptr ? passed(microbatch) : backward(microbatch, done.loss);
}

/// In one call, so that their gradients come back together.
void DynamicStep::send(const Link& link, const std::vector<StageOutput>& values) {
  RemoteValue::List list;
  Bytes bytes = 0;
  for (const StageOutput& value : values) {
    list.emplace_back(RemoteValue::List{static_cast<std::int64_t>(value.transfer), value.value});
    bytes += value.bytes;
  }
  sending_ = link;
  noteMessage(SpanKind::SendForward, link.from, link.microbatch, self_, rankOf(link.to), bytes, monotonicNow());
  call(rankOf(link.to), "values", RemoteValue::List{link.microbatch.value, std::move(list)});
}

void DynamicStep::backward(Microbatch microbatch, const TensorHandle& loss) {
  const ContextId context = contexts_[microbatch.index()];
  const auto fail = [&lane = rank_.lane] { lane.post([cause = std::current_exception()] { std::rethrow_exception(cause); }); };
  BackwardSettings settings;
  settings.deadline = longest();
  rank_.passes.post(
      [this, context, microbatch, loss, settings, fail] {
        try {
          rank_.autograd.backward(context, {loss}, settings);
          rank_.lane.post([this, microbatch] { passed(microbatch); });
        } catch (...) {
          fail();  // the lane's thread ends with it
        }
      },
      [&lane = rank_.lane] { lane.post([] { throw Error("the system gives no thread for a backward pass"); }); });
}

void DynamicStep::runPiece(ContextId context, AutogradMessageId message, const std::function<void()>& piece, Ns came) {
  Stage stage = leads() ? lastStage_ : stages_.rbegin()->first;  // from the loss, or what continues because a value was not used
  const auto microbatch = microbatchOf_.find(context);
  Span span{self_, SpanKind::Backward, stage, microbatch == microbatchOf_.end() ? Microbatch(-1) : microbatch->second, self_, 0, 0, 0};
  if (const auto found = messages_.find(message); found != messages_.end()) {
    span.stage = found->second.from;
    noteMessage(SpanKind::SendBackward, found->second.to, span.microbatch, rankOf(found->second.to), self_, 0, came);
  }
  timed(span, came, piece);
}

void DynamicStep::noteGradient(AutogradMessageId message, const std::vector<TensorHandle>& gradients) {
  const auto found = messages_.find(message);
  if (found == messages_.end()) return;
  const Link& link = found->second;
  Bytes bytes = 0;
  for (const TensorHandle& gradient : gradients) bytes += rank_.remote.settings().functions->bytesOf(gradient);
  noteMessage(SpanKind::SendBackward, link.to, link.microbatch, self_, rankOf(link.from), bytes, monotonicNow());
}

/// Microbatch after microbatch, so that sums have the same bits in every run.
void DynamicStep::passed(Microbatch microbatch) {
  passed_.insert(microbatch);
  for (; passed_.contains(Microbatch(requested_)); ++requested_) {
    const WithContext within(contexts_[static_cast<std::size_t>(requested_)]);
    for (int r = 0; r < rank_.replicas.ranks; ++r) call(Rank(r), "collect", requested_);
  }
}

void DynamicStep::collect(ContextId context, Microbatch microbatch) {
  contexts_.at(microbatch.index()) = context;
  toCollect_.insert(microbatch);
  for (; toCollect_.contains(Microbatch(added_)); ++added_) {
    const ContextId of = contexts_[static_cast<std::size_t>(added_)];
    const auto add = [&] {
      for (const auto& [stage, module] : stages_)
        rank_.functions.addGradients(*module, Microbatch(added_),
                                     [&](const TensorHandle& parameter) { return rank_.autograd.gradient(of, parameter); });
    };
    if (!stages_.empty()) timed({self_, SpanKind::ReduceGrad, Stage(-1), Microbatch(-1), self_, 0, 0, 0}, 0, add);
    call(rankOf(lastStage_), "collected", added_);
  }
}

void DynamicStep::collected(Microbatch microbatch) {
  if (++collectedBy_[microbatch] < rank_.replicas.ranks) return;
  rank_.autograd.release(contexts_.at(microbatch.index()));
  ++ended_;
}

}  // namespace pw
