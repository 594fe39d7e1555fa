#include "app/gui/model/tree_model.h"

#include <QStringList>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/model/parts/finding_mark.h"
#include "app/gui/model/parts/row_geometry.h"

namespace pw::gui {
namespace {

const QString kNone = QStringLiteral("–");

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

TreeModel::TreeModel(QObject* parent) : QAbstractItemModel(parent) {}

void TreeModel::setTree(CallTree tree) {
  beginResetModel();
  tree_ = std::move(tree);
  scale_ = barScale(tree_);
  findings_ = RowFindings(tree_, findings_.all());
  endResetModel();
}

void TreeModel::setFindings(std::vector<Finding> findings) {
  findings_ = RowFindings(tree_, std::move(findings));
  if (tree_.size() > 0) emit dataChanged(indexOf(0), indexOf(0));
}

void TreeModel::setProfile(const Profile* profile) {
  setCosts(tree_, profile);
  scale_ = barScale(tree_);
  for (int r = 0; r < tree_.size(); ++r) {  // one signal for the children of each row
    const auto& children = tree_.children[static_cast<std::size_t>(r)];
    if (!children.empty()) emit dataChanged(indexOf(children.front(), Forward), indexOf(children.back(), Activations));
  }
  if (tree_.size() > 0) emit dataChanged(indexOf(0, Forward), indexOf(0, Activations));
}

QModelIndex TreeModel::indexOf(int row, int column) const {
  return row < 0 || row >= tree_.size() ? QModelIndex() : createIndex(tree_.row(row).place, column, static_cast<quintptr>(row));
}

int TreeModel::rowOf(const QModelIndex& index) const { return index.isValid() ? static_cast<int>(index.internalId()) : -1; }

QModelIndex TreeModel::index(int row, int column, const QModelIndex& parent) const {
  if (row < 0 || column < 0 || column >= ColumnCount || row >= rowCount(parent)) return {};
  const int around = rowOf(parent);
  return indexOf(around < 0 ? 0 : tree_.children[static_cast<std::size_t>(around)][static_cast<std::size_t>(row)], column);
}

QModelIndex TreeModel::parent(const QModelIndex& index) const {
  return index.isValid() ? indexOf(tree_.row(rowOf(index)).parent) : QModelIndex();
}

int TreeModel::rowCount(const QModelIndex& parent) const {
  if (!parent.isValid()) return tree_.rows.empty() ? 0 : 1;
  return parent.column() == Name ? static_cast<int>(tree_.children[static_cast<std::size_t>(rowOf(parent))].size()) : 0;
}

int TreeModel::columnCount(const QModelIndex&) const { return ColumnCount; }

QString TreeModel::title(int row) const {
  const CallRow& r = tree_.row(row);
  if (!r.isModule)
    return tr("%1 (operators of %2)")
        .arg(QString::fromStdString(r.label), r.path.empty() ? tr("the model") : QString::fromStdString(r.path));
  QString text = QString::fromStdString(r.path.empty() ? r.label : r.path);
  if (!r.className.empty()) text += QStringLiteral(", ") + QString::fromStdString(r.className);
  if (r.call > 0) text += tr(", call %1").arg(r.call + 1);
  return text;
}

QString TreeModel::number(const CallRow& row, Column column) const {
  switch (column) {
    case Forward: return row.forward > 0 ? durationText(row.forward) : kNone;
    case Backward: return row.backward > 0 ? durationText(row.backward) : kNone;
    case Parameters: return row.parameters > 0 ? countText(static_cast<double>(row.parameters)) : kNone;
    case Activations: return row.saved > 0 ? sizeText(row.saved) : kNone;
    case Name:
    case ColumnCount: break;
  }
  return QString::fromStdString(row.label);
}

double TreeModel::fraction(int row, Column column) const {
  const CallRow& r = tree_.row(row);
  if (scale_.isAround[static_cast<std::size_t>(row)]) return -1;
  switch (column) {
    case Forward: return ratio(static_cast<double>(r.forward), static_cast<double>(scale_.time));
    case Backward: return ratio(static_cast<double>(r.backward), static_cast<double>(scale_.time));
    case Parameters: return ratio(static_cast<double>(r.parameters), static_cast<double>(scale_.parameters));
    case Activations: return ratio(static_cast<double>(r.saved), static_cast<double>(scale_.saved));
    case Name:
    case ColumnCount: break;
  }
  return -1;
}

QString TreeModel::toolTip(int row) const {
  const CallRow& r = tree_.row(row);
  const Stage first = stageOf(begins_, r.firstNode), last = r.firstNode < r.endNode ? stageOf(begins_, NodeId(r.endNode.value - 1)) : first;
  QString text = QStringLiteral("<b>%1</b><table cellspacing='0' cellpadding='2'>").arg(title(row).toHtmlEscaped());
  const auto line = [&](const QString& what, const QString& value) {
    text += QStringLiteral("<tr><td>%1</td><td align='right'>%2</td></tr>").arg(what, value);
  };
  line(tr("stage"), first == last ? QString::number(first.value) : tr("%1 to %2").arg(first.value).arg(last.value));
  line(tr("operators"), QString::number(r.endNode.value - r.firstNode.value));
  line(tr("forward, one microbatch"), number(r, Forward));
  line(tr("backward"), number(r, Backward));
  line(tr("parameters"), r.parameters > 0 ? tr("%1 (%2)").arg(number(r, Parameters), sizeText(r.parameterBytes)) : kNone);
  line(tr("kept until the backward"), number(r, Activations));
  return text + QStringLiteral("</table>") + findingsText(findings_.inside(tree_, row));
}

QVariant TreeModel::data(const QModelIndex& index, int role) const {
  if (!index.isValid()) return {};
  const int row = rowOf(index);
  const auto column = static_cast<Column>(index.column());
  const CallRow& r = tree_.row(row);
  switch (role) {
    case Qt::DisplayRole: return number(r, column);
    case Qt::ToolTipRole: return toolTip(row);
    case Qt::AccessibleTextRole:
      if (column == Name) {
        const auto marked = static_cast<int>(findings_.inside(tree_, row).size());
        const QString text = tr("%1, stage %2").arg(title(row)).arg(stageOf(begins_, r.firstNode).value);
        return marked == 0 ? text : marked == 1 ? tr("%1, 1 finding").arg(text) : tr("%1, %2 findings").arg(text).arg(marked);
      }
      return tr("%1: %2").arg(headerData(column, Qt::Horizontal, Qt::DisplayRole).toString(), number(r, column));
    case Qt::TextAlignmentRole:
      return static_cast<int>(column == Name ? Qt::AlignLeft | Qt::AlignVCenter : Qt::AlignRight | Qt::AlignVCenter);
    case RowRole: return row;
    case StageRole: return stageOf(begins_, r.firstNode).value;
    case FractionRole: return fraction(row, column);
    default: return {};
  }
}

QVariant TreeModel::headerData(int section, Qt::Orientation orientation, int role) const {
  if (orientation != Qt::Horizontal) return {};
  if (role == Qt::TextAlignmentRole)
    return static_cast<int>(section == Name ? Qt::AlignLeft | Qt::AlignVCenter : Qt::AlignRight | Qt::AlignVCenter);
  const bool isTip = role == Qt::ToolTipRole;
  if (role != Qt::DisplayRole && !isTip) return {};
  switch (static_cast<Column>(section)) {
    case Name: return isTip ? tr("Modules in execution order") : tr("Module");
    case Forward: return isTip ? tr("Time of the forward of one microbatch") : tr("Forward");
    case Backward: return isTip ? tr("Time of the backward of one microbatch: input and weight gradients") : tr("Backward");
    case Parameters: return isTip ? tr("Number of parameters") : tr("Params");
    case Activations: return isTip ? tr("Bytes that one microbatch keeps from the forward until the backward") : tr("Activations");
    case ColumnCount: break;
  }
  return {};
}

}  // namespace pw::gui
