#include "backends/traces/recovery/ranks.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

/// What orders ranks: first those the file names, then guesses.
using RankKey = std::pair<int, std::int64_t>;
constexpr int kNamed = 0, kGuessed = 1;

bool isDigit(char c) { return c >= '0' && c <= '9'; }

/// The number after the first `rank` in a name: `rank 3`, `pp_rank_3.json`, `[Rank3]`.
std::optional<std::int64_t> rankIn(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  for (std::size_t at = name.find("rank"); at != std::string::npos; at = name.find("rank", at + 1)) {
    std::size_t digit = at + 4;
    while (digit < name.size() &&
           (name[digit] == ' ' || name[digit] == '_' || name[digit] == '-' || name[digit] == '=' || name[digit] == '.'))
      ++digit;
    std::int64_t number = 0;
    const auto [end, problem] = std::from_chars(name.data() + digit, name.data() + name.size(), number);
    if (digit < name.size() && isDigit(name[digit]) && problem == std::errc() && number < (std::int64_t{1} << 31)) return number;
  }
  return std::nullopt;
}

/// Time of compute spans by track.
std::vector<Ns> computeTimes(const FileEvents& file) {
  std::vector<Ns> times(file.tracks.size(), -1);  // −1: no pipeline span at all
  for (const Span& span : file.spans) {
    Ns& time = times[trackOf(span).index()];
    time = std::max<Ns>(time, 0);
    if (isCompute(span.kind) && time < std::numeric_limits<Ns>::max() / 2) time += std::min(span.end - span.start, kLongestDuration);
  }
  return times;
}

class Mapper {
 public:
  Mapper(const std::vector<FileEvents>& files, std::vector<std::string>& notes) : files_(files), notes_(notes) {}
  RankMap map() &&;

 private:
  void mapOwn(std::size_t file);
  void keyOf(std::size_t file);
  void chooseStreams(std::size_t file);
  void requireOneFileAtATime() const;
  [[nodiscard]] bool orderByStages(std::vector<RankKey>& ranks) const;
  void number();

  const std::vector<FileEvents>& files_;
  std::vector<std::string>& notes_;
  RankMap map_;
  std::vector<std::vector<Ns>> times_;
  std::vector<std::vector<std::optional<RankKey>>> keys_;
  bool deviceChosen_ = false;
};

/// Each process this program wrote is a trace; its threads are named after their rank.
void Mapper::mapOwn(std::size_t file) {
  std::map<std::int64_t, std::int32_t> traces;
  const std::vector<EventTrack>& tracks = files_[file].tracks;
  for (const EventTrack& track : tracks) {
    if (track.own) traces.try_emplace(track.process, 0);
  }
  for (auto& [process, number] : traces) {  // in the order they were written
    number = static_cast<std::int32_t>(map_.traces.size());
    map_.traces.push_back({.name = {}, .own = true, .ranks = 0});
  }
  for (std::size_t t = 0; t < tracks.size(); ++t) {
    if (!tracks[t].own) continue;
    TrackTarget& target = map_.targets[file][t];
    const std::int64_t rank = rankIn(tracks[t].threadName).value_or(tracks[t].thread);
    if (rank < 0 || rank >= kMaxRanks) continue;
    target.trace = traces.at(tracks[t].process);
    target.rank = Rank(static_cast<std::int32_t>(rank));
    RankMap::Traced& trace = map_.traces[static_cast<std::size_t>(target.trace)];
    if (trace.name.empty()) trace.name = tracks[t].processName;
    trace.ranks = std::max(trace.ranks, target.rank.value + 1);
  }
}

