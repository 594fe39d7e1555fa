#pragma once

#include <QString>
#include <QWidget>
#include <utility>
#include <vector>

#include "app/gui/figure/source.h"

class QCheckBox;
class QComboBox;
class QDoubleSpinBox;
class QFormLayout;
class QLineEdit;
class QSpinBox;

namespace pw::gui {

/// The settings of a figure as fields. Fields of what is not drawn are disabled.
class FigureForm : public QWidget {
  Q_OBJECT
 public:
  explicit FigureForm(const FigureSource& source, QWidget* parent = nullptr);

  /// Throws UsageError in a sentence about the field that is wrong.
  [[nodiscard]] FigureStyle style() const;
  [[nodiscard]] FigureSteps steps() const;
  [[nodiscard]] int dpi() const;  ///< of PNG
  void setStyle(const FigureStyle& style);
  void setSteps(FigureSteps steps);
  void setDpi(int dpi);

 signals:
  void changed();

 private:
  void addStepsAndWidth(QFormLayout& rows, const FigureSource& source);
  void addText(QFormLayout& rows);
  void addContents(QFormLayout& rows);
  void addSwitches(QFormLayout& rows);
  QLineEdit* addLine(QFormLayout& rows, const char* setting, const QString& label, const QString& name, const QString& hint);
  void showSteps();

  QComboBox *steps_, *width_, *font_, *labels_;
  QDoubleSpinBox *millimetres_, *size_, *row_;
  QSpinBox* dpi_;
  std::vector<std::pair<const char*, QLineEdit*>> lines_;     ///< by the setting's name
  std::vector<std::pair<const char*, QCheckBox*>> switches_;  ///< likewise
};

}  // namespace pw::gui
