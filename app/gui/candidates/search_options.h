#pragma once

#include <QWidget>
#include <vector>

#include "simulator/search/search.h"

class QCheckBox;
class QLabel;
class QLineEdit;
class QSpinBox;

namespace pw::gui {

class Document;

/// What a search should try, in addition to the settings of the design (ranks, replicas, loss, optimizer, memory limit).
class SearchOptions : public QWidget {
  Q_OBJECT
 public:
  explicit SearchOptions(Document& document, QWidget* parent = nullptr);

  /// Throws UsageError with a sentence about invalid input.
  [[nodiscard]] SearchSpace space() const;
  void refresh();  ///< hints that depend on the design

 private:
  Document& document_;
  QLineEdit* counts_;
  QSpinBox* batch_;
  QCheckBox* recompute_;
  QLabel* limit_;
};

/// `4, 8 16` → 4, 8, 16; empty for empty input. Throws UsageError for anything that is not a count.
[[nodiscard]] std::vector<int> countsOf(const QString& text);

}  // namespace pw::gui
