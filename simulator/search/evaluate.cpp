#include "simulator/search/evaluate.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "schedules/generate.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/possible.h"

namespace pw {
namespace {

/// Idle time of all ranks / (ranks · makespan).
double bubbleOf(const Program& program, Ns makespan) {
  Ns idle = program.ranks * makespan;
  for (std::int32_t rank = 0; rank < program.ranks; ++rank) {
    for (const std::int32_t step : program.stepsOf(rank)) {
      if (program.origin[static_cast<std::size_t>(step)].index >= 0) idle -= program.duration[static_cast<std::size_t>(step)];
    }
  }
  return makespan > 0 ? static_cast<double>(idle) / (static_cast<double>(program.ranks) * static_cast<double>(makespan)) : 0;
}

constexpr std::int64_t kMostWork = 12'000'000;  // actions: some seconds; a step of ten thousand actions is moved to its end within it
constexpr double kMostCuts = 5'000;             // that are all tried, some tens of microseconds each

/// Compute actions of a pass over its schedule.
std::int64_t sizeOf(const Candidate& c) { return std::int64_t{c.stages} * c.request.microbatches; }

}  // namespace

double cutsAt(std::size_t places, std::size_t begins) {
  double ways = begins <= places ? 1 : 0;
  for (std::size_t i = 0; i < begins && i < places; ++i) ways = ways * static_cast<double>(places - i) / static_cast<double>(i + 1);
  return ways;
}

CandidateRows::CandidateRows(const SearchShape& shape)
    : CandidateRows(planRows(generate(shape.request.schedule, {shape.request.ranks, shape.stages, shape.request.microbatches}),
                             shape.request.replicas, shape.request.rankOrder)) {}

bool haveSameRows(const SearchShape& a, const SearchShape& b) {
  const auto all = [](const SearchShape& shape) {
    const PlanRequest& r = shape.request;
    return std::tie(r.schedule, r.ranks, shape.stages, r.microbatches, r.replicas, r.rankOrder);
  };
  return all(a) == all(b);
}

Evaluator::Evaluator(const SearchShape& shape, std::shared_ptr<CandidateRows> rows)
    : shape_(shape),
      kept_(std::move(rows)),
      compiled_(kept_->compiled),
      limits_(memoryLimits(shape.request, *shape.profile.profile, compiled_.rows().rows.size())) {}

bool Evaluator::isBetterCut(const Candidate& a, const Candidate& b) {
  return std::tie(a.excess, a.step, a.peak) < std::tie(b.excess, b.step, b.peak);
}

Answer<Evaluator::Weighed> Evaluator::weigh(const SplitStart& start, const Recompute& recompute) {
  Weighed weighed;
  Candidate& c = weighed.candidate;
  c.request = shape_.request;
  c.request.begins = start.begins;
  c.request.recompute = recompute;
  c.stages = shape_.stages;
  c.split = start.source;
  c.scaled = shape_.profile.scaled;
  Answer<Priced> priced = tryPrice(c.request, *shape_.model, compiled_);
  if (!priced) return priced.refusal();
  weighed.costs = std::move(priced->costs);
  addOptimizerState(weighed.costs, stateCopies(c.request.optimizer), optimizerShards(c.request, rows().placement));
  const std::vector<Bytes> peaks = compiled_.peaks(weighed.costs);
  c.peak = std::ranges::max(peaks);
  c.excess = excessOf(peaks, limits_);
  c.samples = samplesOf(c.request);
  return weighed;
}

void Evaluator::simulate(Weighed& weighed, bool keepsPath) {
  Candidate& c = weighed.candidate;
  const Program& program = compiled_.timed(weighed.costs);
  if (boundsOf_ != compiled_.structure()) {
    bounds_.clear();
    boundsOf_ = compiled_.structure();
  }
  if (keepsPath) {
    execute(program, times_, bindings_);
    bounds_.add(rows(), weighed.costs, program, times_, bindings_);
  } else {
    execute(program, times_);
  }
  c.step = stepOf(rows(), weighed.costs, program, times_);
  c.makespan = makespanOf(program, program.duration, times_);
  c.bubbleFraction = bubbleOf(program, c.makespan);
  c.samplesPerSecond = c.step > 0 ? static_cast<double>(c.samples) * 1e9 / static_cast<double>(c.step) : 0;
}

Answer<Candidate> Evaluator::evaluate(const SplitStart& start, const Recompute& recompute) {
  Answer<Weighed> weighed = weigh(start, recompute);
  if (!weighed) return weighed.refusal();
  simulate(*weighed, false);
  return std::move(weighed->candidate);
}

/// Not where more is over the limit, nor where as much is and a path shows that the step is no shorter (or as long, and the peak no lower).
bool Evaluator::mayImprove(const Weighed& tried, const Candidate& best) {
  if (tried.candidate.excess != best.excess) return tried.candidate.excess < best.excess;
  if (compiled_.prepare(tried.costs) != boundsOf_) return true;
  const Ns enough = tried.candidate.peak < best.peak ? best.step : best.step - 1;
  return bounds_.stepWith(rows(), tried.costs, enough) <= enough;
}

/// Takes the splits where they are better. Returns whether to continue.
bool Evaluator::tryCut(Moving& moving, const std::vector<NodeId>& begins) {
  constexpr std::int64_t kWeighing = 16;  // how much less it is to weigh a cut than to simulate it
  constexpr std::int64_t kCompiling = 8;  // and how much more to compile another structure
  if (!moving.shouldContinue(static_cast<double>(moving.work) / kMostWork) || moving.work > kMostWork) return false;
  Candidate& best = moving.best;
  const std::int64_t size = sizeOf(best);
  moving.work += size / kWeighing + (compiled_.structure() - moving.structure) * kCompiling * size;  // of the cut before
  moving.structure = compiled_.structure();
  Answer<Weighed> tried = weigh({best.split, begins}, best.request.recompute);
  if (!tried || !mayImprove(*tried, best)) return true;  // no place to cut after all, or no better one
  moving.work += size;
  simulate(*tried, true);
  if (!isBetterCut(tried->candidate, best)) return true;
  tried->candidate.moves = best.moves + 1;
  best = std::move(tried->candidate);
  return true;
}

/// Every choice of places, in ascending order.
void Evaluator::tryAll(Moving& moving, const std::vector<NodeId>& places) {
  const std::size_t count = moving.best.request.begins.size();
  std::vector<std::size_t> chosen(count);
  for (std::size_t i = 0; i < count; ++i) chosen[i] = i;
  std::vector<NodeId> begins(count);
  while (true) {
    for (std::size_t i = 0; i < count; ++i) begins[i] = places[chosen[i]];
    if (!tryCut(moving, begins)) return;
    std::size_t last = count;
    while (last > 0 && chosen[last - 1] == places.size() - count + last - 1) --last;
    if (last == 0) return;
    for (std::size_t value = chosen[last - 1] + 1, i = last - 1; i < count; ++i) chosen[i] = value++;
  }
}

/// Moves all begins from the `first` to the `last` a place on, or back. Returns whether to continue.
bool Evaluator::tryShift(Moving& moving, const std::vector<NodeId>& places, std::size_t first, std::size_t last, bool ahead) {
  std::vector<NodeId> begins = moving.best.request.begins;
  for (std::size_t i = first; i <= last; ++i) {
    const auto at = std::lower_bound(places.begin(), places.end(), begins[i]);
    if (ahead) {
      const auto next = at != places.end() && *at == begins[i] ? at + 1 : at;
      if (next == places.end()) return true;
      begins[i] = *next;
    } else {
      if (at == places.begin()) return true;
      begins[i] = *(at - 1);
    }
  }
  const bool ascending = std::ranges::adjacent_find(begins, [](NodeId a, NodeId b) { return b <= a; }) == begins.end();
  return !ascending || tryCut(moving, begins);
}

/// Neighbouring begins together: a stage that gives something to the next may have to take as much from the one before. Returns whether to
/// continue.
bool Evaluator::tryShifts(Moving& moving, const std::vector<NodeId>& places) {
  const std::size_t count = moving.best.request.begins.size();
  for (std::size_t length = 2; length <= count; ++length) {
    for (std::size_t first = 0; first + length <= count; ++first) {
      for (const bool ahead : {false, true}) {
        if (!tryShift(moving, places, first, first + length - 1, ahead)) return false;
      }
    }
  }
  return true;
}

/// Moves single begins of the best as long as one is better, then several at once.
void Evaluator::tryNeighbours(Moving& moving, const std::vector<NodeId>& places, int rounds) {
  constexpr std::array<std::ptrdiff_t, 6> kFurther{-1, 1, -2, 2, -4, 4};
  bool moved = true;
  for (int round = 0; round < rounds && moved; ++round) {
    const int before = moving.best.moves;
    for (std::size_t i = 0; i < moving.best.request.begins.size(); ++i) {
      for (const std::ptrdiff_t further : kFurther) {
        std::vector<NodeId> begins = moving.best.request.begins;
        const auto at = std::lower_bound(places.begin(), places.end(), begins[i]);
        const bool between = at == places.end() || *at != begins[i];  // then the place after it is one step away already
        const std::ptrdiff_t to = at - places.begin() + further - (between && further > 0 ? 1 : 0);
        if (to < 0 || to >= static_cast<std::ptrdiff_t>(places.size())) continue;
        begins[i] = places[static_cast<std::size_t>(to)];
        const bool ascending = (i == 0 || begins[i - 1] < begins[i]) && (i + 1 == begins.size() || begins[i] < begins[i + 1]);
        if (ascending && !tryCut(moving, begins)) return;
      }
    }
    if (moving.best.moves == before && !tryShifts(moving, places)) return;
    moved = moving.best.moves > before;
  }
}

Candidate Evaluator::improve(const Candidate& start, const std::vector<NodeId>& places, int rounds,
                             const std::function<bool(double)>& shouldContinue) {
  Weighed first = weigh({start.split, start.request.begins}, start.request.recompute).orThrow();
  simulate(first, true);  // for its path
  Moving moving{start, shouldContinue, 0, compiled_.structure()};
  const double cuts = cutsAt(places.size(), start.request.begins.size());
  const bool all = cuts >= 1 && cuts <= kMostCuts && cuts * static_cast<double>(sizeOf(start)) <= kMostWork;
  all ? tryAll(moving, places) : tryNeighbours(moving, places, rounds);
  return moving.best;
}

}  // namespace pw
