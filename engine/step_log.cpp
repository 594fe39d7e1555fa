#include "engine/step_log.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace pw {

Trace joinTraces(const std::vector<StepLog>& processes, std::size_t ranksOfPipeline) {
  Trace trace;
  const Replicas replicas{static_cast<int>(ranksOfPipeline)};
  trace.ranks = static_cast<int>(processes.size());
  std::map<std::tuple<SpanKind, Stage, Microbatch, Rank>, Span> messages;  // one per link: several values make one span
  for (std::size_t p = 0; p < processes.size(); ++p) {
    const int replica = replicas.replica(JobRank(p));
    for (Span span : processes[p].spans) {
      span.rank = replicas.inTrace(replica, span.rank);
      span.peer = replicas.inTrace(replica, span.peer);
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
    for (const MemorySample& sample : processes[p].memory)
      trace.memory.push_back({replicas.inTrace(replica, sample.rank), sample.time, sample.bytes});
  }
  for (const auto& [key, message] : messages) trace.spans.push_back(message);
  normalize(trace);
  return trace;
}

}  // namespace pw
