#pragma once

#include <QDialog>

namespace pw::gui {

/// The keys of the window and its timeline, and what they do.
class KeysDialog : public QDialog {
  Q_OBJECT
 public:
  explicit KeysDialog(QWidget* parent);
};

}  // namespace pw::gui
