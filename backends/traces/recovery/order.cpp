#include "backends/traces/recovery/order.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "backends/traces/events/spans.h"
#include "backends/traces/recovery/interleaving.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

bool isOrdered(const Span& span) {
  return span.microbatch.value < 0 && (isCompute(span.kind) || isMessage(span.kind) || isWait(span.kind));
}
bool endsForward(const Span& span) { return span.kind == SpanKind::Backward || span.kind == SpanKind::BackwardInput; }

/// Stage and microbatch of an action.
using Place = std::pair<Stage, Microbatch>;

class Numberer {
 public:
  Numberer(std::vector<Span>& spans, const OrderFacts& facts, std::vector<std::string>& notes)
      : spans_(spans), facts_(facts), notes_(notes) {}
  void number();

 private:
  void dropRepeated();
  void cutSteps();
  void dropHeads();
  void cutByCount();
  [[nodiscard]] UnnamedStep firstStep() const;
  void inferChunks();
  [[nodiscard]] std::optional<Place> placeOf(const Span& span, std::size_t k, std::size_t all) const;
  [[nodiscard]] bool hasOtherEnd(SpanKind kind, Stage stage) const;

  std::vector<Span>& spans_;
  const OrderFacts& facts_;
  std::vector<std::string>& notes_;
  std::vector<std::int32_t> step_;     ///< of each span, within its rank
  std::vector<std::size_t> forwards_;  ///< by rank: in a whole step
  int stages_ = 1, chunks_ = 1, pipelineRanks_ = 1;
  std::vector<std::vector<Place>> rowForwards_, rowBackwards_;  ///< with several chunks, by place in the pipeline
};

/// Those of a kind that its rank also recorded with numbers: torch labels a message once by its action and once by its transfer.
void Numberer::dropRepeated() {
  std::vector<std::uint32_t> numbered(static_cast<std::size_t>(facts_.ranks));
  const auto bit = [](SpanKind kind) { return 1U << static_cast<unsigned>(kind); };
  for (const Span& span : spans_) {
    if (!isOrdered(span)) numbered[span.rank.index()] |= bit(span.kind);
  }
  std::erase_if(spans_, [&](const Span& span) { return isOrdered(span) && (numbered[span.rank.index()] & bit(span.kind)) != 0; });
}

/// By marks, or after each optimizer.
void Numberer::cutSteps() {
  const auto& marks = *facts_.marks;
  const auto some = std::ranges::find_if(marks, [](const auto& of) { return !of.empty(); });
  const bool optimizers = std::ranges::any_of(spans_, [](const Span& span) { return span.kind == SpanKind::Optimizer; });
  if (some == marks.end() && !optimizers) {
    dropHeads();
    return cutByCount();
  }
  step_.assign(spans_.size(), 0);
  std::vector<std::int32_t> step(static_cast<std::size_t>(facts_.ranks));
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const std::size_t r = spans_[i].rank.index();
    if (some != marks.end()) {
      const auto& of = marks[r].empty() ? *some : marks[r];
      const auto next =
          std::upper_bound(of.begin(), of.end(), spans_[i].start, [](Ns time, const auto& mark) { return time < mark.first; });
      step_[i] = static_cast<std::int32_t>(next - of.begin());
    } else {
      step_[i] = step[r];
      if (spans_[i].kind == SpanKind::Optimizer) ++step[r];
    }
  }
}

/// The forwards of a rank before which as few microbatches are alive as ever in the recording: a step begins at one of them, with none.
struct QuietForwards {
  std::int64_t balance = 0, least = 0;     ///< forwards less backwards: so far, and at least
  std::int64_t forwards = 0, longest = 0;  ///< of the rank; and between two of these, or from the last to an end of the recording like them
  struct At {
    std::size_t span = 0;
    std::int64_t before = 0;  ///< forwards of the rank
  };
  std::vector<At> at;
  bool isHead = false;  ///< the rank did something before the first of them
};

