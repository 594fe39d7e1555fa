#pragma once

#include <QPlainTextEdit>

namespace pw::gui {

/// Text below the timeline that can be selected and copied: two lines high, for tables up to seven.
class DetailsStrip : public QPlainTextEdit {
 public:
  explicit DetailsStrip(QWidget* parent = nullptr);
  /// Columns are set apart by tabulators; the first line is bold. `hint` is shown, faint, where there is no text.
  void setDetails(const QString& text, const QString& hint = {});

 protected:
  void changeEvent(QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void fit();
  QString details_;
};

}  // namespace pw::gui
