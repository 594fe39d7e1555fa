#include "backends/traces/recovery/steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "backends/traces/events/events.h"
#include "backends/traces/events/spans.h"
#include "backends/traces/recovery/action_set.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// Which step each span belongs to (−1: none), and where each rank's steps begin.
struct Steps {
  std::vector<std::int32_t> of;
  std::vector<std::vector<Ns>> begins;  ///< by rank and step
  std::vector<std::string> names;
  std::uint64_t outside = 0;
};

constexpr std::ptrdiff_t kMostLater = 64;  ///< steps

/// How long after another rank, on average, one begins its steps, where its first is that of number `first` there: with and without sign.
struct Apart {
  double later = 0, apart = std::numeric_limits<double>::max();
};
Apart apartAt(const std::vector<Ns>& begins, const std::vector<Ns>& reference, std::ptrdiff_t first) {
  double later = 0, sum = 0, count = 0;
  for (std::ptrdiff_t i = std::max<std::ptrdiff_t>(0, -first); i < std::ssize(begins) && i + first < std::ssize(reference); ++i, ++count) {
    const Ns after = begins[static_cast<std::size_t>(i)] - reference[static_cast<std::size_t>(i + first)];
    later += static_cast<double>(after.value);
    sum += std::abs(static_cast<double>(after.value));
  }
  return count > 0 ? Apart{later / count, sum / count} : Apart{};
}
double apart(const std::vector<Ns>& begins, const std::vector<Ns>& reference, std::ptrdiff_t first) {
  return apartAt(begins, reference, first).apart;
}

/// The number in `reference`, of a rank with as many steps or more, of the step that begins closest to the first of `begins`. It may also
/// be one before the reference's first, or the last one beyond its last, where they are then less than half as far apart; but no rank
/// begins a step before one whose stages come first. `stagesLater`: than the reference's first; 0 also where that is not known.
std::ptrdiff_t numberOfFirst(const std::vector<Ns>& begins, const std::vector<Ns>& reference, std::int32_t stagesLater) {
  const std::ptrdiff_t more = std::ssize(reference) - std::ssize(begins);
  std::ptrdiff_t best = 0;
  for (std::ptrdiff_t first = 1; first <= std::min(kMostLater, more); ++first) {
    if (apart(begins, reference, first) < apart(begins, reference, best)) best = first;
  }
  const double half = apart(begins, reference, best) / 2;
  for (const std::ptrdiff_t outside : {std::ptrdiff_t{-1}, more + 1}) {
    const Apart there = apartAt(begins, reference, outside);
    const bool isBeforeItsInput = stagesLater * there.later < 0;
    if (!isBeforeItsInput && there.apart < std::min(half, apart(begins, reference, best))) best = outside;
  }
  return best;
}

/// A recording may begin, on some ranks, a step later than on the others: steps that begin at about one time get one number.
void countAlike(Steps& steps, const std::vector<Span>& spans) {
  const auto longest = std::ranges::max_element(steps.begins, {}, &std::vector<Ns>::size);
  const std::vector<Ns> reference = *longest;
  std::vector<std::int32_t> stages(steps.begins.size(), std::numeric_limits<std::int32_t>::max());  // the first of each rank
  for (const Span& span : spans) {
    if (span.kind == SpanKind::Forward) stages[span.rank.index()] = std::min(stages[span.rank.index()], span.stage.value);
  }
  // Where ranks also wait or end their steps, a later one may begin to wait for its next step early.
  const bool forwardsAlone = std::ranges::all_of(spans, [](const Span& span) { return span.kind == SpanKind::Forward; });
  if (!forwardsAlone) std::ranges::fill(stages, 0);
  const std::int32_t first = stages[static_cast<std::size_t>(longest - steps.begins.begin())];
  std::vector<std::ptrdiff_t> later;
  for (std::size_t r = 0; r < stages.size(); ++r) {
    const std::vector<Ns>& begins = steps.begins[r];
    later.push_back(begins.empty() ? 0 : numberOfFirst(begins, reference, (stages[r] > first ? 1 : 0) - (stages[r] < first ? 1 : 0)));
  }
  const std::ptrdiff_t earliest = *std::ranges::min_element(later);
  for (std::size_t r = 0; r < later.size(); ++r) {
    later[r] -= earliest;
    if (steps.begins[r].empty()) continue;
    steps.begins[r].insert(steps.begins[r].begin(), static_cast<std::size_t>(later[r]),
                           std::numeric_limits<Ns>::max());  // none of its spans
  }
  for (std::size_t i = 0; i < spans.size(); ++i) steps.of[i] += static_cast<std::int32_t>(later[spans[i].rank.index()]);
}

