#include "app/gui/timeline/facts/dependencies.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "app/gui/document/copies.h"

namespace pw::gui {
namespace {

bool isLinked(SpanKind kind) { return isCompute(kind) || isMessage(kind); }
bool isGradient(SpanKind kind) { return kind == SpanKind::Backward || kind == SpanKind::BackwardInput || kind == SpanKind::SendBackward; }
SpanKind messageOf(bool gradients) { return gradients ? SpanKind::SendBackward : SpanKind::SendForward; }

const SpanTrack& trackAt(const Timeline& timeline, std::size_t number) {
  const Timeline::RankTracks& tracks = timeline.ranks[number / 2];
  return number % 2 == 0 ? tracks.compute : tracks.communication;
}

/// By the key, ties by place; each once.
void sortOnce(std::vector<SpanRef>& refs, const auto& keyOf) {
  std::ranges::sort(refs, {}, [&](const SpanRef& ref) { return std::pair(keyOf(ref), ref); });
  refs.erase(std::unique(refs.begin(), refs.end()), refs.end());
}

}  // namespace

StageLinks linksOf(const CostTable& costs) {
  StageLinks links;
  for (auto& ends : links.ends) ends.resize(costs.stages.size());
  for (const MessageCost& m : costs.messages) {
    auto& ends = links.ends[m.backward ? 1 : 0];
    if (m.from.index() >= ends.size() || m.to.index() >= ends.size()) continue;
    ends[m.from.index()].targets.push_back(m.to);
    ends[m.to.index()].sources.push_back(m.from);
  }
  return links;
}

StageLinks chainLinks(int stages) {
  StageLinks links;
  for (auto& ends : links.ends) ends.resize(static_cast<std::size_t>(std::max(0, stages)));
  for (int s = 0; s + 1 < stages; ++s) {
    const auto at = static_cast<std::size_t>(s);
    links.ends[0][at].targets.push_back(Stage(s + 1));
    links.ends[0][at + 1].sources.push_back(Stage(s));
    links.ends[1][at + 1].targets.push_back(Stage(s));
    links.ends[1][at].sources.push_back(Stage(s + 1));
  }
  return links;
}

Dependencies::Dependencies(const Timeline& timeline, StageLinks links) : timeline_(timeline), links_(std::move(links)) {
  ranksOfCopy_ = std::max<std::size_t>(1, timeline.ranks.size() / copiesIn(timeline));
  first_.push_back(0);
  for (std::size_t t = 0; t < 2 * timeline.ranks.size(); ++t)
    first_.push_back(first_.back() + static_cast<std::int32_t>(trackAt(timeline, t).size()));
  const auto spans = static_cast<std::size_t>(first_.back());
  mask_ = std::bit_ceil(std::max<std::size_t>(64, 2 * spans)) - 1;
  head_.assign(mask_ + 1, kNone);
  next_.assign(spans, kNone);
  for (std::size_t t = 2 * timeline.ranks.size(); t-- > 0;) {
    const SpanTrack& track = trackAt(timeline, t);
    for (std::size_t i = track.size(); i-- > 0;) {
      const SpanTag& tag = track.tags[i];
      if (!isLinked(tag.kind)) continue;
      const auto number = static_cast<std::int32_t>(static_cast<std::size_t>(first_[t]) + i);
      std::int32_t& head = head_[bucketOf(tag.kind, tag.stage, tag.microbatch)];
      next_[static_cast<std::size_t>(number)] = std::exchange(head, number);
    }
  }
}

/// Neighbouring microbatches of a stage lie next to each other, so that a schedule of few kinds fills the table without collisions.
std::size_t Dependencies::bucketOf(SpanKind kind, Stage stage, Microbatch microbatch) const {
  const auto stages = static_cast<std::size_t>(std::max(1, timeline_.stages));
  const auto action = static_cast<std::uint32_t>(microbatch.value) * stages + static_cast<std::uint32_t>(stage.value);
  return (action * 6 + static_cast<std::size_t>(kind)) & mask_;
}

template <class Visit>
void Dependencies::each(SpanKind kind, Stage stage, Microbatch microbatch, Visit visit) const {
  for (std::int32_t at = head_[bucketOf(kind, stage, microbatch)]; at != kNone; at = next_[static_cast<std::size_t>(at)]) {
    const SpanRef ref = refOf(at);
    const SpanTag& tag = trackOf(timeline_, ref).tags[static_cast<std::size_t>(ref.index)];
    if (tag.kind == kind && tag.stage == stage && tag.microbatch == microbatch) visit(ref, tag);
  }
}

SpanRef Dependencies::refOf(std::int32_t number) const {
  const auto track = static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), number) - first_.begin()) - 1;
  return {Rank(track / 2), track % 2 == 0 ? TrackKind::Compute : TrackKind::Communication, number - first_[track]};
}

