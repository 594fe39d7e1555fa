#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "backends/traces/clocks.h"
#include "backends/traces/events.h"
#include "backends/traces/order.h"
#include "backends/traces/places.h"
#include "backends/traces/ranks.h"
#include "backends/traces/replay.h"
#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::size_t kMostSteps = 10'000;

bool isMessage(const Span& span) { return span.kind == SpanKind::SendForward || span.kind == SpanKind::SendBackward; }

/// An action as a number that is not 0: kind, stage and microbatch, from the lowest bit up.
constexpr unsigned kStageShift = 4, kMicrobatchShift = 28;
std::uint64_t keyOf(const Span& span) {
  return (1U + static_cast<std::uint64_t>(span.kind)) |
         (static_cast<std::uint64_t>(static_cast<std::uint32_t>(span.stage.value + 1)) << kStageShift) |
         (static_cast<std::uint64_t>(static_cast<std::uint32_t>(span.microbatch.value + 1)) << kMicrobatchShift);
}

/// A set of actions that is emptied often. Keys are not 0.
class ActionSet {
 public:
  /// Whether it was not there.
  bool insert(std::uint64_t key) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    std::uint64_t& slot = slotOf(key);
    if (slot == key) return false;
    slot = key;
    ++count_;
    return true;
  }
  void clear() {
    std::fill(slots_.begin(), slots_.end(), 0);
    count_ = 0;
  }

 private:
  std::uint64_t& slotOf(std::uint64_t key) {
    // Microbatches that follow each other share a cache line of eight slots: they are met one after another.
    const std::uint64_t line = (key & ~(std::uint64_t{7} << kMicrobatchShift)) * 0x9E3779B97F4A7C15ULL >> 32U;
    std::size_t at = static_cast<std::size_t>(line * 8 + (key >> kMicrobatchShift) % 8) & (slots_.size() - 1);
    while (slots_[at] != 0 && slots_[at] != key) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void grow() {
    std::vector<std::uint64_t> old(std::max<std::size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    for (const std::uint64_t key : old) {
      if (key != 0) slotOf(key) = key;
    }
  }
  std::vector<std::uint64_t> slots_;
  std::size_t count_ = 0;
};

/// Spans and memory of one trace before it is cut into steps; ranks are final, spans sorted, samples by (rank, time).
struct Material {
  std::string name;
  bool own = false;
  int ranks = 0;
  std::vector<Span> spans;
  std::vector<MemorySample> memory;
  std::vector<std::vector<std::pair<Ns, std::int32_t>>> marks;  ///< by rank: start and number of its steps, by start
};

/// Which step each span belongs to (−1: none), and where each rank's steps begin.
struct Steps {
  std::vector<std::int32_t> of;
  std::vector<std::vector<Ns>> begins;  ///< by rank and step
  std::vector<std::string> names;
  std::uint64_t outside = 0;
};

/// Steps end with the optimizer, or where an action comes again.
Steps stepsByRepetition(const Material& material) {
  Steps steps;
  const auto ranks = static_cast<std::size_t>(material.ranks);
  steps.of.resize(material.spans.size());
  steps.begins.resize(ranks);
  std::vector<ActionSet> seen(ranks);
  std::vector<char> closed(ranks, 1);
  std::size_t count = 0;
  for (std::size_t i = 0; i < material.spans.size(); ++i) {
    const Span& span = material.spans[i];
    const std::size_t r = span.rank.index();
    const bool optimizer = span.kind == SpanKind::Optimizer;
    bool fresh = closed[r] != 0 && !(optimizer && !steps.begins[r].empty());
    if (!optimizer && !fresh) fresh = !seen[r].insert(keyOf(span));
    if (fresh) {
      seen[r].clear();
      seen[r].insert(keyOf(span));
      steps.begins[r].push_back(span.start);
    }
    closed[r] = optimizer ? 1 : 0;
    steps.of[i] = static_cast<std::int32_t>(steps.begins[r].size()) - 1;
    count = std::max(count, steps.begins[r].size());
  }
  for (std::size_t s = 0; s < count; ++s) steps.names.push_back(count == 1 ? "measured" : fmt::format("step {}", s + 1));
  return steps;
}

/// Steps as the profiler marked them on every rank that has marks.
Steps stepsByMarks(const Material& material) {
  Steps steps;
  std::map<std::int32_t, std::int32_t> numbers;
  for (const auto& marks : material.marks) {
    for (const auto& [start, number] : marks) numbers.try_emplace(number, 0);
  }
  for (auto& [number, index] : numbers) {
    index = static_cast<std::int32_t>(steps.names.size());
    steps.names.push_back(fmt::format("step {}", number));
  }
  steps.begins.assign(static_cast<std::size_t>(material.ranks), std::vector<Ns>(steps.names.size(), std::numeric_limits<Ns>::max()));
  const auto some = std::ranges::find_if(material.marks, [](const auto& marks) { return !marks.empty(); });
  const std::vector<std::pair<Ns, std::int32_t>> none;
  const auto& any = some == material.marks.end() ? none : *some;
  const auto marksOf = [&](Rank rank) -> const auto& { return material.marks[rank.index()].empty() ? any : material.marks[rank.index()]; };
  for (const Span& span : material.spans) {
    const auto& marks = marksOf(span.rank);
    const auto next = std::upper_bound(marks.begin(), marks.end(), span.start, [](Ns time, const auto& mark) { return time < mark.first; });
    const std::int32_t step = next == marks.begin() ? -1 : numbers.at(std::prev(next)->second);
    steps.of.push_back(step);
    steps.outside += step < 0 ? 1 : 0;
    if (step < 0) continue;
    Ns& begin = steps.begins[span.rank.index()][static_cast<std::size_t>(step)];
    begin = std::min(begin, span.start);
  }
  return steps;
}

/// The rank of each stage's microbatches in each pipeline; a stage that two ranks share is found by microbatch.
class StageRanks {
 public:
  StageRanks(const std::vector<Span>& spans, const std::vector<std::int32_t>& pipeline) : pipeline_(pipeline) {
    for (const Span& span : spans) {
      if (span.stage.value < 0) continue;
      const auto [at, isNew] = first_.try_emplace(keyOf(span.rank, span.stage.value), span.rank);
      if (isNew || at->second == span.rank) continue;
      others_[{keyOf(span.rank, span.stage.value), span.microbatch.value}] = span.rank;
    }
  }
  [[nodiscard]] Rank find(Rank sender, std::int64_t stage, Microbatch microbatch) const {
    const auto key = keyOf(sender, stage);
    if (const auto other = others_.find({key, microbatch.value}); other != others_.end()) return other->second;
    const auto at = first_.find(key);
    return at == first_.end() ? Rank(-1) : at->second;
  }

 private:
  [[nodiscard]] std::pair<std::int32_t, std::int64_t> keyOf(Rank rank, std::int64_t stage) const {
    return {rank.index() < pipeline_.size() ? pipeline_[rank.index()] : 0, stage};
  }
  const std::vector<std::int32_t>& pipeline_;
  std::map<std::pair<std::int32_t, std::int64_t>, Rank> first_;
  std::map<std::pair<std::pair<std::int32_t, std::int64_t>, std::int32_t>, Rank> others_;
};

/// Finds the receiver of messages by the next stage; those to the same rank, or without a receiver, are dropped.
void findPeers(Material& material, const std::vector<std::int32_t>& pipeline, std::vector<std::string>& notes) {
  std::optional<StageRanks> ranks;
  if (!material.own && std::ranges::any_of(material.spans, isMessage)) ranks.emplace(material.spans, pipeline);
  std::uint64_t lost = 0;
  std::erase_if(material.spans, [&](Span& span) {
    if (!isMessage(span)) {
      span.peer = span.rank;
      return false;
    }
    if (ranks) {
      const std::int64_t stage = std::int64_t{span.stage.value} + (span.kind == SpanKind::SendForward ? 1 : -1);
      span.peer = ranks->find(span.rank, stage, span.microbatch);
    }
    const bool known = span.peer.value >= 0 && span.peer.value < material.ranks && span.peer != span.rank;
    lost += known ? 0 : 1;
    return !known;
  });
  if (lost > 0)
    notes.push_back(fmt::format("{} left out, because no rank in the trace receives them.",
                                countedEvents(lost, "message") + (lost == 1 ? " was" : " were")));
}

/// Sums of times stay within 64 bits: R · makespan, and all messages of a rank.
void requireSummable(const Trace& trace, const std::string& title) {
  constexpr double kMost = 4e18;
  Ns last = 0;
  double messages = 0;
  for (const Span& span : trace.spans) {
    last = std::max(last, span.end);
    messages += static_cast<double>(span.end) - static_cast<double>(span.start);
  }
  if (static_cast<double>(last) * trace.ranks <= kMost && messages <= kMost) return;
  throw UsageError(fmt::format("{} has a step of more than {:.0f} days, so its clocks cannot be right; open files of one recording", title,
                               static_cast<double>(last) / 8.64e13));
}

/// Cuts, shifts to 0 and stores the step.
void addStep(ImportedTrace& result, std::string name, Trace trace, std::size_t& cut) {
  cut += cutOverlaps(trace.spans, trace.ranks);
  if (trace.spans.empty()) return;
  const Ns origin = trace.spans.front().start;
  for (Span& span : trace.spans) span.start -= origin, span.end -= origin;
  for (MemorySample& sample : trace.memory) sample.time -= origin;
  requireSummable(trace, result.title);
  trace.spans.shrink_to_fit();
  result.steps.push_back({std::move(name), std::move(trace)});
}

/// The samples within each step of a rank, and what the rank had when the step began.
void shareMemory(const Material& material, const Steps& steps, std::vector<Trace>& traces) {
  for (std::size_t r = 0; r < static_cast<std::size_t>(material.ranks); ++r) {
    const Rank rank(r);
    const auto first =
        std::partition_point(material.memory.begin(), material.memory.end(), [&](const MemorySample& m) { return m.rank < rank; });
    const auto last = std::partition_point(first, material.memory.end(), [&](const MemorySample& m) { return m.rank == rank; });
    const std::vector<Ns>& begins = steps.begins[r];
    auto at = first;
    for (std::size_t s = 0; s < begins.size(); ++s) {
      if (begins[s] == std::numeric_limits<Ns>::max()) continue;
      const Ns next = s + 1 < begins.size() ? begins[s + 1] : std::numeric_limits<Ns>::max();
      while (at != last && at->time < begins[s]) ++at;
      if (at != first) traces[s].memory.push_back({rank, begins[s], std::prev(at)->bytes});
      for (; at != last && at->time < next; ++at) traces[s].memory.push_back(*at);
    }
  }
}

void addSteps(ImportedTrace& result, Material material) {
  std::size_t cut = 0;
  const bool marked = std::any_of(material.marks.begin(), material.marks.end(), [](const auto& marks) { return !marks.empty(); });
  if (material.own) {
    Trace trace{material.ranks, std::move(material.spans), std::move(material.memory)};
    addStep(result, material.name.empty() ? "trace" : material.name, std::move(trace), cut);
  } else {
    Steps steps = marked ? stepsByMarks(material) : stepsByRepetition(material);
    if (steps.names.size() > kMostSteps) {
      result.notes.push_back(fmt::format("Of {} steps the first {} were taken.", steps.names.size(), kMostSteps));
      steps.names.resize(kMostSteps);
      for (auto& begins : steps.begins) begins.resize(std::min(begins.size(), kMostSteps));
    }
    std::vector<Trace> traces(steps.names.size());
    for (Trace& trace : traces) trace.ranks = material.ranks;
    shareMemory(material, steps, traces);
    if (traces.size() == 1 && steps.outside == 0) {
      traces.front().spans = std::move(material.spans);
    } else {
      std::vector<std::size_t> counts(traces.size());
      for (const std::int32_t step : steps.of) {
        if (step >= 0 && static_cast<std::size_t>(step) < counts.size()) ++counts[static_cast<std::size_t>(step)];
      }
      for (std::size_t s = 0; s < traces.size(); ++s) traces[s].spans.reserve(counts[s]);
      for (std::size_t i = 0; i < material.spans.size(); ++i) {
        if (steps.of[i] >= 0 && static_cast<std::size_t>(steps.of[i]) < traces.size())
          traces[static_cast<std::size_t>(steps.of[i])].spans.push_back(material.spans[i]);
      }
      material.spans = {};
    }
    for (std::size_t s = 0; s < traces.size(); ++s) addStep(result, steps.names[s], std::move(traces[s]), cut);
    if (steps.outside > 0)
      result.notes.push_back(fmt::format("{} left out, because {} before the first marked step.",
                                         countedEvents(steps.outside, "event") + (steps.outside == 1 ? " was" : " were"),
                                         steps.outside == 1 ? "it lies" : "they lie"));
  }
  if (cut > 0)
    result.notes.push_back(fmt::format("{} cut or left out, because {} over others of the same rank.",
                                       countedEvents(cut, "action") + (cut == 1 ? " was" : " were"), cut == 1 ? "it lies" : "they lie"));
}

/// Memory and marks of a file go where their tracks do.
void placeSamples(const FileEvents& file, const std::vector<TrackTarget>& targets, std::vector<Material>& materials) {
  const auto isDevice = [&](Rank track) { return file.tracks[track.index()].device; };
  const bool fromDevice = std::any_of(file.memory.begin(), file.memory.end(), [&](const MemorySample& m) { return isDevice(m.rank); });
  for (const MemorySample& sample : file.memory) {
    const TrackTarget& target = targets[sample.rank.index()];
    const bool wanted = file.tracks[sample.rank.index()].own || !fromDevice || isDevice(sample.rank);
    if (target.trace >= 0 && wanted)
      materials[static_cast<std::size_t>(target.trace)].memory.push_back({Rank(target.rank), sample.time, sample.bytes});
  }
  bool deviceMarks = false;  // a device works on one step when its program begins the next
  for (std::size_t t = 0; t < targets.size(); ++t)
    deviceMarks = deviceMarks || (file.tracks[t].device && targets[t].trace >= 0 && targets[t].spans);
  for (const StepMark& mark : file.marks) {
    const TrackTarget& target = targets[static_cast<std::size_t>(mark.track)];
    if (target.trace < 0 || isDevice(Rank(mark.track)) != deviceMarks || materials[static_cast<std::size_t>(target.trace)].own) continue;
    materials[static_cast<std::size_t>(target.trace)].marks[static_cast<std::size_t>(target.rank)].emplace_back(mark.start, mark.number);
  }
}

/// Takes what belongs to each trace out of the files.
std::vector<Material> materialOf(std::vector<FileEvents>& files, const RankMap& map, const RankPlaces& places) {
  std::vector<Material> materials;
  for (const RankMap::Traced& traced : map.traces) {
    materials.push_back({.name = traced.name, .own = traced.own, .ranks = traced.ranks, .spans = {}, .memory = {}, .marks = {}});
    materials.back().marks.resize(static_cast<std::size_t>(traced.ranks));
  }
  for (std::size_t f = 0; f < files.size(); ++f) {
    const auto targetOf = [&](Rank track) -> const TrackTarget& { return map.targets[f][track.index()]; };
    const auto place = [&](Span& span) {
      const TrackTarget& target = targetOf(span.rank);
      span.rank = Rank(target.rank);
      if (span.stage.value < 0 && span.microbatch.value >= 0)
        span.stage = Stage(places.firstStage[span.rank.index()]);  // one stage on each rank
      return static_cast<std::size_t>(target.trace);
    };
    std::vector<Span>& spans = files[f].spans;
    std::erase_if(spans, [&](const Span& span) { return !targetOf(span.rank).takes(span); });
    if (files.size() == 1 && materials.size() == 1) {
      for (Span& span : spans) place(span);
      materials.front().spans = std::move(spans);
    } else {
      for (Span& span : spans) {
        Span placed = span;
        materials[place(placed)].spans.push_back(placed);
      }
    }
    spans = {};
    placeSamples(files[f], map.targets[f], materials);
  }
  return materials;
}

/// Each file has a clock, in the order of their lowest ranks.
RankClocks clocksOf(const std::vector<FileEvents>& files, const RankMap& map) {
  std::map<std::int32_t, std::size_t> fileOf;  // by rank
  for (std::size_t f = 0; f < files.size(); ++f) {
    for (const TrackTarget& target : map.targets[f]) {
      if (target.trace >= 0 && !map.traces[static_cast<std::size_t>(target.trace)].own) fileOf.try_emplace(target.rank, f);
    }
  }
  RankClocks clocks;
  std::map<std::size_t, std::int32_t> clockOf;  // by file
  for (const auto& [rank, file] : fileOf) {
    const auto [at, isNew] = clockOf.try_emplace(file, static_cast<std::int32_t>(clocks.sources.size()));
    if (isNew) {
      clocks.sources.push_back(files[file].source);
      clocks.exactStarts.push_back(files[file].exactStarts ? 1 : 0);
    }
    clocks.ofRank.resize(static_cast<std::size_t>(rank) + 1);
    clocks.ofRank.back() = at->second;
  }
  return clocks;
}

void putOnOneClock(Material& material, const RankClocks& clocks, const RankPlaces& places, std::vector<std::string>& notes) {
  const std::vector<Ns> moves = clockMoves(material.spans, clocks, places, material.marks, notes);
  if (std::ranges::all_of(moves, [](Ns move) { return move == 0; })) return;
  const auto moveOf = [&](Rank rank) { return moves[static_cast<std::size_t>(clocks.ofRank[rank.index()])]; };
  for (Span& span : material.spans) span.start += moveOf(span.rank), span.end += moveOf(span.rank);
  for (MemorySample& sample : material.memory) sample.time += moveOf(sample.rank);
  for (std::size_t r = 0; r < material.marks.size(); ++r) {
    for (auto& [start, number] : material.marks[r]) start += moveOf(Rank(static_cast<std::int32_t>(r)));
  }
  sortSpans(material.spans);
}

void noteFile(const FileEvents& file, std::vector<std::string>& notes) {
  const std::string name = std::filesystem::path(file.source).filename().string();
  if (file.truncated) notes.push_back(fmt::format("{} ends in the middle; the part up to there was used.", name));
  if (file.unusable > 0)
    notes.push_back(fmt::format("{} of {} left out, because {} no usable time.", countedEvents(file.unusable, "event"), name,
                                file.unusable == 1 ? "it has" : "they have"));
  if (file.unclosed > 0)
    notes.push_back(
        fmt::format("{} of {} left out, because only their begin or end was recorded.", countedEvents(file.unclosed, "event"), name));
}

}  // namespace

