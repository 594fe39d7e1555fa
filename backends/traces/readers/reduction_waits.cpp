#include "backends/traces/readers/reduction_waits.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>

#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

/// A part of an action that is an operation of its rank, of no stage.
Span operationIn(const Span& action, SpanKind kind) {
  Span operation = action;
  operation.kind = kind;
  operation.stage = Stage(-1);
  operation.microbatch = Microbatch(-1);
  return operation;
}

}  // namespace

/// When a thread begins to wait in a backward: at the first pause in which a collective ends, and from which on it does next to nothing;
/// where it waits for nobody, as of the last replica to come, at the pause in which the last one ends, if little comes after it, or at the
/// backward's end.
std::optional<Ns> ReductionWaits::waitIn(const Span& span, const std::vector<Times>& collectives, const std::vector<Times>& operators) {
  constexpr std::int64_t kBusy = 10;  ///< a wait is this many times longer than what its thread does from its begin to the backward's end
  const auto first = std::ranges::upper_bound(collectives, span.start, {}, &Times::end);
  if (first == collectives.end() || first->end > span.end) return std::nullopt;
  struct Gap {
    Ns start, end, busyBefore;
  };
  std::vector<Gap> gaps;
  Ns until = span.start, busy = 0;
  const auto end = std::ranges::lower_bound(operators, Times{span.end, span.end});
  for (auto at = std::ranges::lower_bound(operators, Times{span.start, span.start}); at != end; ++at) {
    if (at->start > until) gaps.push_back({until, at->start, busy});
    busy += std::max<Ns>(0, std::min(at->end, span.end) - std::max(at->start, until));
    until = std::max(until, at->end);
  }
  if (until < span.end) gaps.push_back({until, span.end, busy});
  for (const Gap& gap : gaps) {
    if (gap.start == span.start || kBusy * (busy - gap.busyBefore) > span.end - gap.start) continue;
    const auto ending = std::ranges::upper_bound(collectives, gap.start, {}, &Times::end);
    if (ending != collectives.end() && ending->end <= gap.end) return gap.start;
  }
  const Ns lastEnd = std::prev(std::ranges::upper_bound(collectives, span.end, {}, &Times::end))->end;
  const auto gap = std::ranges::find_if(gaps, [&](const Gap& g) { return g.start < lastEnd && lastEnd <= g.end; });
  const bool isLast = gap != gaps.end() && kBusy * (busy - gap->busyBefore) <= gap->start - span.start;
  return isLast ? gap->start : span.end;
}

void ReductionWaits::addOperator(std::int64_t process, std::int64_t thread, Ns start, Ns end) {
  operators_[{process, thread}].push_back({start, end});
}

void ReductionWaits::addCollective(std::int64_t process, Ns start, Ns end) { collectives_[process].push_back({start, end}); }

void ReductionWaits::addGather(std::int64_t process, std::int64_t thread, Ns start, Ns end) {
  gathers_[{process, thread}].push_back({start, end});
}

void ReductionWaits::cutGathers(FileEvents& file) {
  for (auto& [thread, of] : gathers_) std::ranges::sort(of);
  struct Cut {
    std::size_t span;
    Ns gathered;
  };
  std::map<Rank, std::vector<Cut>> cuts;  // by track
  std::map<Rank, std::int64_t> all;
  for (std::size_t i = 0; i < file.spans.size(); ++i) {
    const Span& span = file.spans[i];
    const EventTrack& track = file.tracks[trackOf(span).index()];
    const auto gathers = gathers_.find({track.process, track.thread});
    if (span.kind != SpanKind::Forward || track.device || gathers == gathers_.end()) continue;
    ++all[span.rank];
    Ns gathered = 0;
    for (auto at = std::ranges::lower_bound(gathers->second, span.start, {}, &Times::start);
         at != gathers->second.end() && at->end <= span.end; ++at)
      gathered += at->end - at->start;
    if (gathered > 0 && gathered < span.end - span.start) cuts[span.rank].push_back({i, gathered});
  }
  for (const auto& [track, of] : cuts) {
    if (2 * std::ssize(of) > all[track]) continue;
    for (const Cut& cut : of) {
      Span& span = file.spans[cut.span];
      Span gather = operationIn(span, SpanKind::Load);
      gather.end = span.start = span.start + cut.gathered;
      file.spans.push_back(gather);
    }
  }
}

