#include "simulator/job/measured.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

int copiesOf(const MeasuredJob& measured) { return std::max(1, measured.replicas) * std::max(1, measured.tensor); }

/// From the first start to the last end of an action, of each pipeline.
std::vector<Ns> makespansOf(const Trace& trace, std::size_t copies, int ranks) {
  std::vector<std::optional<std::pair<Ns, Ns>>> extents(copies);
  for (const Span& span : trace.spans) {
    const std::size_t copy = span.rank.index() / static_cast<std::size_t>(ranks);
    if (!isCompute(span.kind) || copy >= copies) continue;
    auto& [first, last] = extents[copy] ? *extents[copy] : extents[copy].emplace(span.start, span.end);
    first = std::min(first, span.start);
    last = std::max(last, span.end);
  }
  std::vector<Ns> makespans;
  for (const auto& extent : extents) makespans.push_back(extent ? extent->second - extent->first : Ns{0});
  return makespans;
}

}  // namespace

Span spanOf(const NamedSpan& operation, Rank rank, Stage beside, Ns first, Ns last) {
  Span span{rank, SpanKind::ReduceGrad, Stage(-1), Microbatch(-1), rank, 0, operation.start, operation.end};
  const auto names = [&](std::string_view word) { return operation.name.find(word) != std::string::npos; };
  if (span.end <= first)
    span.kind = SpanKind::Load;
  else if (span.start < last)
    span.stage = beside;
  else if (!names("reduce") && !names("gather") && !names(nameOf(SpanKind::ReduceGrad)))
    span.kind = SpanKind::Optimizer;
  return span;
}

Trace pipelineOf(const Trace& trace, std::size_t copy, int ranks) {
  Trace part{ranks, {}, {}};
  const auto first = static_cast<std::int32_t>(copy) * ranks;
  for (Span span : trace.spans) {
    if (span.rank.value < first || span.rank.value >= first + ranks) continue;
    span.rank.value -= first;
    span.peer.value -= first;
    part.spans.push_back(span);
  }
  for (MemorySample sample : trace.memory) {
    if (sample.rank.value < first || sample.rank.value >= first + ranks) continue;
    sample.rank.value -= first;
    part.memory.push_back(sample);
  }
  return part;
}

Trace slowestPipeline(const MeasuredJob& measured, const MeasuredStep& step) {
  const auto copies = static_cast<std::size_t>(copiesOf(measured));
  const int ranks = std::max(1, step.trace.ranks / static_cast<int>(copies));
  std::vector<int> slowest(copies, 0);
  for (const MeasuredStep& one : measured.steps) {
    const std::vector<Ns> makespans = makespansOf(one.trace, copies, ranks);
    ++slowest[static_cast<std::size_t>(std::ranges::max_element(makespans) - makespans.begin())];
  }
  const auto copy = static_cast<std::size_t>(std::ranges::max_element(slowest) - slowest.begin());
  Trace trace = pipelineOf(step.trace, copy, ranks);
  normalize(trace);
  return trace;
}

}  // namespace pw
