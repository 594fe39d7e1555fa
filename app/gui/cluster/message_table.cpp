#include "app/gui/cluster/message_table.h"

#include <QHeaderView>
#include <algorithm>

#include "app/gui/common/format.h"

namespace pw::gui {
namespace {

constexpr std::size_t kMostRows = 200;
enum Column : std::uint8_t { Message, Size, Within, Between };

enum class Route : std::uint8_t { Rank, Node, Network, Unknown };

Route routeOf(const StageMessage& message, const Topology& topology) {
  if (message.fromRank == message.toRank) return Route::Rank;
  const auto listed = static_cast<int>(topology.ranks.size());
  if (listed > 0 && std::max(message.fromRank, message.toRank).value >= listed) return Route::Unknown;
  const bool together = nodeOf(topology, JobRank(message.fromRank.value)) == nodeOf(topology, JobRank(message.toRank.value));
  return together ? Route::Node : Route::Network;
}

}  // namespace

MessageTable::MessageTable(QWidget* parent) : QTableWidget(0, 4, parent) {
  setAccessibleName(tr("Messages of the splits"));
  setToolTip(
      tr("What stages send each other for one microbatch, and how long it takes; bold: over the link between their devices; a layer "
         "table's own times count "
         "on any link"));
  setHorizontalHeaderLabels({tr("Message"), tr("Size"), tr("Within a node"), tr("Between nodes")});
  verticalHeader()->hide();
  setEditTriggers(QAbstractItemView::NoEditTriggers);
  setSelectionBehavior(QAbstractItemView::SelectRows);
  setTabKeyNavigation(false);
  setWordWrap(false);
  horizontalHeader()->setSectionResizeMode(QHeaderView::ResizeToContents);
  horizontalHeader()->setSectionResizeMode(Message, QHeaderView::Stretch);
}

void MessageTable::set(int row, int column, const QString& text, bool taken) {
  QTableWidgetItem* cell = item(row, column);
  if (cell == nullptr) {
    cell = new QTableWidgetItem;
    if (column != Message) cell->setTextAlignment(Qt::AlignRight | Qt::AlignVCenter);
    setItem(row, column, cell);
  }
  QFont bold = font();
  bold.setBold(taken);
  cell->setFont(bold);
  cell->setText(text);
}

void MessageTable::show(const std::vector<StageMessage>& messages, const Topology& topology, bool hasNode, bool hasNetwork) {
  const auto rows = static_cast<int>(std::min(messages.size(), kMostRows));
  setRowCount(rows);
  for (int row = 0; row < rows; ++row) {
    const StageMessage& message = messages[static_cast<std::size_t>(row)];
    const Route route = routeOf(message, topology);
    const auto time = [&](Route over, const LinkSpec& usual, bool known) {
      if (message.sent) return durationText(*message.sent);
      if (!known) return QStringLiteral("–");
      const LinkSpec& link = route == over ? linkBetween(topology, JobRank(message.fromRank.value), JobRank(message.toRank.value)) : usual;
      return durationText(timeOn(link, message.bytes));
    };
    const QString stages = tr("stage %1 → %2").arg(message.from.value).arg(message.to.value);
    set(row, Message, route == Route::Rank ? tr("%1, same device").arg(stages) : stages, false);
    set(row, Size, sizeText(message.bytes), false);
    set(row, Within, time(Route::Node, topology.sameNode, hasNode), route == Route::Node);
    set(row, Between, time(Route::Network, topology.network, hasNetwork), route == Route::Network);
  }
}

}  // namespace pw::gui
