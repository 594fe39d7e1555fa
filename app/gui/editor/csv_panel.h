#pragma once

#include <QWidget>
#include <memory>

namespace pw::gui {

class Document;

/// The document's schedule as the text of torch's CSV, one row per rank. It follows the document; what is typed becomes the document's
/// schedule as soon as it can be run, each pause in typing one undo step, and what cannot is underlined at its cell, with the reason below.
class CsvPanel : public QWidget {
  Q_OBJECT
 public:
  explicit CsvPanel(Document& document, QWidget* parent = nullptr);
  ~CsvPanel() override;
  [[nodiscard]] QString problem() const;  ///< why the text is not the document's schedule; empty: it is

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
