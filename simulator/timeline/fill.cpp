#include "simulator/timeline/fill.h"
#include <algorithm>
#include <array>
#include <future>
#include <limits>
#include <span>
#include <utility>

#include "simulator/step/execute.h"
#include "simulator/step/program.h"
#include "simulator/timeline/writers.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

/// Writes rows, and of every rank the messages of each of its channels and its reductions as one run each; then the runs are merged. Steps
/// are processed in pieces, and within a piece lane by lane: all lanes at once would write to too many places for the caches, and whole
/// lanes in turn would read all steps too many times.
class Filler {
 public:
  Filler(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times, Timeline& timeline)
      : rows_(rows),
        costs_(costs),
        program_(program),
        times_(times),
        timeline_(timeline),
        rowEnd_(rows.rows.size(), 0),
        reductionEnd_(rows.rows.size(), 0) {}

  void run() {
    timeline_.ranks.resize(rows_.rows.size());
    timeline_.stages = static_cast<int>(costs_.stages.size());
    begin();
    const auto rows = [this] {
      fillRows();
      if (program_.reducers > 0) return;
      fillStepEnd();
      summarizeRanks(timeline_);
    };
    const auto messages = [this] {
      fillMessages();
      summarizeCommunication(timeline_);
    };
    sideBySide(program_.steps.size() > kWorthAThread && !hasFree_, rows, messages);  // free messages come from rows
    if (program_.reducers > 0) {                                                     // the step ends after them
      fillStepEnd();
      summarizeRanks(timeline_);
    }
    const Ns first = std::min(rowsPass_.first, messagesPass_.first);
    if (first != 0 && first != std::numeric_limits<Ns>::max()) shift(first);
    summarizeWhole(timeline_);
  }

 private:
  static constexpr std::int32_t kPiece = 1024;
  static constexpr std::size_t kWorthAThread = 30'000;  ///< steps; starting a thread takes as long as filling a few hundred
  /// Steps [begin, end): the parts of a program and its times that are needed, in one array each.
  struct Piece {
    struct Entry {
      Ns start, end;
      Origin origin;
      std::int32_t use;
    };
    std::array<Entry, kPiece> entries;
    std::int32_t begin = 0, end = 0;

    const Entry& operator[](std::int32_t step) const { return entries[index(step - begin)]; }
  };
  /// One traversal of all steps.
  struct Pass {
    Piece taken;
    Ns first = std::numeric_limits<Ns>::max();  ///< first start of a span, waits included
  };
  using Steps = std::span<const std::int32_t>;
  /// Runs both, the second on its own thread if that pays off. They write to different tracks.
  template <class First, class Second>
  static void sideBySide(bool pays, const First& first, const Second& second) {
    if (!pays) {
      first();
      second();
      return;
    }
    std::future<void> other = std::async(std::launch::async, second);
    first();
    other.get();
  }
  /// What a rank computes, up to the current position of the traversal.
  struct Lane {
    SpanWriter spans;
    MemoryWriter memory;
    Ns before = 0;  ///< end of the last step
  };
  /// Where the messages of a sender on a channel, or a rank's reductions, go.
  struct Run {
    SpanTrack* track = nullptr;
    std::size_t next = 0;
  };
  [[nodiscard]] Rank senderOf(const Origin& message) const {
    return rows_.placement.rankOf(costs_.messages[index(message.index)].from, message.microbatch);
  }
  void begin();
  void countMessages();
  void layOutRuns();
  void fillRows();
  void fillMessages();
  void take(Piece& piece, std::int32_t begin, std::int32_t end) const;
  Steps next(std::size_t lane, std::int32_t end);
  void fillRow(Rank rank, Steps steps);
  void fillStep(Rank rank, Lane& lane, std::int32_t step);
  void fillFree(Rank rank, Steps steps);
  void fillChannel(std::size_t channel, Steps steps);
  void fillReductions(Rank rank, Steps steps);
  void put(Run& run, Ns start, Ns end, const SpanTag& tag);
  [[nodiscard]] SpanTag tagOf(std::int32_t message, Microbatch microbatch) const;
  void fillStepEnd();
  void shift(Ns first);

