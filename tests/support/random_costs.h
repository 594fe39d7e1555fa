#pragma once

#include <random>
#include <type_traits>
#include <vector>

#include "schedules/generate.h"
#include "schedules/schedule.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "tests/support/split_backward.h"

namespace pw::test {

template <class Number = std::int64_t>
Number draw(std::mt19937_64& random, std::type_identity_t<Number> least, std::type_identity_t<Number> most) {
  return least + Number(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most - least + 1)));
}

inline bool oneIn(std::mt19937_64& random, std::int64_t n) { return draw(random, 1, n) == 1; }

/// Chunk after chunk all forwards, then in the opposite order of chunks all backwards (looped breadth first), on a loop placement.
inline Schedule loopedGpipe(int ranks, int chunks, int microbatches) {
  Schedule schedule;
  schedule.name = "looped-gpipe";
  schedule.microbatches = microbatches;
  schedule.placement = loopPlacement({ranks, ranks * chunks, microbatches});
  schedule.rows.resize(static_cast<std::size_t>(ranks));
  const int stages = ranks * chunks;
  for (const bool backward : {false, true}) {
    for (int i = 0; i < stages; ++i) {
      const int stage = backward ? stages - 1 - i : i;
      for (int m = 0; m < microbatches; ++m) {
        schedule.rows[static_cast<std::size_t>(stage % ranks)].push_back(
            {Stage(stage), backward ? ActionKind::Backward : ActionKind::Forward, Microbatch(m)});
      }
    }
  }
  return schedule;
}

/// 1F1B or GPipe, whole or split, or two to three chunks a rank; at most six ranks and twelve microbatches.
inline Schedule randomSchedule(std::mt19937_64& random) {
  const int ranks = static_cast<int>(draw(random, 1, 6));
  const int microbatches = static_cast<int>(draw(random, 1, 12));
  if (oneIn(random, 5)) return loopedGpipe(ranks, static_cast<int>(draw(random, 2, 3)), microbatches);
  const Schedule schedule = generate(oneIn(random, 2) ? "gpipe" : "1f1b", {ranks, ranks, microbatches});
  return oneIn(random, 3) ? splitBackward(schedule, oneIn(random, 2) ? Weights::Last : Weights::AtOnce) : schedule;
}

/// Costs of every kind: uneven stages and links, values that skip stages, several messages between two stages, uneven microbatches.
inline CostTable randomCosts(std::mt19937_64& random, const Schedule& schedule) {
  CostTable table;
  const int stages = static_cast<int>(schedule.placement.rankOfStage.size());
  for (int s = 0; s < stages; ++s) {
    StageCost cost;
    cost.forward = draw<Ns>(random, 1, 100);
    cost.backwardInput = draw<Ns>(random, 1, 100);
    cost.backwardWeight = draw<Ns>(random, 0, 100);
    cost.backward = cost.backwardInput + cost.backwardWeight;
    cost.optimizer = draw<Ns>(random, 0, 20);
    cost.parameterBytes = draw<Bytes>(random, 0, 1000);
    cost.activationBytes = draw<Bytes>(random, 0, 1000);
    table.stages.push_back(cost);
  }
  const auto both = [&](int from, int to) {
    table.messages.push_back(
        {Stage(from), Stage(to), false, draw<Bytes>(random, 0, 500), draw<Ns>(random, 0, 30), draw<Ns>(random, 0, 60)});
    table.messages.push_back({Stage(to), Stage(from), true, draw<Bytes>(random, 0, 500), draw<Ns>(random, 0, 30), draw<Ns>(random, 0, 60)});
  };
  for (int s = 1; s < stages; ++s) {
    both(s - 1, s);
    if (oneIn(random, 6)) both(s - 1, s);
    if (s >= 2 && oneIn(random, 3)) both(static_cast<int>(draw(random, 0, s - 2)), s);
  }
  if (oneIn(random, 3)) table.reduceTime = draw<Ns>(random, 1, 50);
  if (oneIn(random, 2)) {
    for (int m = 0; m < schedule.microbatches; ++m) table.microbatchScale.push_back(static_cast<double>(draw(random, 1, 8)) / 4.0);
  }
  return table;
}

}  // namespace pw::test
