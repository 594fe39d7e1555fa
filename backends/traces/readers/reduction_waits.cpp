#include "backends/traces/readers/reduction_waits.h"

#include <algorithm>
#include <array>

#include "simulator/trace/span_kind.h"

namespace pw {

void ReductionWaits::addOperator(std::int64_t process, std::int64_t thread, Ns start, Ns end) {
  operators_[{process, thread}].push_back({start, end});
}

void ReductionWaits::addCollective(std::int64_t process, Ns start, Ns end) { collectives_[process].push_back({start, end}); }

void ReductionWaits::cut(FileEvents& file) {
  if (collectives_.empty()) return;
  constexpr std::int64_t kBusy = 10;  ///< a wait is this many times longer than what its thread does from its begin to the backward's end
  for (auto& [process, of] : collectives_) std::ranges::sort(of, {}, &Times::end);
  for (auto& [thread, of] : operators_) std::ranges::sort(of);
  std::vector<Span> waits;
  for (Span& span : file.spans) {
    if (span.kind != SpanKind::Backward && span.kind != SpanKind::BackwardInput && span.kind != SpanKind::BackwardWeight) continue;
    const EventTrack& track = file.tracks[trackOf(span).index()];
    const auto collectives = collectives_.find(track.process);
    const auto operators = operators_.find({track.process, track.thread});
    if (track.device || collectives == collectives_.end() || operators == operators_.end()) continue;
    const auto first = std::ranges::upper_bound(collectives->second, span.start, {}, &Times::end);
    if (first == collectives->second.end() || first->end > span.end) continue;
    // What the thread did, from the end of the backward on: the longest part at whose end a collective ends and which is nearly idle.
    const std::vector<Times>& done = operators->second;
    auto at = std::ranges::lower_bound(done, Times{span.start, span.start});
    const auto end = std::ranges::lower_bound(done, Times{span.end, span.end});
    struct Gap {
      Ns start, end, busyBefore;
    };
    std::vector<Gap> gaps;
    Ns until = span.start, busy = 0;
    for (; at != end; ++at) {
      if (at->start > until) gaps.push_back({until, at->start, busy});
      busy += std::max<Ns>(0, std::min(at->end, span.end) - std::max(at->start, until));
      until = std::max(until, at->end);
    }
    if (until < span.end) gaps.push_back({until, span.end, busy});
    for (const Gap& gap : gaps) {
      if (gap.start == span.start || kBusy * (busy - gap.busyBefore) > span.end - gap.start) continue;
      const auto ending = std::ranges::upper_bound(collectives->second, gap.start, {}, &Times::end);
      if (ending == collectives->second.end() || ending->end > gap.end) continue;
      Span wait = span;
      wait.kind = SpanKind::ReduceGrad;
      wait.stage = Stage(-1);
      wait.microbatch = Microbatch(-1);
      wait.start = gap.start;
      waits.push_back(wait);
      span.end = gap.start;
      break;
    }
  }
  file.spans.insert(file.spans.end(), waits.begin(), waits.end());
}

bool isHostCollective(std::string_view name) {
  constexpr std::array<std::string_view, 4> kOperations{"all_reduce", "allreduce", "reduce_scatter", "all_gather"};
  if (!name.starts_with("gloo:")) return false;
  return std::ranges::any_of(kOperations, [&](std::string_view operation) { return name.substr(5).starts_with(operation); });
}

}  // namespace pw