  const Schedule& rows_;
  const CostTable& costs_;
  const Program& program_;
  const Times& times_;
  Timeline& timeline_;
  std::vector<Ns> rowEnd_;
  Pass rowsPass_, messagesPass_;
  std::vector<Ns> reductionEnd_;                  ///< by rank
  std::vector<Steps> left_;                       ///< by lane: not taken yet
  std::vector<Lane> lanes_;                       ///< by rank
  std::vector<std::array<Run, 2>> channels_;      ///< by channel: of the sender of its first message, and of the other where both share it
  std::vector<Rank> firstSender_;                 ///< by channel
  std::vector<Run> reductions_;                   ///< by rank
  std::vector<std::vector<std::size_t>> begins_;  ///< by rank: of the runs of its communication track
  bool sharesChannels_ = false;                   ///< both directions of a rank pair use one
  bool hasFree_ = false;                          ///< messages that hold no channel, perhaps
  bool trains_ = false;
};

/// There is one channel for each direction of a rank pair that messages use, or one for both. Messages without a channel are free.
void Filler::countMessages() {
  const Placement& placement = rows_.placement;
  std::vector<std::pair<Rank, Rank>> directions;
  std::int64_t between = 0, carried = 0;
  const std::int64_t mirrored =
      placement.bidirectional() ? std::clamp(rows_.microbatches - placement.firstMirrored.value, 0, rows_.microbatches) : 0;
  for (const auto* const ranks : {&placement.rankOfStage, &placement.mirrorOfStage}) {
    if (ranks->empty()) continue;
    for (const MessageCost& m : costs_.messages) {
      if ((*ranks)[m.from.index()] == (*ranks)[m.to.index()]) continue;
      directions.emplace_back((*ranks)[m.from.index()], (*ranks)[m.to.index()]);
      between += ranks == &placement.mirrorOfStage ? mirrored : rows_.microbatches - mirrored;
    }
  }
  std::sort(directions.begin(), directions.end());
  directions.erase(std::unique(directions.begin(), directions.end()), directions.end());
  sharesChannels_ = index(program_.channels) < directions.size();
  for (std::int32_t c = 0; c < program_.channels; ++c) carried += static_cast<std::int64_t>(program_.stepsOf(program_.ranks + c).size());
  hasFree_ = carried < between;
}

/// A run for each channel a rank sends on and for its reductions; free messages are appended after them.
void Filler::layOutRuns() {
  const auto ranks = rows_.rows.size();
  begins_.resize(ranks);
  channels_.resize(index(program_.channels));
  firstSender_.resize(channels_.size());
  reductions_.resize(ranks);
  std::vector<std::size_t> sizes(ranks, 0);
  const auto add = [&](Rank rank, std::size_t size) {
    begins_[rank.index()].push_back(sizes[rank.index()]);
    sizes[rank.index()] += size;
    return Run{&timeline_.ranks[rank.index()].communication, begins_[rank.index()].back()};
  };
  for (std::int32_t c = 0; c < program_.channels; ++c) {
    const auto steps = program_.stepsOf(program_.ranks + c);
    if (steps.empty()) continue;
    const Origin& first = program_.origin[index(steps.front())];
    firstSender_[index(c)] = senderOf(first);
    std::size_t own = steps.size();
    if (sharesChannels_) {
      own = static_cast<std::size_t>(std::count_if(
          steps.begin(), steps.end(), [&](std::int32_t step) { return senderOf(program_.origin[index(step)]) == firstSender_[index(c)]; }));
      channels_[index(c)][1] = add(rows_.placement.rankOf(costs_.messages[index(first.index)].to, first.microbatch), steps.size() - own);
    }
    channels_[index(c)][0] = add(firstSender_[index(c)], own);
  }
  for (std::int32_t rank = 0; rank < program_.reducers; ++rank)
    reductions_[index(rank)] = add(Rank(rank), program_.stepsOf(program_.ranks + program_.channels + rank).size());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    SpanTrack& track = timeline_.ranks[rank].communication;
    track.start.resize(sizes[rank]);
    track.end.resize(sizes[rank]);
    track.tags.resize(sizes[rank]);
    if (hasFree_) begins_[rank].push_back(sizes[rank]);
  }
}

void Filler::begin() {
  countMessages();
  layOutRuns();
  for (std::int32_t lane = 0; lane < program_.ranks + program_.channels + program_.reducers; ++lane)
    left_.push_back(program_.stepsOf(lane));
  lanes_.reserve(rows_.rows.size());
  for (std::size_t rank = 0; rank < rows_.rows.size(); ++rank) {
    Timeline::RankTracks& tracks = timeline_.ranks[rank];
    const std::size_t steps = program_.stepsOf(static_cast<std::int32_t>(rank)).size();
    lanes_.push_back(
        {SpanWriter(tracks.compute, rows_.rows[rank].size() + costs_.stages.size() + 1), MemoryWriter(tracks.memory, 3 * steps + 64)});
    lanes_.back().memory.change(0, program_.atStart[rank]);
  }
}

