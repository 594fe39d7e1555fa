#pragma once

#include <QString>
#include <string>
#include <vector>

#include "app/gui/candidates/scatter.h"
#include "app/gui/document/document.h"
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

/// What became of its points, in a sentence.
[[nodiscard]] QString countsOf(const StudyPlans& study);

/// Numbers and larger marks for more ranks, where these differ, and a front of its own for each number: the plans than which none on as
/// many ranks or fewer is faster with no more memory. `points`: of the candidates, in their order.
void showRanks(const std::vector<Candidate>& candidates, std::vector<ScatterPoint>& points);

/// The name of a point's cluster for `loadCluster`: paths are relative to the study's file. Empty: the costs of a layer table.
[[nodiscard]] std::string clusterOf(const StudyPlans& study, const StudyPoint& point);

/// Why a point cannot become the app's plan, with this archive or layer table open (empty: none): another model, measured costs, a cluster
/// file that is not there. Empty when it can.
[[nodiscard]] QString whyNotLoaded(const StudyPlans& study, const StudyPoint& point, const std::string& openModel);

/// The plan's costs, memory settings and splits, of its model. Splits that the model has no more are balanced anew.
void takeStudied(const StudyPlans& study, const StudyRow& plan, const ModelGraph& graph, Design& design);

/// Reads at most 20,000 plans. Throws as `StudyStore`.
[[nodiscard]] StudyPlans readStudy(const std::string& path);

}  // namespace pw::gui
