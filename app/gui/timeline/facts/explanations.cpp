#include "app/gui/timeline/facts/explanations.h"

#include <QStringList>
#include <algorithm>
#include <tuple>

#include "app/gui/common/format.h"
#include "simulator/trace/span_kind.h"

namespace pw::gui {
namespace {

/// One cause in words.
struct Clause {
  QString what;
  Rank rank;
  Rank peer;
  bool message = false, queue = false;
  Ns until = 0;
  std::optional<SourcedSpan> span = {};
};

QString placed(SpanKind kind, Stage stage, Microbatch microbatch) {
  return QStringLiteral("%1%2%3").arg(stage.value).arg(textOf(nameOf(kind))).arg(microbatch.value);
}

QString said(const Clause& clause) {
  const QString until = durationText(clause.until);
  if (clause.queue) return translated("another message, of %1, to rank %2 until %3").arg(clause.what).arg(clause.peer.value).arg(until);
  if (clause.message) return translated("message of %1 to rank %2 until %3").arg(clause.what).arg(clause.peer.value).arg(until);
  return translated("%1 of rank %2 until %3").arg(clause.what).arg(clause.rank.value).arg(until);
}

/// What is said of each, the middle of a long chain left out.
std::vector<CauseStep> stepsOf(const std::vector<Clause>& clauses) {
  constexpr std::size_t kShown = 8;
  std::vector<CauseStep> steps;
  for (std::size_t i = 0; i < clauses.size(); ++i) {
    if (clauses.size() > kShown && i == kShown / 2) {
      const std::size_t cut = clauses.size() - kShown;
      i += cut;
      steps.push_back({translated("%n more", nullptr, static_cast<int>(cut)), std::nullopt});
    }
    steps.push_back({said(clauses[i]), clauses[i].span});
  }
  return steps;
}

void takeSteps(Cause& cause, const std::vector<Clause>& clauses) {
  cause.steps = stepsOf(clauses);
  QStringList parts;
  for (const CauseStep& step : cause.steps) parts << step.text;
  cause.chain = parts.join(QStringLiteral(" → "));
}

/// Why the awaited action was late: what precedes it in the chain.
QString lateness(const std::vector<Clause>& clauses, const QString& awaited, Rank rank) {
  const auto isAwaited = [&](const Clause& c) { return !c.message && c.rank == rank && c.what == awaited; };
  const auto at = std::find_if(clauses.rbegin(), clauses.rend(), isAwaited);
  if (at == clauses.rend() || at + 1 == clauses.rend()) return {};
  const Clause& before = *(at + 1);
  if (before.message) return translated(", which waits for the message of %1 from rank %2").arg(before.what).arg(before.rank.value);
  if (before.rank == rank) return translated(", which comes after %1").arg(before.what);
  return translated(", which waits for %1 of rank %2").arg(before.what).arg(before.rank.value);
}

/// Consecutive causes; a message that takes a channel and is then in flight is one cause.
std::vector<Clause> clausesOf(const std::vector<Segment>& causes, const Timeline& timeline, const Dependencies& dependencies) {
  std::vector<Clause> clauses;
  for (const Segment& s : causes) {
    Clause clause{nameOf(s.action), s.rank, s.peer, isMessage(s.doing), s.doing == Doing::Queue, s.to, std::nullopt};
    if (s.partner) clause.what = translated("%1 with %2").arg(clause.what, nameOf(*s.partner));
    if (s.doing == Doing::Load) clause.what = translated("loading");
    if (s.doing == Doing::Store) clause.what = translated("storing");
    const bool goesOn = !clauses.empty() && s.doing == Doing::Latency && clauses.back().message && !clauses.back().queue &&
                        clauses.back().what == clause.what && clauses.back().peer == clause.peer;
    if (goesOn) {
      clauses.back().until = s.to;
      continue;
    }
    if (const auto spans = spansOf({s}, timeline, dependencies); !spans.empty()) clause.span = spans.front();
    clauses.push_back(std::move(clause));
  }
  return clauses;
}

void addOnce(std::vector<SourcedSpan>& spans, const SourcedSpan& span) {
  if (spans.empty() || spans.back() != span) spans.push_back(span);
}

/// What a span shows as an action: of a message the one whose result it carries.
SpanTag carried(SpanTag tag) {
  if (tag.kind == SpanKind::SendForward) tag.kind = SpanKind::Forward;
  if (tag.kind == SpanKind::SendBackward) tag.kind = SpanKind::Backward;
  return tag;
}

}  // namespace

QString nameOf(const SpanTag& tag) {
  switch (tag.kind) {
    case SpanKind::SendForward:
    case SpanKind::SendBackward: return translated("message %1").arg(placed(carried(tag).kind, tag.stage, tag.microbatch));
    case SpanKind::ReduceGrad:
      return tag.stage.value >= 0 ? translated("sum of gradients of stage %1").arg(tag.stage.value) : translated("sum of shared gradients");
    case SpanKind::Optimizer: return translated("optimizer");
    case SpanKind::Load: return translated("loading of microbatch %1").arg(tag.microbatch.value);
    case SpanKind::Store: return translated("storing of microbatch %1").arg(tag.microbatch.value);
    case SpanKind::Forward:
    case SpanKind::Backward:
    case SpanKind::BackwardInput:
    case SpanKind::BackwardWeight:
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward: break;
  }
  return placed(tag.kind, tag.stage, tag.microbatch);
}

QString nameOf(const Action& action) {
  const std::string_view word = letters(action.kind);
  return QStringLiteral("%1%2%3").arg(action.stage.value).arg(textOf(word)).arg(action.microbatch.value);
}

std::vector<SourcedSpan> spansOf(const std::vector<Segment>& segments, const Timeline& timeline, const Dependencies& dependencies) {
  std::vector<SourcedSpan> spans;
  const auto add = [&](const std::optional<SpanRef>& ref) {
    if (ref) addOnce(spans, {Source::Predicted, *ref});
  };
  for (const Segment& s : segments) {
    const bool gradients = s.action.kind != ActionKind::Forward;
    switch (s.doing) {
      case Doing::Compute:
        add(dependencies.find(s.rank, *spanKind(s.action.kind), s.action.stage, s.action.microbatch));
        if (s.partner) add(dependencies.find(s.rank, *spanKind(s.partner->kind), s.partner->stage, s.partner->microbatch));
        break;
      case Doing::Transfer:
      case Doing::Queue:
      case Doing::Latency:
        add(dependencies.find(s.rank,
                              {gradients ? SpanKind::SendBackward : SpanKind::SendForward, s.action.stage, s.action.microbatch, s.peer}));
        break;
      case Doing::Load:
      case Doing::Store: {
        if (s.rank.index() >= timeline.ranks.size()) break;
        if (const auto index = spanAt(timeline.ranks[s.rank.index()].compute, s.from))
          add(SpanRef{s.rank, TrackKind::Compute, static_cast<std::int32_t>(*index)});
        break;
      }
    }
  }
  return spans;
}

Cause causeOf(const Bubble& bubble, const Timeline& timeline, const Dependencies& dependencies) {
  const std::vector<Clause> clauses = clausesOf(bubble.causes, timeline, dependencies);
  const QString awaited = nameOf(bubble.awaited);
  const QString time = durationText(bubble.end - bubble.start);
  Cause cause;
  if (!bubble.next)
    cause.headline =
        translated("Rank %1 is done %2 before %3 of rank %4 ends").arg(bubble.rank.value).arg(time, awaited).arg(bubble.awaitedRank.value);
  else if (bubble.awaitedRank == bubble.rank)
    cause.headline = translated("Rank %1 waits %2 to hand over %3").arg(bubble.rank.value).arg(time, awaited);
  else
    cause.headline =
        translated("Rank %1 waits %2 for %3 of rank %4").arg(bubble.rank.value).arg(time, awaited).arg(bubble.awaitedRank.value);
  cause.headline += lateness(clauses, awaited, bubble.awaitedRank);
  takeSteps(cause, clauses);
  cause.spans = spansOf(bubble.causes, timeline, dependencies);
  return cause;
}

Cause simpleCause(const BubbleRef& bubble, const Timeline& timeline, const Dependencies& dependencies) {
  const auto [from, to] = gapOf(timeline, bubble);
  const QString time = durationText(to - from);
  const SpanTrack& track = timeline.ranks[bubble.rank.index()].compute;
  Cause cause;
  if (static_cast<std::size_t>(bubble.next) >= track.size()) {
    cause.headline = track.size() == 0 ? translated("Rank %1 has nothing to do").arg(bubble.rank.value)
                                       : translated("Rank %1 is done %2 before the others").arg(bubble.rank.value).arg(time);
    return cause;
  }
  constexpr std::size_t kMost = 10'000;  // clocks of measured ranks may disagree: time then need not go back at each step
  std::vector<SpanRef> chain;
  SpanRef at{bubble.rank, TrackKind::Compute, bubble.next};
  while (chain.size() < kMost && spanOf(timeline, at).start > from) {
    const auto before = dependencies.awaited(at);
    if (!before || spanOf(timeline, *before).end <= from) break;
    chain.push_back(at = *before);
  }
  std::reverse(chain.begin(), chain.end());
  std::vector<Clause> clauses;
  for (const SpanRef& ref : chain) {
    const Span span = spanOf(timeline, ref);
    const SpanTag tag = carried({span.kind, span.stage, span.microbatch, span.peer});
    clauses.push_back(
        {nameOf(tag), span.rank, span.peer, ref.track == TrackKind::Communication, false, span.end, SourcedSpan{bubble.source, ref}});
    cause.spans.push_back({bubble.source, ref});
  }
  if (clauses.empty()) {
    const SpanTag& next = track.tags[static_cast<std::size_t>(bubble.next)];
    cause.headline =
        translated("Rank %1 is idle for %2 before %3; none of its inputs was late").arg(bubble.rank.value).arg(time, nameOf(next));
    return cause;
  }
  const Clause& last = clauses.back();
  cause.headline = translated("Rank %1 waits %2 for %3 of rank %4").arg(bubble.rank.value).arg(time, last.what).arg(last.rank.value);
  cause.headline += lateness(clauses, last.what, last.rank);
  takeSteps(cause, clauses);
  return cause;
}

const Bubble* bubbleIn(const Explanation& explanation, Rank rank, Ns from, Ns to) {
  const auto& all = explanation.bubbles;
  const auto before = [](const Bubble& b, const std::pair<Rank, Ns>& key) {
    return std::tie(b.rank, b.end) <= std::tie(key.first, key.second);
  };
  const Bubble* best = nullptr;
  const auto shared = [&](const Bubble& b) { return std::min(b.end, to) - std::max(b.start, from); };
  for (auto at = std::lower_bound(all.begin(), all.end(), std::pair(rank, from), before);
       at != all.end() && at->rank == rank && at->start < to; ++at) {
    if (best == nullptr || shared(*at) > shared(*best)) best = &*at;
  }
  return best;
}

std::vector<FlowArrow> arrowsOf(const SourcedSpan& span, const Timeline& timeline, const Dependencies& dependencies) {
  std::vector<FlowArrow> arrows;
  for (const Flow& flow : flowsOf(dependencies, span.span)) {
    FlowArrow arrow;
    arrow.from = {span.source, flow.from};
    arrow.to = {span.source, flow.to};
    arrow.left = spanOf(timeline, flow.from).end;
    arrow.arrives = spanOf(timeline, flow.to).start;
    arrow.isIncoming = flow.to == span.span;
    const SpanRef& other = arrow.isIncoming ? flow.from : flow.to;
    const QString name = nameOf(trackOf(timeline, other).tags[static_cast<std::size_t>(other.index)]);
    arrow.otherEnd = (arrow.isIncoming ? translated("from %1, rank %2") : translated("to %1, rank %2")).arg(name).arg(other.rank.value);
    arrows.push_back(std::move(arrow));
  }
  return arrows;
}

}  // namespace pw::gui
