#include "backends/traces/clocks.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/units.h"

namespace pw {
namespace {

constexpr Ns kNone = std::numeric_limits<Ns>::max();

/// An action this many times later than all actions of its file take together was not waiting: clocks differ.
constexpr Ns kFarApart = 10;
constexpr std::size_t kMostActions = 10'000;  ///< of a file that are looked at

[[noreturn]] void refuseClock(const FileEvents& file) {
  throw UsageError(fmt::format(
      "{} was recorded years before or after the other files, so its clock cannot be right; open files of one recording", file.source));
}

/// Moves all times of a file by both; each of the sums stays within 64 bits, and what comes out is within twice kLatestTime.
void shift(FileEvents& file, Ns offset, Ns move) {
  const auto moved = [&](Ns time) {
    const Ns sum = time + offset + move;
    if (sum > 2 * kLatestTime - kLongestDuration || sum < -2 * kLatestTime) refuseClock(file);
    return sum;
  };
  for (Span& span : file.spans) {
    const Ns duration = span.end - span.start;
    span.start = moved(span.start);
    span.end = span.start + duration;
  }
  for (MemorySample& sample : file.memory) sample.time = moved(sample.time);
  for (StepMark& mark : file.marks) mark.start = moved(mark.start);
}

/// A forward or backward of a file; `occurrence`: the step that its file marks it with, else which of those of its stage and microbatch.
struct Key {
  bool forward = true;
  std::int32_t pipeline = 0, stage = 0, microbatch = 0, occurrence = 0;

  auto operator<=>(const Key&) const = default;
};
struct Times {
  std::size_t file = 0;
  Ns start = 0, end = 0;
  bool slot = false;
};

/// How far the clock of a later file may be put forward: from `least` to `most`, kNone and −kNone where nothing says so. The `firm` ones
/// follow from the ends of actions alone, and are what decides whether clocks agree; the others also take the shortest duration of actions
/// that may include a wait.
struct Bounds {
  Ns firmLeast = -kNone, firmMost = kNone, least = -kNone, most = kNone;
};

class Aligner {
 public:
  Aligner(std::vector<FileEvents>& files, const RankMap& map, const RankPlaces& places) : files_(files), map_(map), places_(places) {}
  void align(std::vector<std::string>& notes);

 private:
  void order();
  void gather(std::size_t file);
  void bound();
  [[nodiscard]] Ns startOf(const Key& key, const Times& times) const;
  [[nodiscard]] Ns move(std::size_t from, std::size_t to) const;
  [[nodiscard]] Bounds boundsOf(std::size_t from, std::size_t to) const;
  void join();

  std::vector<FileEvents>& files_;
  const RankMap& map_;
  const RankPlaces& places_;
  std::vector<std::size_t> order_;  ///< files with spans of the job, by their lowest rank
  std::vector<Ns> offsets_, moves_, extents_;
  std::map<Key, Times> actions_;
  std::map<std::pair<std::size_t, bool>, Ns> shortest_;
  std::map<std::pair<std::size_t, std::size_t>, Bounds> bounds_;  ///< by files, the lower first
  std::vector<char> contradicted_;
};

void Aligner::order() {
  const auto lowestRank = [&](std::size_t f) {
    std::int32_t lowest = std::numeric_limits<std::int32_t>::max();
    for (const TrackTarget& target : map_.targets[f]) {
      if (target.trace >= 0 && !map_.traces[static_cast<std::size_t>(target.trace)].own) lowest = std::min(lowest, target.rank);
    }
    return lowest;
  };
  for (std::size_t f = 0; f < files_.size(); ++f) {
    if (lowestRank(f) != std::numeric_limits<std::int32_t>::max()) order_.push_back(f);
  }
  std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return lowestRank(a) < lowestRank(b); });
}

void Aligner::gather(std::size_t f) {
  const FileEvents& file = files_[f];
  std::map<Key, std::int32_t> counts;
  std::vector<StepMark> marks = file.marks;
  std::ranges::stable_sort(marks, {}, &StepMark::start);
  std::size_t taken = 0;
  Ns first = kNone, last = -kNone;
  for (std::size_t i = 0; i < file.spans.size(); ++i) {
    const Span& span = file.spans[i];
    const TrackTarget& target = map_.targets[f][span.rank.index()];
    const bool backward = span.kind == SpanKind::Backward || span.kind == SpanKind::BackwardInput;
    if ((span.kind != SpanKind::Forward && !backward) || !target.takes(span) || span.microbatch.value < 0) continue;
    if (map_.traces[static_cast<std::size_t>(target.trace)].own) continue;
    const auto rank = static_cast<std::size_t>(target.rank);
    Key key{!backward, places_.pipeline[rank], span.stage.value >= 0 ? span.stage.value : places_.firstStage[rank], span.microbatch.value,
            0};
    const auto next = std::ranges::upper_bound(marks, span.start, {}, &StepMark::start);
    key.occurrence = marks.empty() ? counts[key]++ : next == marks.begin() ? -1 : std::prev(next)->number;
    actions_[key] = {f, span.start + offsets_[f], span.end + offsets_[f], inSlot(file.spans, i)};
    const auto [at, isNew] = shortest_.try_emplace({f, !backward}, span.end - span.start);
    at->second = std::min(at->second, span.end - span.start);
    first = std::min(first, span.start);
    last = std::max(last, span.end);
    if (++taken >= kMostActions) break;
  }
  extents_[f] = taken == 0 ? 0 : last - first;
}

