#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
};
constexpr std::string_view nameOf(BubbleCause cause) {
  switch (cause) {
    case BubbleCause::StartUp: return "start-up";
    case BubbleCause::Imbalance: return "imbalance";
    case BubbleCause::Drain: return "drain";
    case BubbleCause::Message: return "message";
  }
  return {};
}

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

}  // namespace pw