std::vector<QuietForwards> quietForwards(const std::vector<Span>& spans, int ranks) {
  std::vector<QuietForwards> all(static_cast<std::size_t>(ranks));
  const auto change = [](const Span& span) { return span.kind == SpanKind::Forward ? 1 : endsForward(span) ? -1 : 0; };
  for (const Span& span : spans) {
    QuietForwards& of = all[span.rank.index()];
    of.least = std::min(of.least, of.balance += change(span));
  }
  for (QuietForwards& of : all) of.balance = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    QuietForwards& of = all[spans[i].rank.index()];
    if (spans[i].kind == SpanKind::Forward) {
      if (of.balance == of.least && !of.at.empty()) of.longest = std::max(of.longest, of.forwards - of.at.back().before);
      if (of.balance == of.least) of.at.push_back({i, of.forwards});
      ++of.forwards;
    }
    of.balance += change(spans[i]);
    of.isHead = of.isHead || (of.at.empty() && isCompute(spans[i].kind));
  }
  for (QuietForwards& of : all) {
    if (!of.at.empty() && of.balance == of.least) of.longest = std::max(of.longest, of.forwards - of.at.back().before);
  }
  return all;
}

/// A recording may begin within a step. Drops what each rank did before its first whole one: the rank with the longest steps tells where
/// they begin, and on ranks where any forward might be the first of one (the last ranks of 1F1B) the next one from then on is. Does nothing
/// where no rank does a whole step, and nothing on ranks whose clock says that they began more than a step before.
void Numberer::dropHeads() {
  const std::vector<QuietForwards> quiet = quietForwards(spans_, facts_.ranks);
  const auto longest = std::ranges::max_element(quiet, {}, &QuietForwards::longest);
  if (longest == quiet.end() || longest->longest == 0) return;
  const Ns begin = spans_[longest->at.front().span].start;
  std::vector<std::optional<std::pair<Ns, Ns>>> first(quiet.size());  // by rank: end of the action before the first step, and its start
  for (std::size_t r = 0; r < quiet.size(); ++r) {
    const QuietForwards& of = quiet[r];
    if (of.at.empty()) continue;
    const auto isNext = [&](const QuietForwards::At& at) { return spans_[at.span].start >= begin; };
    auto chosen = of.at.begin();
    if (of.longest < longest->longest && (longest->isHead || of.isHead)) {
      const auto next = std::ranges::find_if(of.at, isNext);
      if (next != of.at.end() && next->before < longest->longest) chosen = next;
    }
    const bool isWhole = chosen->before == 0 && !of.isHead;
    if (isWhole || chosen->before >= longest->longest) continue;
    first[r] = {std::numeric_limits<Ns>::min(), spans_[chosen->span].start};
    for (std::size_t i = 0; i < chosen->span; ++i) {
      if (spans_[i].rank.index() == r && isCompute(spans_[i].kind)) first[r]->first = std::max(first[r]->first, spans_[i].end);
    }
  }
  const std::size_t dropped = std::erase_if(spans_, [&](const Span& span) {
    const auto& of = first[span.rank.index()];
    if (!of || span.start >= of->second) return false;
    return span.kind != SpanKind::WaitForward || span.start < of->first;
  });
  if (dropped > 0)
    notes_.push_back(fmt::format("The recording begins within a step: {} left out, before the first whole one of each rank.",
                                 countedEvents(dropped, "event") + (dropped == 1 ? " was" : " were")));
}

