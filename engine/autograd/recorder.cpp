#include "engine/autograd/recorder.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "backends/messages/device.h"
#include "engine/remote/current_context.h"

namespace pw {
namespace {

/// Says when its scope ends, however that is.
class AtEnd {
 public:
  explicit AtEnd(std::function<void()> done) : done_(std::move(done)) {}
  ~AtEnd() { done_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  std::function<void()> done_;
};

/// Contexts in the order in which they were first seen.
std::map<ContextId, Microbatch> numbered(const std::vector<CallLog>& workers) {
  std::map<ContextId, Ns> first;
  const auto see = [&](ContextId context, Ns at) {
    if (!context) return;
    const auto [found, isNew] = first.emplace(context, at);
    if (!isNew) found->second = std::min(found->second, at);
  };
  for (const CallLog& log : workers) {
    for (const CallLog::Work& work : log.work) see(work.context, work.start);
    for (const CallLog::End& end : log.ends) see(end.context, end.at);
  }
  std::vector<std::pair<Ns, ContextId>> order;
  for (const auto& [context, at] : first) order.emplace_back(at, context);
  std::ranges::sort(order);
  std::map<ContextId, Microbatch> numbers{{ContextId(), Microbatch(-1)}};
  for (std::size_t i = 0; i < order.size(); ++i) numbers[order[i].second] = Microbatch(i);
  return numbers;
}

/// A worker's lane: at each moment the running work that began last.
void addLane(Trace& trace, Rank rank, const CallLog& log, const std::map<ContextId, Microbatch>& numbers) {
  std::vector<std::tuple<Ns, bool, std::size_t>> events;  // time, whether it begins, which
  for (std::size_t i = 0; i < log.work.size(); ++i) {
    if (log.work[i].end <= log.work[i].start) continue;
    events.emplace_back(log.work[i].start, true, i);
    events.emplace_back(log.work[i].end, false, i);
  }
  std::ranges::sort(events);
  std::set<std::pair<Ns, std::size_t>> running;
  std::optional<std::size_t> shown;
  Ns since = 0;
  for (const auto& [at, begins, which] : events) {
    if (!running.empty() && at > since) {
      const std::size_t last = running.rbegin()->second;
      const CallLog::Work& work = log.work[last];
      if (shown != last || trace.spans.back().end != since)
        trace.spans.push_back({rank, work.kind, Stage(rank.value), numbers.at(work.context), rank, 0, since, since});
      trace.spans.back().end = at;
      shown = last;
    }
    const std::pair key(log.work[which].start, which);
    begins ? void(running.insert(key)) : void(running.erase(key));
    since = at;
  }
}

}  // namespace

AutogradWatch CallRecorder::watch() {
  AutogradWatch watch;
  watch.sent = [this](ContextId context, AutogradMessageId message, JobRank to) {
    addEnd({message, context, self_, to, SpanKind::SendForward, true, 0, monotonicNow()});
  };
  watch.received = [this](ContextId context, AutogradMessageId message, JobRank from, const std::vector<TensorHandle>& tensors) {
    addEnd({message, context, from, self_, SpanKind::SendForward, false, bytesOf(tensors), monotonicNow()});
  };
  watch.piece = [this](ContextId context, AutogradMessageId message, const std::function<void()>& piece) {
    const Ns start = monotonicNow();
    if (message) addEnd({message, context, JobRank(-1), self_, SpanKind::SendBackward, false, 0, start});
    const AtEnd done([&] { add(SpanKind::Backward, context, start); });
    piece();
  };
  watch.gradient = [this](ContextId context, AutogradMessageId message, JobRank to, const std::vector<TensorHandle>& gradients) {
    addEnd({message, context, self_, to, SpanKind::SendBackward, true, bytesOf(gradients), monotonicNow()});
  };
  return watch;
}

Remote::Function CallRecorder::recorded(Remote::Function function) {
  return [this, function = std::move(function)](Remote& here, const RemoteValue& arguments) {
    const AtEnd done([this, context = currentContext(), start = monotonicNow()] { add(SpanKind::Forward, context, start); });
    return function(here, arguments);
  };
}

void CallRecorder::record(SpanKind kind, const std::function<void()>& work) {
  const AtEnd done([this, kind, context = currentContext(), start = monotonicNow()] { add(kind, context, start); });
  work();
}

CallLog CallRecorder::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(log_, {});
}

void CallRecorder::add(SpanKind kind, ContextId context, Ns start) {
  const Ns end = monotonicNow();
  const std::lock_guard lock(mutex_);
  log_.work.size() < most_ ? log_.work.push_back({kind, context, start, end}) : void(++log_.leftOut);
}

void CallRecorder::addEnd(const CallLog::End& end) {
  const std::lock_guard lock(mutex_);
  log_.ends.size() < most_ ? log_.ends.push_back(end) : void(++log_.leftOut);
}

Bytes CallRecorder::bytesOf(const std::vector<TensorHandle>& tensors) const {
  Bytes bytes = 0;
  for (const TensorHandle& tensor : tensors) bytes += functions_.bytesOf(tensor);
  return bytes;
}

Trace joinCalls(const std::vector<CallLog>& workers) {
  Trace trace;
  trace.ranks = static_cast<int>(workers.size());
  const std::map<ContextId, Microbatch> numbers = numbered(workers);
  std::map<std::pair<AutogradMessageId, SpanKind>, std::vector<CallLog::End>> ends;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    addLane(trace, Rank(w), workers[w], numbers);
    for (const CallLog::End& end : workers[w].ends) ends[{end.message, end.kind}].push_back(end);
  }
  for (const auto& [key, two] : ends) {
    const auto sent = std::ranges::find_if(two, &CallLog::End::isSent);
    const auto came = std::ranges::find_if_not(two, &CallLog::End::isSent);
    if (sent == two.end() || came == two.end() || sent->from == sent->to) continue;  // it did not arrive, or never left the worker
    trace.spans.push_back({Rank(sent->from.value), key.second, Stage(sent->from.value), numbers.at(sent->context), Rank(sent->to.value),
                           std::max(sent->bytes, came->bytes), sent->at, std::max(sent->at, came->at)});
  }
  normalize(trace);
  return trace;
}

}  // namespace pw
