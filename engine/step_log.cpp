#include "engine/step_log.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace pw {

Trace joinTraces(const std::vector<StepLog>& ranks, std::size_t ranksOfPipeline) {
  Trace trace;
  trace.ranks = static_cast<int>(ranks.size());
  std::map<std::tuple<SpanKind, Stage, Microbatch, Rank>, Span> messages;  // one per link: several values make one span
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto first = static_cast<std::int32_t>(r / ranksOfPipeline * ranksOfPipeline);
    for (Span span : ranks[r].spans) {
      span.rank = Rank(span.rank.value + first);
      span.peer = Rank(span.peer.value + first);
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
    for (const MemorySample& sample : ranks[r].memory) trace.memory.push_back({Rank(sample.rank.value + first), sample.time, sample.bytes});
  }
  for (const auto& [key, message] : messages) trace.spans.push_back(message);
  normalize(trace);
  return trace;
}

}  // namespace pw
