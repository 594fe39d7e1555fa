#pragma once

#include <QDialog>
#include <QTimer>

#include "app/gui/figure/source.h"

class QLabel;
class QPushButton;

namespace pw::gui {

class FigureForm;
class FigurePreview;

/// Makes a figure of the document's steps: the settings at the left, what comes out at the right. Keeps its settings for the next time.
class FigureDialog : public QDialog {
  Q_OBJECT
 public:
  /// `remembers`: reads and writes the user's settings.
  FigureDialog(FigureSource source, bool remembers, QWidget* parent = nullptr);

  [[nodiscard]] FigureForm& form() { return *form_; }
  [[nodiscard]] const FigurePreview& preview() const { return *preview_; }
  [[nodiscard]] QString state() const;  ///< what the line below the preview says
  /// Writes the figure; what went wrong shows below the preview. True when written.
  bool save(const QString& path);
  /// The command line that makes the same figure; empty where the settings are unusable.
  [[nodiscard]] QString commandLine() const;

 public slots:
  void done(int result) override;

 private:
  void buildButtons();
  void draw();
  void chooseAndSave();
  void copyCommandLine();
  void useSteps();
  void restore();
  void remember() const;

  const FigureSource source_;
  const bool remembers_;
  FigureForm* form_;
  FigurePreview* preview_;
  QLabel* state_;
  QPushButton *save_ = nullptr, *copy_ = nullptr;
  QTimer pause_;        ///< between changes, so that typing does not draw each letter
  QString file_;        ///< saved last
  QString usualTitle_;  ///< of the steps that are drawn
};

/// Opens the dialog over `parent`. Throws UsageError where there is nothing to draw.
void openFigureDialog(const Document& document, bool remembers, QWidget* parent);

}  // namespace pw::gui
