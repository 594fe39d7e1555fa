#pragma once

#include <QObject>
#include <memory>

#include "app/gui/common/jobs.h"
#include "app/gui/document/document.h"
#include "simulator/report/step_verdict.h"

namespace pw::gui {

/// A measurement and what it is compared with: another one; otherwise the prediction of its run; otherwise this prediction.
struct ComparisonSubject {
  std::shared_ptr<const Measured> measured, other;
  std::shared_ptr<const Prediction> prediction;
  Splits splits = Splits::Same;  ///< of the two

  bool operator==(const ComparisonSubject&) const = default;
};

/// Compares in the background and keeps the last result.
class Comparer : public QObject {
  Q_OBJECT
 public:
  explicit Comparer(QObject* parent = nullptr);

  /// `compared` follows, at once where this subject was the last one compared.
  void compare(const ComparisonSubject& subject);
  void forget();
  [[nodiscard]] const ComparisonSubject& subject() const { return subject_; }
  [[nodiscard]] const StepVerdict& result() const { return *result_; }  ///< of the subject, after `compared`

 signals:
  void compared();
  void failed(const QString& sentence);

 private:
  ComparisonSubject subject_;
  std::shared_ptr<const StepVerdict> result_;
  Job job_;
};

}  // namespace pw::gui
