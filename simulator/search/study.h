#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/costs/attention.h"
#include "simulator/partition/recompute.h"
#include "simulator/partition/split.h"
#include "simulator/plan/optimizer.h"

namespace pw {

/// Many plans to predict: every combination of the values of its lists (format: resources/docs/formats.md, "Study"). A list of one value is
/// not varied.
struct Study {
  std::vector<std::string> models;                ///< archives or layer tables, one each
  std::vector<std::string> clusters{""};          ///< for `loadCluster`; empty: none, costs of the profiles or the layer table
  std::vector<std::string> profiles;              ///< files with measured costs, of all microbatch sizes; not varied
  std::vector<DType> precisions{DType::Unknown};  ///< of estimates; Unknown: as traced
  std::vector<Attention> attentions{Attention::AsTraced};
  std::vector<int> ranks, replicas{1};
  std::vector<std::int64_t> batches{0};          ///< samples per step over all replicas; 0: as microbatch sizes and counts make it
  std::vector<std::int64_t> microbatchSizes{0};  ///< samples; 0: as batch and count make it, else as exported
  std::vector<int> microbatches;
  std::vector<std::string> schedules{"1f1b"};
  std::vector<int> chunks{0};  ///< stages per rank; 0: as each schedule usually has
  std::vector<Balance> balances{Balance::Time};
  std::vector<Recompute> recomputes{RecomputeNone()};
  std::vector<OptimizerSpec> optimizers{OptimizerSpec()};
  std::vector<bool> zero1{false};
  std::vector<Bytes> memoryLimits{0};  ///< of a rank; 0: none
  double seconds = 0.1;                ///< how long the order of `auto` is searched; not varied

  bool operator==(const Study&) const = default;
};

/// One combination.
struct StudyPoint {
  std::int64_t number = 0;  ///< from 0; the same study has the same combination there
  std::string model, cluster, schedule;
  DType precision = DType::Unknown;
  Attention attention = Attention::AsTraced;
  int ranks = 1, replicas = 1, microbatches = 1, chunks = 0;
  std::int64_t batch = 0, microbatchSize = 0;
  Balance balance = Balance::Time;
  Recompute recompute = RecomputeNone();
  OptimizerSpec optimizer;
  bool zero1 = false;
  Bytes memoryLimit = 0;

  bool operator==(const StudyPoint&) const = default;
};

inline constexpr std::int64_t kMostPoints = 100'000'000;

/// Paths are as in the file. Throws UsageError for text that is not a study, unknown names, an empty list, and more points than
/// kMostPoints.
[[nodiscard]] Study parseStudy(std::string_view json, const std::string& source);

/// How many combinations there are.
[[nodiscard]] std::int64_t pointsOf(const Study& study);
/// The combination of this number: schedules, shapes and what is cheapest to change vary fastest.
[[nodiscard]] StudyPoint pointOf(const Study& study, std::int64_t number);

/// The parts of a study that several processes work on: of every `count` points in a row part `index` of `count` has one, each time
/// another, so that no value of a list falls to some parts alone.
struct StudyShard {
  int index = 0, count = 1;

  [[nodiscard]] bool has(std::int64_t point) const;
};
/// `2/8`: the third of eight, counted from 0. Throws UsageError for anything else.
[[nodiscard]] StudyShard parseShard(std::string_view text);

/// What is predicted of a point.
struct StudyResult {
  std::int64_t point = 0;
  std::string problem;  ///< why there is no plan; then all else is 0
  int stages = 0;
  std::int64_t samples = 0;  ///< per step
  Ns step = 0, makespan = 0;
  double bubbleFraction = 0;
  Bytes peak = 0, excess = 0;  ///< of the rank that needs the most; above its limit
  double samplesPerSecond = 0, flopUtilisation = 0;
  std::string splits;   ///< where stages begin, separated by spaces
  Ns lowerBound = 0;    ///< of a schedule made for these costs: no order has a shorter makespan; 0 where not known
  std::string foundBy;  ///< such a schedule: `Certificate::foundBy`

  bool operator==(const StudyResult&) const = default;
};

}  // namespace pw
