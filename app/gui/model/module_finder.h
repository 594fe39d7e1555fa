#pragma once

#include <QLabel>
#include <QLineEdit>
#include <QWidget>
#include <vector>

namespace pw::gui {

class TreeModel;
class TreeView;

/// A field that finds modules in the tree by name: the text's matches are marked, one of them is current.
class ModuleFinder : public QWidget {
  Q_OBJECT
 public:
  ModuleFinder(const TreeModel& model, TreeView& view, QWidget* parent = nullptr);

  void edit();     ///< puts the cursor into the field
  void refresh();  ///< finds the text again, in another tree

 protected:
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  [[nodiscard]] bool takeKey(int key, bool shift);
  void show(int direction);

  const TreeModel& model_;
  TreeView& view_;
  QLineEdit text_;
  QLabel place_;
  std::vector<int> matches_;  // rows, ascending
  std::size_t match_ = 0;
};

}  // namespace pw::gui
