#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "simulator/timeline/chrome.h"
#include "simulator/trace/trace.h"

namespace pw {
namespace {

// Threads of a process: ranks' compute lanes come first, then message lanes. See the Trace Event Format (Google, 2016).

bool isBackward(SpanKind kind) { return kind == SpanKind::Backward || kind == SpanKind::BackwardInput || kind == SpanKind::SendBackward; }

std::string jsonString(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Nanoseconds as the format's microseconds, exactly.
std::string micros(Ns time) {
  const std::int64_t ns = abs(time).value;
  return fmt::format("{}{}.{:03}", time < 0 ? "-" : "", ns / 1000, ns % 1000);
}

std::string labelOf(const Span& span) {
  if (span.microbatch.value >= 0) return fmt::format("{}{}{}", span.stage.value, nameOf(span.kind), span.microbatch.value);
  return span.stage.value >= 0 ? fmt::format("{}{}", span.stage.value, nameOf(span.kind)) : std::string(nameOf(span.kind));
}

/// F, B and I of one trace, sorted to find the action before and after a message.
class Actions {
 public:
  explicit Actions(const Trace& trace) {
    for (const Span& span : trace.spans) {
      const bool linked = isCompute(span.kind) && span.kind != SpanKind::BackwardWeight;
      if (linked) spans_.push_back(&span);
    }
    std::sort(spans_.begin(), spans_.end(), [](const Span* a, const Span* b) { return key(*a) < key(*b); });
  }

  /// The action of the message's stage that ends latest before it starts.
  [[nodiscard]] const Span* producer(const Span& message) const {
    const Span* best = nullptr;
    for (auto at = first(message.rank, message); at != spans_.end() && same(**at, message.rank, message); ++at) {
      if ((*at)->stage == message.stage && (*at)->end <= message.start) best = *at;
    }
    return best;
  }

  /// The nearest action on the receiver, of a later (gradients: earlier) stage, that starts when the message has arrived.
  [[nodiscard]] const Span* consumer(const Span& message) const {
    for (auto at = first(message.peer, message); at != spans_.end() && same(**at, message.peer, message); ++at) {
      const bool onward = isBackward(message.kind) ? (*at)->stage < message.stage : (*at)->stage > message.stage;
      if (onward && (*at)->start >= message.end) return *at;
    }
    return nullptr;
  }

 private:
  using Key = std::tuple<Rank, bool, Microbatch, Ns>;
  static Key key(const Span& s) { return {s.rank, isBackward(s.kind), s.microbatch, s.start}; }
  [[nodiscard]] std::vector<const Span*>::const_iterator first(Rank rank, const Span& message) const {
    const Key from{rank, isBackward(message.kind), message.microbatch, std::numeric_limits<Ns>::min()};
    return std::lower_bound(spans_.begin(), spans_.end(), from, [](const Span* s, const Key& k) { return key(*s) < k; });
  }
  static bool same(const Span& s, Rank rank, const Span& message) {
    return s.rank == rank && isBackward(s.kind) == isBackward(message.kind) && s.microbatch == message.microbatch;
  }

  std::vector<const Span*> spans_;
};

/// Message lanes of one trace. Viewers draw overlapping slices of one thread wrongly, so a rank pair has as many lanes as it has messages
/// in flight at once (a message's latency does not hold the channel). A rank's reductions likewise have separate lanes.
class MessageLanes {
 public:
  /// The number of the lane, over all pairs, that is free at the message's start. Messages are passed in the order of their starts.
  std::size_t place(const Span& message) {
    auto& lanes = lanes_[{message.rank, message.peer}];
    for (auto& [number, busyUntil] : lanes) {
      if (busyUntil > message.start) continue;
      busyUntil = message.end;
      return number;
    }
    names_.push_back(isBeside(message) ? fmt::format("rank {} reduces", message.rank.value)
                                       : fmt::format("rank {} → {}", message.rank.value, message.peer.value));
    lanes.emplace_back(names_.size() - 1, message.end);
    return names_.size() - 1;
  }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  std::map<std::pair<Rank, Rank>, std::vector<std::pair<std::size_t, Ns>>> lanes_;
  std::vector<std::string> names_;
};

class Writer {
 public:
  void trace(const Trace& trace, std::string_view title, std::size_t process);
  [[nodiscard]] std::string finish() && { return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + text_ + "\n]}"; }

 private:
  void event(const std::string& fields) {
    text_ += text_.empty() ? "\n{" : ",\n{";
    text_ += fields;
    text_ += '}';
  }
  void threadName(std::size_t process, std::size_t thread, std::string_view name) {
    event(fmt::format(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}})", process, thread, jsonString(name)));
    event(fmt::format(R"("ph":"M","name":"thread_sort_index","pid":{0},"tid":{1},"args":{{"sort_index":{1}}})", process, thread));
  }
  void slice(const Span& span, const Span* partner, std::size_t process, std::size_t thread);
  void flow(char phase, std::size_t process, std::size_t thread, Ns time) {
    event(fmt::format(R"("ph":"{}","name":"message","cat":"message","id":{},"pid":{},"tid":{},"ts":{}{})", phase, flows_, process, thread,
                      micros(time), phase == 'f' ? R"(,"bp":"e")" : ""));
  }

  std::string text_;
  std::size_t flows_ = 0;
};

void Writer::slice(const Span& span, const Span* partner, std::size_t process, std::size_t thread) {
  const std::string label = partner == nullptr ? labelOf(span) : fmt::format("({};{})", labelOf(span), labelOf(*partner));
  std::string arguments = fmt::format(R"("stage":{},"microbatch":{})", span.stage.value, span.microbatch.value);
  if (isMessage(span.kind))
    arguments += fmt::format(R"(,"from":{},"to":{},"bytes":{})", span.rank.value, span.peer.value, span.bytes.value);
  if (isBeside(span) || (!isMessage(span.kind) && span.bytes != 0)) arguments += fmt::format(R"(,"bytes":{})", span.bytes.value);
  event(fmt::format(R"("ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}})", jsonString(label),
                    jsonString(nameOf(span.kind)), process, thread, micros(span.start), micros(span.end - span.start), arguments));
}

