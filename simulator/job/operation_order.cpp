#include "simulator/job/operation_order.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace pw {
namespace {

constexpr std::size_t kMostly = 10;      ///< all but one of so many
constexpr std::size_t kMostNames = 256;  ///< of different names; the rest is left out

/// What is known of the operations of one name.
struct Seen {
  double start = 0;  ///< sum, from the start of the step
  std::size_t count = 0;
  std::size_t before = 0;                                     ///< how often it ended before the worker's first action started
  std::size_t amid = 0;                                       ///< how often before an action of the row
  std::size_t between = 0;                                    ///< how often the row did nothing meanwhile, of these
  std::size_t holding = 0;                                    ///< how often it began as the action before it ended, and held its message
  std::map<Rank, std::map<std::int32_t, std::size_t>> after;  ///< how often after so many actions of a pipeline rank
};

/// How many actions of the worker's row ended before this time.
std::int32_t endedBefore(const JobShape& shape, const StepSpans& spans, JobRank worker, Ns time) {
  const std::size_t rank = shape.rankOf(worker).index(), base = shape.copyOf(worker) * shape.slotsOfCopy();
  std::int32_t count = 0;
  // Both ends of an action are stamped by different streams: what starts in its last hundredth came after it.
  for (std::size_t s = shape.begin[rank]; s < shape.begin[rank + 1]; ++s) {
    const Ns slack = (spans.end[base + s] - spans.start[base + s]) / 100;
    if (spans.end[base + s] - slack <= time) count = static_cast<std::int32_t>(s - shape.begin[rank]) + 1;
  }
  return count;
}

/// Whether an operation ended before the first action of its worker started, or within a hundredth of that.
bool isBeforeRow(const JobShape& shape, const StepSpans& spans, const NamedSpan& operation) {
  const std::size_t rank = shape.rankOf(operation.worker).index();
  if (shape.begin[rank] == shape.begin[rank + 1]) return false;
  const std::size_t first = shape.copyOf(operation.worker) * shape.slotsOfCopy() + shape.begin[rank];
  return operation.end <= spans.start[first] + (spans.end[first] - spans.start[first]) / 100;
}

/// Whether nothing of the row is done from its start to its end, after so many actions: the next then most likely waits for it.
bool isBetween(const JobShape& shape, const StepSpans& spans, const NamedSpan& operation, std::int32_t after) {
  const std::size_t next = shape.begin[shape.rankOf(operation.worker).index()] + static_cast<std::size_t>(after);
  const std::size_t i = shape.copyOf(operation.worker) * shape.slotsOfCopy() + next;
  return !operation.beside && operation.end <= spans.start[i] + (spans.end[i] - spans.start[i]) / 100;
}

/// By slot of a copy: the one on another rank that needs its result; −1: none.
std::vector<std::int32_t> receiversOf(const JobShape& shape) {
  std::vector<std::int32_t> receivers(shape.slotsOfCopy(), -1);
  for (std::size_t s = 0; s < receivers.size(); ++s) {
    if (shape.copySlots[s].crosses) receivers[static_cast<std::size_t>(shape.copySlots[s].producer)] = static_cast<std::int32_t>(s);
  }
  return receivers;
}

/// Whether the message of the action before it, after so many, if it sends one, left when it ended: its receiver did not start before.
bool heldMessage(const JobShape& shape, const StepSpans& spans, const std::vector<std::int32_t>& receivers, const NamedSpan& operation,
                 std::int32_t after) {
  if (after == 0) return false;
  const std::size_t slot = shape.begin[shape.rankOf(operation.worker).index()] + static_cast<std::size_t>(after) - 1;
  const std::size_t i = shape.copyOf(operation.worker) * shape.slotsOfCopy() + slot;
  if (spans.end[i] != operation.start || spans.held[i] != operation.end) return false;
  return receivers[slot] < 0 || spans.start[i - slot + static_cast<std::size_t>(receivers[slot])] >= operation.end;
}

}  // namespace