bool isGradient(const Span& span) { return span.kind == SpanKind::Backward || span.kind == SpanKind::BackwardInput; }

/// Where a forward stands in its step: the first of a step has the lowest microbatch, of its rank's first stage.
std::pair<std::int32_t, std::int32_t> placeOf(const Span& forward) { return {forward.microbatch.value, forward.stage.value}; }
constexpr std::pair<std::int32_t, std::int32_t> kNoPlace{std::numeric_limits<std::int32_t>::max(), 0};

/// Whether a rank that does forwards alone begins within a step: another forward is its first, and from that one on the microbatches of
/// each stage ascend until it comes again. (Where they do not, the order is the user's own, and may begin anywhere.)
bool beginsWithin(const std::vector<const Span*>& forwards) {
  const auto first = std::ranges::min_element(forwards, {}, [](const Span* span) { return placeOf(*span); });
  if (first == forwards.begin()) return false;
  std::map<Stage, Microbatch> last;
  for (auto at = first; at != forwards.end() && (at == first || placeOf(**at) != placeOf(**first)); ++at) {
    const auto [found, isNew] = last.emplace((*at)->stage, (*at)->microbatch);
    if (!isNew && (*at)->microbatch <= found->second) return false;
    found->second = (*at)->microbatch;
  }
  return true;
}

/// Whether the recording begins within a step: a backward comes before any forward of its microbatch; or all are forwards, and do not begin
/// with the first of a step.
bool beginsWithin(const Material& material) {
  std::vector<ActionSet> forwards(static_cast<std::size_t>(material.ranks));
  std::vector<std::vector<const Span*>> ofRank(static_cast<std::size_t>(material.ranks));
  bool trains = false;
  for (const Span& span : material.spans) {
    Span forward = span;
    forward.kind = SpanKind::Forward;
    if (!isCompute(span.kind)) continue;
    trains = trains || span.kind != SpanKind::Forward;
    if (forwards[span.rank.index()].insert(actionKey(forward)) && span.kind != SpanKind::Forward) return true;
    if (!trains) ofRank[span.rank.index()].push_back(&span);
  }
  return !trains && std::ranges::any_of(ofRank, [](const auto& of) { return beginsWithin(of); });
}

/// The spans that begin a step of their rank in a recording that begins within one: the forward of the lowest microbatch of those before
/// which as few are alive as ever (without backwards: of all), or the wait for its input.
std::vector<char> stepBegins(const Material& material) {
  struct Flow {
    std::int64_t balance = 0, least = 0;  ///< forwards less backwards: so far, and at least
    std::pair<std::int32_t, std::int32_t> lowest = kNoPlace;
    std::size_t wait = 0;  ///< 1 + the last wait after the last action
  };
  std::vector<Flow> flows(static_cast<std::size_t>(material.ranks));
  const bool trains = std::ranges::any_of(material.spans, isGradient);
  const auto change = [&](const Span& span) { return span.kind == SpanKind::Forward && trains ? 1 : isGradient(span) ? -1 : 0; };
  for (const Span& span : material.spans) {
    Flow& flow = flows[span.rank.index()];
    flow.least = std::min(flow.least, flow.balance += change(span));
  }
  const auto forQuietForwards = [&](const auto& visit) {
    for (Flow& flow : flows) flow.balance = 0;
    for (std::size_t i = 0; i < material.spans.size(); ++i) {
      const Span& span = material.spans[i];
      Flow& flow = flows[span.rank.index()];
      if (span.kind == SpanKind::Forward && flow.balance == flow.least) visit(i, span, flow);
      flow.balance += change(span);
      if (isCompute(span.kind)) flow.wait = 0;
      if (span.kind == SpanKind::WaitForward) flow.wait = i + 1;
    }
  };
  forQuietForwards([](std::size_t, const Span& span, Flow& flow) { flow.lowest = std::min(flow.lowest, placeOf(span)); });
  std::vector<char> begins(material.spans.size());
  forQuietForwards([&](std::size_t i, const Span& span, const Flow& flow) {
    if (placeOf(span) != flow.lowest) return;
    const bool waited =
        flow.wait > 0 && material.spans[flow.wait - 1].stage == span.stage && material.spans[flow.wait - 1].microbatch == span.microbatch;
    begins[waited ? flow.wait - 1 : i] = 1;
  });
  return begins;
}

