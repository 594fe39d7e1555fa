#pragma once

#include <QDialog>
#include <functional>
#include <vector>

class QLineEdit;
class QListWidget;

namespace pw::gui {

/// Something the palette can do.
struct Command {
  QString text, key;
  std::function<void()> run;
};

/// How well what was typed fits a text: every character in order, ignoring case; more where they follow each other or begin words. −1: it
/// does not.
[[nodiscard]] int fit(const QString& typed, const QString& text);

/// Type a few letters, Enter does it. Arrow keys choose, Esc closes.
class CommandPalette : public QDialog {
  Q_OBJECT
 public:
  CommandPalette(std::vector<Command> commands, QWidget* parent);

 protected:
  void done(int result) override;
  void showEvent(QShowEvent* event) override;
  void changeEvent(QEvent* event) override;
  bool eventFilter(QObject* object, QEvent* event) override;

 private:
  void filter(const QString& typed);
  void choose();
  std::vector<Command> commands_;
  QLineEdit* typed_ = nullptr;
  QListWidget* list_ = nullptr;
  bool wasActive_ = false;
};

}  // namespace pw::gui
