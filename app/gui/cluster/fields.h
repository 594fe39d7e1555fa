#pragma once

#include <QWidget>
#include <array>
#include <vector>

#include "app/gui/cluster/form.h"
#include "simulator/model/tensor_meta.h"

class QCheckBox;
class QComboBox;
class QFormLayout;
class QLabel;
class QLineEdit;
class QSpinBox;

namespace pw::gui {

/// The fields of a cluster but for devices that differ, and what a plan takes from it: precision and memory limit. Below a field stands
/// what is wrong with it.
class ClusterFields : public QWidget {
  Q_OBJECT
 public:
  /// `links`: known ones, which a menu beside each link offers.
  explicit ClusterFields(const std::vector<NamedLink>& links, QWidget* parent = nullptr);

  void setForm(const ClusterForm& form, const QString& device, const QString& deviceDetails);
  /// Without devices that differ.
  [[nodiscard]] ClusterForm form() const;
  void setPrecision(DType precision);
  [[nodiscard]] DType precision() const;
  void setLimits(bool limits);
  [[nodiscard]] bool limits() const;  ///< the memory is the plan's memory limit, too

  /// `precision`: what is wrong with the precision; empty: nothing.
  void showProblems(const std::vector<FieldProblem>& problems, const QString& precision);

 signals:
  void changed();

 private:
  static constexpr std::size_t kFields = 7;  ///< those before `ClusterField::Devices`
  void addName(QFormLayout& rows);
  void addDevices(QFormLayout& rows);
  void addMemory(QFormLayout& rows);
  void addLink(QFormLayout& rows, const QString& label, const QString& where, ClusterField latency, QWidget* known);
  [[nodiscard]] QWidget* knownLinks(const std::vector<NamedLink>& links, bool betweenNodes);
  void addText(ClusterField field, const QString& name, const QString& tip);
  [[nodiscard]] QLabel* problemLabel();
  void showCount();
  void mark(QWidget* field, QLabel* label, const QString& sentence);

  std::array<QLineEdit*, kFields> texts_{};  ///< by field; null: none
  std::array<QLabel*, kFields> problems_{};
  QLabel *device_, *count_, *precisionProblem_;
  QSpinBox *nodes_, *perNode_;
  QCheckBox* limits_;
  QComboBox* precision_;
};

}  // namespace pw::gui