void ReductionWaits::leaveEmptyReductions(FileEvents& file) const {
  std::map<std::int64_t, std::vector<Ns>> earliest;  // by process: the first start of each collective and those that end after it
  for (const auto& [process, of] : collectives_) {
    std::vector<Ns>& starts = earliest[process];
    std::ranges::transform(of, std::back_inserter(starts), &Times::start);
    for (std::size_t i = starts.size(); i-- > 1;) starts[i - 1] = std::min(starts[i - 1], starts[i]);
  }
  std::erase_if(file.spans, [&](const Span& span) {
    const EventTrack& track = file.tracks[trackOf(span).index()];
    const auto collectives = collectives_.find(track.process);
    if (span.kind != SpanKind::ReduceGrad || track.own || track.device || collectives == collectives_.end()) return false;
    const auto next = std::ranges::upper_bound(collectives->second, span.start, {}, &Times::end);
    return next == collectives->second.end() ||
           earliest.at(track.process)[static_cast<std::size_t>(next - collectives->second.begin())] >= span.end;
  });
}

void ReductionWaits::cut(FileEvents& file) {
  if (collectives_.empty()) return;
  for (auto& [process, of] : collectives_) std::ranges::sort(of, {}, &Times::end);
  leaveEmptyReductions(file);
  for (auto& [thread, of] : operators_) std::ranges::sort(of);
  std::vector<std::size_t> backwards;
  for (std::size_t i = 0; i < file.spans.size(); ++i) {
    const SpanKind kind = file.spans[i].kind;
    if (kind == SpanKind::Backward || kind == SpanKind::BackwardInput || kind == SpanKind::BackwardWeight) backwards.push_back(i);
  }
  std::ranges::sort(backwards, {}, [&](std::size_t i) { return std::tuple(file.spans[i].rank, file.spans[i].start, i); });
  struct Cut {
    std::size_t span;
    Ns at;
  };
  std::map<std::pair<Rank, SpanKind>, std::vector<Cut>> cuts;
  std::map<std::pair<Rank, SpanKind>, std::int64_t> all;
  Rank last(-1);
  Ns lastEnd = 0;
  for (const std::size_t i : backwards) {
    const Span& span = file.spans[i];
    ++all[{span.rank, span.kind}];
    if (span.rank == last && span.start < lastEnd) continue;  // within another: what its thread does is of both
    last = span.rank;
    lastEnd = span.end;
    const EventTrack& track = file.tracks[trackOf(span).index()];
    const auto collectives = collectives_.find(track.process);
    const auto operators = operators_.find({track.process, track.thread});
    if (track.device || collectives == collectives_.end() || operators == operators_.end()) continue;
    if (const auto at = waitIn(span, collectives->second, operators->second)) cuts[{span.rank, span.kind}].push_back({i, *at});
  }
  for (const auto& [kind, of] : cuts) {
    if (2 * std::ssize(of) > all[kind]) continue;  // part of each backward, as of tensor parallelism
    for (const Cut& cut : of) {
      Span& span = file.spans[cut.span];
      Span wait = operationIn(span, SpanKind::ReduceGrad);
      wait.start = span.end = cut.at;
      file.spans.push_back(wait);
    }
  }
}

bool isGather(std::string_view name) { return name.starts_with("FSDP::all_gather"); }

bool isHostCollective(std::string_view name) {
  constexpr std::array<std::string_view, 4> kOperations{"all_reduce", "allreduce", "reduce_scatter", "all_gather"};
  if (!name.starts_with("gloo:")) return false;
  return std::ranges::any_of(kOperations, [&](std::string_view operation) { return name.substr(5).starts_with(operation); });
}

}  // namespace pw
