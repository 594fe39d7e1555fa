#include "simulator/trace/trace.h"
#include "schedules/units.h"

#include <algorithm>
#include <tuple>

namespace pw {

bool isCompute(SpanKind kind) {
  switch (kind) {
    case SpanKind::Forward:
    case SpanKind::Backward:
    case SpanKind::BackwardInput:
    case SpanKind::BackwardWeight: return true;
    case SpanKind::SendForward:
    case SpanKind::SendBackward:
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward:
    case SpanKind::ReduceGrad:
    case SpanKind::Optimizer:
    case SpanKind::Load:
    case SpanKind::Store: return false;
  }
  return false;
}

bool isMessage(SpanKind kind) { return kind == SpanKind::SendForward || kind == SpanKind::SendBackward; }

bool isWait(SpanKind kind) { return kind == SpanKind::WaitForward || kind == SpanKind::WaitBackward; }

bool isSlot(const Span& f, const Span& b) {
  return f.kind == SpanKind::Forward && b.kind == SpanKind::Backward && f.rank == b.rank && f.start == b.start && f.end == b.end &&
         f.end > f.start;
}

void normalize(Trace& trace) {
  // The fields after `end` make the order, and so every export, independent of how the spans were collected.
  std::sort(trace.spans.begin(), trace.spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.start, a.rank, a.end, a.kind, a.stage, a.microbatch, a.peer, a.bytes) <
           std::tie(b.start, b.rank, b.end, b.kind, b.stage, b.microbatch, b.peer, b.bytes);
  });
  std::stable_sort(trace.memory.begin(), trace.memory.end(),
                   [](const MemorySample& a, const MemorySample& b) { return std::tie(a.rank, a.time) < std::tie(b.rank, b.time); });
  if (trace.spans.empty()) return;
  const Ns origin = trace.spans.front().start;
  for (Span& span : trace.spans) {
    span.start -= origin;
    span.end -= origin;
  }
  for (MemorySample& sample : trace.memory) sample.time -= origin;
}

bool isSummable(const Trace& trace) {
  constexpr auto kMost = static_cast<double>(kMostSum);
  Ns last = 0;
  double all = 0;
  for (const Span& span : trace.spans) {
    last = std::max(last, span.end);
    all += static_cast<double>(span.end) - static_cast<double>(span.start);
  }
  return static_cast<double>(last) * trace.ranks <= kMost && all <= kMost;
}

}  // namespace pw
