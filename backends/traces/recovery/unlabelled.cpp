#include "backends/traces/recovery/unlabelled.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "backends/traces/events/events.h"
#include "backends/traces/events/spans.h"
#include "simulator/text/median.h"

namespace pw {
namespace {

bool isTransfer(SpanKind kind) { return isWait(kind) || isMessage(kind); }

struct Unlabelled {
  SpanKind kind = SpanKind::Forward;
  Stage stage{0};
  Microbatch microbatch{0};
  [[nodiscard]] std::pair<Stage, SpanKind> place() const { return {stage, kind}; }
};

/// What a rank does between two blocks of messages.
struct Gap {
  Rank rank{0};
  std::optional<Ns> start{}, end{};   ///< nothing: open
  Ns earliest = 0, latest = 0;        ///< of an open side: not beyond
  std::vector<Unlabelled> actions{};  ///< in their order
  [[nodiscard]] bool closed() const { return start && end; }
};

/// The middle one of what is known of a kind of actions, at first on its stage.
class Usual {
 public:
  void add(const Unlabelled& action, Ns time) {
    places_[action.place()].push_back(time);
    kinds_[action.kind].push_back(time);
  }
  /// Takes what was added into account.
  void settle() {
    for (const auto& [place, times] : places_) ofPlace_[place] = *upperMedianOf(times);
    for (const auto& [kind, times] : kinds_) ofKind_[kind] = *upperMedianOf(times);
  }
  [[nodiscard]] std::optional<Ns> of(const Unlabelled& action) const {
    if (const auto found = ofPlace_.find(action.place()); found != ofPlace_.end()) return found->second;
    if (const auto found = ofKind_.find(action.kind); found != ofKind_.end()) return found->second;
    return std::nullopt;
  }

 private:
  std::map<std::pair<Stage, SpanKind>, std::vector<Ns>> places_{};
  std::map<SpanKind, std::vector<Ns>> kinds_{};
  std::map<std::pair<Stage, SpanKind>, Ns> ofPlace_{};
  std::map<SpanKind, Ns> ofKind_{};
};

class Filler {
 public:
  explicit Filler(Material& material) : material_(material) {
    for (const Span& span : material.spans) last_ = std::max(last_, span.stage);
  }
  void fill();

 private:
  void findGaps(Rank rank, const std::vector<Span>& spans);
  [[nodiscard]] std::optional<std::pair<Ns, Ns>> marksBetween(Rank rank, Ns from, Ns to) const;
  void cutAtSteps(Gap gap);
  void learn();
  void place(const Gap& gap);

