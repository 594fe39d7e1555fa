#pragma once

#include <QString>
#include <QWidget>
#include <memory>

namespace pw::gui {

class Document;

/// What is predicted of the document's plan: time, rate, bubble, lower bound and the memory of each rank, how far predictions of this model
/// were off so far, and what is wrong with the plan. Follows the document; during a drag only as often as it can be read.
class PlanResults : public QWidget {
  Q_OBJECT
 public:
  explicit PlanResults(Document& document, QWidget* parent = nullptr);
  ~PlanResults() override;
  [[nodiscard]] bool isIdle() const;  ///< all figures are of the document's prediction
  /// Shows a sentence in the place of the plan's problem, until the next prediction.
  void showProblem(const QString& sentence);

 signals:
  void shown();  ///< the figures of another prediction

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

/// The step, the bubble and the largest peak of a rank in one line, for where the panel is out of sight; empty: nothing is predicted.
[[nodiscard]] QString figuresInBrief(const Document& document);

}  // namespace pw::gui
