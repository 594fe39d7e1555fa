#pragma once

#include <QWidget>

class QVBoxLayout;

namespace pw::gui {

/// What one sees first: open a file, a shipped sample, a recent file.
class StartPage : public QWidget {
  Q_OBJECT
 public:
  explicit StartPage(QWidget* parent = nullptr);
  void setRecent(const QStringList& paths);

 signals:
  void openRequested();                   ///< show the file dialog
  void chosen(const QStringList& paths);  ///< open these

 private:
  [[nodiscard]] QVBoxLayout* sampleColumn();
  [[nodiscard]] QVBoxLayout* openColumn();

  QVBoxLayout* recent_ = nullptr;
};

/// The shipped sample models: file and what it is.
struct Sample {
  QString path, title, description;
};
[[nodiscard]] QList<Sample> samples();

}  // namespace pw::gui
