#pragma once

#include <QWidget>

namespace pw::gui {

class Margin;
class TreeView;

/// The tree with the margin left of it, both under one header line.
class TreeArea : public QWidget {
  Q_OBJECT
 public:
  explicit TreeArea(TreeView& view, QWidget* parent = nullptr);

  [[nodiscard]] Margin& margin() { return *margin_; }

 protected:
  bool eventFilter(QObject* watched, QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  void layOut();
  void alignMargin();
  void fitColumns();
  void showHeaderMenu(const QPoint& position);
  TreeView& view_;
  Margin* margin_;
};

}  // namespace pw::gui
