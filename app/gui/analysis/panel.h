#pragma once

#include <QWidget>
#include <memory>

#include "schedules/ids.h"

namespace pw::gui {

class Document;

/// Why the prediction is as it is: what the makespan depends on, and what memory is used for. Computed in the background while it is
/// visible; until then the figures of the prediction before stay.
class AnalysisPanel : public QWidget {
  Q_OBJECT
 public:
  explicit AnalysisPanel(Document& document, QWidget* parent = nullptr);
  ~AnalysisPanel() override;
  /// The page of memory, with this rank open.
  void showMemory(Rank rank);
  [[nodiscard]] bool isIdle() const;  ///< all figures are of the document's prediction, or it is hidden

 signals:
  /// A place in the prediction's bubbles was chosen: a time within one.
  void bubbleChosen(Rank rank, Ns time);

 protected:
  void showEvent(QShowEvent* event) override;

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