void Writer::trace(const Trace& trace, std::string_view title, std::size_t process) {
  const auto ranks = static_cast<std::size_t>(std::max(0, trace.ranks));
  event(fmt::format(R"("ph":"M","name":"process_name","pid":{},"args":{{"name":{}}})", process, jsonString(title)));
  for (std::size_t r = 0; r < ranks; ++r) threadName(process, r, fmt::format("rank {}", r));

  std::vector<const Span*> spans;
  for (const Span& span : trace.spans) spans.push_back(&span);
  std::stable_sort(spans.begin(), spans.end(), [](const Span* a, const Span* b) { return a->start < b->start; });
  const Actions actions(trace);
  MessageLanes lanes;
  for (const Span* span : spans) {
    const std::size_t thread = isMessage(span->kind) || isBeside(*span) ? ranks + lanes.place(*span) : span->rank.index();
    const auto at = static_cast<std::size_t>(span - trace.spans.data());
    if (at > 0 && isSlot(trace.spans[at - 1], *span)) continue;  // drawn with its forward
    slice(*span, at + 1 < trace.spans.size() && isSlot(*span, trace.spans[at + 1]) ? &trace.spans[at + 1] : nullptr, process, thread);
    if (!isMessage(span->kind)) continue;
    const Span* producer = actions.producer(*span);
    const Span* consumer = actions.consumer(*span);
    if (producer == nullptr || consumer == nullptr) continue;  // a measured trace may lack one, or its clocks disagree
    // Each point binds to the slice around its time, so the arrow leaves from the producer's start.
    flow('s', process, producer->rank.index(), producer->start);
    flow('t', process, thread, span->start);
    flow('f', process, consumer->rank.index(), consumer->start);
    ++flows_;
  }
  for (std::size_t i = 0; i < lanes.names().size(); ++i) threadName(process, ranks + i, lanes.names()[i]);
  for (const MemorySample& sample : trace.memory) {
    event(fmt::format(R"("ph":"C","name":"memory of rank {}","pid":{},"ts":{},"args":{{"bytes":{}}})", sample.rank.value, process,
                      micros(sample.time), sample.bytes.value));
  }
}

}  // namespace

std::string toChromeJson(const std::vector<const Trace*>& traces, const std::vector<std::string>& names) {
  Writer writer;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    writer.trace(*traces[i], i < names.size() ? names[i] : fmt::format("trace {}", i), i);
  }
  return std::move(writer).finish();
}

}  // namespace pw