void Numberer::cutByCount() {
  const auto ranks = static_cast<std::size_t>(facts_.ranks);
  std::vector<std::int64_t> pending(ranks), run(ranks), numbered(ranks);
  std::vector<char> done(ranks);
  // Without actions a forward is one that was sent, and a backward one whose gradient came, on ranks of the first stage.
  const bool messages = std::ranges::none_of(spans_, [](const Span& span) { return isCompute(span.kind); });
  for (const Span& span : spans_) {
    const std::size_t r = span.rank.index();
    if (messages && done[r] == 0) {
      if (span.kind == SpanKind::SendForward) ++pending[r], ++run[r];
      if (span.kind == SpanKind::WaitBackward && pending[r] > 0 && --pending[r] == 0) done[r] = 1;  // not of a step begun before
    }
    if (span.kind == SpanKind::Forward) numbered[r] = std::max<std::int64_t>(numbered[r], span.microbatch.value + 1);
    if (!isOrdered(span) || done[r] != 0) continue;
    if (span.kind == SpanKind::Forward) ++pending[r], ++run[r];
    if (endsForward(span) && --pending[r] <= 0) done[r] = 1;
  }
  const std::int64_t each = std::max<std::int64_t>(1, *std::ranges::max_element(run));
  std::vector<std::map<std::pair<SpanKind, Stage>, std::int64_t>> all(ranks), seen(ranks);
  for (const Span& span : spans_) ++all[span.rank.index()][{span.kind, span.stage}];
  step_.assign(spans_.size(), 0);
  bool uneven = false;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    const std::size_t r = span.rank.index();
    std::int64_t ofStep = each;
    if (messages) {  // as many of all
    } else if (!isCompute(span.kind) && numbered[r] > 0) {
      ofStep = numbered[r];
    } else if (!isCompute(span.kind)) {  // as often in a step as there are in all, shared among the steps
      const std::int64_t steps = std::max<std::int64_t>(1, all[r][{SpanKind::Forward, span.stage}] / each);
      ofStep = std::max<std::int64_t>(1, all[r][{span.kind, span.stage}] / steps);
    }
    const bool counts = messages ? span.kind == SpanKind::SendForward : isOrdered(span) && span.kind == SpanKind::Forward;
    uneven = uneven || (counts && all[r][{span.kind, span.stage}] % each != 0);
    step_[i] = static_cast<std::int32_t>(seen[r][{span.kind, span.stage}]++ / ofStep);
  }
  if (uneven)
    notes_.push_back(
        fmt::format("Steps were taken to have {} forwards each on a rank, but the ranks' forwards are no multiple of that: part of a step "
                    "is missing, or the "
                    "microbatches are wrong.",
                    each));
}

/// Of the first pipeline's first step.
UnnamedStep Numberer::firstStep() const {
  const auto ranks = static_cast<std::size_t>(pipelineRanks_);
  UnnamedStep step{std::vector<std::vector<std::pair<Ns, Ns>>>(ranks), std::vector<std::vector<std::pair<Ns, Ns>>>(ranks)};
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    const std::int32_t place = facts_.places->firstStage[span.rank.index()].value;
    if (!isOrdered(span) || facts_.places->pipeline[span.rank.index()] != 0 || step_[i] != step_.front() || place < 0 ||
        place >= pipelineRanks_)
      continue;
    if (span.kind == SpanKind::Forward) step.forwards[static_cast<std::size_t>(place)].emplace_back(span.start, span.end);
    if (endsForward(span)) step.backwards[static_cast<std::size_t>(place)].emplace_back(span.start, span.end);
  }
  return step;
}

void Numberer::inferChunks() {
  const std::optional<Interleaving> found = interleavingOf(firstStep());
  if (!found) {
    notes_.emplace_back(
        "The job has several stages on each rank, but its order does not say how many: all forwards of a rank are shown as one stage's.");
    return;
  }
  chunks_ = found->chunks;
  for (const auto& row : found->schedule.rows) {
    rowForwards_.emplace_back();
    rowBackwards_.emplace_back();
    for (const Action& action : row) {
      if (!isCompute(action.kind)) continue;  // a pause
      (action.kind == ActionKind::Forward ? rowForwards_ : rowBackwards_).back().emplace_back(action.stage, action.microbatch);
    }
  }
  stages_ = static_cast<int>(found->schedule.placement.stages());
  notes_.push_back(
      fmt::format("The names say neither chunk nor microbatch: from the order of the first rank, {} stages on each rank and {} "
                  "microbatches, in the order of interleaved 1F1B in groups of {} microbatches.",
                  found->chunks, found->microbatches, found->group));
}

