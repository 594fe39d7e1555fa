#pragma once

#include <QWidget>
#include <functional>

namespace pw::gui {

/// The handle of one split, at the margin between two stages: dragged with the mouse, moved with the arrow keys, removed with Delete.
class SplitHandle : public QWidget {
  Q_OBJECT
 public:
  explicit SplitHandle(int split, QWidget* parent = nullptr);

  [[nodiscard]] int split() const { return split_; }
  [[nodiscard]] static double gripWidth(int height) { return 2.2 * height; }  ///< of the part at its right end [pixels]
  /// Returns the tooltip; called when it is shown.
  void setTip(std::function<QString(int)> tip) { tip_ = std::move(tip); }
  /// While dragging: whether it cannot be placed at the mouse position.
  void setRefused(bool refused);
  [[nodiscard]] bool isDragged() const { return dragged_; }
  /// Ends a drag without a signal, when the splits were changed by something else.
  void dropDrag();

 signals:
  void dragStarted(int split);
  void dragged(int split, const QPoint& global);
  void dragEnded(int split, bool keep);
  void stepped(int split, int direction);  ///< arrow keys; −1: up
  void removed(int split);
  void focused(int split);
  void menuRequested(int split, const QPoint& global);

 protected:
  bool event(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void focusInEvent(QFocusEvent* event) override;
  void focusOutEvent(QFocusEvent* event) override;
  void contextMenuEvent(QContextMenuEvent* event) override;

 private:
  void finish(bool keep);
  int split_;
  std::function<QString(int)> tip_;
  QPoint pressed_;
  bool isPressed_ = false, dragged_ = false, refused_ = false;
};

}  // namespace pw::gui