/// Finds the key of each track that has pipeline spans and is not our own.
void Mapper::keyOf(std::size_t file) {
  const FileEvents& events = files_[file];
  std::vector<std::size_t> unnamed;
  bool device = false;
  std::map<std::int64_t, int> processes;
  for (std::size_t t = 0; t < events.tracks.size(); ++t) {
    const EventTrack& track = events.tracks[t];
    if (track.own || times_[file][t] < 0) continue;
    std::optional<std::int64_t> rank;
    if (events.rank) rank = events.rank->value;
    if (!rank) rank = rankIn(track.threadName);
    if (!rank) rank = rankIn(track.processName);
    if (!rank && files_.size() > 1 && !events.severalRanks) rank = rankIn(std::filesystem::path(events.source).filename().string());
    if (rank) {
      keys_[file][t] = RankKey{kNamed, *rank};
      continue;
    }
    unnamed.push_back(t);
    device = device || track.device;
    ++processes[track.process];
  }
  for (const std::size_t t : unnamed) {
    const EventTrack& track = events.tracks[t];
    if (device && !track.device) continue;  // the program that feeds the devices
    if (files_.size() > 1)
      keys_[file][t] = RankKey{kGuessed, static_cast<std::int64_t>(file) << 32 | (events.severalRanks ? track.process : 0)};
    else
      keys_[file][t] = RankKey{kGuessed, processes.size() > 1 ? track.process : track.thread};
  }
}

/// Of a rank's tracks, device streams count before the program's thread, and of streams the one that computes longest.
void Mapper::chooseStreams(std::size_t file) {
  std::map<RankKey, std::size_t> streams;
  const std::vector<EventTrack>& tracks = files_[file].tracks;
  for (std::size_t t = 0; t < tracks.size(); ++t) {
    if (!keys_[file][t] || !tracks[t].device || times_[file][t] <= 0) continue;
    const auto [at, isNew] = streams.try_emplace(*keys_[file][t], t);
    if (!isNew && times_[file][t] > times_[file][at->second]) at->second = t;
  }
  for (std::size_t t = 0; t < tracks.size(); ++t) {
    if (!keys_[file][t]) continue;
    const auto stream = streams.find(*keys_[file][t]);
    if (stream == streams.end()) continue;
    map_.targets[file][t].compute = t == stream->second;
    deviceChosen_ = deviceChosen_ || !tracks[t].device;
    if (!tracks[t].device) keys_[file][t].reset();
  }
}

/// Two files of one rank are its steps one after the other, where their times say so; at the same time a rank does not do two things.
void Mapper::requireOneFileAtATime() const {
  struct OfFile {
    std::size_t file = 0;
    Ns first = 0, last = 0;
  };
  std::map<RankKey, std::vector<OfFile>> parts;
  for (std::size_t f = 0; f < files_.size(); ++f) {
    for (const Span& span : files_[f].spans) {
      const std::optional<RankKey>& key = keys_[f][trackOf(span).index()];
      if (!key || key->first != kNamed || !isCompute(span.kind)) continue;
      const Ns start = files_[f].origin + span.start, end = files_[f].origin + span.end;
      std::vector<OfFile>& own = parts[*key];
      if (own.empty() || own.back().file != f) own.push_back({f, start, end});
      own.back().first = std::min(own.back().first, start);
      own.back().last = std::max(own.back().last, end);
    }
  }
  for (auto& [key, own] : parts) {
    std::ranges::sort(own, {}, &OfFile::first);
    for (std::size_t i = 1; i < own.size(); ++i) {
      if (own[i].first >= own[i - 1].last) continue;
      const std::string &one = files_[own[i - 1].file].source, &other = files_[own[i].file].source;
      throw UsageError(
          fmt::format("{} and {} are both of rank {}, at the same time; give one file for each rank of one job", one, other, key.second));
    }
  }
}

/// Puts ranks whose number is not known in the order of their first stages, ties as they are, where all have one: the rank of stage 0 comes
/// first. Where two have the same stages (bidirectional pipelines, replicas), stages say nothing of their order. Returns whether it did.
bool Mapper::orderByStages(std::vector<RankKey>& ranks) const {
  std::map<RankKey, std::set<Stage>> stages;
  for (std::size_t f = 0; f < files_.size(); ++f) {
    for (const Span& span : files_[f].spans) {
      const std::optional<RankKey>& key = keys_[f][trackOf(span).index()];
      if (key && isCompute(span.kind) && span.stage.value >= 0) stages[*key].insert(span.stage);
    }
  }
  const auto isGuessed = [](const RankKey& key) { return key.first == kGuessed; };
  const auto guessed = std::ranges::find_if(ranks, isGuessed);
  std::set<std::set<Stage>> seen;
  for (const RankKey& key : std::ranges::subrange(guessed, ranks.end())) {
    if (!stages.contains(key) || !seen.insert(stages.at(key)).second) return false;
  }
  std::stable_sort(guessed, ranks.end(), [&](const RankKey& a, const RankKey& b) { return *stages.at(a).begin() < *stages.at(b).begin(); });
  return true;
}