bool Numberer::hasOtherEnd(SpanKind kind, Stage stage) const {
  if (kind == SpanKind::SendForward || kind == SpanKind::WaitBackward) return stage.value + 1 < stages_;
  if (kind == SpanKind::SendBackward || kind == SpanKind::WaitForward) return stage.value > 0;
  return true;
}

/// Of the k-th of the `all` spans like this one in their step.
std::optional<Place> Numberer::placeOf(const Span& span, std::size_t k, std::size_t all) const {
  const std::int32_t place = facts_.places->firstStage[span.rank.index()].value;
  if (chunks_ == 1) {
    const Stage stage = span.stage.value >= 0 ? span.stage : Stage(place);
    if (k >= static_cast<std::size_t>(kMaxMicrobatches) || !hasOtherEnd(span.kind, stage)) return std::nullopt;
    return Place{stage, Microbatch(static_cast<std::int32_t>(k))};
  }
  if (place < 0 || static_cast<std::size_t>(place) >= rowForwards_.size()) return std::nullopt;
  const bool forward = span.kind == SpanKind::Forward || span.kind == SpanKind::SendForward || span.kind == SpanKind::WaitForward;
  const auto& row = (forward ? rowForwards_ : rowBackwards_)[static_cast<std::size_t>(place)];
  if (isCompute(span.kind)) return k < row.size() ? std::optional(row[k]) : std::nullopt;
  std::vector<Place> ends;
  for (const Place& at : row) {
    if (hasOtherEnd(span.kind, at.first)) ends.push_back(at);
  }
  return ends.size() == all ? std::optional(ends[k]) : std::nullopt;
}

void Numberer::number() {
  dropRepeated();
  if (std::ranges::none_of(spans_, isOrdered)) return;
  cutSteps();
  for (const Stage stage : facts_.places->firstStage) stages_ = std::max(stages_, stage.value + 1);
  for (const Span& span : spans_) stages_ = std::max(stages_, span.stage.value + 1);
  pipelineRanks_ = static_cast<int>(std::ranges::count(facts_.places->pipeline, 0));
  if (facts_.chunks && std::ranges::any_of(spans_, [](const Span& s) { return isOrdered(s) && s.kind == SpanKind::Forward; }))
    inferChunks();
  using Like = std::tuple<std::int32_t, std::int32_t, SpanKind, std::int32_t>;
  const auto likeOf = [&](std::size_t i) { return Like{spans_[i].rank.value, step_[i], spans_[i].kind, spans_[i].stage.value}; };
  std::map<Like, std::size_t> all, seen;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (isOrdered(spans_[i])) ++all[likeOf(i)];
  }
  std::size_t lost = 0, lostCompute = 0, kept = 0;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    Span span = spans_[i];
    if (isOrdered(span)) {
      const Like like = likeOf(i);
      const auto place = placeOf(span, seen[like]++, all[like]);
      const bool single =
          chunks_ == 1 && !hasOtherEnd(span.kind, span.stage.value >= 0 ? span.stage : facts_.places->firstStage[span.rank.index()]);
      lost += place || single ? 0 : 1;
      lostCompute += !place && isCompute(span.kind) ? 1 : 0;
      if (!place) continue;
      span.stage = place->first;
      span.microbatch = place->second;
    }
    spans_[kept++] = span;
  }
  spans_.resize(kept);
  if (lost > 0)
    notes_.push_back(fmt::format("{} left out, because the order of the rank's other actions does not say of which microbatch.",
                                 countedEvents(lost, lostCompute == lost ? "action" : "message") + (lost == 1 ? " was" : " were")));
}

}  // namespace

void numberByOrder(std::vector<Span>& spans, const OrderFacts& facts, std::vector<std::string>& notes) {
  Numberer(spans, facts, notes).number();
}

}  // namespace pw
