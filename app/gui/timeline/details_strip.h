#pragma once

#include <QPlainTextEdit>
#include <utility>

namespace pw::gui {

/// Text below the timeline that can be selected and copied: two lines high, for tables up to seven.
class DetailsStrip : public QPlainTextEdit {
  Q_OBJECT
 public:
  explicit DetailsStrip(QWidget* parent = nullptr);
  /// Columns are set apart by tabulators; the first line is bold. `hint` is shown, faint, where there is no text.
  void setDetails(const QString& text, const QString& hint = {});
  /// Makes these parts of the text below its first line links, one after the other in the order of the text; an empty one is skipped.
  /// They are chosen by a click, or by Enter where the text cursor is.
  void setLinks(const QStringList& parts);

 signals:
  void linkChosen(int number);  ///< of the parts

 protected:
  void changeEvent(QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;

 private:
  void fit();
  [[nodiscard]] std::pair<int, double> linesOf(int most) const;
  [[nodiscard]] bool choose(const QString& link);
  QString details_;
  QStringList links_;
  bool isFitting_ = false;
};

}  // namespace pw::gui
