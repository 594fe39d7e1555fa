#include "simulator/step/jitter.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/step/execute.h"

namespace pw {
namespace {

/// The next number of a SplitMix64 sequence (Steele et al., OOPSLA 2014): the same on every machine.
std::uint64_t splitMix(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15U;
  std::uint64_t z = state;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

/// Uniform in (0, 1].
double unit(std::uint64_t& state) { return (static_cast<double>(splitMix(state) >> 11U) + 1.0) * 0x1.0p-53; }

}  // namespace

std::vector<Ns> jittered(const Program& program, double sigma, std::uint64_t seed) {
  constexpr double kTwoPi = 6.283185307179586;
  std::vector<Ns> duration = program.duration;
  std::uint64_t state = seed;
  double sum = 0;
  for (std::size_t s = 0; s < duration.size(); s += 2) {
    // Box and Muller: two normal numbers from two uniform ones.
    const double radius = std::sqrt(-2.0 * std::log(unit(state)));
    const double angle = kTwoPi * unit(state);
    const std::array normal{radius * std::cos(angle), radius * std::sin(angle)};
    for (std::size_t i = 0; i < 2 && s + i < duration.size(); ++i) {
      const double factor = std::exp(sigma * normal[i] - sigma * sigma / 2);
      const double varied = static_cast<double>(duration[s + i]) * factor;
      sum += varied;
      if (!(sum < static_cast<double>(kMostSum))) throw UsageError("the varied durations are too large to add up; use a smaller --jitter");
      duration[s + i] = static_cast<Ns>(std::llround(varied));
    }
  }
  return duration;
}

Jitter drawJitter(const Program& program, double sigma, std::uint64_t seed, int draws, const std::function<bool(int)>& onDraw) {
  Jitter jitter{sigma, seed, {}};
  Times times;
  for (int draw = 0; draw < draws; ++draw) {
    const std::vector<Ns> duration = jittered(program, sigma, seed + static_cast<std::uint64_t>(draw));
    execute(program, duration, times);
    jitter.makespans.push_back(makespanOf(program, duration, times));
    if (onDraw && !onDraw(draw + 1)) break;
  }
  std::sort(jitter.makespans.begin(), jitter.makespans.end());
  return jitter;
}

Ns quantile(const Jitter& jitter, double q) {
  const auto count = static_cast<double>(jitter.makespans.size());
  constexpr double kRounding = 1e-9;  // 0.07 · 100 is a little more than 7
  const double at = std::clamp(std::ceil(q * count - kRounding) - 1, 0.0, count - 1);
  return jitter.makespans[static_cast<std::size_t>(at)];
}

}  // namespace pw
