#include "backends/traces/readers/ndtimeline_steps.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "backends/traces/events/events.h"
#include "backends/traces/events/spans.h"
#include "backends/traces/recovery/clocks.h"
#include "backends/traces/recovery/steps.h"
#include "schedules/error.h"
#include "simulator/job/job.h"

namespace pw {
namespace {

/// What the name of an operation means.
enum class OperationMeaning : std::uint8_t {
  Forward,
  Backward,
  Weight,
  ReceiveForward,
  ReceiveBackward,
  Within,  ///< part of an action, or around all of them: nothing of its own
  Other,   ///< a collective, the optimizer, …
};

OperationMeaning operationMeaningOf(std::string_view kind) {
  const auto holds = [&](std::string_view part) { return kind.find(part) != std::string_view::npos; };
  if (kind == "forward-compute") return OperationMeaning::Forward;
  if (kind == "backward-compute") return OperationMeaning::Backward;
  if (kind == "backward-wgrad-compute") return OperationMeaning::Weight;
  if (holds("forward-recv")) return OperationMeaning::ReceiveForward;
  if (holds("backward-recv")) return OperationMeaning::ReceiveBackward;
  // The ends of a message that are sent are at their receivers; sums of a tensor-parallel group are within its actions.
  if (holds("forward-send") || holds("backward-send") || kind.starts_with("tp-") || kind == "forward-backward")
    return OperationMeaning::Within;
  return OperationMeaning::Other;
}

/// A worker's part of a step.
struct Part {
  std::vector<const NdOperation*> forwards, backwards, weights, receivedForward, receivedBackward, others;
};

/// By number, of at most `kMostTraceSteps`.
using NdSteps = std::map<std::int64_t, std::vector<const NdOperation*>>;

class Assembly {
 public:
  Assembly(NdEvents events, const std::vector<std::string>& files, std::string title) : events_(std::move(events)), files_(files) {
    result_.title = std::move(title);
  }
  ImportedTrace run();

 private:
  void placeWorkers();
  void countChunks();
  [[nodiscard]] NdSteps stepsOf();
  [[nodiscard]] RankClocks clocksOf() const;
  [[nodiscard]] std::vector<CollectiveTime> collectivesOf(const NdSteps& steps, const RankClocks& clocks) const;
  void putOnOneClock(const NdSteps& steps);
  [[nodiscard]] std::vector<Part> partsOf(const std::vector<const NdOperation*>& operations) const;
  void addStep(std::int64_t number, std::vector<Part> parts);
  void placeActions(std::vector<Part>& parts);
  void addActions(Rank rank, SpanKind kind, std::vector<const NdOperation*>& done);
  void addMessages(Rank rank, bool backward, std::vector<const NdOperation*>& received, Trace& trace);
  void addOthers(Rank rank, std::vector<const NdOperation*>& others, ImportedStep& step);
  void say();