/// The latest time at which the action can have begun to compute.
Ns Aligner::startOf(const Key& key, const Times& times) const {
  return files_[times.file].exactStarts ? times.start : times.end - shortest_.at({times.file, key.forward});
}

void Aligner::bound() {
  for (const auto& [key, needs] : actions_) {
    Key source = key;
    source.stage += key.forward ? -1 : 1;
    const auto made = actions_.find(source);
    if (made == actions_.end() || made->second.file == needs.file) continue;
    if (needs.slot && files_[needs.file].exactStarts) continue;  // its wait is still within it
    const std::size_t from = made->second.file, to = needs.file;
    const Ns firm = made->second.end - (files_[to].exactStarts ? needs.start : needs.end);
    const Ns close = made->second.end - startOf(key, needs);
    Bounds& bounds = bounds_[std::minmax(from, to)];
    if (from < to) {
      bounds.firmLeast = std::max(bounds.firmLeast, firm);
      bounds.least = std::max(bounds.least, close);
    } else {
      bounds.firmMost = std::min(bounds.firmMost, -firm);
      bounds.most = std::min(bounds.most, -close);
    }
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
  const Ns extent = std::max<Ns>(1, std::max(extents_[from], extents_[to]));
  const bool below = b.least != -kNone, above = b.most != kNone;
  const bool agree = b.firmLeast <= 0 && b.firmMost >= 0;
  if (below && above) {
    const Ns middle = b.least / 2 + b.most / 2;
    if (agree) return 0;
    if (b.least > b.most) return middle;
    const Ns nearest = b.least > 0 ? b.least : b.most < 0 ? b.most : 0;
    return std::abs(nearest) < b.most - b.least ? nearest : middle;
  }
  if (below && (!agree || -b.least / kFarApart > extent)) return b.least;
  if (above && (!agree || b.most / kFarApart > extent)) return b.most;
  return 0;
}

/// From the first file on, always the pair whose bounds are closest.
void Aligner::join() {
  std::vector<char> joined(files_.size(), 0);
  std::vector<std::size_t> open(order_.begin() + 1, order_.end());
  joined[order_.front()] = 1;
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
    // Without a message between what is joined and what is not, the next one's clock is taken as that of the first.
    const std::size_t to = best ? best->second : open.front(), from = best ? best->first : order_.front();
    const double moved = static_cast<double>(moves_[from]) + static_cast<double>(move(from, to));
    if (std::abs(moved) > static_cast<double>(kLatestTime)) refuseClock(files_[to]);
    moves_[to] = moves_[from] + move(from, to);
    const Bounds b = boundsOf(from, to);
    contradicted_[to] = moves_[to] != 0 && b.firmLeast != -kNone && b.firmMost != kNone && b.firmLeast > b.firmMost ? 1 : 0;
    joined[to] = 1;
    std::erase(open, to);
  }
}

void Aligner::align(std::vector<std::string>& notes) {
  order();
  if (order_.size() < 2) return;
  offsets_.assign(files_.size(), 0);
  moves_.assign(files_.size(), 0);
  extents_.assign(files_.size(), 0);
  contradicted_.assign(files_.size(), 0);
  for (const std::size_t f : order_) {
    offsets_[f] = files_[f].origin - files_[order_.front()].origin;
    gather(f);
  }
  bound();
  join();
  for (const std::size_t f : order_) {
    shift(files_[f], offsets_[f], moves_[f]);
    if (moves_[f] == 0) continue;
    const std::string name = std::filesystem::path(files_[f].source).filename().string();
    notes.push_back(fmt::format(
        "The clock of {} disagrees with its neighbour's: its times were moved by {} so that no action starts before its input exists{}.",
        name, formatDuration(moves_[f]), contradicted_[f] != 0 ? ", as far as one shift can do that (its clock drifts)" : ""));
  }
}

}  // namespace

void alignFiles(std::vector<FileEvents>& files, const RankMap& map, const RankPlaces& places, std::vector<std::string>& notes) {
  if (files.size() < 2) return;
  Aligner(files, map, places).align(notes);
}

}  // namespace pw
