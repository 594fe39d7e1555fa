#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backends/traces/events/events.h"
#include "backends/traces/events/spans.h"
#include "backends/traces/recovery/clocks.h"
#include "backends/traces/recovery/marks.h"
#include "backends/traces/recovery/order.h"
#include "backends/traces/recovery/places.h"
#include "backends/traces/recovery/ranks.h"
#include "backends/traces/recovery/replay.h"
#include "backends/traces/recovery/steps.h"
#include "backends/traces/recovery/unlabelled.h"
#include "schedules/error.h"

namespace pw {
namespace {

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

/// Whether the last stage that computes here sends outputs on or waits for gradients, as it never does in a whole pipeline.
bool needsLaterStages(const std::vector<Span>& spans) {
  Stage last(-1);
  for (const Span& span : spans) {
    if (isCompute(span.kind)) last = std::max(last, span.stage);
  }
  return std::ranges::any_of(spans, [&](const Span& span) {
    return (span.kind == SpanKind::WaitBackward || span.kind == SpanKind::SendForward) && span.stage == last;
  });
}

/// Finds the receiver of messages by the next stage; those to the same rank, or without a receiver, are dropped.
void findPeers(Material& material, const std::vector<std::int32_t>& pipeline, std::vector<std::string>& notes) {
  std::optional<StageRanks> ranks;
  if (!material.own && std::ranges::any_of(material.spans, [](const Span& span) { return isMessage(span.kind); }))
    ranks.emplace(material.spans, pipeline);
  std::uint64_t lost = 0;
  std::erase_if(material.spans, [&](Span& span) {
    if (!isMessage(span.kind)) {
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

/// Memory and marks of a file go where their tracks do.
void placeSamples(const FileEvents& file, const std::vector<TrackTarget>& targets, std::vector<Material>& materials) {
  const auto isDevice = [&](Track track) { return file.tracks[track.index()].device; };
  const bool fromDevice = std::any_of(file.memory.begin(), file.memory.end(), [&](const MemorySample& m) { return isDevice(trackOf(m)); });
  for (const MemorySample& sample : file.memory) {
    const TrackTarget& target = targets[trackOf(sample).index()];
    const bool wanted = file.tracks[trackOf(sample).index()].own || !fromDevice || isDevice(trackOf(sample));
    if (target.trace >= 0 && wanted)
      materials[static_cast<std::size_t>(target.trace)].memory.push_back({target.rank, sample.time, sample.bytes});
  }
  bool deviceMarks = false;  // a device works on one step when its program begins the next
  for (std::size_t t = 0; t < targets.size(); ++t)
    deviceMarks = deviceMarks || (file.tracks[t].device && targets[t].trace >= 0 && targets[t].spans);
  for (const StepMark& mark : file.marks) {
    const TrackTarget& target = targets[mark.track.index()];
    if (target.trace < 0 || materials[static_cast<std::size_t>(target.trace)].own) continue;
    Material& material = materials[static_cast<std::size_t>(target.trace)];
    if (isDevice(mark.track) == deviceMarks) material.marks[target.rank.index()].emplace_back(mark.start, mark.number);
    if (!isDevice(mark.track) && deviceMarks) material.programSteps.insert(mark.number);
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
    const auto targetOf = [&](Track track) -> const TrackTarget& { return map.targets[f][track.index()]; };
    const auto place = [&](Span& span) {
      const TrackTarget& target = targetOf(trackOf(span));
      span.rank = target.rank;
      const bool own = map.traces[static_cast<std::size_t>(target.trace)].own;
      if (!own && span.stage.value < 0 && span.microbatch.value >= 0)
        span.stage = places.firstStage[span.rank.index()];  // one stage on each rank
      return static_cast<std::size_t>(target.trace);
    };
    std::vector<Span>& spans = files[f].spans;
    std::erase_if(spans, [&](const Span& span) { return !targetOf(trackOf(span)).takes(span); });
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

/// Whether the actions that count are those of devices: a stream waits for its input by an event, before the first kernel of the action.
bool areOfDevices(const FileEvents& file, const std::vector<TrackTarget>& targets) {
  for (std::size_t t = 0; t < targets.size(); ++t) {
    if (targets[t].trace >= 0 && targets[t].spans && targets[t].compute && file.tracks[t].device) return true;
  }
  return false;
}

/// Each file has a clock, in the order of their lowest ranks.
RankClocks clocksOf(const std::vector<FileEvents>& files, const RankMap& map) {
  std::map<Rank, std::size_t> fileOf;
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
      clocks.exactStarts.push_back(files[file].exactStarts || areOfDevices(files[file], map.targets[file]) ? 1 : 0);
    }
    clocks.ofRank.resize(rank.index() + 1);
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

void renumber(RankMap& map, const RankPlaces& places) {
  for (auto& targets : map.targets) {
    for (TrackTarget& target : targets) {
      if (target.trace >= 0 && !map.traces[static_cast<std::size_t>(target.trace)].own)
        target.rank = places.renumbered[target.rank.index()];
    }
  }
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

/// Throws UsageError where two files say that they are of jobs of different sizes.
void requireOneJob(const std::vector<FileEvents>& files) {
  const FileEvents* first = nullptr;
  for (const FileEvents& file : files) {
    if (file.worldSize <= 0) continue;
    if (first == nullptr) first = &file;
    if (file.worldSize != first->worldSize)
      throw UsageError(fmt::format("{} is of a job of {} ranks, and {} of one of {}; import each job by itself", first->source,
                                   first->worldSize, file.source, file.worldSize));
  }
}

/// Which ranks of the job are in none of the files, where these say how many it has.
void noteMissingRanks(const std::vector<FileEvents>& files, std::vector<std::string>& notes) {
  constexpr std::int64_t kNamed = 8;
  std::int64_t size = 0;
  std::set<std::int64_t> there;
  for (const FileEvents& file : files) {
    if (file.worldSize > 0 && !file.rank) return;  // whose it is, is not known
    size = std::max(size, file.worldSize);
    if (file.rank) there.insert(file.rank->value);
  }
  const std::int64_t count = size - std::distance(there.begin(), there.lower_bound(size));
  std::vector<std::int64_t> missing;  // the first of them
  for (std::int64_t rank = 0; rank < size && std::ssize(missing) < kNamed; ++rank) {
    if (!there.contains(rank)) missing.push_back(rank);
  }
  if (count == 0) return;
  notes.push_back(
      fmt::format("The job has {} ranks, and the trace{} of rank{} {}{} {} not here: what {} did is not in this import; add {}.", size,
                  count == 1 ? "" : "s", count == 1 ? "" : "s", fmt::join(missing, ", "),
                  count > kNamed ? fmt::format(" and {} more", count - kNamed) : "", count == 1 ? "is" : "are", count == 1 ? "it" : "they",
                  count == 1 ? "its file" : "their files"));
}

}  // namespace

ImportedTrace assemble(std::vector<FileEvents> files, std::string title) {
  ImportedTrace result;
  result.title = std::move(title);
  requireOneJob(files);
  noteMissingRanks(files, result.notes);  // first of all: it explains most of what else is missing
  std::uint64_t events = 0, unused = 0;
  for (const FileEvents& file : files) {
    noteFile(file, result.notes);
    events += file.events;
    unused += file.unused;
  }
  if (unused > 0)
    result.notes.push_back(
        fmt::format("{} (UNSHARD, RESHARD) left out: a timeline here does not show them.", countedEvents(unused, "event")));
  RankMap map = mapRanks(files, result.notes);
  RankPlaces places = placeRanks(files, map, result.notes);
  renumber(map, places);
  countFromOneOrigin(files, map);
  const RankClocks clocks = clocksOf(files, map);
  const bool chunks = places.interleaved || std::ranges::any_of(files, &FileEvents::chunks);
  const bool timeless = std::ranges::any_of(files, &FileEvents::timeless);
  std::vector<Material> materials = materialOf(files, map, places);
  const std::string source = files.empty() ? "" : files.front().source;
  files = {};
  for (Material& material : materials) {
    const auto isOfPipeline = [](const Span& span) { return isCompute(span.kind) || isMessage(span.kind) || isWait(span.kind); };
    if (!material.own && std::ranges::none_of(material.spans, isOfPipeline)) continue;  // every training labels its optimizer
    if (material.spans.empty()) continue;
    sortSpans(material.spans);
    std::stable_sort(material.memory.begin(), material.memory.end(),
                     [](const MemorySample& a, const MemorySample& b) { return std::tie(a.rank, a.time) < std::tie(b.rank, b.time); });
    for (auto& marks : material.marks)
      std::stable_sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    if (!material.own && !timeless) completeMarks(material.marks, material.spans, result.notes);
    if (!material.own) numberByOrder(material.spans, {material.ranks, chunks, &places, &material.marks}, result.notes);
    if (!material.own) dropEmptyBackwards(material.spans);
    if (timeless && !material.own) replayOrder(material.spans, material.ranks, places);
    if (!material.own) addUnlabelled(material, result.notes);  // of each rank by itself, before clocks: those are compared by it
    if (!material.own && !timeless) putOnOneClock(material, clocks, places, result.notes);
    if (std::ranges::none_of(material.spans, [](const Span& span) { return isCompute(span.kind); }))
      result.notes.emplace_back(
          "No forward or backward is labelled, only messages and optimizers: torch's Schedule1F1B labels no actions; run its order in "
          "_PipelineScheduleRuntime, or annotate them.");
    result.lacksLastStages = result.lacksLastStages || (!material.own && needsLaterStages(material.spans));
    findPeers(material, places.pipeline, result.notes);
    material.timeless = timeless;
    addSteps(result, std::move(material));
  }
  result.replicas = places.replicas;
  result.tensor = places.tensor;
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
