#pragma once

#include <QObject>
#include <QString>
#include <memory>
#include <optional>
#include <vector>

#include "app/gui/document/document.h"

namespace pw::gui {

/// A plan that is kept, to be compared with others of the same model, and to go back to.
struct PinnedPlan {
  QString name;  ///< `A`, `B` and so on
  Design design;
  std::shared_ptr<const Measured> step;  ///< its predicted step, as the timeline shows it beside another prediction

  /// `A: zb-h1, 4 ranks, 8 microbatches, 52.0 ms`.
  [[nodiscard]] QString title() const { return step->title; }
};

/// The step of a plan that is pinned under this name: what the timeline shows of it. `cut`, `samples`: as `Measured` has them.
[[nodiscard]] std::shared_ptr<const Measured> pinnedStep(const QString& name, const QString& title, Trace trace,
                                                         std::optional<ModelCut> cut, std::int64_t samples);

/// The plans that are pinned, by name. They are gone when another model is opened, but for those of its project.
class PinnedPlans : public QObject {
  Q_OBJECT
 public:
  static constexpr std::size_t kMost = 9;  ///< more than people tell apart

  /// The document must outlive this.
  explicit PinnedPlans(Document& document, QObject* parent = nullptr);

  [[nodiscard]] const std::vector<PinnedPlan>& plans() const { return plans_; }
  /// Of them, the one that the document's prediction is shown beside; null: none.
  [[nodiscard]] const PinnedPlan* compared() const;

  /// Keeps the document's plan with its prediction, under the first free name. `refused` where there is no prediction of it. This and
  /// `unpin` are changes of the project that are not saved, which no undo takes back; `pinAgain` does.
  void pin();
  void unpin(std::size_t index);
  /// The plan that was unpinned last, which can be had back while its model is open; null: none.
  [[nodiscard]] const PinnedPlan* unpinned() const { return unpinned_ ? &*unpinned_ : nullptr; }
  /// Pins it again, under its name or the first free one. `refused` where too many are pinned.
  void pinAgain();
  /// Those of a project whose design the document has, in place of what was pinned. Names are different.
  void restore(std::vector<PinnedPlan> plans);
  /// Shows its step below the document's prediction, action by action; the comparison follows every edit.
  void compareWith(std::size_t index);
  void compareWithNone();
  /// Makes the plan the document's, as one edit. Notes and drawn schedules stay (`keepOwn`).
  void goBackTo(std::size_t index);
  /// Two pinned plans, one over the other: goes back to the first and shows the second below it.
  void compare(std::size_t first, std::size_t second);

 signals:
  void changed();
  void refused(const QString& sentence);

 private:
  [[nodiscard]] QString freeName() const;

  Document& document_;
  std::shared_ptr<const ModelGraph> graph_;  ///< the pinned plans are of; null: of a schedule alone
  std::shared_ptr<const CostTable> costs_;   ///< of that schedule, which every file that is opened brings anew
  std::vector<PinnedPlan> plans_;
  std::optional<PinnedPlan> unpinned_;
};

}  // namespace pw::gui