bool isOperation(const Span& span) {
  const bool gathers = span.kind == SpanKind::Load && span.microbatch.value < 0;  // a lockstep run loads microbatches
  return span.kind == SpanKind::Optimizer || span.kind == SpanKind::ReduceGrad || gathers;
}

std::vector<JobOperation> operationOrder(const JobShape& shape, const std::vector<std::vector<NamedSpan>>& operations,
                                         const std::vector<const StepSpans*>& spans) {
  const std::vector<std::int32_t> receivers = receiversOf(shape);
  std::map<std::string, Seen> seen;
  std::map<std::pair<std::string, std::string>, std::size_t> follows;  // how often the second comes directly after the first
  for (std::size_t k = 0; k < operations.size(); ++k) {
    std::vector<const NamedSpan*> sorted;
    Ns first = spans[k]->start.empty() ? 0 : *std::ranges::min_element(spans[k]->start);
    for (const NamedSpan& span : operations[k]) {
      if (span.worker.value < 0 || span.worker.index() >= shape.workers) continue;
      sorted.push_back(&span);
      first = std::min(first, span.start);
    }
    std::ranges::stable_sort(sorted, {}, [](const NamedSpan* s) { return std::tuple(s->worker, s->start, s->end); });
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      if (seen.size() >= kMostNames && !seen.contains(sorted[i]->name)) continue;
      Seen& one = seen[sorted[i]->name];
      one.start += static_cast<double>(sorted[i]->start - first);
      ++one.count;
      one.before += isBeforeRow(shape, *spans[k], *sorted[i]) ? 1 : 0;
      const std::int32_t after = endedBefore(shape, *spans[k], sorted[i]->worker, sorted[i]->start);
      ++one.after[shape.rankOf(sorted[i]->worker)][after];
      const std::size_t rank = shape.rankOf(sorted[i]->worker).index();
      if (static_cast<std::size_t>(after) < shape.begin[rank + 1] - shape.begin[rank]) {
        ++one.amid;
        one.between += isBetween(shape, *spans[k], *sorted[i], after) ? 1 : 0;
      }
      one.holding += heldMessage(shape, *spans[k], receivers, *sorted[i], after) ? 1 : 0;
      if (i > 0 && sorted[i - 1]->worker == sorted[i]->worker && sorted[i - 1]->name != sorted[i]->name)
        ++follows[{sorted[i - 1]->name, sorted[i]->name}];
    }
  }
  std::map<std::string, std::set<std::string>> before;
  for (const auto& [pair, count] : follows) {
    const auto back = follows.find({pair.second, pair.first});
    if (back == follows.end() || back->second < count) before[pair.second].insert(pair.first);
  }
  std::vector<JobOperation> ordered;
  while (!seen.empty()) {
    const auto mean = [](const Seen& s) { return s.start / static_cast<double>(s.count); };
    auto next = seen.end();
    bool nextIsFree = false;  // none of those left comes before it
    for (auto at = seen.begin(); at != seen.end(); ++at) {
      const auto& needs = before[at->first];
      const bool isFree = std::ranges::none_of(needs, [&](const std::string& name) { return seen.contains(name); });
      if (next == seen.end() || (isFree && !nextIsFree) || (isFree == nextIsFree && mean(at->second) < mean(next->second))) {
        next = at;
        nextIsFree = isFree;
      }
    }
    JobOperation operation{next->first, groupNamed(next->first), std::vector<std::int32_t>(shape.ranks, -1), false};
    for (const auto& [rank, counts] : next->second.after)
      operation.after[rank.index()] = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; })->first;
    const bool isBefore = 2 * next->second.before > next->second.count;
    for (std::int32_t& after : operation.after) after = isBefore ? std::min(after, 0) : after;
    const auto isMostly = [](std::size_t count, std::size_t all) { return count > 0 && kMostly * count >= (kMostly - 1) * all; };
    operation.holdsMessage = !isBefore && isMostly(next->second.holding, next->second.count);
    operation.blocks = isBefore || operation.holdsMessage || isMostly(next->second.between, next->second.amid);
    ordered.push_back(std::move(operation));
    seen.erase(next);
  }
  return ordered;
}

}  // namespace pw
