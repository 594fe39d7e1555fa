#pragma once

#include <QTableWidget>
#include <vector>

#include "app/gui/cluster/messages.h"

namespace pw::gui {

/// Messages of the splits, and how long each takes over each kind of link; in bold over the kind that it takes.
class MessageTable : public QTableWidget {
  Q_OBJECT
 public:
  explicit MessageTable(QWidget* parent = nullptr);

  /// Shows at most the first 200 messages. `topology`: where their ranks are. A link whose figures cannot be read has no times.
  void show(const std::vector<StageMessage>& messages, const Topology& topology, bool hasNode, bool hasNetwork);

 private:
  void set(int row, int column, const QString& text, bool taken);
};

}  // namespace pw::gui