  NdEvents events_;
  const std::vector<std::string>& files_;
  ImportedTrace result_;
  int ranks_ = 0, workers_ = 0, chunks_ = 1;
  std::vector<Rank> rankOf_;                ///< by worker of the events
  std::vector<OperationMeaning> meaning_;   ///< by kind
  std::vector<std::vector<Span>> actions_;  ///< of the step at hand: by worker, in the order of their starts
  std::size_t reordered_ = 0, unmatched_ = 0, matched_ = 0, late_ = 0, cut_ = 0;
};

/// Numbers the workers: by replica, then tensor-parallel rank, then pipeline rank.
void Assembly::placeWorkers() {
  std::set<std::int32_t> replicas, tensor;
  for (const NdWorker& worker : events_.workers) {
    replicas.insert(worker.replica);
    tensor.insert(worker.tensor);
    ranks_ = std::max(ranks_, worker.pipeline.value + 1);
  }
  const auto copies = static_cast<std::int64_t>(replicas.size()) * static_cast<std::int64_t>(tensor.size());
  if (copies * ranks_ > kMaxRanks)
    throw UsageError(fmt::format("{} has {} copies of a pipeline of {} ranks, more workers than {}; import fewer of its replicas",
                                 result_.title, copies, ranks_, kMaxRanks));
  workers_ = static_cast<int>(copies) * ranks_;
  result_.replicas = static_cast<int>(replicas.size());
  result_.tensor = static_cast<int>(tensor.size());
  const auto placeIn = [](const std::set<std::int32_t>& set, std::int32_t value) {
    return static_cast<std::int32_t>(std::distance(set.begin(), set.find(value)));
  };
  for (const NdWorker& w : events_.workers)
    rankOf_.emplace_back((placeIn(replicas, w.replica) * result_.tensor + placeIn(tensor, w.tensor)) * ranks_ + w.pipeline.value);
  if (static_cast<std::size_t>(workers_) != events_.workers.size())
    result_.notes.push_back(fmt::format("Of {} workers {} are in the trace.", workers_, events_.workers.size()));
}

void Assembly::countChunks() {
  for (const std::string& kind : events_.kinds) meaning_.push_back(operationMeaningOf(kind));
  for (const NdOperation& operation : events_.operations) {
    const OperationMeaning meaning = meaning_[static_cast<std::size_t>(operation.kind)];
    if (meaning <= OperationMeaning::Weight) chunks_ = std::max(chunks_, operation.chunk + 1);
  }
  if (std::int64_t{chunks_} * ranks_ > kMaxStages)
    throw UsageError(fmt::format("{} names model chunk {}; more stages than {} are not shown", result_.title, chunks_ - 1, kMaxStages));
}

void sortByStart(std::vector<const NdOperation*>& operations) {
  std::stable_sort(operations.begin(), operations.end(),
                   [](const NdOperation* a, const NdOperation* b) { return a->start != b->start ? a->start < b->start : a->end < b->end; });
}

/// Adds actions of a kind: the k-th of a chunk is microbatch k, unless the file names microbatches and each once.
void Assembly::addActions(Rank rank, SpanKind kind, std::vector<const NdOperation*>& done) {
  sortByStart(done);
  std::map<std::int32_t, std::vector<const NdOperation*>> chunks;
  for (const NdOperation* operation : done) chunks[std::max(0, operation->chunk)].push_back(operation);
  for (const auto& [chunk, operations] : chunks) {
    std::set<Microbatch> named;
    for (const NdOperation* operation : operations) {
      if (operation->microbatch.value >= 0 && operation->microbatch.index() < operations.size()) named.insert(operation->microbatch);
    }
    const bool isNamed = named.size() == operations.size();
    const Stage stage(chunk * ranks_ + rank.value % ranks_);
    for (std::size_t k = 0; k < operations.size(); ++k) {
      const Microbatch microbatch = isNamed ? operations[k]->microbatch : Microbatch(k);
      actions_[rank.index()].push_back({rank, kind, stage, microbatch, rank, 0, operations[k]->start, operations[k]->end});
    }
    reordered_ += isNamed ? 0 : 1;
  }
}

/// Adds the messages that a worker received: the k-th of a direction is for its k-th action that needs one, or, where the profiler also
/// recorded those that are none (at the ends of the pipeline), for its k-th action. A message is in transfer from when both ends wait for
/// it.
void Assembly::addMessages(Rank rank, bool backward, std::vector<const NdOperation*>& received, Trace& trace) {
  if (received.empty() || ranks_ * chunks_ == 1) return;
  sortByStart(received);
  const SpanKind kind = backward ? SpanKind::Backward : SpanKind::Forward;
  const Stage last(ranks_ * chunks_ - 1);
  std::vector<const Span*> all;
  const auto isOf = [&](const Span& span) { return span.kind == kind || (backward && span.kind == SpanKind::BackwardInput); };
  for (const Span& span : actions_[rank.index()]) {
    if (isOf(span)) all.push_back(&span);
  }
  const auto needs = [&](const Span* span) { return backward ? span->stage < last : span->stage.value > 0; };
  const auto needing = static_cast<std::size_t>(std::count_if(all.begin(), all.end(), needs));
  std::size_t at = 0;  // in `all`
  if (received.size() == needing) {
    std::erase_if(all, [&](const Span* span) { return !needs(span); });
  } else if (received.size() + 1 == all.size()) {
    at = 1;  // the first one is missing
  } else if (received.size() != all.size()) {
    unmatched_ += received.size();
    return;
  }
  std::map<std::pair<Stage, Microbatch>, const Span*> producers;  // on the rank before or after
  const int base = rank.value / ranks_ * ranks_, from = base + (rank.value - base + (backward ? 1 : ranks_ - 1)) % ranks_;
  for (const Span& span : actions_[static_cast<std::size_t>(from)]) {
    if (isOf(span)) producers[{span.stage, span.microbatch}] = &span;
  }
  for (const NdOperation* message : received) {
    const Span* user = all[at++];
    if (!needs(user)) continue;
    const auto made = producers.find({Stage(user->stage.value + (backward ? 1 : -1)), user->microbatch});
    if (made == producers.end() || made->second->rank == rank) continue;
    ++matched_;
    late_ += message->end > user->end ? 1 : 0;
    const Ns start = std::max(message->start, made->second->end);
    trace.spans.push_back({made->second->rank, backward ? SpanKind::SendBackward : SpanKind::SendForward, made->second->stage,
                           user->microbatch, rank, 0, start, std::max(start, message->end)});
  }
}

/// Adds what a worker does besides its actions: by name for whoever explains the job, and as spans that can be drawn.
void Assembly::addOthers(Rank rank, std::vector<const NdOperation*>& others, ImportedStep& step) {
  sortByStart(others);
  Ns first = kLatestTime, last = -kLatestTime;
  for (const Span& span : actions_[rank.index()]) {
    first = std::min(first, span.start);
    last = std::max(last, span.end);
  }
  std::map<std::int32_t, int> seen;
  for (const NdOperation* other : others) {
    const std::string& kind = events_.kinds[static_cast<std::size_t>(other->kind)];
    const int count = ++seen[other->kind];
    step.operations.push_back({JobRank(rank.value), count == 1 ? kind : fmt::format("{} {}", kind, count), other->start, other->end});
    if (other->start == other->end) continue;
    step.trace.spans.push_back(spanOf(step.operations.back(), rank, Stage(rank.value % ranks_), first, last));
  }
}

/// Ends of spans are rounded (to 32 bits of a second and more): what overlaps by less than a hundredth is only that.
void trimRounding(std::vector<Span>& spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
  for (std::size_t i = 1; i < spans.size(); ++i) {
    Span &before = spans[i - 1], &span = spans[i];
    const Ns overlap = before.end - span.start;
    if (overlap > 0 && span.end > before.end && overlap < std::min(before.end - before.start, span.end - span.start) / 100)
      before.end = span.start;
  }
}

void Assembly::placeActions(std::vector<Part>& parts) {
  actions_.assign(parts.size(), {});
  for (std::size_t w = 0; w < parts.size(); ++w) {
    Part& part = parts[w];
    const Rank rank(w);
    addActions(rank, SpanKind::Forward, part.forwards);
    const bool split = !part.weights.empty() && part.weights.size() == part.backwards.size();
    addActions(rank, split ? SpanKind::BackwardInput : SpanKind::Backward, part.backwards);
    if (split) addActions(rank, SpanKind::BackwardWeight, part.weights);
    trimRounding(actions_[w]);
    cut_ += cutOverlaps(actions_[w], workers_);
  }
}

void Assembly::addStep(std::int64_t number, std::vector<Part> parts) {
  ImportedStep step{fmt::format("step {}", number), {workers_, {}, {}}, {}};
  placeActions(parts);
  for (const std::vector<Span>& actions : actions_) step.trace.spans.insert(step.trace.spans.end(), actions.begin(), actions.end());
  if (step.trace.spans.empty()) return;
  for (std::size_t w = 0; w < parts.size(); ++w) {
    addMessages(Rank(w), false, parts[w].receivedForward, step.trace);
    addMessages(Rank(w), true, parts[w].receivedBackward, step.trace);
  }
  for (std::size_t w = 0; w < parts.size(); ++w) addOthers(Rank(w), parts[w].others, step);
  sortSpans(step.trace.spans);
  static_cast<void>(cutOverlaps(step.trace.spans, workers_));  // of operations, which are drawn where there is room
  const Ns begin = step.trace.spans.front().start;
  normalize(step.trace);
  for (NamedSpan& operation : step.operations) {
    operation.start -= begin;
    operation.end -= begin;
  }
  requireSummable(step.trace, result_.title);
  step.begin = begin;
  result_.steps.push_back(std::move(step));
}

void Assembly::say() {
  const auto say = [&](std::uint64_t count, const std::string& noun, std::string_view what) {
    if (count > 0) result_.notes.push_back(fmt::format("{} {}.", countedEvents(count, noun), what));
  };
  say(events_.nameless, "event", "left out, because no thread name says their worker (PP rank 0, TP rank 0, compute)");
  say(events_.unusable, "event", "left out, because they have no step or no usable times");
  say(unmatched_, "message", "left out, because their number does not fit the actions of their worker");
  say(late_, "message", "arrived after the action that they were matched with; their order may not be that of the actions");
  say(cut_, "action", "cut or left out, because they lie over others of the same worker");
  if (reordered_ > 0)
    result_.notes.emplace_back("Microbatches are numbered in the order of their actions where the file does not name each once.");
  if (events_.truncated) result_.notes.emplace_back("The file ends too soon; its last step may be incomplete.");
}

NdSteps Assembly::stepsOf() {
  NdSteps steps;
  for (const NdOperation& operation : events_.operations) steps[operation.step].push_back(&operation);
  if (steps.size() > kMostTraceSteps) {
    result_.notes.push_back(fmt::format("Of {} steps the first {} were taken.", steps.size(), kMostTraceSteps));
    steps.erase(std::next(steps.begin(), kMostTraceSteps), steps.end());
  }
  return steps;
}

std::vector<Part> Assembly::partsOf(const std::vector<const NdOperation*>& operations) const {
  std::vector<Part> parts(static_cast<std::size_t>(workers_));
  for (const NdOperation* operation : operations) {
    Part& part = parts[rankOf_[static_cast<std::size_t>(operation->worker)].index()];
    switch (meaning_[static_cast<std::size_t>(operation->kind)]) {
      case OperationMeaning::Forward: part.forwards.push_back(operation); break;
      case OperationMeaning::Backward: part.backwards.push_back(operation); break;
      case OperationMeaning::Weight: part.weights.push_back(operation); break;
      case OperationMeaning::ReceiveForward: part.receivedForward.push_back(operation); break;
      case OperationMeaning::ReceiveBackward: part.receivedBackward.push_back(operation); break;
      case OperationMeaning::Other: part.others.push_back(operation); break;
      case OperationMeaning::Within: break;
    }
  }
  return parts;
}

/// Each file's clock, in the order of the ranks.
RankClocks Assembly::clocksOf() const {
  std::map<std::size_t, std::int32_t> clockOf;  // by file
  RankClocks clocks;
  clocks.ofRank.assign(static_cast<std::size_t>(workers_), 0);
  std::vector<std::pair<Rank, std::size_t>> ranks;  // and their files
  for (std::size_t w = 0; w < rankOf_.size(); ++w) ranks.emplace_back(rankOf_[w], events_.files[w]);
  std::ranges::sort(ranks);
  for (const auto& [rank, file] : ranks) {
    const auto [at, isNew] = clockOf.try_emplace(file, static_cast<std::int32_t>(clocks.sources.size()));
    if (isNew) clocks.sources.push_back(files_[file]);
    clocks.ofRank[rank.index()] = at->second;
  }
  clocks.exactStarts.assign(clocks.sources.size(), 1);  // receives are operations of their own
  return clocks;
}

/// Those of replicas: the k-th of a kind in a step, of the workers of a pipeline and tensor-parallel rank.
std::vector<CollectiveTime> Assembly::collectivesOf(const NdSteps& steps, const RankClocks& clocks) const {
  using Place = std::tuple<std::int64_t, std::int32_t, int, std::size_t>;  // step, kind, rank within a replica, and which
  std::map<Place, std::size_t> numbers;
  std::vector<CollectiveTime> times;
  const int ofReplica = ranks_ * result_.tensor;
  for (const auto& [number, operations] : steps) {
    std::map<std::pair<Rank, std::int32_t>, std::vector<const NdOperation*>> kinds;
    for (const NdOperation* operation : operations) {
      const std::string& name = events_.kinds[static_cast<std::size_t>(operation->kind)];
      if (meaning_[static_cast<std::size_t>(operation->kind)] == OperationMeaning::Other && communicates(name) &&
          groupNamed(name) == OperationGroup::Replicas)
        kinds[{rankOf_[static_cast<std::size_t>(operation->worker)], operation->kind}].push_back(operation);
    }
    for (auto& [place, of] : kinds) {
      sortByStart(of);
      const auto& [rank, kind] = place;
      for (std::size_t k = 0; k < of.size(); ++k) {
        const std::size_t collective = numbers.try_emplace({number, kind, rank.value % ofReplica, k}, numbers.size()).first->second;
        times.push_back({collective, static_cast<std::size_t>(clocks.ofRank[rank.index()]), of[k]->start, of[k]->end});
      }
    }
  }
  return times;
}

void Assembly::putOnOneClock(const NdSteps& steps) {
  const RankClocks clocks = clocksOf();
  if (clocks.sources.size() < 2) return;
  RankPlaces places;
  for (std::int32_t w = 0; w < workers_; ++w) places.pipeline.push_back(w / ranks_);
  RankMarks marks(static_cast<std::size_t>(workers_));
  std::vector<Span> actions;
  std::int32_t count = 0;
  for (const auto& [number, operations] : steps) {
    std::vector<Part> parts = partsOf(operations);
    placeActions(parts);
    for (std::size_t w = 0; w < actions_.size(); ++w) {
      if (actions_[w].empty()) continue;
      marks[w].emplace_back(actions_[w].front().start, count);
      actions.insert(actions.end(), actions_[w].begin(), actions_[w].end());
    }
    ++count;
  }
  cut_ = 0;  // they are placed again when their clocks are one
  for (auto& ofRank : marks) std::ranges::sort(ofRank);
  sortSpans(actions);
  const std::vector<Ns> moves = clockMoves(actions, clocks, places, marks, result_.notes, collectivesOf(steps, clocks));
  for (NdOperation& operation : events_.operations) {
    const Ns move = moves[static_cast<std::size_t>(clocks.ofRank[rankOf_[static_cast<std::size_t>(operation.worker)].index()])];
    operation.start += move;
    operation.end += move;
  }
}

ImportedTrace Assembly::run() {
  placeWorkers();
  countChunks();
  const NdSteps steps = stepsOf();
  putOnOneClock(steps);
  for (const auto& [number, operations] : steps) addStep(number, partsOf(operations));
  if (result_.steps.empty())
    throw UsageError(
        fmt::format("{} holds no action of a pipeline: no forward-compute or backward-compute of a named worker and step{}; "
                    "export the timeline of NDTimeline again",
                    result_.title, events_.truncated ? ", as far as the file goes, which is truncated" : ""));
  result_.timedMessages = matched_ > 0;
  say();
  return std::move(result_);
}

}  // namespace

ImportedTrace ndSteps(NdEvents events, const std::vector<std::string>& files, std::string title) {
  return Assembly(std::move(events), files, std::move(title)).run();
}

}  // namespace pw