void Filler::fillRows() {
  const auto steps = static_cast<std::int32_t>(program_.steps.size()) - 1;
  for (std::int32_t end = 0; end < steps;) {
    take(rowsPass_.taken, end, std::min(steps, end + kPiece));
    end = rowsPass_.taken.end;
    for (std::int32_t rank = 0; rank < program_.ranks; ++rank) fillRow(Rank(rank), next(index(rank), end));
  }
  for (std::size_t rank = 0; rank < lanes_.size(); ++rank) {
    lanes_[rank].spans.finish();
    lanes_[rank].memory.settle();
    lanes_[rank].memory.finish();
    rowEnd_[rank] = lanes_[rank].before;
  }
}

void Filler::fillMessages() {
  const auto steps = static_cast<std::int32_t>(program_.steps.size()) - 1;
  for (std::int32_t end = 0; end < steps;) {
    take(messagesPass_.taken, end, std::min(steps, end + kPiece));
    end = messagesPass_.taken.end;
    auto lane = index(program_.ranks);
    for (std::size_t channel = 0; channel < channels_.size(); ++channel) fillChannel(channel, next(lane++, end));
    for (std::int32_t rank = 0; rank < program_.reducers; ++rank) fillReductions(Rank(rank), next(lane++, end));
  }
  for (std::size_t rank = 0; rank < lanes_.size(); ++rank) {
    mergeRuns(timeline_.ranks[rank].communication, std::move(begins_[rank]));
    sortTies(timeline_.ranks[rank].communication);
  }
}

void Filler::take(Piece& piece, std::int32_t begin, std::int32_t end) const {
  piece.begin = begin;
  piece.end = end;
  for (std::int32_t step = begin; step < end; ++step) {
    Piece::Entry& entry =
        piece.entries[index(step - begin)];  // one value after the other: of a whole entry the compiler makes a copy on the stack first
    entry.start = times_.start[index(step)];
    entry.end = entry.start + program_.duration[index(step)];
    entry.origin = program_.origin[index(step)];
    entry.use = program_.useOf[index(step)];
  }
}

/// The lane's steps before `end` that were not returned before.
Filler::Steps Filler::next(std::size_t lane, std::int32_t end) {
  Steps& left = left_[lane];
  std::size_t count = 0;
  while (count < left.size() && left[count] < end) ++count;
  const Steps found = left.first(count);
  left = left.subspan(count);
  return found;
}

void Filler::fillRow(Rank rank, Steps steps) {
  Lane lane = lanes_[rank.index()];  // the compiler keeps a copy in registers
  for (const std::int32_t step : steps) fillStep(rank, lane, step);
  lanes_[rank.index()] = lane;
  if (hasFree_) fillFree(rank, steps);
}

void Filler::fillStep(Rank rank, Lane& lane, std::int32_t step) {
  const auto& row = rows_.rows[rank.index()];
  const auto& [start, end, origin, useIndex] = rowsPass_.taken[step];
  const Ns before = std::exchange(lane.before, end);
  const MemoryUse& use = program_.uses[index(useIndex)];
  lane.memory.change(start, use.gain);
  lane.memory.change(start + (end - start) / 2, use.peak);
  lane.memory.change(end, -use.loss - use.peak);
  if (origin.index < 0) {
    lane.spans.push(start, end,
                    {origin.index == kLoadStep ? SpanKind::Load : SpanKind::Store, Stage(rank.index()), origin.microbatch, rank});
    rowsPass_.first = std::min(rowsPass_.first, start);
    return;
  }
  const Action& action = row[index(origin.index)];
  if (start > before) rowsPass_.first = std::min(rowsPass_.first, before);
  if (!isCompute(action.kind)) return;
  rowsPass_.first = std::min(rowsPass_.first, start);
  trains_ = trains_ || action.kind != ActionKind::Forward;
  lane.spans.push(start, end, {*spanKind(action.kind), action.stage, action.microbatch, rank});
  if (!action.overlapsNext) return;
  const std::size_t next = index(origin.index) + 1;
  if (next == row.size() || row[next].kind != ActionKind::Backward) return;
  trains_ = true;
  lane.spans.push(start, end, {SpanKind::Backward, row[next].stage, row[next].microbatch, rank});
}

SpanTag Filler::tagOf(std::int32_t message, Microbatch microbatch) const {
  const MessageCost& m = costs_.messages[index(message)];
  return {m.backward ? SpanKind::SendBackward : SpanKind::SendForward, m.from, microbatch, rows_.placement.rankOf(m.to, microbatch)};
}

