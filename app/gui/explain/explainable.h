#pragma once

#include <QString>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/gui/document/document.h"
#include "simulator/job/explain_tables.h"

namespace pw::gui {

/// Whose step is explained.
enum class ExplainedOf : std::uint8_t {
  Measured,  ///< what the document shows as measured: the steps of a trace, or of a stored run
  Job,       ///< the job that the design is made from
  Plan,      ///< the predicted step
};

/// Something open whose step can be explained.
struct Explainable {
  ExplainedOf of = ExplainedOf::Plan;
  QString title;
  JobOptions from;                               ///< where a measured one is read from
  std::shared_ptr<const JobBasis> job;           ///< null: to be read
  std::shared_ptr<const Prediction> prediction;  ///< of the plan

  bool operator==(const Explainable&) const = default;
};

/// What of the document can be explained, what was measured first. A run in progress cannot yet.
[[nodiscard]] std::vector<Explainable> explainableIn(const Document& document);

/// An explanation as it is shown.
struct ShownExplanation {
  std::shared_ptr<const JobBasis> job;
  QString summary;  ///< paragraphs
  QString common;   ///< what the worst steps have in common; empty: nothing
  std::vector<ExplainedTable> tables;
};

/// Explains it, as `pipewright explain` does. Null where `progress`, called with what is read and then with 0 of 0, returned false. Throws
/// as `loadJob` and `jobOf`. Cost: as `explainJob`.
[[nodiscard]] std::shared_ptr<const ShownExplanation> explained(const Explainable& what,
                                                                const std::function<bool(std::int64_t, std::int64_t)>& progress);

}  // namespace pw::gui
