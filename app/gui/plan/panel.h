#pragma once

#include <QWidget>
#include <memory>
#include <string>

namespace pw::gui {

class Document;

/// The settings of a plan (ranks, placement, schedule, chunks, microbatches, recompute, cluster, memory limit) and its predicted results.
class PlanPanel : public QWidget {
  Q_OBJECT
 public:
  explicit PlanPanel(Document& document, QWidget* parent = nullptr);
  ~PlanPanel() override;
  [[nodiscard]] bool isIdle() const;  ///< all figures are of the document's prediction
  void editCluster();                 ///< in a dialog beside the plan
  void useCluster(const std::string& name);
  void setBusy(bool busy);  ///< a run or a measurement is in progress: the next one waits for its end

 signals:
  void profileRequested();  ///< measure this model here
  void runRequested();
  void replanRequested();  ///< from the trace that is open

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
