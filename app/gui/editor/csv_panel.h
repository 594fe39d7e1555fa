#pragma once

#include <QWidget>
#include <memory>

namespace pw::gui {

class Document;
class TimelineWidget;

/// The document's schedule as the text of torch's CSV, one row per rank. It follows the document; what is typed becomes the document's
/// schedule as soon as it can be run, each pause in typing one undo step, and what cannot is underlined at its cell, or in its row where
/// something is missing, with the reason below. It follows while it is visible.
class CsvPanel : public QWidget {
  Q_OBJECT
 public:
  explicit CsvPanel(Document& document, QWidget* parent = nullptr);
  ~CsvPanel() override;
  /// Marks the cell of the block that is selected there, and selects there the block of the cell with the cursor.
  void follow(TimelineWidget& timeline);
  [[nodiscard]] QString problem() const;  ///< why the text is not the document's schedule; empty: it is

 protected:
  void showEvent(QShowEvent* event) override;

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
