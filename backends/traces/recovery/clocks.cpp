#include "backends/traces/recovery/clocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "backends/traces/events/spans.h"
#include "schedules/error.h"
#include "schedules/units.h"

namespace pw {
namespace {

constexpr Ns kNone = std::numeric_limits<Ns>::max();

/// An action this many times later than all actions of its file take together was not waiting: clocks differ.
constexpr std::int64_t kFarApart = 10;
/// Clocks are never further apart than a day: their times count from different points.
constexpr Ns kMostDisagreement(86'400'000'000'000);

[[noreturn]] void refuseClock(const std::string& source) {
  throw UsageError(fmt::format(
      "{} was recorded years before or after the other files, so its clock cannot be right; open files of one recording", source));
}

/// Why no one move of a clock makes it agree with its neighbour's.
enum class Contradiction : std::uint8_t { None, Drift, Steps };
constexpr std::int64_t kFastestDrift = 1000;  ///< a clock that is off by a thousandth is no clock that drifts

/// How far the clock of a later file may be put forward: from `least` to `most`, kNone and −kNone where nothing says so. The `firm` ones
/// follow from the ends of actions alone, and are what decides whether clocks agree; the others also take the shortest duration of actions
/// that may include a wait.
struct Bounds {
  Ns firmLeast = -kNone, firmMost = kNone, least = -kNone, most = kNone;
};

using ShiftedBounds = std::array<Bounds, kStepShifts.size()>;

bool agrees(const Bounds& b) { return b.firmLeast <= 0 && b.firmMost >= 0; }

/// Of moves from `least` to `most` none, or where that is not among them the middle, or, where it is missing by less than they are apart,
/// the nearest.
Ns moveWithin(Ns least, Ns most) {
  if (least <= 0 && most >= 0) return 0;
  const Ns nearest = least > 0 ? least : most;
  return abs(nearest) < most - least ? nearest : least / 2 + most / 2;
}

/// The first under which clocks agree, else the first that one move can satisfy.
const Bounds& chosen(const ShiftedBounds& shifted) {
  const auto isBound = [](const Bounds& b) { return b.firmLeast != -kNone || b.firmMost != kNone; };
  const auto agreeing = std::ranges::find_if(shifted, [&](const Bounds& b) { return isBound(b) && agrees(b); });
  if (agreeing != shifted.end()) return *agreeing;
  const auto possible = std::ranges::find_if(shifted, [&](const Bounds& b) { return isBound(b) && b.firmLeast <= b.firmMost; });
  return possible != shifted.end() ? *possible : shifted.front();
}

/// When a stage of some replicas can have begun a step, and has ended it.
struct Turn {
  Ns first = kNone, last = -kNone;
};
using Turns = std::map<std::pair<std::int32_t, std::int32_t>, Turn>;  ///< by stage and occurrence

/// What shows how the clocks of a group of replicas stand to those of the first: collectives, which drifting clocks contradict, or steps.
enum class ReplicaClock : std::uint8_t { Collectives, Drift, Steps, Nothing };

constexpr const char* kDrifts = ", as far as one shift can do that (its clock drifts)";

class Aligner {
 public:
  Aligner(const RankClocks& clocks, const TimedActions& timed, const std::vector<CollectiveTime>& collectives)
      : clocks_(clocks),
        timed_(timed),
        collectives_(collectives),
        moves_(clocks.sources.size()),
        replicaMoves_(clocks.sources.size()),
        group_(clocks.sources.size()),
        contradicted_(clocks.sources.size()) {}
  std::vector<Ns> align(std::vector<std::string>& notes);

 private:
  void bound();
  void bound(const TimedAction& made, const ActionKey& key, const TimedAction& needs, Bounds& bounds) const;
  [[nodiscard]] Ns move(std::size_t from, std::size_t to) const;
  [[nodiscard]] Bounds boundsOf(std::size_t from, std::size_t to) const;
  void join();
  void joinReplicas();
  [[nodiscard]] std::vector<Bounds> boundsByCollectives(std::size_t groups) const;
  void sayReplicas(std::vector<std::string>& notes) const;
  void sayImpossible(std::vector<std::string>& notes) const;

