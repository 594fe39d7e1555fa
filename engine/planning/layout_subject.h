#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/planning/subject.h"
#include "simulator/layout/layout.h"
#include "simulator/layout/rules.h"

namespace pw {

/// A layout string and what Megatron is started with beside it: the options of `pipewright layout`. 0: not given.
struct LayoutOptions {
  std::string layout;
  int ranks = 0;                                      ///< pipeline ranks; 0: from `chunks`, else one for each stage
  int chunks = 0;                                     ///< stages of each rank; 0: from `ranks`
  int microbatches = 0;                               ///< 0: four for each rank
  int group = 0;                                      ///< consecutive microbatches of a chunk; 0: as many as ranks, as in Megatron
  std::optional<std::int64_t> layers = {}, mtp = {};  ///< `--num-layers` and `--mtp-num-layers`
  std::string table;                                  ///< file of a layer table; empty: none
  std::string cluster, optimizer;                     ///< with a table: as of `SubjectOptions`
};

/// A layout and what Megatron would do with it.
struct ExaminedLayout {
  Layout layout;
  int ranks = 1, chunks = 1, microbatches = 1;
  bool ranksAssumed = false;            ///< one stage for each rank, as nothing says otherwise
  std::vector<std::size_t> places;      ///< of stages in the string (`stagePlaces`)
  std::vector<LayoutProblem> problems;  ///< empty: Megatron accepts it
  std::vector<std::string> notes;
  std::optional<std::string> refusal;  ///< why its schedule refuses so many microbatches
  Schedule schedule;                   ///< Megatron's: 1F1B or interleaved; of a layout without problems
  std::optional<Subject> subject;      ///< with a table, of a layout without problems: the schedule with its costs
};

/// Reads and examines the layout. Throws UsageError where it cannot be read, for ranks and chunks that contradict the string, and for a
/// table of another model. Cost: as `price` with a table, else linear.
[[nodiscard]] ExaminedLayout examineLayout(const LayoutOptions& options);

}  // namespace pw
