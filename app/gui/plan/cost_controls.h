#pragma once

#include <QFormLayout>
#include <QWidget>
#include <memory>
#include <string>

namespace pw::gui {

class Document;

/// Whether the document has times that a cluster decides on: those of a model, but not those of a job.
[[nodiscard]] bool hasCluster(const Document& document);

/// What times and sizes of a plan are estimated from: cluster, links, precision and attention; and where those in use come from. Rows of a
/// form, which owns the widgets. Choosing one of them replaces measured times by estimates.
class CostControls : public QObject {
  Q_OBJECT
 public:
  CostControls(Document& document, QFormLayout& form, QObject* parent = nullptr);
  ~CostControls() override;

  /// Shows the document's design.
  void showDesign();
  /// Shows where the times of the document's prediction come from.
  void showSource();

  /// Estimates for a cluster by its name (`loadCluster`), now and for models that are opened later.
  void useCluster(const std::string& name);
  /// Estimates for the cluster of a file, whose links count too. Emits `problem` where it is none.
  void useClusterFile(const QString& path);
  /// Opens the editor of the cluster, or brings it to the front.
  void editCluster();

 signals:
  void problem(const QString& sentence);

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