/// Steps end with the optimizer, or where an action comes again, other than a reduction or gathered parameters: each stage of a rank may
/// have one; in a recording that begins within one and has no optimizer, where one begins.
Steps stepsByRepetition(const Material& material) {
  Steps steps;
  const auto ranks = static_cast<std::size_t>(material.ranks);
  steps.of.resize(material.spans.size());
  steps.begins.resize(ranks);
  std::vector<ActionSet> seen(ranks);
  std::vector<char> closed(ranks, 1);
  const bool optimizers = std::ranges::find(material.spans, SpanKind::Optimizer, &Span::kind) != material.spans.end();
  const bool isTorn = !optimizers && beginsWithin(material);
  const std::vector<char> begins = isTorn ? stepBegins(material) : std::vector<char>();
  for (std::size_t i = 0; i < material.spans.size(); ++i) {
    const Span& span = material.spans[i];
    const std::size_t r = span.rank.index();
    const bool optimizer = span.kind == SpanKind::Optimizer;
    bool fresh = (closed[r] != 0 && !(optimizer && !steps.begins[r].empty())) || (isTorn && begins[i] != 0);
    if (!optimizer && span.kind != SpanKind::ReduceGrad && span.kind != SpanKind::Load && !fresh) fresh = !seen[r].insert(actionKey(span));
    if (fresh) {
      seen[r].clear();
      seen[r].insert(actionKey(span));
      steps.begins[r].push_back(span.start);
    }
    closed[r] = optimizer ? 1 : 0;
    steps.of[i] = static_cast<std::int32_t>(steps.begins[r].size()) - 1;
  }
  countAlike(steps, material.spans);
  const std::size_t count = std::ranges::max_element(steps.begins, {}, &std::vector<Ns>::size)->size();
  const bool isNumbered = count == material.programSteps.size();
  auto number = material.programSteps.begin();
  for (std::size_t s = 0; s < count; ++s)
    steps.names.push_back(isNumbered ? fmt::format("step {}", *number++) : count == 1 ? "measured" : fmt::format("step {}", s + 1));
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
  const std::size_t kept = std::min(steps.names.size(), kMostTraceSteps);
  steps.begins.assign(static_cast<std::size_t>(material.ranks), std::vector<Ns>(kept, std::numeric_limits<Ns>::max()));
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
    if (step < 0 || static_cast<std::size_t>(step) >= kept) continue;
    Ns& begin = steps.begins[span.rank.index()][static_cast<std::size_t>(step)];
    begin = std::min(begin, span.start);
  }
  return steps;
}

/// Where a rank does an action again within a marked step, it begins another pass: of gradient accumulation, or without backwards of an
/// evaluation. Each pass becomes a step of its own. Pieces of one action that follow each other, or lie within another, are no passes.
void splitPasses(const Material& material, Steps& steps) {
  struct Pass {
    std::int32_t step = -1, number = 0;
    ActionSet seen{};
    std::uint64_t last = 0;
    Ns end = std::numeric_limits<Ns>::min();
    std::vector<std::size_t> waits{};  ///< since the last action
  };
  std::vector<Pass> passes(static_cast<std::size_t>(material.ranks));
  std::vector<std::int32_t> numbers(material.spans.size(), 0), most(steps.names.size(), 0);
  for (std::size_t i = 0; i < material.spans.size(); ++i) {
    const Span& span = material.spans[i];
    const std::int32_t step = steps.of[i];
    if (step < 0) continue;
    Pass& pass = passes[span.rank.index()];
    if (step != pass.step) pass = {.step = step};
    if (isWait(span.kind)) pass.waits.push_back(i);
    if (isCompute(span.kind)) {
      const std::uint64_t key = actionKey(span);
      const bool isPiece = key == pass.last || span.start < pass.end;
      if (!pass.seen.insert(key) && !isPiece) {
        ++pass.number;
        pass.seen.clear();
        pass.seen.insert(key);
        for (const std::size_t wait : pass.waits) numbers[wait] = pass.number;
      }
      pass.last = key;
      pass.end = std::max(pass.end, span.end);
      pass.waits.clear();
    }
    numbers[i] = pass.number;
    most[static_cast<std::size_t>(step)] = std::max(most[static_cast<std::size_t>(step)], pass.number);
  }
  if (std::ranges::all_of(most, [](std::int32_t number) { return number == 0; })) return;
  std::vector<std::int32_t> first;  // of each step's passes
  std::vector<std::string> names;
  for (std::size_t s = 0; s < most.size(); ++s) {
    first.push_back(static_cast<std::int32_t>(names.size()));
    for (std::int32_t pass = 0; pass <= most[s]; ++pass)
      names.push_back(most[s] == 0 ? steps.names[s] : fmt::format("{}, pass {}", steps.names[s], pass + 1));
  }
  steps.names = std::move(names);
  for (auto& begins : steps.begins) begins.assign(std::min(steps.names.size(), kMostTraceSteps), std::numeric_limits<Ns>::max());
  for (std::size_t i = 0; i < material.spans.size(); ++i) {
    if (steps.of[i] < 0) continue;
    steps.of[i] = first[static_cast<std::size_t>(steps.of[i])] + numbers[i];
    std::vector<Ns>& begins = steps.begins[material.spans[i].rank.index()];
    if (static_cast<std::size_t>(steps.of[i]) >= begins.size()) continue;
    Ns& begin = begins[static_cast<std::size_t>(steps.of[i])];
    begin = std::min(begin, material.spans[i].start);
  }
}

