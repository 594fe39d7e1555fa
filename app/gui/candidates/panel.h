#pragma once

#include <QWidget>
#include <memory>

namespace pw::gui {

class Document;

/// Searches plans for the document's model, shows them as a table and a plot of time against memory; a double click loads one.
class CandidatesPanel : public QWidget {
  Q_OBJECT
 public:
  explicit CandidatesPanel(Document& document, QWidget* parent = nullptr);
  ~CandidatesPanel() override;
  void search();  ///< as if the button were pressed
  /// Shows the plans of a study's results instead of a search's; problems are shown in the panel.
  void showStudy(const QString& path);
  [[nodiscard]] bool isSearching() const;

 signals:
  void searchFinished();
  void resultsShown();  ///< in place of the invitation to search

 protected:
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
