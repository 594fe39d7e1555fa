#include "simulator/search_evaluate.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/recost.h"

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

/// What moving splits lowers.
std::tuple<Bytes, Ns, Bytes> weightOf(const Candidate& c) {
  const Bytes limit = c.request.memoryLimit;
  return {limit > 0 ? std::max<Bytes>(0, c.peak - limit) : 0, c.step, c.peak};
}

}  // namespace

Evaluator::Evaluator(const ModelGraph& graph, const SearchShape& shape)
    : graph_(graph),
      shape_(shape),
      rows_(std::make_shared<Schedule>(planRows(generate(shape.request.schedule, {shape.request.ranks, shape.stages, shape.request.microbatches}), shape.request.replicas))) {}

Candidate Evaluator::evaluate(const SplitStart& start, const std::vector<std::string>& recompute) {
  Candidate c;
  c.request = shape_.request;
  c.request.begins = start.begins;
  c.request.recompute = recompute;
  c.stages = shape_.stages;
  c.split = start.name;
  c.scaled = shape_.profile.scaled;
  CostTable costs = price(c.request, graph_, *shape_.profile.profile, *rows_).costs;
  addOptimizerState(costs, c.request.optimizerCopies, 1);
  if (!program_ || !recost(*rows_, costs, Sending::Overlapped, *program_)) program_ = compile(*rows_, costs);
  execute(*program_, times_);
  c.step = stepOf(*rows_, costs, *program_, times_);
  c.makespan = makespanOf(*program_, program_->duration, times_);
  c.bubbleFraction = bubbleOf(*program_, c.makespan);
  c.peak = *std::max_element(program_->peakBytes.begin(), program_->peakBytes.end());
  c.fits = c.request.memoryLimit == 0 || c.peak <= c.request.memoryLimit;
  c.samples = c.request.batch > 0 ? c.request.batch : c.request.microbatch * c.request.microbatches * c.request.replicas;
  c.samplesPerSecond = c.step > 0 ? static_cast<double>(c.samples) * 1e9 / static_cast<double>(c.step) : 0;
  return c;
}

Candidate Evaluator::improve(const Candidate& start, const std::vector<NodeId>& places, int rounds, const std::function<bool()>& goOn) {
  constexpr std::array<std::ptrdiff_t, 6> kFurther{-1, 1, -2, 2, -4, 4};
  Candidate best = start;
  bool moved = true;
  for (int round = 0; round < rounds && moved; ++round) {
    moved = false;
    for (std::size_t i = 0; i < best.request.begins.size(); ++i) {
      for (const std::ptrdiff_t further : kFurther) {
        std::vector<NodeId> begins = best.request.begins;
        const auto at = std::lower_bound(places.begin(), places.end(), begins[i]);
        const bool between = at == places.end() || *at != begins[i];  // then the place behind it is one step away already
        const std::ptrdiff_t to = at - places.begin() + further - (between && further > 0 ? 1 : 0);
        if (to < 0 || to >= static_cast<std::ptrdiff_t>(places.size())) continue;
        begins[i] = places[static_cast<std::size_t>(to)];
        const bool ascending = (i == 0 || begins[i - 1] < begins[i]) && (i + 1 == begins.size() || begins[i] < begins[i + 1]);
        if (!ascending) continue;
        if (!goOn()) return best;
        try {
          Candidate tried = evaluate({best.split, begins}, best.request.recompute);
          if (!(weightOf(tried) < weightOf(best))) continue;
          tried.moves = best.moves + 1;
          best = std::move(tried);
          moved = true;
        } catch (const UsageError&) {
          continue;  // no place to cut after all
        }
      }
    }
  }
  return best;
}

}  // namespace pw