void Mapper::number() {
  std::map<RankKey, std::int32_t> ranks;
  for (const auto& keys : keys_) {
    for (const auto& key : keys) {
      if (key) ranks.try_emplace(*key, 0);
    }
  }
  if (ranks.empty()) return;
  if (ranks.size() > static_cast<std::size_t>(kMaxRanks)) {
    throw UsageError(fmt::format("{} has pipeline events of {} ranks, more than {}; open the files of one pipeline", files_.front().source,
                                 ranks.size(), kMaxRanks));
  }
  std::vector<RankKey> order;
  for (const auto& [key, rank] : ranks) order.push_back(key);
  const bool byStages = orderByStages(order);
  std::int32_t next = 0;
  std::string renamed;
  for (const RankKey& key : order) {
    std::int32_t& rank = ranks.at(key);
    rank = next++;
    if (key.first == kNamed && key.second != rank && renamed.size() < 100)
      renamed += fmt::format("{}{} as {}", renamed.empty() ? "" : ", ", key.second, rank);
  }
  if (!renamed.empty())
    notes_.push_back(fmt::format(
        "Ranks are numbered from 0 here: rank {}{}. Stages of ranks between them, if the pipeline has any there, are not in this import.",
        renamed, renamed.size() < 100 ? "" : ", and so on"));
  if (ranks.rbegin()->first.first == kGuessed && ranks.size() > 1) {
    notes_.emplace_back(byStages ? "Nothing says which rank is which; they are in the order of their first stages."
                        : files_.size() > 1
                            ? "The files do not say their rank; they are ranks in the order of their names."
                            : "The file does not say which rank is which; its processes, or threads, are ranks in their order.");
  }
  const auto trace = static_cast<std::int32_t>(map_.traces.size());
  map_.traces.push_back({.name = {}, .own = false, .ranks = next});
  for (std::size_t f = 0; f < files_.size(); ++f) {
    for (std::size_t t = 0; t < keys_[f].size(); ++t) {
      if (!keys_[f][t]) continue;
      map_.targets[f][t].trace = trace;
      map_.targets[f][t].rank = Rank(ranks.at(*keys_[f][t]));
    }
  }
}

RankMap Mapper::map() && {
  for (std::size_t f = 0; f < files_.size(); ++f) {
    times_.push_back(computeTimes(files_[f]));
    keys_.emplace_back(files_[f].tracks.size());
    map_.targets.emplace_back(files_[f].tracks.size());
    mapOwn(f);
    keyOf(f);
    chooseStreams(f);
  }
  requireOneFileAtATime();
  number();
  // Memory and marks of a track without spans follow their rank, where the file has only one.
  for (std::size_t f = 0; f < files_.size(); ++f) {
    std::optional<TrackTarget> only;
    bool several = false;
    for (const TrackTarget& target : map_.targets[f]) {
      several = several || (only && target.trace >= 0 && (only->trace != target.trace || only->rank != target.rank));
      if (!only && target.trace >= 0) only = target;
    }
    for (TrackTarget& target : map_.targets[f]) {
      const bool follows = target.trace < 0 && only && !several && !map_.traces[static_cast<std::size_t>(only->trace)].own;
      if (follows) target = {.trace = only->trace, .rank = only->rank, .spans = false, .compute = false};
    }
  }
  if (deviceChosen_)
    notes_.emplace_back("Times are those of the device's kernels; the program's own, which only starts them, were left out.");
  if (std::ranges::any_of(files_, &FileEvents::hostTimes)) {
    notes_.emplace_back(
        "The device's times lack some kinds of actions and cannot be told from the kernels (their launches are missing, or several ranks "
        "share a program): times are those of the program, which only starts what the device computes.");
  }
  return std::move(map_);
}

}  // namespace

RankMap mapRanks(const std::vector<FileEvents>& files, std::vector<std::string>& notes) { return Mapper(files, notes).map(); }

}  // namespace pw