/// Cuts, shifts to 0 and stores the step. `timed`: its times are those of the other steps' clock.
void addStep(ImportedTrace& result, std::string name, Trace trace, bool timed, std::size_t& cut) {
  cut += cutOverlaps(trace.spans, trace.ranks);
  if (trace.spans.empty()) return;
  const Ns origin = trace.spans.front().start;
  for (Span& span : trace.spans) span.start -= origin, span.end -= origin;
  for (MemorySample& sample : trace.memory) sample.time -= origin;
  requireSummable(trace, result.title);
  trace.spans.shrink_to_fit();
  result.steps.push_back({.name = std::move(name), .trace = std::move(trace)});
  if (timed) result.steps.back().begin = origin;
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

}  // namespace

void requireSummable(const Trace& trace, const std::string& title) {
  if (isSummable(trace)) return;
  Ns last = 0;
  for (const Span& span : trace.spans) last = std::max(last, span.end);
  throw UsageError(fmt::format("{} has a step of more than {:.0f} days, so its clocks cannot be right; open files of one recording", title,
                               static_cast<double>(last) / 8.64e13));
}

/// A message whose receiver waited for it before it was sent has arrived when the wait ends: a send alone may be recorded as long as it
/// took to post. Where the receiver came later, the arrival is unknown, and the send stays as it is.
void extendToArrival(Trace& trace) {
  using Key = std::tuple<std::int32_t, SpanKind, std::int32_t, std::int32_t>;  // rank, kind, stage, microbatch
  std::map<Key, const Span*> waits;
  const auto isSend = [](const Span& span) { return span.kind == SpanKind::SendForward || span.kind == SpanKind::SendBackward; };
  if (std::ranges::none_of(trace.spans, isSend)) return;
  for (const Span& span : trace.spans) {
    if (span.kind == SpanKind::WaitForward || span.kind == SpanKind::WaitBackward)
      waits.try_emplace({span.rank.value, span.kind, span.stage.value, span.microbatch.value}, &span);
  }
  bool moved = false;
  for (Span& span : trace.spans) {
    if (!isSend(span)) continue;
    const bool forward = span.kind == SpanKind::SendForward;
    const auto wait = waits.find({span.peer.value, forward ? SpanKind::WaitForward : SpanKind::WaitBackward,
                                  span.stage.value + (forward ? 1 : -1), span.microbatch.value});
    if (wait == waits.end() || wait->second->start > span.end || wait->second->end <= span.end) continue;
    span.end = wait->second->end;
    moved = true;
  }
  if (moved) sortSpans(trace.spans);
}

void addSteps(ImportedTrace& result, Material material) {
  std::size_t cut = 0;
  const bool marked = std::any_of(material.marks.begin(), material.marks.end(), [](const auto& marks) { return !marks.empty(); });
  if (material.own) {
    Trace trace{material.ranks, std::move(material.spans), std::move(material.memory)};
    addStep(result, material.name.empty() ? "trace" : material.name, std::move(trace), false, cut);
  } else {
    Steps steps = marked ? stepsByMarks(material) : stepsByRepetition(material);
    if (marked) splitPasses(material, steps);
    if (steps.names.size() > kMostTraceSteps) {
      result.notes.push_back(fmt::format("Of {} steps the first {} were taken.", steps.names.size(), kMostTraceSteps));
      steps.names.resize(kMostTraceSteps);
      for (auto& begins : steps.begins) begins.resize(std::min(begins.size(), kMostTraceSteps));
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
    for (Trace& trace : traces) extendToArrival(trace);
    for (std::size_t s = 0; s < traces.size(); ++s) addStep(result, steps.names[s], std::move(traces[s]), !material.timeless, cut);
    if (steps.outside > 0)
      result.notes.push_back(fmt::format("{} left out, because {} before the first marked step.",
                                         countedEvents(steps.outside, "event") + (steps.outside == 1 ? " was" : " were"),
                                         steps.outside == 1 ? "it lies" : "they lie"));
  }
  if (cut > 0)
    result.notes.push_back(fmt::format("{} cut or left out, because {} over others of the same rank.",
                                       countedEvents(cut, "action") + (cut == 1 ? " was" : " were"), cut == 1 ? "it lies" : "they lie"));
}

}  // namespace pw
