#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "simulator/step/program.h"

namespace pw {

/// Makespans of one program with randomly varied durations.
struct Jitter {
  double sigma = 0;
  std::uint64_t seed = 0;
  std::vector<Ns> makespans;  ///< ascending; at least one
};

/// Durations of the steps, each multiplied by a random factor of mean 1 and relative spread about `sigma` (log-normal): compute and
/// transfers. The same seed gives the same factors on every machine.
[[nodiscard]] std::vector<Ns> jittered(const Program& program, double sigma, std::uint64_t seed);

/// Executes with the seeds `seed`, `seed` + 1, … [draws ≥ 1]. `onDraw`, which may be empty, receives the number of draws done; where it
/// returns false these are all.
[[nodiscard]] Jitter drawJitter(const Program& program, double sigma, std::uint64_t seed, int draws,
                                const std::function<bool(int)>& onDraw);

/// The smallest makespan that at least the fraction `q` [0, 1] of the draws do not exceed.
[[nodiscard]] Ns quantile(const Jitter& jitter, double q);

}  // namespace pw