std::optional<SpanRef> Dependencies::find(Rank rank, SpanKind kind, Stage stage, Microbatch microbatch) const {
  std::optional<SpanRef> found;
  each(kind, stage, microbatch, [&](const SpanRef& ref, const SpanTag&) {
    if (!found && ref.rank == rank) found = ref;
  });
  return found;
}

std::optional<SpanRef> Dependencies::find(Rank rank, const SpanTag& tag) const {
  std::optional<SpanRef> found;
  each(tag.kind, tag.stage, tag.microbatch, [&](const SpanRef& ref, const SpanTag& other) {
    if (!found && ref.rank == rank && other == tag) found = ref;
  });
  return found;
}

const StageLinks::Ends& Dependencies::endsOf(Stage stage, bool gradients) const {
  static const StageLinks::Ends kNoEnds;
  const auto& ends = links_.ends[gradients ? 1 : 0];
  return stage.value >= 0 && stage.index() < ends.size() ? ends[stage.index()] : kNoEnds;
}

/// Of several of one copy of the pipeline that did this (replicas of a stage, repeated steps): on this rank rather than elsewhere, and then
/// the last that ended in time.
std::optional<SpanRef> Dependencies::producer(SpanKind kind, Stage stage, Microbatch microbatch, Rank rank, Ns before) const {
  std::optional<SpanRef> best;
  std::pair<int, Ns> bestScore;
  each(kind, stage, microbatch, [&](const SpanRef& ref, const SpanTag&) {
    if (!isOfOneCopy(rank, ref.rank)) return;
    const Ns end = trackOf(timeline_, ref).end[static_cast<std::size_t>(ref.index)];
    const std::pair score(2 * (end <= before ? 1 : 0) + (ref.rank == rank ? 1 : 0), end <= before ? end : -end);
    if (!best || score > bestScore) std::tie(best, bestScore) = std::pair(std::optional(ref), score);
  });
  return best;
}

/// What comes from other stages: by message where this rank was sent one, else from the action itself.
void Dependencies::addInputs(std::vector<SpanRef>& found, const SpanTag& tag, Rank rank, Ns start, bool gradients) const {
  for (const Stage source : endsOf(tag.stage, gradients).sources) {
    const std::size_t before = found.size();
    each(messageOf(gradients), source, tag.microbatch, [&](const SpanRef& ref, const SpanTag& message) {
      if (message.peer == rank) found.push_back(ref);
    });
    if (found.size() > before) continue;
    const auto direct = [&](SpanKind kind) { return producer(kind, source, tag.microbatch, rank, start); };
    std::optional<SpanRef> action = direct(gradients ? SpanKind::Backward : SpanKind::Forward);
    if (!action && gradients) action = direct(SpanKind::BackwardInput);
    if (action) found.push_back(*action);
  }
}

std::vector<SpanRef> Dependencies::inputs(const SpanRef& span) const {
  const Span self = spanOf(timeline_, span);
  const SpanTag tag{self.kind, self.stage, self.microbatch, self.peer};
  std::vector<SpanRef> found;
  const auto add = [&](SpanKind kind) {
    if (const auto ref = producer(kind, tag.stage, tag.microbatch, span.rank, self.start)) return found.push_back(*ref), true;
    return false;
  };
  switch (tag.kind) {
    case SpanKind::Forward: addInputs(found, tag, span.rank, self.start, false); break;
    case SpanKind::Backward:
    case SpanKind::BackwardInput:
      add(SpanKind::Forward);
      addInputs(found, tag, span.rank, self.start, true);
      break;
    case SpanKind::BackwardWeight: add(SpanKind::BackwardInput); break;
    case SpanKind::SendForward: add(SpanKind::Forward); break;
    case SpanKind::SendBackward:
      if (!add(SpanKind::Backward)) add(SpanKind::BackwardInput);
      break;
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward:
    case SpanKind::ReduceGrad:
    case SpanKind::Optimizer:
    case SpanKind::Load:
    case SpanKind::Store: break;
  }
  sortOnce(found, [&](const SpanRef& ref) { return -spanOf(timeline_, ref).end; });
  return found;
}

