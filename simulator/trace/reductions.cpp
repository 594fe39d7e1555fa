#include "simulator/trace/reductions.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {

Ns cutReductionWaits(Trace& trace, const ReductionGroups& groups) {
  const auto& [ranks, tensor, names] = groups;
  using Group = std::tuple<Stage, std::int32_t, std::int32_t, Bytes, std::string>;  // a stage or a pipeline rank, tensor-parallel rank, …
  std::map<std::pair<Group, Rank>, std::size_t> count;
  std::map<std::pair<Group, std::size_t>, std::vector<Span*>> together;
  for (Span& span : trace.spans) {  // in the order of their starts
    if (span.kind != SpanKind::ReduceGrad) continue;
    const auto name = span.bytes > 0 ? names.end() : names.find({span.rank, span.start, span.end});
    if (span.bytes == 0 && name == names.end()) continue;  // an addition of the rank alone, or another operation that is drawn as one
    const bool isNamed = name != names.end();
    const Stage stage = isNamed ? Stage(-1) : span.stage;  // a named one may be beside compute on one rank, and after it on another
    const std::int32_t ofPipeline = stage.value < 0 ? span.rank.value % ranks : 0;
    const Group group{stage, ofPipeline, span.rank.value / ranks % tensor, span.bytes, isNamed ? name->second : ""};
    together[{group, count[{group, span.rank}]++}].push_back(&span);
  }
  Ns waits = 0;
  for (const auto& [which, spans] : together) {
    Ns last = spans.front()->start, first = spans.front()->end;
    for (const Span* span : spans) last = std::max(last, span->start), first = std::min(first, span->end);
    if (last > first) continue;  // of different times: not the same one
    for (Span* span : spans) {
      waits += last - span->start;
      span->start = last;
    }
  }
  std::ranges::stable_sort(trace.spans, {}, [](const Span& span) { return std::tuple(span.start, span.rank, span.end); });
  return waits;
}

}  // namespace pw
