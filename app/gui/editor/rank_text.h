#pragma once

#include <QPlainTextEdit>
#include <functional>
#include <utility>

namespace pw::gui {

/// A text with one row per rank, whose margin says which rank each row is. What was typed and is not taken yet, Undo gives back as it was;
/// all else is the window's to undo.
class RankText : public QPlainTextEdit {
  Q_OBJECT
 public:
  explicit RankText(QWidget* parent = nullptr);
  [[nodiscard]] QWidget* margin() const { return margin_; }
  [[nodiscard]] QString labelOf(int row) const;  ///< `rank 3`
  /// What puts the text back to what it was before it was typed in; empty: nothing was.
  void setRevert(std::function<void()> revert) { revert_ = std::move(revert); }
  [[nodiscard]] bool canRevert() const { return static_cast<bool>(revert_); }

 protected:
  void resizeEvent(QResizeEvent* event) override;
  void changeEvent(QEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  bool eventFilter(QObject* object, QEvent* event) override;

 private:
  void fit();
  void paintMargin();

  QWidget* margin_;
  std::function<void()> revert_;
};

}  // namespace pw::gui
