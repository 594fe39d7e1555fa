#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string_view>
#include <vector>

#include "schedules/named_values.h"
#include "simulator/report/explain.h"

namespace pw {

/// Why a rank idles.
enum class BubbleCause : std::uint8_t {
  StartUp,    ///< in its warmup: other ranks compute what must come first
  Imbalance,  ///< in its steady phase: other ranks take longer to compute what it needs
  Drain,      ///< in its cooldown: other ranks still compute
  Message,    ///< in any phase: a message is in flight, or waits for its channel
  // Told apart only where it is known what is slow and what fits (`CauseContext`); else their time is part of the others.
  Straggler,    ///< other ranks compute what it needs, and would have been done had they been as fast as the fastest
  MemoryLimit,  ///< its next forward could have been computed meanwhile, but there was no memory for it
};
constexpr std::string_view nameOf(BubbleCause cause) {
  switch (cause) {
    case BubbleCause::StartUp: return "start-up";
    case BubbleCause::Imbalance: return "imbalance";
    case BubbleCause::Drain: return "drain";
    case BubbleCause::Message: return "message";
    case BubbleCause::Straggler: return "straggler";
    case BubbleCause::MemoryLimit: return "memory limit";
  }
  return {};
}

/// Those that an explanation alone tells apart.
inline constexpr std::array kPlainCauses{BubbleCause::StartUp, BubbleCause::Imbalance, BubbleCause::Drain, BubbleCause::Message};

/// The cause of what idles a rank in this phase: a message, or other ranks' computing.
[[nodiscard]] BubbleCause causeOf(Phase phase, bool message);

/// A rank's idle time, `RankMetrics::idle`, by cause.
struct IdleByCause {
  std::array<Ns, countOf<BubbleCause>()> idle{};
  Ns workReady = 0;  ///< how much of it could have been computing: the inputs of a later action of its row were there
                     ///< (`Explanation::workReady`)

  [[nodiscard]] Ns& of(BubbleCause cause) { return idle[static_cast<std::size_t>(cause)]; }
  [[nodiscard]] Ns of(BubbleCause cause) const { return idle[static_cast<std::size_t>(cause)]; }
  [[nodiscard]] Ns sum() const { return std::accumulate(idle.begin(), idle.end(), Ns{0}); }
  IdleByCause& operator+=(const IdleByCause& other) {
    for (std::size_t i = 0; i < idle.size(); ++i) idle[i] += other.idle[i];
    workReady += other.workReady;
    return *this;
  }
  bool operator==(const IdleByCause&) const = default;
};

/// By rank. Cost: linear in ranks and groups.
[[nodiscard]] std::vector<IdleByCause> idleByCause(const Explanation& explanation);

/// What tells stragglers and the memory limit from other causes.
struct CauseContext {
  std::vector<double> slowness;             ///< by rank: how many times as long it computes as the fastest; empty: all are alike
  Bytes memoryLimit = 0;                    ///< 0: none
  std::function<Bytes(Rank, Ns)> memoryAt;  ///< of the step that is explained; without it there is no limit
};

/// A rank's idle time, and for each cause when its longest single wait begins (ties: the first).
struct CausedIdle {
  IdleByCause by;
  std::array<Ns, countOf<BubbleCause>()> longestFrom{};

  bool operator==(const CausedIdle&) const = default;
};

/// By rank, by all causes; they add up to the idle time as well. Of a wait for a rank that computes s times as long as the fastest, the
/// part 1 − 1/s is the straggler's (rounded to the nearest ns). From when the row's next forward is ready in a gap before another action,
/// the rest of the gap is the memory limit's, if memory then and what the forward keeps or needs exceed it. `explanation` has its bubbles;
/// the other arguments are those it was made with. Cost: linear in steps, edges and causes.
[[nodiscard]] std::vector<CausedIdle> idleByCause(const Explanation& explanation, const Schedule& rows, const CostTable& costs,
                                                  const Program& program, const Times& times, const CauseContext& context);

}  // namespace pw