ImportedTrace assemble(std::vector<FileEvents> files, std::string title) {
  ImportedTrace result;
  result.title = std::move(title);
  std::uint64_t events = 0, unused = 0;
  for (const FileEvents& file : files) {
    noteFile(file, result.notes);
    events += file.events;
    unused += file.unused;
  }
  if (unused > 0)
    result.notes.push_back(
        fmt::format("{} (UNSHARD, RESHARD) left out: a timeline here does not show them.", countedEvents(unused, "event")));
  const RankMap map = mapRanks(files, result.notes);
  RankPlaces places = placeRanks(files, map, result.notes);
  countFromOneOrigin(files, map);
  const RankClocks clocks = clocksOf(files, map);
  const bool chunks = std::ranges::any_of(files, &FileEvents::chunks), timeless = std::ranges::any_of(files, &FileEvents::timeless);
  std::vector<Material> materials = materialOf(files, map, places);
  const std::string source = files.empty() ? "" : files.front().source;
  files = {};
  for (Material& material : materials) {
    if (material.spans.empty()) continue;
    sortSpans(material.spans);
    std::stable_sort(material.memory.begin(), material.memory.end(),
                     [](const MemorySample& a, const MemorySample& b) { return std::tie(a.rank, a.time) < std::tie(b.rank, b.time); });
    for (auto& marks : material.marks)
      std::stable_sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    if (!material.own) numberByOrder(material.spans, {material.ranks, chunks, &places, &material.marks}, result.notes);
    if (!material.own) putOnOneClock(material, clocks, places, result.notes);
    if (timeless && !material.own) replayOrder(material.spans, material.ranks, places);
    if (std::ranges::none_of(material.spans, [](const Span& span) { return isCompute(span.kind); }))
      result.notes.emplace_back(
          "No forward or backward is labelled, only messages and optimizers: torch's Schedule1F1B labels no actions; run its order in "
          "_PipelineScheduleRuntime, or annotate them.");
    findPeers(material, places.pipeline, result.notes);
    addSteps(result, std::move(material));
  }
  result.ranks = std::move(places.ranks);
  if (timeless)
    result.notes.emplace_back(
        "The files hold durations but no times: each action starts as soon as its rank and its input are ready, and messages take no "
        "time.");
  if (result.steps.empty()) {
    throw UsageError(fmt::format(
        "{} has {} but no pipeline labels: looked for torch's PP:2F0, PP:1B3, PP:0SEND_F2 … or Forward 3, Backward 3, Megatron's and "
        "DeepSpeed's functions, and "
        "this program's own; record with torch.profiler around schedule.step, or say in a file of patterns how actions are named",
        source, countedEvents(events, "event")));
  }
  return result;
}

}  // namespace pw