  Material& material_;
  Stage last_{0};
  std::vector<Gap> gaps_{};
  Usual usual_{};
};

/// Blocks are of messages and the optimizer; each gap has the actions that its messages say are there.
void Filler::findGaps(Rank rank, const std::vector<Span>& spans) {
  std::optional<Gap> gap = Gap{rank, {}, {}, spans.front().start - kLongestDuration, 0, {}};
  for (std::size_t i = 0; i < spans.size();) {
    std::size_t end = i;
    Ns blockEnd = spans[i].end;
    for (; end < spans.size() && spans[end].start <= blockEnd; ++end) blockEnd = std::max(blockEnd, spans[end].end);
    Gap next{rank, blockEnd, {}, blockEnd, 0, {}};
    for (; i < end; ++i) {
      const Span& span = spans[i];
      if (!gap->end) gap->end = gap->latest = span.start;
      if (span.kind == SpanKind::SendForward && span.stage.value == 0)
        gap->actions.push_back({SpanKind::Forward, span.stage, span.microbatch});
      if (span.kind == SpanKind::SendBackward && span.stage == last_)
        gap->actions.push_back({SpanKind::Backward, span.stage, span.microbatch});
      if (span.kind == SpanKind::WaitForward) next.actions.push_back({SpanKind::Forward, span.stage, span.microbatch});
      if (span.kind == SpanKind::WaitBackward) next.actions.push_back({SpanKind::Backward, span.stage, span.microbatch});
    }
    cutAtSteps(*std::move(gap));
    gap = std::move(next);
  }
  gap->latest = *gap->start + kLongestDuration;
  cutAtSteps(*std::move(gap));
}

/// The first and last mark of the profiler between these times, where a step begins; nothing where none does. Cost: logarithmic.
std::optional<std::pair<Ns, Ns>> Filler::marksBetween(Rank rank, Ns from, Ns to) const {
  if (rank.index() >= material_.marks.size()) return std::nullopt;
  const auto& marks = material_.marks[rank.index()];
  const auto startOf = [](const auto& mark) { return mark.first; };
  const auto first = std::ranges::lower_bound(marks, from, {}, startOf), after = std::ranges::upper_bound(marks, to, {}, startOf);
  if (first >= after) return std::nullopt;
  return std::pair(first->first, (after - 1)->first);
}

/// The first stage begins a step with a forward of the first microbatch, of which only the end is known, and ends it with a backward.
/// Neither reaches over the mark of a step.
void Filler::cutAtSteps(Gap gap) {
  if (gap.actions.empty()) return;
  const auto first = std::ranges::find_if(
      gap.actions, [](const Unlabelled& a) { return a.kind == SpanKind::Forward && a.stage.value == 0 && a.microbatch.value == 0; });
  const auto marks = marksBetween(gap.rank, gap.earliest, gap.latest);
  const Ns earliest = marks ? marks->second : gap.earliest, latest = gap.latest;
  if (first != gap.actions.end() && gap.end) {
    Gap begin{gap.rank, {}, gap.end, earliest, latest, {first, gap.actions.end()}};
    gap.actions.erase(first, gap.actions.end());
    gaps_.push_back(std::move(begin));
    gap.end = {};
    if (gap.actions.empty()) return;
  }
  gap.latest = std::max(!gap.end && marks ? marks->first : latest, gap.earliest);
  gaps_.push_back(std::move(gap));
}

void Filler::learn() {
  for (const Gap& gap : gaps_) {
    if (gap.closed() && gap.actions.size() == 1) usual_.add(gap.actions.front(), *gap.end - *gap.start);
  }
  usual_.settle();
}

void Filler::place(const Gap& gap) {
  std::vector<long double> weights;
  const bool known = std::ranges::all_of(gap.actions, [&](const Unlabelled& a) { return usual_.of(a).has_value(); });
  long double all = 0;
  for (const Unlabelled& action : gap.actions) {
    const std::int64_t twice = action.kind == SpanKind::Forward ? 1 : 2;
    weights.push_back(static_cast<long double>(known ? std::max<Ns>(1, *usual_.of(action)).value : twice));
    all += weights.back();
  }
  Ns start = gap.start.value_or(Ns{0}), end = gap.end.value_or(Ns{0});
  const auto open = known ? static_cast<Ns>(std::min(all, static_cast<long double>(kLongestDuration))) : Ns{0};
  if (!gap.end) end = std::min(start + open, gap.latest);
  if (!gap.start) start = std::max(end - open, gap.earliest);
  long double before = 0;
  for (std::size_t i = 0; i < gap.actions.size(); ++i) {
    const auto at = [&](long double share) { return start + static_cast<Ns>(static_cast<long double>(end - start) * share / all); };
    Span span;
    span.rank = span.peer = gap.rank;
    span.kind = gap.actions[i].kind;
    span.stage = gap.actions[i].stage;
    span.microbatch = gap.actions[i].microbatch;
    span.start = at(before);
    before += weights[i];
    span.end = i + 1 == gap.actions.size() ? end : at(before);
    if (span.end > span.start) material_.spans.push_back(span);
  }
}

void Filler::fill() {
  std::vector<std::vector<Span>> byRank(static_cast<std::size_t>(material_.ranks));
  for (const Span& span : material_.spans) {
    if (isTransfer(span.kind) || span.kind == SpanKind::Optimizer) byRank[span.rank.index()].push_back(span);
  }
  for (std::size_t r = 0; r < byRank.size(); ++r) {
    if (!byRank[r].empty()) findGaps(Rank(r), byRank[r]);
  }
  learn();
  for (const Gap& gap : gaps_) {  // what is shared tells what is usual on its stage, for what is open
    if (gap.closed()) place(gap);
  }
  for (const Span& span : material_.spans) {
    if (isCompute(span.kind)) usual_.add({span.kind, span.stage, span.microbatch}, span.end - span.start);
  }
  usual_.settle();
  for (const Gap& gap : gaps_) {
    if (!gap.closed()) place(gap);
  }
  sortSpans(material_.spans);
}

}  // namespace

void addUnlabelled(Material& material, std::vector<std::string>& notes) {
  const auto& spans = material.spans;
  if (std::ranges::any_of(spans, [](const Span& span) { return isCompute(span.kind); }) ||
      std::ranges::none_of(spans, [](const Span& span) { return isTransfer(span.kind); }))
    return;
  Filler(material).fill();
  notes.emplace_back(
      "No forward or backward is labelled: they are taken to fill the time between messages. Where two lie between the same messages they "
      "share it in the proportion of those that lie alone.");
}

}  // namespace pw
