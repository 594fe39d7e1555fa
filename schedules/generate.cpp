#include "schedules/generate.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schedules/error.h"
#include "schedules/families.h"
#include "schedules/names.h"

namespace pw {
namespace {

using namespace families;

constexpr std::array kGenerators{
    Generator{.name = "forward-only",
              .summary = "all forwards, no backward: inference",
              .needs = "any R, V, M",
              .trains = false,
              .torchName = "_ScheduleForwardOnly",
              .refusal = needWholeChunks,
              .generate = forwardOnly},
    Generator{.name = "gpipe",
              .summary = "all forwards, then all backwards",
              .needs = "V = 1",
              .torchName = "ScheduleGPipe",
              .refusal = needOneChunk,
              .generate = gpipe},
    Generator{.name = "1f1b",
              .summary = "after a warmup one forward, one backward: at most R−i microbatches live on rank i",
              .needs = "V = 1",
              .torchName = "Schedule1F1B",
              .refusal = needOneChunk,
              .torchRefusal = torchRefuses1f1b,
              .generate = oneForwardOneBackward},
    Generator{.name = "interleaved-1f1b",
              .summary = "1F1B over V chunks per rank, groups of microbatches taking turns",
              .needs = "any R, V, M",
              .chunks = 2,
              .torchName = "ScheduleInterleaved1F1B",
              .refusal = refusalOfInterleaved,
              .torchRefusal = torchRefusesInterleaved,
              .generate = interleaved},
    Generator{.name = "looped-bfs",
              .summary = "breadth first: each chunk does all its microbatches before the next",
              .needs = "any R, V, M",
              .chunks = 2,
              .torchName = "ScheduleLoopedBFS",
              .refusal = needWholeChunks,
              .generate = loopedBfs},
    Generator{.name = "zb-h1",
              .summary = "1F1B with split backwards, weight gradients fill the drain; memory of 1F1B",
              .needs = "V = 1",
              .refusal = needOneChunk,
              .generate = zbH1},
    Generator{.name = "zb-h2",
              .summary = "twice the warmup of 1F1B: no bubble on the window where F = I = W",
              .needs = "V = 1, M ≥ 2R−1",
              .refusal = refusalOfZbH2,
              .generate = zbH2},
    Generator{.name = "interleaved-zb",
              .summary = "zero bubble over V chunks per rank, torch's ZB1P",
              .needs = "any R, V, M",
              .torchName = "ScheduleInterleavedZeroBubble",
              .refusal = refusalOfInterleaved,
              .torchRefusal = torchRefusesInterleaved,
              .generate = interleavedZeroBubble},
    Generator{.name = "zbv",
              .summary = "zero bubble on a V: 2R chunks live on every rank",
              .needs = "V = 2",
              .chunks = 2,
              .placement = PlacementKind::V,
              .torchName = "ScheduleZBVZeroBubble",
              .refusal = refusalOfZbV,
              .generate = zbV},
    Generator{.name = "v-half",
              .summary = "V with half the activation memory of 1F1B",
              .needs = "V = 2",
              .chunks = 2,
              .placement = PlacementKind::V,
              .refusal = needTwoChunks,
              .generate = vHalf},
    Generator{.name = "v-min",
              .summary = "V with a third of the activation memory of 1F1B",
              .needs = "V = 2, near-equal times",
              .chunks = 2,
              .placement = PlacementKind::V,
              .refusal = needTwoChunks,
              .generate = vMin},
    Generator{.name = "dualpipe",
              .summary = "two opposite directions, F of one overlapped with B of the other; two copies of the weights",
              .needs = "V = 1, R even, M even, M ≥ 2R",
              .placement = PlacementKind::Bidirectional,
              .refusal = refusalOfDualPipe,
              .generate = dualPipe},
    Generator{.name = "dualpipev",
              .summary = "DualPipe folded to a V: one copy of the weights",
              .needs = "V = 2, M ≥ 2R",
              .chunks = 2,
              .placement = PlacementKind::V,
              .torchName = "ScheduleDualPipeV",
              .refusal = refusalOfDualPipeV,
              .generate = dualPipeV},
    Generator{.name = "chimera",
              .summary = "two opposite 1F1B pipelines merged; two copies of the weights",
              .needs = "V = 1, R even, M even",
              .placement = PlacementKind::Bidirectional,
              .refusal = refusalOfChimera,
              .generate = chimera},
    Generator{.name = "hanayo",
              .summary = "1F1B in waves: zig-zag over the ranks, V/2 waves",
              .needs = "V even",
              .chunks = 2,
              .placement = PlacementKind::Wave,
              .refusal = refusalOfHanayo,
              .generate = hanayo},
    Generator{.name = "lockstep",
              .summary = "all ranks in step, an exchange after every cycle, as PopART runs",
              .needs = "V = 1",
              .refusal = needOneChunk,
              .generate = lockstep},
};

}  // namespace

std::span<const Generator> generators() { return kGenerators; }

const Generator& generatorOf(std::string_view name, std::span<const std::string_view> others) {
  constexpr std::string_view kPrefix = "schedule";  // of torch's classes
  const auto plain = [&](std::string_view text) {
    std::string letters = plainName(text);
    return letters.starts_with(kPrefix) ? letters.substr(kPrefix.size()) : letters;
  };
  const std::string wanted = plain(name);
  for (const Generator& g : kGenerators) {
    const bool isTorch = !g.torchName.empty() && wanted == plain(g.torchName);
    if (!wanted.empty() && (isTorch || wanted == plain(g.name))) return g;
  }
  std::vector<std::string_view> known, all;
  for (const Generator& g : kGenerators) {
    known.push_back(g.name);
    if (!g.torchName.empty()) all.push_back(g.torchName.substr(g.torchName.find('S') + kPrefix.size()));
  }
  known.insert(known.end(), others.begin(), others.end());
  all.insert(all.begin(), known.begin(), known.end());
  throw UsageError(fmt::format("unknown schedule \"{}\"{}; known are {}", name, didYouMean(name, all), fmt::join(known, ", ")));
}

std::string refusalSentence(std::string_view schedule, std::string_view refusal) {
  constexpr std::string_view kSubject = "it ";
  if (refusal.starts_with(kSubject)) return fmt::format("schedule {} {}", schedule, refusal.substr(kSubject.size()));
  return fmt::format("schedule {}: {}", schedule, refusal);
}

Schedule generate(std::string_view name, const Shape& shape) {
  const Generator& family = generatorOf(name);
  if (const auto refusal = family.refusal(shape)) {
    throw UsageError(refusalSentence(name, *refusal));
  }
  return family.generate(shape);
}

}  // namespace pw
