#include "simulator/step/replay.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "simulator/step/program.h"
#include "simulator/trace/span_kind.h"

namespace pw {
Answer<Trace> replay(const Schedule& schedule, const CostTable& costs, const Trace& measured) {
  using Key = std::tuple<SpanKind, Stage, Microbatch>;
  std::map<Key, Ns> durations;
  for (const Span& span : measured.spans) {
    if (isCompute(span.kind) && span.rank.index() < schedule.rows.size())            // of the first replica
      durations[{span.kind, span.stage, span.microbatch}] += span.end - span.start;  // a backward may come in pieces
  }
  const Action* missing = nullptr;
  const auto durationOf = [&](const Action& action) -> Ns {
    const auto found = durations.find({*spanKind(action.kind), action.stage, action.microbatch});
    if (found != durations.end()) return found->second;
    if (missing == nullptr) missing = &action;
    return 0;
  };
  Program program = compile(schedule, costs);
  for (std::int32_t lane = 0; lane < program.ranks; ++lane) {
    const auto& row = schedule.rows[static_cast<std::size_t>(lane)];
    for (const std::int32_t step : program.stepsOf(lane)) {
      const std::int32_t at = program.origin[static_cast<std::size_t>(step)].index;
      if (at < 0 || !isCompute(row[static_cast<std::size_t>(at)].kind)) continue;  // loads, stores, reductions
      const Action& action = row[static_cast<std::size_t>(at)];
      Ns& duration = program.duration[static_cast<std::size_t>(step)];
      duration = durationOf(action);
      if (beginsSlot(row, static_cast<std::size_t>(at))) duration += durationOf(row[static_cast<std::size_t>(at) + 1]);
    }
  }
  if (missing != nullptr) return Impossible{fmt::format("Action {} was not measured; replay a run of this plan.", toString(*missing))};
  Times times;
  execute(program, times);
  return traceOf(schedule, costs, program, times);
}

}  // namespace pw