  const RankClocks& clocks_;
  const TimedActions& timed_;
  const std::vector<CollectiveTime>& collectives_;
  std::vector<Ns> moves_;
  std::vector<Ns> replicaMoves_;                                  ///< beside `moves_`, by clock: those of a group are the same
  std::vector<ReplicaClock> shownBy_;                             ///< by group
  std::vector<std::size_t> group_;                                ///< by clock: those whose ranks exchange messages
  std::map<std::pair<std::size_t, std::size_t>, Bounds> bounds_;  ///< by clocks, the lower first
  std::vector<Contradiction> contradicted_;
};

void Aligner::bound() {
  // By pipeline, stage and microbatch: a stage may have its microbatches on two ranks.
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::size_t> clockOf;
  for (const auto& [key, times] : timed_.actions) clockOf[{key.pipeline, key.stage, key.microbatch}] = times.clock;
  std::map<std::pair<std::size_t, std::size_t>, ShiftedBounds> shifted;
  for (const auto& [key, needs] : timed_.actions) {
    ActionKey source = key;
    source.stage += key.forward ? -1 : 1;
    const auto from = clockOf.find({source.pipeline, source.stage, source.microbatch});
    if (from == clockOf.end() || from->second == needs.clock) continue;
    if (needs.slot && clocks_.exactStarts[needs.clock] != 0) continue;  // its wait is still within it
    const bool mayShift = mayCountOtherSteps(timed_, from->second, needs.clock);
    ShiftedBounds& bounds = shifted[std::minmax(from->second, needs.clock)];
    for (std::size_t s = 0; s < (mayShift ? kStepShifts.size() : 1); ++s) {
      source.occurrence = key.occurrence + (from->second < needs.clock ? -kStepShifts[s] : kStepShifts[s]);
      const auto made = timed_.actions.find(source);
      if (made != timed_.actions.end()) bound(made->second, key, needs, bounds[s]);
    }
  }
  for (const auto& [pair, bounds] : shifted) bounds_[pair] = chosen(bounds);
}

void Aligner::bound(const TimedAction& made, const ActionKey& key, const TimedAction& needs, Bounds& bounds) const {
  const Ns firm = made.end - (clocks_.exactStarts[needs.clock] != 0 ? needs.start : needs.end);
  const Ns close = made.end - latestStart(timed_, clocks_, key, needs);
  if (made.clock < needs.clock) {
    bounds.firmLeast = std::max(bounds.firmLeast, firm);
    bounds.least = std::max(bounds.least, close);
  } else {
    bounds.firmMost = std::min(bounds.firmMost, -firm);
    bounds.most = std::min(bounds.most, -close);
  }
}

Bounds Aligner::boundsOf(std::size_t from, std::size_t to) const {
  const auto found = bounds_.find(std::minmax(from, to));
  if (found == bounds_.end()) return {};
  const Bounds& b = found->second;
  return from < to ? b : Bounds{-b.firmMost, -b.firmLeast, -b.most, -b.least};
}

/// How far the clock of `to` is put forward where that of `from` is right.
Ns Aligner::move(std::size_t from, std::size_t to) const {
  const Bounds b = boundsOf(from, to);
  const Ns extent = std::max<Ns>(1, std::max(timed_.extents[from], timed_.extents[to]));
  const bool below = b.least != -kNone, above = b.most != kNone;
  const bool agree = agrees(b);
  if (below && above) {
    return agree ? Ns{0} : b.least > b.most ? b.least / 2 + b.most / 2 : moveWithin(b.least, b.most);
  }
  if (below && (!agree || -b.least / kFarApart > extent)) return b.least;
  if (above && (!agree || b.most / kFarApart > extent)) return b.most;
  return 0;
}

/// From the first clock of each group on, always the pair whose bounds are closest.
void Aligner::join() {
  std::vector<std::size_t> open;
  for (std::size_t c = 1; c < moves_.size(); ++c) open.push_back(c);
  std::vector<char> joined(moves_.size());
  joined[0] = 1;
  std::size_t groups = 0;
  while (!open.empty()) {
    std::optional<std::pair<std::size_t, std::size_t>> best;
    double width = std::numeric_limits<double>::infinity();
    for (const auto& [pair, bounds] : bounds_) {
      if (joined[pair.first] == joined[pair.second]) continue;
      const double w = static_cast<double>(bounds.most) - static_cast<double>(bounds.least);
      if (best && !(w < width)) continue;
      width = w;
      best = joined[pair.first] != 0 ? pair : std::pair{pair.second, pair.first};
    }
    if (!best) {  // no messages between what is joined and what is not
      const std::size_t first = open.front();
      group_[first] = ++groups;
      joined[first] = 1;
      open.erase(open.begin());
      continue;
    }
    const auto [from, to] = *best;
    const Ns step = move(from, to);
    if (std::abs(static_cast<double>(moves_[from]) + static_cast<double>(step)) > static_cast<double>(kLatestTime))
      refuseClock(clocks_.sources[to]);
    moves_[to] = moves_[from] + step;
    const Bounds b = boundsOf(from, to);
    if (moves_[to] != 0 && b.firmLeast != -kNone && b.firmMost != kNone && b.firmLeast > b.firmMost) {
      const Ns extent = std::max(timed_.extents[from], timed_.extents[to]);
      contradicted_[to] = (b.firmLeast - b.firmMost) > extent / kFastestDrift ? Contradiction::Steps : Contradiction::Drift;
    }
    joined[to] = 1;
    group_[to] = group_[from];
    std::erase(open, to);
  }
}

/// How far a group's steps are moved such that none of its stages begins one before that stage has ended the one before in the first group,
/// nor the other way round: replicas wait for each other between steps, to sum gradients. Not where no move does that (passes that
/// accumulate gradients need not wait), nor where nothing contradicts the clocks, or would not if the group lacked a step. Nothing where no
/// step of one is followed by one of the other.
std::optional<Ns> replicaMove(const Turns& reference, const Turns& own) {
  const auto boundsWith = [&](std::int32_t shift) {
    Bounds bounds;
    for (const auto& [place, turn] : own) {
      const auto before = reference.find({place.first, place.second + shift - 1});
      const auto after = reference.find({place.first, place.second + shift + 1});
      if (before != reference.end() && turn.first != kNone) bounds.least = std::max(bounds.least, before->second.last - turn.first);
      if (after != reference.end() && after->second.first != kNone) bounds.most = std::min(bounds.most, after->second.first - turn.last);
    }
    return bounds;
  };
  for (const int shift : kStepShifts) {
    const Bounds bounds = boundsWith(shift);
    if (bounds.least != -kNone && bounds.most != kNone && bounds.least <= 0 && bounds.most >= 0) return 0;
  }
  const Bounds bounds = boundsWith(0);
  const bool below = bounds.least != -kNone, above = bounds.most != kNone;
  if (!below && !above) return std::nullopt;
  if (below && above) return bounds.least <= bounds.most ? moveWithin(bounds.least, bounds.most) : 0;
  return below ? std::max<Ns>(0, bounds.least) : above ? std::min<Ns>(0, bounds.most) : 0;
}

/// By group: moves for which each collective with the first group is at one time; `kNone` apart where they do none together.
std::vector<Bounds> Aligner::boundsByCollectives(std::size_t groups) const {
  std::map<std::size_t, std::pair<Ns, Ns>> reference;  // by collective: the last start, the first end
  for (const CollectiveTime& time : collectives_) {
    if (group_[time.clock] != 0) continue;
    const auto [at, isNew] = reference.try_emplace(time.collective, -kNone, kNone);
    auto& [start, end] = at->second;
    start = std::max(start, time.start + moves_[time.clock]);
    end = std::min(end, time.end + moves_[time.clock]);
  }
  std::vector<Bounds> bounds(groups);
  for (const CollectiveTime& time : collectives_) {
    const auto at = reference.find(time.collective);
    if (group_[time.clock] == 0 || at == reference.end()) continue;
    Bounds& of = bounds[group_[time.clock]];
    of.least = std::max(of.least, at->second.first - (time.end + moves_[time.clock]));
    of.most = std::min(of.most, at->second.second - (time.start + moves_[time.clock]));
  }
  return bounds;
}

void Aligner::joinReplicas() {
  if (std::ranges::all_of(timed_.actions, [](const auto& action) { return action.first.forward; })) return;  // nothing is summed
  if (timed_.accumulates) return;
  std::vector<Turns> turns(1 + *std::ranges::max_element(group_));
  shownBy_.assign(turns.size(), ReplicaClock::Steps);
  for (const auto& [key, times] : timed_.actions) {
    if (key.occurrence < 0) continue;
    Turn& turn = turns[group_[times.clock]][{key.stage, key.occurrence}];
    const Ns move = moves_[times.clock];
    if (key.forward) turn.first = std::min(turn.first, latestStart(timed_, clocks_, key, times) + move);
    turn.last = std::max(turn.last, times.end + move);
  }
  std::vector<Ns> moves{0};
  const std::vector<Bounds> shared = boundsByCollectives(turns.size());
  for (std::size_t g = 1; g < turns.size(); ++g) {
    const auto& [least, most] = std::pair(shared[g].least, shared[g].most);
    if (least != -kNone) {
      shownBy_[g] = least <= most ? ReplicaClock::Collectives : ReplicaClock::Drift;
      moves.push_back(least <= 0 && most >= 0 ? Ns{0} : least / 2 + most / 2);
      continue;
    }
    const std::optional<Ns> move = replicaMove(turns.front(), turns[g]);
    if (!move) shownBy_[g] = ReplicaClock::Nothing;
    moves.push_back(move.value_or(0));
  }
  for (std::size_t c = 0; c < group_.size(); ++c) replicaMoves_[c] = moves[group_[c]];
}

void Aligner::sayReplicas(std::vector<std::string>& notes) const {
  if (std::ranges::count(shownBy_, ReplicaClock::Nothing) > 0)
    notes.emplace_back(
        "Nothing shows whether the clocks of all replicas agree: their times are as recorded; record at least two steps of each.");
  std::map<std::size_t, std::vector<std::string>> files;  // by group
  std::map<std::size_t, Ns> moves;
  for (std::size_t c = 0; c < group_.size(); ++c) {
    if (replicaMoves_[c] == 0) continue;
    files[group_[c]].push_back(std::filesystem::path(clocks_.sources[c]).filename().string());
    moves[group_[c]] = replicaMoves_[c];
  }
  for (const auto& [group, names] : files) {
    notes.push_back(
        fmt::format("The clock{} of {}{} disagree{} with those of the first replica: the times were moved by {} so that {}{}.",
                    names.size() == 1 ? "" : "s", names.front(), names.size() == 1 ? "" : fmt::format(" and {} more", names.size() - 1),
                    names.size() == 1 ? "s" : "", formatDuration(moves.at(group)),
                    shownBy_[group] == ReplicaClock::Steps ? "no replica begins a step before the others have ended the one before"
                                                           : "none ends a collective before all have started it",
                    shownBy_[group] == ReplicaClock::Drift ? kDrifts : ""));
  }
}

/// Actions that are half done before the one that makes their input ends, on any clock: stages, pipelines or steps are not what they are
/// taken for.
void Aligner::sayImpossible(std::vector<std::string>& notes) const {
  constexpr std::size_t kMany = 20;  // one of so many
  struct Count {
    std::size_t all = 0, impossible = 0;
  };
  std::map<std::pair<std::size_t, std::size_t>, std::array<Count, kStepShifts.size()>> counts;  // by ranks
  for (const auto& [key, needs] : timed_.actions) {
    ActionKey source = key;
    source.stage += key.forward ? -1 : 1;
    for (std::size_t s = 0; s < kStepShifts.size(); ++s) {
      source.occurrence = key.occurrence + kStepShifts[s];
      const auto found = timed_.actions.find(source);
      if (found == timed_.actions.end() || found->second.rank == needs.rank) continue;
      const TimedAction& made = found->second;
      if (s > 0 && !mayCountOtherSteps(timed_, made.clock, needs.clock)) break;
      Count& count = counts[{made.rank, needs.rank}][s];
      const double ready = static_cast<double>(made.end) + static_cast<double>(moves_[made.clock]);
      const Ns middle = needs.end - timed_.shortest.at({needs.clock, key.forward}) / 2;
      ++count.all;
      count.impossible += static_cast<double>(middle) + static_cast<double>(moves_[needs.clock]) < ready ? 1 : 0;
    }
  }
  std::size_t all = 0, impossible = 0;
  for (const auto& [ranks, shifted] : counts) {  // as with those steps that fit best
    const Count* best = &shifted.front();
    for (const Count& count : shifted) {
      if (count.all > 0 && (best->all == 0 || count.impossible * best->all < best->impossible * count.all)) best = &count;
    }
    all += best->all;
    impossible += best->impossible;
  }
  if (impossible * kMany <= all) return;
  notes.push_back(fmt::format(
      "{} of {} actions are half done before the action that makes their input ends: ranks or steps are matched wrongly. Where several "
      "ranks do one stage (data or tensor parallelism), label stages or record the job's groups; where a rank lacks a step, "
      "mark steps.",
      impossible, all));
}

std::vector<Ns> Aligner::align(std::vector<std::string>& notes) {
  if (moves_.size() > 1) {
    bound();
    join();
    joinReplicas();
    sayReplicas(notes);
  }
  sayImpossible(notes);
  for (std::size_t c = 0; c < moves_.size(); ++c) {
    if (moves_[c] == 0) continue;
    const std::string file = std::filesystem::path(clocks_.sources[c]).filename().string();
    if (abs(moves_[c]) > kMostDisagreement) {
      notes.push_back(fmt::format(
          "{} counts its times from another point than its neighbour's, as where `baseTimeNanoseconds` is lost: they were moved so that no "
          "action starts before its input exists.",
          file));
      continue;
    }
    notes.push_back(fmt::format(
        "The clock of {} disagrees with its neighbour's: its times were moved by {} so that no action starts before its input exists{}.",
        file, formatDuration(moves_[c]),
        contradicted_[c] == Contradiction::Drift   ? kDrifts
        : contradicted_[c] == Contradiction::Steps ? ", but no shift does that: steps are matched wrongly, as where a rank lacks one; mark "
                                                     "steps, or import those before and after apart"
                                                   : ""));
  }
  for (std::size_t c = 0; c < moves_.size(); ++c) moves_[c] += replicaMoves_[c];
  return std::move(moves_);
}

}  // namespace

void countFromOneOrigin(std::vector<FileEvents>& files, const RankMap& map) {
  std::optional<Ns> first;
  Rank lowest(std::numeric_limits<std::int32_t>::max());
  std::vector<char> ofJob(files.size());
  for (std::size_t f = 0; f < files.size(); ++f) {
    for (const TrackTarget& target : map.targets[f]) {
      if (target.trace < 0 || map.traces[static_cast<std::size_t>(target.trace)].own) continue;
      ofJob[f] = 1;
      if (target.rank >= lowest) continue;
      lowest = target.rank;
      first = files[f].origin;
    }
  }
  for (std::size_t f = 0; f < files.size(); ++f) {
    FileEvents& file = files[f];
    const Ns offset = ofJob[f] != 0 ? file.origin - *first : 0;
    if (offset == 0) continue;
    for (Span& span : file.spans) span.start += offset, span.end += offset;
    for (MemorySample& sample : file.memory) sample.time += offset;
    for (StepMark& mark : file.marks) mark.start += offset;
  }
}

std::vector<Ns> clockMoves(const std::vector<Span>& spans, const RankClocks& clocks, const RankPlaces& places, const RankMarks& marks,
                           std::vector<std::string>& notes, const std::vector<CollectiveTime>& collectives) {
  if (clocks.sources.empty()) return {};
  return Aligner(clocks, timedActions(spans, clocks, places, marks), collectives).align(notes);
}

}  // namespace pw
