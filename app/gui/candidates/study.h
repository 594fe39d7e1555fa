#pragma once

#include <QString>
#include <string>
#include <vector>

#include "app/gui/candidates/scatter.h"
#include "backends/store/study_store.h"
#include "simulator/search/search.h"

namespace pw::gui {

/// A study's plans to be shown as candidates: those that fit with the most samples per second, and what their rows are.
struct StudyPlans {
  std::string path;
  StudyCounts counts;
  std::int64_t points = 0;
  bool measured = false;       ///< with profiles
  std::vector<StudyRow> rows;  ///< best first

  /// The rows as candidates; without begins, which a study stores as names.
  [[nodiscard]] std::vector<Candidate> candidates() const;
};

/// Numbers and larger marks for more ranks, where these differ, and a front of its own for each number: the plans than which none on as
/// many ranks or fewer is faster with no more memory. `points`: of the candidates, in their order.
void showRanks(const std::vector<Candidate>& candidates, std::vector<ScatterPoint>& points);

/// Why a point cannot become the app's plan, with this archive open (empty: none): another model, costs that the app does not have, a
/// cluster that is no preset. Empty when it can.
[[nodiscard]] QString whyNotLoaded(const StudyPlans& study, const StudyPoint& point, const std::string& openModel);

/// Reads at most 20,000 plans. Throws as `StudyStore`.
[[nodiscard]] StudyPlans readStudy(const std::string& path);

}  // namespace pw::gui