/// What goes to other stages: messages, and the actions of stages that no message is for.
void Dependencies::addOutputs(std::vector<SpanRef>& found, const SpanTag& tag, Rank rank, bool gradients) const {
  std::vector<Rank> receivers;
  each(messageOf(gradients), tag.stage, tag.microbatch, [&](const SpanRef& ref, const SpanTag& message) {
    if (ref.rank != rank) return;
    found.push_back(ref);
    receivers.push_back(message.peer);
  });
  const auto consumer = [&](const SpanRef& ref, const SpanTag&) {
    if (isOfOneCopy(rank, ref.rank) && std::find(receivers.begin(), receivers.end(), ref.rank) == receivers.end()) found.push_back(ref);
  };
  for (const Stage target : endsOf(tag.stage, gradients).targets) {
    each(gradients ? SpanKind::Backward : SpanKind::Forward, target, tag.microbatch, consumer);
    if (gradients) each(SpanKind::BackwardInput, target, tag.microbatch, consumer);
  }
}

std::vector<SpanRef> Dependencies::outputs(const SpanRef& span) const {
  const Span self = spanOf(timeline_, span);
  const SpanTag tag{self.kind, self.stage, self.microbatch, self.peer};
  std::vector<SpanRef> found;
  const auto add = [&](SpanKind kind, Stage stage, Rank rank) {
    each(kind, stage, tag.microbatch, [&](const SpanRef& ref, const SpanTag&) {
      if (ref.rank == rank) found.push_back(ref);
    });
  };
  const bool gradients = isGradient(tag.kind);
  switch (tag.kind) {
    case SpanKind::Forward:
    case SpanKind::Backward:
    case SpanKind::BackwardInput:
      addOutputs(found, tag, span.rank, gradients);
      if (tag.kind == SpanKind::BackwardInput) add(SpanKind::BackwardWeight, tag.stage, span.rank);
      if (gradients) break;
      add(SpanKind::Backward, tag.stage, span.rank);
      add(SpanKind::BackwardInput, tag.stage, span.rank);
      break;
    case SpanKind::SendForward:
    case SpanKind::SendBackward:
      for (const Stage target : endsOf(tag.stage, gradients).targets) {
        add(gradients ? SpanKind::Backward : SpanKind::Forward, target, tag.peer);
        if (gradients) add(SpanKind::BackwardInput, target, tag.peer);
      }
      break;
    case SpanKind::BackwardWeight:
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward:
    case SpanKind::ReduceGrad:
    case SpanKind::Optimizer:
    case SpanKind::Load:
    case SpanKind::Store: break;
  }
  sortOnce(found, [&](const SpanRef& ref) { return spanOf(timeline_, ref).start; });
  return found;
}

std::optional<SpanRef> Dependencies::beside(const SpanRef& span, int direction) const {
  const std::int32_t index = span.index + (direction < 0 ? -1 : 1);
  const auto size = static_cast<std::int32_t>(trackOf(timeline_, span).size());
  if (span.track != TrackKind::Compute || index < 0 || index >= size) return std::nullopt;
  return SpanRef{span.rank, span.track, index};
}

std::optional<SpanRef> Dependencies::awaited(const SpanRef& span) const {
  const std::vector<SpanRef> needed = inputs(span);
  std::optional<SpanRef> before = beside(span, -1);
  // The two of a slot stand side by side with equal times: neither waited for the other.
  const Ns start = spanOf(timeline_, span).start;
  while (before && spanOf(timeline_, *before).start >= start) before = beside(*before, -1);
  if (needed.empty()) return before;
  if (before && spanOf(timeline_, *before).end >= spanOf(timeline_, needed.front()).end) return before;
  return needed.front();
}

std::vector<Flow> flowsOf(const Dependencies& dependencies, const SpanRef& span) {
  std::vector<Flow> flows;
  const auto carry = [&](const SpanRef& message) {
    for (const SpanRef& from : dependencies.inputs(message)) {
      for (const SpanRef& to : dependencies.outputs(message)) flows.push_back({from, to, message});
    }
  };
  if (span.track == TrackKind::Communication) {
    carry(span);
    return flows;
  }
  for (const SpanRef& input : dependencies.inputs(span)) {
    if (input.track == TrackKind::Compute) {
      if (input.rank != span.rank) flows.push_back({input, span, std::nullopt});
      continue;
    }
    for (const SpanRef& from : dependencies.inputs(input)) flows.push_back({from, span, input});
  }
  for (const SpanRef& output : dependencies.outputs(span)) {
    if (output.track == TrackKind::Compute) {
      if (output.rank != span.rank) flows.push_back({span, output, std::nullopt});
      continue;
    }
    for (const SpanRef& to : dependencies.outputs(output)) flows.push_back({span, to, output});
  }
  return flows;
}

}  // namespace pw::gui
