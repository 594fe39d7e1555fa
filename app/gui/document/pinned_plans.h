#pragma once

#include <QObject>
#include <QString>
#include <memory>
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

/// The plans that are pinned, by name. They are gone when another model is opened.
class PinnedPlans : public QObject {
  Q_OBJECT
 public:
  static constexpr std::size_t kMost = 9;  ///< more than people tell apart

  /// The document must outlive this.
  explicit PinnedPlans(Document& document, QObject* parent = nullptr);

  [[nodiscard]] const std::vector<PinnedPlan>& plans() const { return plans_; }
  /// Of them, the one that the document's prediction is shown beside; null: none.
  [[nodiscard]] const PinnedPlan* compared() const;

  /// Keeps the document's plan with its prediction, under the first free name. `refused` where there is no prediction of it.
  void pin();
  void unpin(std::size_t index);
  /// Shows its step below the document's prediction, action by action; the comparison follows every edit.
  void compareWith(std::size_t index);
  void compareWithNone();
  /// Makes the plan the document's, as one edit.
  void goBackTo(std::size_t index);

 signals:
  void changed();
  void refused(const QString& sentence);

 private:
  Document& document_;
  std::shared_ptr<const ModelGraph> graph_;  ///< the pinned plans are of; null: of a schedule alone
  std::vector<PinnedPlan> plans_;
};

}  // namespace pw::gui
