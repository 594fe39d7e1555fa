#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backends/store/study_store.h"
#include "simulator/search/study.h"

namespace pw {

/// How a study is run.
struct StudyEffort {
  StudyShard shard;
  int threads = 0;     ///< 0: one for each core
  std::string folder;  ///< what paths of the study are relative to; empty: the current one
  /// Called after each predicted point with the shard's completed points and all of them; returns whether to continue. Never by two threads
  /// at once.
  std::function<bool(std::int64_t done, std::int64_t all)> shouldContinue = {};
  /// Gets rows that were stored.
  std::function<void(const std::vector<StudyRow>&)> stored = {};
};

/// Tells whether the files that a study names are still the same: a line with a digest for each model, profile and cluster file.
/// Throws UsageError for one that cannot be read.
[[nodiscard]] std::string studyInputs(const Study& study, const std::string& folder);

/// Predicts the points of a shard that the store does not have, and stores them about twice a second: a process that is killed loses no
/// more than that. Returns whether all points of the shard are done; `shouldContinue` may end it earlier. Throws as `StudyCosts` and
/// `StudyStore`.
[[nodiscard]] bool runStudy(StudyStore& store, const StudyEffort& effort);

}  // namespace pw
