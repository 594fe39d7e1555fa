#pragma once

#include <QPlainTextEdit>

namespace pw::gui {

/// A text with one row per rank, whose margin says which rank each row is.
class RankText : public QPlainTextEdit {
  Q_OBJECT
 public:
  explicit RankText(QWidget* parent = nullptr);
  [[nodiscard]] QWidget* margin() const { return margin_; }
  [[nodiscard]] QString labelOf(int row) const;  ///< `rank 3`

 protected:
  void resizeEvent(QResizeEvent* event) override;
  void changeEvent(QEvent* event) override;
  bool eventFilter(QObject* object, QEvent* event) override;

 private:
  void fit();
  void paintMargin();

  QWidget* margin_;
};

}  // namespace pw::gui
