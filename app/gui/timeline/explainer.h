#pragma once

#include <QObject>
#include <memory>

#include "app/gui/common/jobs.h"
#include "simulator/plan/predictor.h"
#include "simulator/report/explain.h"

namespace pw::gui {

/// Explains the newest prediction in the background, once and only on request.
class Explainer : public QObject {
  Q_OBJECT
 public:
  using QObject::QObject;

  /// Forgets the explanation of another one.
  void setPrediction(std::shared_ptr<const Prediction> prediction);
  [[nodiscard]] const std::shared_ptr<const Explanation>& explanation() const { return explanation_; }  ///< null: not known yet
  /// Starts, unless it is known or in progress; `explained` follows.
  void request();

 signals:
  void explained();

 private:
  std::shared_ptr<const Prediction> prediction_;
  std::shared_ptr<const Explanation> explanation_;
  Job job_;
};

}  // namespace pw::gui
