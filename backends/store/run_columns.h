#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "backends/stages/backward.h"
#include "simulator/costs/cost_source.h"
#include "simulator/job/times_of.h"
#include "simulator/model/tensor_meta.h"
#include "simulator/plan/optimizer.h"

namespace pw {

/// How a run was computed: facts with a column each in the store's table `run`. A new fact is a member here and a row of `kRunColumns`;
/// store, migration, JSON and lists follow from the row.
struct RunFacts {
  // None has a default of its own, so that the compiler names who fills only some; `{}` is traced, no, unknown.
  DType precision;  ///< Unknown: as traced; BFloat16, Float16
  bool tf32;        ///< GPUs rounded the inputs of float32 matrix products
  bool synthetic;   ///< its stages computed nothing, so it says nothing about its model's times
  // Nothing: written before this was stored, or by a newer Pipewright with a value that is unknown here.
  std::optional<OptimizerSpec::Kind> optimizer;
  std::optional<Backward> backward;
  std::optional<CostSource> costs;  ///< of the times that it was predicted from; nothing also where no model has any

  bool operator==(const RunFacts&) const = default;
};

/// What the times of such a run are.
[[nodiscard]] constexpr TimesOf timesOf(const RunFacts& facts) { return facts.synthetic ? TimesOf::Rehearsed : TimesOf::Measured; }

/// A column of a fact.
struct RunColumn {
  std::string_view name;   ///< in the store and in JSON
  std::string_view title;  ///< in lists; empty: lists have no column for it (`howComputed` says it)
  int version;             ///< of the first stores that have it
  std::variant<bool RunFacts::*, DType RunFacts::*, std::optional<OptimizerSpec::Kind> RunFacts::*, std::optional<Backward> RunFacts::*,
               std::optional<CostSource> RunFacts::*>
      member;
};

inline constexpr std::array<RunColumn, 6> kRunColumns{{
    {"precision", "", 2, &RunFacts::precision},
    {"tf32", "", 2, &RunFacts::tf32},
    {"synthetic", "", 2, &RunFacts::synthetic},
    {"optimizer", "optimizer", 3, &RunFacts::optimizer},
    {"backward", "", 4, &RunFacts::backward},
    {"costs", "", 5, &RunFacts::costs},
}};

/// Version of the stores that have all columns.
inline constexpr int kRunColumnsVersion = std::ranges::max(kRunColumns, {}, &RunColumn::version).version;

/// The fact in words, for lists: `yes`, `bf16`, `adamw`; empty where it is false or unknown.
[[nodiscard]] std::string textOf(const RunColumn& column, const RunFacts& facts);

}  // namespace pw
