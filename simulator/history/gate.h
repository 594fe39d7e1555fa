#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/trace/trace.h"

namespace pw {

/// What a step took, as the gate compares it.
struct GatedStep {
  Ns step = 0;             ///< from its first start to its last end
  std::vector<Ns> stages;  ///< compute of each stage, replicas summed

  bool operator==(const GatedStep&) const = default;
};
/// Of a plan with so many stages; computation of others is left out. All 0 of an empty trace. Cost: linear.
[[nodiscard]] GatedStep stepTimes(const Trace& trace, int stages);

/// The steps of one run, in order, without those that warm up.
using RunTimes = std::vector<GatedStep>;

/// How much slower the runs at hand are than the base. Signed fractions: + is slower.
struct Change {
  double slower = 0;
  double low = 0, high = 0;  ///< it is hardly less, hardly more
  Ns before = 0, after = 0;  ///< geometric means

  bool operator==(const Change&) const = default;
};

enum class GateVerdict : std::uint8_t {
  NotSlower,  ///< a slow-down of the limit can be excluded
  Slower,     ///< beyond chance, and the limit cannot be excluded
  Unclear,    ///< neither: the times vary too much, or parts of runs are slower, which may be what differs from run to run
};
/// As JSON names it.
constexpr std::string_view nameOf(GateVerdict verdict) {
  switch (verdict) {
    case GateVerdict::NotSlower: return "not slower";
    case GateVerdict::Slower: return "slower";
    case GateVerdict::Unclear: return "unclear";
  }
  return {};
}

struct GateReport {
  GateVerdict verdict = GateVerdict::NotSlower;
  double limit = 0;
  Change step;
  std::vector<Change> stages;
  std::vector<Stage> slower;  ///< stages that are slower by the rule of `Slower`, parts of runs included; the slowest first
  int runsBefore = 0, runsAfter = 0;
  bool runsAreUnits = false;  ///< false: too few runs; parts of runs stand for them, and what differs from run to run is not known

  bool operator==(const GateReport&) const = default;
};

/// Whether runs got slower, of the same plan as the base: by step and by stage. The logarithms of medians are compared by Student's
/// two-sample interval; units are runs where there are four together, else consecutive parts of runs of three steps at least. All lower
/// limits together hold with 98 % (Bonferroni), and so do all upper ones: a gate over equal runs fails in at most 2 % where units vary
/// independently. A limit is a fraction > 0. Throws UsageError where a side has too few steps (six where parts are the units). Cost: n log
/// n.
[[nodiscard]] GateReport gate(std::span<const RunTimes> before, std::span<const RunTimes> after, double limit);

/// The verdict in a sentence: `Slower: stage 1 computes 5.2 % longer (+3.9 to +6.5 %); the step takes 4.8 % longer (…).`
[[nodiscard]] std::string gateText(const GateReport& report);

}  // namespace pw