/// Edges to other ranks.
void Filler::fillFree(Rank rank, Steps steps) {
  const auto& row = rows_.rows[rank.index()];
  SpanTrack& track = timeline_.ranks[rank.index()].communication;
  for (const std::int32_t step : steps) {
    for (std::int32_t e = program_.steps[index(step)].firstEdge; e < program_.steps[index(step) + 1].firstEdge; ++e) {
      const Edge& edge = program_.edges[index(e)];
      if (edge.delay == 0) continue;
      const std::size_t position = index(rowsPass_.taken[step].origin.index);
      const MessageCost& m = costs_.messages[index(edge.delay) - 1];
      const bool second = row[position].stage != m.from || (row[position].kind == ActionKind::Forward) == m.backward;  // of a slot
      const Ns start = rowsPass_.taken[step].end;
      track.start.push_back(start);
      track.end.push_back(start + program_.delays[index(edge.delay)]);
      track.tags.push_back(tagOf(edge.delay - 1, row[position + (second ? 1 : 0)].microbatch));
      rowsPass_.first = std::min(rowsPass_.first, start);
    }
  }
}

void Filler::put(Run& run, Ns start, Ns end, const SpanTag& tag) {
  run.track->start[run.next] = start;
  run.track->end[run.next] = end;
  run.track->tags[run.next++] = tag;
  messagesPass_.first = std::min(messagesPass_.first, start);
}

void Filler::fillChannel(std::size_t channel, Steps steps) {
  for (const std::int32_t step : steps) {
    const auto& [start, end, message, use] = messagesPass_.taken[step];
    const bool other = sharesChannels_ && senderOf(message) != firstSender_[channel];
    put(channels_[channel][other ? 1 : 0], start, end + program_.delays[index(message.index) + 1],
        tagOf(message.index, message.microbatch));
  }
}

void Filler::fillReductions(Rank rank, Steps steps) {
  for (const std::int32_t step : steps) {
    const auto& [start, end, origin, use] = messagesPass_.taken[step];
    put(reductions_[rank.index()], start, end,
        {SpanKind::ReduceGrad, rows_.rows[rank.index()][index(origin.index)].stage, Microbatch(-1), rank});
    reductionEnd_[rank.index()] = std::max(reductionEnd_[rank.index()], end);
  }
}

/// Sums of shared gradients, all ranks together, then each rank's optimizer: after everything else on the compute tracks.
void Filler::fillStepEnd() {
  for (std::size_t rank = 0; rank < rowEnd_.size(); ++rank) rowEnd_[rank] = std::max(rowEnd_[rank], reductionEnd_[rank]);
  if (!trains_) return;
  const auto push = [&](Rank rank, Ns start, Ns end, SpanKind kind, Stage stage) {
    SpanTrack& track = timeline_.ranks[rank.index()].compute;
    track.start.push_back(start);
    track.end.push_back(end);
    track.tags.push_back({kind, stage, Microbatch(-1), rank});
  };
  if (costs_.reduceTime > 0) {
    const Ns start = *std::max_element(rowEnd_.begin(), rowEnd_.end());
    for (std::size_t rank = 0; rank < rowEnd_.size(); ++rank) {
      rowEnd_[rank] = start + costs_.reduceTime;
      push(Rank(rank), start, rowEnd_[rank], SpanKind::ReduceGrad, Stage(-1));
    }
  }
  const auto step = [&](Rank rank, std::size_t stage) {
    if (costs_.stages[stage].optimizer == 0) return;
    Ns& clock = rowEnd_[rank.index()];
    const Ns start = std::exchange(clock, clock + costs_.stages[stage].optimizer);
    push(rank, start, clock, SpanKind::Optimizer, Stage(stage));
  };
  const Placement& placement = rows_.placement;
  for (std::size_t s = 0; s < costs_.stages.size(); ++s) {
    step(placement.rankOfStage[s], s);
    if (placement.bidirectional() && placement.mirrorOfStage[s] != placement.rankOfStage[s]) step(placement.mirrorOfStage[s], s);
  }
}

/// The first span starts at 0, as nearly always.
void Filler::shift(Ns first) {
  for (Timeline::RankTracks& rank : timeline_.ranks) {
    for (auto* const times :
         {&rank.compute.start, &rank.compute.end, &rank.communication.start, &rank.communication.end, &rank.memory.time}) {
      for (Ns& time : *times) time -= first;
    }
  }
  summarizeRanks(timeline_);
  summarizeCommunication(timeline_);
}

}  // namespace

void fillTimeline(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times, Timeline& timeline) {
  Filler(rows, costs, program, times, timeline).run();
}

}  // namespace pw
