#include "backends/traces/recovery/places.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>
#include <string_view>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pw {
namespace {

/// What a rank does, short enough to compare: the first and last microbatch of each stage's forwards. The two directions of a
/// bidirectional schedule have the same stages, but not the same microbatches of them.
using Work = std::map<std::int32_t, std::pair<std::int32_t, std::int32_t>>;

std::string lowered(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

/// Whether a group's name says one of these dimensions and no other one: `mesh_pp`, `PIPELINE_MODEL_PARALLEL_GROUP`. Megatron has groups
/// of several, too: `TENSOR_AND_DATA_PARALLEL_GROUP`, `EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP`.
bool isGroupOf(std::initializer_list<std::string_view> dimension, const std::string& name) {
  constexpr std::array<std::string_view, 8> kNoDimension{"mesh", "model", "parallel", "group", "process", "comm", "nccl", "gloo"};
  bool found = false;
  std::string word;
  for (const char c : lowered(name) + ' ') {
    if (c >= 'a' && c <= 'z') {
      word += c;
      continue;
    }
    const bool isDimension = std::ranges::find(dimension, word) != dimension.end();
    if (!isDimension && !word.empty() && std::ranges::find(kNoDimension, word) == kNoDimension.end()) return false;
    found = found || isDimension;
    word.clear();
  }
  return found;
}

class Placer {
 public:
  Placer(const std::vector<FileEvents>& files, const RankMap& map, std::vector<std::string>& notes)
      : files_(files), map_(map), notes_(notes) {}
  RankPlaces place() &&;

 private:
  void gather();
  void stagesOfSilentRanks();
  void pair();
  void readGroups();
  void stagesByWarmUp();
  void renumber();
  void say();
  [[nodiscard]] bool distinct(const std::vector<std::int32_t>& ranks) const;

  const std::vector<FileEvents>& files_;
  const RankMap& map_;
  std::vector<std::string>& notes_;
  std::size_t ranks_ = 0;
  std::vector<Work> work_;
  std::vector<std::optional<JobRank>> jobRank_;         ///< by rank, where it is said
  std::map<JobRank, std::int32_t> ofJob_;               ///< rank here by the job's
  std::vector<std::optional<std::int32_t>> stageHint_;  ///< by rank: the stage that its messages name
  std::vector<std::int32_t> tensor_;                    ///< by rank: place in its tensor-parallel group
  std::size_t tensorSize_ = 1;
  std::vector<char> silent_;  ///< by rank: its actions name no stage
  RankPlaces places_;
};

void Placer::gather() {
  for (std::size_t f = 0; f < files_.size(); ++f) {
    Rank lastRank(-1);
    std::int32_t lastStage = -1;
    std::pair<std::int32_t, std::int32_t>* range = nullptr;
    for (const Span& span : files_[f].spans) {
      const TrackTarget& target = map_.targets[f][trackOf(span).index()];
      if (!target.takes(span) || map_.traces[static_cast<std::size_t>(target.trace)].own) continue;
      const std::size_t r = target.rank.index();
      if (files_[f].rank) jobRank_[r] = files_[f].rank;
      if (!isCompute(span.kind) && span.microbatch.value < 0 && span.stage.value >= 0) stageHint_[r] = span.stage.value;
      if (span.kind != SpanKind::Forward) continue;
      if (span.stage.value < 0) {
        silent_[r] = 1;
        continue;
      }
      if (range == nullptr || target.rank != lastRank || span.stage.value != lastStage)
        range = &work_[r].try_emplace(span.stage.value, span.microbatch.value, span.microbatch.value).first->second;
      lastRank = target.rank;
      lastStage = span.stage.value;
      range->first = std::min(range->first, span.microbatch.value);
      range->second = std::max(range->second, span.microbatch.value);
    }
  }
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (jobRank_[r]) ofJob_.emplace(*jobRank_[r], static_cast<std::int32_t>(r));
  }
}

bool Placer::distinct(const std::vector<std::int32_t>& ranks) const {
  std::set<Work> seen;
  return std::ranges::all_of(ranks, [&](std::int32_t r) {
    return silent_[static_cast<std::size_t>(r)] != 0 || seen.insert(work_[static_cast<std::size_t>(r)]).second;
  });
}

/// Groups that the files list: of pipelines and of tensor parallelism.
void Placer::readGroups() {
  std::int32_t next = 0;
  std::map<std::vector<std::int32_t>, std::int32_t> pipelines;
  std::vector<std::int32_t> pipelineOf(ranks_, -1);
  for (const FileEvents& file : files_) {
    for (const RankGroup& group : file.groups) {
      std::vector<std::int32_t> here;
      for (const JobRank rank : group.ranks) {
        if (const auto at = ofJob_.find(rank); at != ofJob_.end()) here.push_back(at->second);
      }
      if (here.size() < 2 || here.size() != group.ranks.size()) continue;
      if (isGroupOf({"tp", "tensor"}, group.name)) {
        tensorSize_ = std::max(tensorSize_, here.size());
        for (std::size_t k = 0; k < here.size(); ++k) tensor_[static_cast<std::size_t>(here[k])] = static_cast<std::int32_t>(k);
      }
      if (!isGroupOf({"pp", "pipeline"}, group.name)) continue;
      std::ranges::sort(here);
      if (!distinct(here)) continue;
      const auto [at, isNew] = pipelines.try_emplace(here, next);
      if (isNew) ++next;
      for (std::size_t k = 0; k < here.size(); ++k) {
        const auto r = static_cast<std::size_t>(here[k]);
        pipelineOf[r] = at->second;
        if (silent_[r] != 0 && !stageHint_[r]) stageHint_[r] = static_cast<std::int32_t>(k);
      }
    }
  }
  if (std::ranges::all_of(pipelineOf, [](std::int32_t p) { return p >= 0; })) places_.pipeline = pipelineOf;
}

/// Whether the longest runs of forwards are those of one pipeline of interleaved 1F1B whose step is too short for some of them: two fewer
/// on each stage than on the one before, but no more than the forwards of a step. `all`: forwards, by rank.
bool areCutWarmUps(std::vector<std::int64_t> runs, const std::vector<std::int64_t>& all) {
  std::ranges::sort(runs);
  const std::int64_t least = runs.front(), most = runs.back(), ranks = std::ssize(runs);
  if (least <= ranks || most >= least + 2 * (ranks - 1)) return false;
  for (std::int64_t k = 0; k < ranks; ++k) {
    if (runs[static_cast<std::size_t>(k)] != std::min(least + 2 * k, most)) return false;
  }
  return std::ranges::all_of(all, [&](std::int64_t forwards) { return forwards % most == 0; });
}

/// Ranks whose actions name no stage, in no known group: 1F1B does P − s forwards in a row on stage s, and interleaved 1F1B two fewer on
/// each stage than on the one before, from (V − 1) G + 1 on the last (as `interleavingOf`). Where as many ranks do each of these numbers,
/// they tell the stages, and how many pipelines there are.
void Placer::stagesByWarmUp() {
  const auto isHinted = [](const auto& hint) { return hint.has_value(); };
  if (ranks_ < 2 || !places_.pipeline.empty() || std::ranges::any_of(stageHint_, isHinted)) return;
  if (std::ranges::any_of(silent_, [](char silent) { return silent == 0; })) return;
  std::vector<std::vector<std::pair<Ns, bool>>> rows(ranks_);  // of each rank when its actions start, and whether they are forwards
  for (std::size_t f = 0; f < files_.size(); ++f) {
    for (const Span& span : files_[f].spans) {
      const TrackTarget& target = map_.targets[f][trackOf(span).index()];
      if (!isCompute(span.kind) || !target.takes(span) || map_.traces[static_cast<std::size_t>(target.trace)].own) continue;
      rows[target.rank.index()].emplace_back(span.start, span.kind == SpanKind::Forward);
    }
  }
  std::vector<std::int64_t> longest, forwards;
  std::map<std::int64_t, std::size_t> counts;  // ranks by their longest run of forwards
  for (auto& row : rows) {
    std::ranges::sort(row);
    std::int64_t run = 0, most = 0;
    for (const auto& [start, isForward] : row) most = std::max(most, run = isForward ? run + 1 : 0);
    longest.push_back(most);
    forwards.push_back(std::ranges::count_if(row, [](const auto& action) { return action.second; }));
    ++counts[most];
  }
  if (areCutWarmUps(longest, forwards)) {
    places_.interleaved = true;
    return;
  }
  const std::size_t stages = counts.size(), copies = counts.begin()->second;
  if (stages < 2 || std::ranges::any_of(counts, [&](const auto& entry) { return entry.second != copies; })) return;
  const std::int64_t least = counts.begin()->first, most = counts.rbegin()->first, last = std::ssize(counts) - 1;
  const bool isPlain = least == 1 && most == least + last;
  const bool isInterleaved = least > last + 1 && most == least + 2 * last &&
                             std::ranges::all_of(counts, [&](const auto& entry) { return (entry.first - least) % 2 == 0; });
  if (!isPlain && !isInterleaved) return;
  places_.interleaved = isInterleaved;
  if (copies < 2) return;
  for (std::size_t r = 0; r < ranks_; ++r) stageHint_[r] = static_cast<std::int32_t>((most - longest[r]) / (isPlain ? 1 : 2));
  notes_.push_back(
      fmt::format("No action names its stage: of the {} ranks {} each begin with {} forwards, as on the {} stages of {} pipelines; label "
                  "stages, or record the job's groups, if these are not copies of each other.",
                  ranks_, copies, fmt::join(counts | std::views::keys, ", "), stages, copies));
}

/// A rank whose actions name no stage has the one that its messages, or its place in the pipeline's group, say; else its own number.
void Placer::stagesOfSilentRanks() {
  for (std::size_t r = 0; r < ranks_; ++r) {
    places_.firstStage.emplace_back(stageHint_[r].value_or(static_cast<std::int32_t>(r)));
    if (silent_[r] != 0) work_[r].try_emplace(places_.firstStage[r].value, 0, 0);
  }
}

void Placer::pair() {
  std::map<Work, std::int32_t> count;
  std::vector<std::int32_t> place(ranks_);
  for (std::size_t r = 0; r < ranks_; ++r) place[r] = work_[r].empty() ? 0 : count[work_[r]]++;
  std::set<std::int32_t> sizes;
  for (const auto& [work, size] : count) sizes.insert(size);
  if (places_.pipeline.empty()) places_.pipeline = place;
  if (sizes.size() > 1)
    notes_.push_back(fmt::format("Some stages are on {} ranks and others on {}: ranks of the job are missing, or it has no equal replicas.",
                                 *sizes.begin(), *sizes.rbegin()));
}

/// Numbers the copies of the pipeline by replica and tensor-parallel rank, and the ranks by copy, then stage. Keeps the numbers where there
/// is one pipeline, or copies differ in size.
void Placer::renumber() {
  const auto copies = static_cast<std::size_t>(1 + *std::ranges::max_element(places_.pipeline));
  for (std::size_t r = 0; r < ranks_; ++r) places_.renumbered.emplace_back(r);
  std::vector<std::size_t> sizes(copies), tensorOf(copies), replicaOf(copies), seen(tensorSize_);
  for (std::size_t r = 0; r < ranks_; ++r) {
    const auto copy = static_cast<std::size_t>(places_.pipeline[r]);
    ++sizes[copy];
    tensorOf[copy] = static_cast<std::size_t>(tensor_[r]);
  }
  if (copies < 2 || std::ranges::any_of(sizes, [&](std::size_t size) { return size != sizes.front(); })) return;
  for (std::size_t c = 0; c < copies; ++c) replicaOf[c] = seen[tensorOf[c]]++;
  if (std::ranges::any_of(seen, [&](std::size_t count) { return count != seen.front(); })) return;
  places_.tensor = static_cast<int>(tensorSize_);
  places_.replicas = static_cast<int>(copies / tensorSize_);
  std::vector<std::size_t> order(ranks_);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto keyOf = [&](std::size_t r) {
    const auto copy = static_cast<std::size_t>(places_.pipeline[r]);
    return std::tuple(replicaOf[copy] * tensorSize_ + tensorOf[copy], work_[r].empty() ? 0 : work_[r].begin()->first, r);
  };
  std::ranges::sort(order, {}, keyOf);
  std::vector<Stage> firstStage;
  std::vector<std::int32_t> pipeline, tensor;
  std::vector<std::optional<JobRank>> jobRank;
  for (std::size_t n = 0; n < ranks_; ++n) {
    const std::size_t r = order[n];
    places_.renumbered[r] = Rank(n);
    firstStage.push_back(places_.firstStage[r]);
    pipeline.push_back(static_cast<std::int32_t>(std::get<0>(keyOf(r))));
    tensor.push_back(tensor_[r]);
    jobRank.emplace_back(jobRank_[r].value_or(JobRank(r)));
  }
  places_.firstStage = firstStage;
  places_.pipeline = pipeline;
  tensor_ = tensor;
  jobRank_ = jobRank;
}

void Placer::say() {
  const std::size_t pipelines = static_cast<std::size_t>(places_.replicas) * static_cast<std::size_t>(places_.tensor);
  const bool renumbered = std::ranges::any_of(ofJob_, [](const auto& pair) { return pair.first.value != pair.second; });
  if (pipelines < 2 && !renumbered) return;
  for (std::size_t r = 0; r < ranks_; ++r) places_.ranks.push_back({jobRank_[r], places_.pipeline[r], tensor_[r]});
  if (pipelines < 2) return;
  const std::size_t each = ranks_ / pipelines, shown = std::min<std::size_t>(each, 16);
  std::string kinds;
  if (places_.tensor > 1)
    kinds = fmt::format(", {} tensor-parallel in each of {} data-parallel replica{}", places_.tensor, places_.replicas,
                        places_.replicas == 1 ? "" : "s");
  std::vector<std::int32_t> first;
  for (std::size_t r = 0; r < shown; ++r) first.push_back(jobRank_[r].value_or(JobRank(-1)).value);
  notes_.push_back(
      fmt::format("{} pipelines run beside each other{}; ranks are numbered one pipeline after another, the first has the job's {}{}.",
                  pipelines, kinds, fmt::join(first, ", "), each > shown ? " …" : ""));
}

RankPlaces Placer::place() && {
  for (const RankMap::Traced& traced : map_.traces) {
    if (!traced.own) ranks_ = static_cast<std::size_t>(traced.ranks);
  }
  if (ranks_ == 0) return {};
  work_.resize(ranks_);
  jobRank_.assign(ranks_, std::nullopt);
  stageHint_.resize(ranks_);
  tensor_.assign(ranks_, 0);
  silent_.assign(ranks_, 0);
  gather();
  readGroups();
  stagesByWarmUp();
  stagesOfSilentRanks();
  pair();
  renumber();
  say();
  return std::move(places_);
}

}  // namespace

RankPlaces placeRanks(const std::vector<FileEvents>& files, const RankMap& map, std::vector<std::string>& notes) {
  return Placer(files, map, notes).place();
}

}  // namespace pw
