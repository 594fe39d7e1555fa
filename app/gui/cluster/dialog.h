#pragma once

#include <QDialog>
#include <string>

#include "app/gui/cluster/form.h"
#include "simulator/model/tensor_meta.h"

class QComboBox;
class QLabel;
class QPushButton;

namespace pw::gui {

class ClusterFields;
class DeviceTable;
class Document;
class MessageTable;

/// Edits the cluster that the open plan is for, beside the plan: times of messages follow what is typed, everything else what is applied.
/// Figures that cannot be used are refused where they stand, and nothing is applied or saved while there are any.
class ClusterDialog : public QDialog {
  Q_OBJECT
 public:
  explicit ClusterDialog(Document& document, QWidget* parent = nullptr);

  /// Shows a preset, or a cluster's file, to go on from. Changes nothing else.
  void startFrom(const std::string& name);
  /// The plan is for this cluster from now on: one step of undo, whose estimates replace measured times. False where a field is refused.
  bool apply();
  /// Writes a file for `--cluster`. False where a field is refused, or the file cannot be written, which `state` says.
  bool save(const QString& path);
  [[nodiscard]] QString state() const;
  void reject() override;  ///< Close, Esc: asks where what is edited is neither applied nor saved

 private:
  /// What the user can edit.
  struct Edited {
    ClusterForm form;
    DType precision{};
    bool limits = false;
    bool operator==(const Edited&) const = default;
  };
  void layOut();
  QWidget* buildRight();
  void buildButtons();
  void fillStarts();
  void startFromFile();
  void refresh();
  void chooseAndSave();
  [[nodiscard]] Edited edited() const;
  [[nodiscard]] ReadForm read() const;
  [[nodiscard]] QString precisionProblem(const Cluster& cluster) const;
  /// For `loadCluster`: that of the cluster which the form began with where it is still the same, else the cluster itself.
  [[nodiscard]] std::string nameOf(const Cluster& cluster) const;
  [[nodiscard]] bool changesPlan(const Cluster& cluster) const;
  [[nodiscard]] bool isCounted() const;

  Document& document_;
  Cluster base_;
  QComboBox* start_;
  ClusterFields* fields_;
  DeviceTable* devices_;
  MessageTable* messages_;
  QLabel *hidden_, *deviceProblem_, *state_;
  QPushButton *save_, *apply_, *accept_;
  Edited kept_;   ///< as opened, applied or saved last
  QString note_;  ///< of the last save; shown until something is edited
};

}  // namespace pw::gui
