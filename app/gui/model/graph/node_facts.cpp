#include "app/gui/model/graph/node_facts.h"

#include <QStringList>
#include <set>
#include <string>

#include "app/gui/common/format.h"
#include "app/gui/model/parts/finding_mark.h"
#include "app/gui/model/parts/links.h"
#include "simulator/model/graph_facts.h"

namespace pw::gui {
namespace {

TensorFact factOf(const ModelGraph& graph, const ModelFlow& flow, const Bindings& bindings, ValueId value, const std::string& name) {
  const auto& meta = graph.value(value).tensor;
  if (!meta) return {QString::fromStdString(name), {}, {}, 0};
  if (isLayerChain(graph)) return {QString::fromStdString(name), {}, {}, flow.bytes[value.index()]};  // a size alone, if that
  const std::string_view type = pw::nameOf(meta->dtype);
  return {QString::fromStdString(name), shapeText(*meta, bindings), QString::fromLatin1(type.data(), static_cast<qsizetype>(type.size())),
          flow.bytes[value.index()]};
}

QString table(const QString& title, const std::vector<TensorFact>& tensors, std::size_t most) {
  if (tensors.empty()) return {};
  Bytes bytes = 0;
  for (const TensorFact& tensor : tensors) bytes += tensor.bytes;
  QString text =
      QStringLiteral("<tr><td colspan='4'><b>%1</b> · %2</td></tr>").arg(title, bytes > 0 ? sizeText(bytes) : QStringLiteral("–"));
  for (std::size_t i = 0; i < tensors.size() && i < most; ++i) {
    const TensorFact& t = tensors[i];
    text +=
        QStringLiteral(
            "<tr><td style='padding-right:12px'>%1</td><td style='padding-right:12px'>%2</td><td style='padding-right:12px'>%3</td>"
            "<td align='right'>%4</td></tr>")
            .arg(t.name.toHtmlEscaped(), QString(t.shape).replace(' ', QChar::Nbsp), t.type, t.bytes > 0 ? sizeText(t.bytes) : QString());
  }
  if (tensors.size() > most)
    text += QStringLiteral("<tr><td colspan='4'>%1</td></tr>").arg(translated("… and %1 more").arg(tensors.size() - most));
  return text;
}

/// Those of `states` that nodes of the range read, one of each storage.
std::vector<TensorFact> statesOf(const ModelGraph& graph, const ModelFlow& flow, const Bindings& bindings,
                                 const std::vector<StateTensor>& states, const std::set<ValueId>& read) {
  std::vector<TensorFact> facts;
  std::set<std::string> seen;
  for (const StateTensor& state : states) {
    if (read.contains(state.value) && seen.insert(storageOf(state)).second)
      facts.push_back(factOf(graph, flow, bindings, state.value, state.name));
  }
  return facts;
}

}  // namespace

std::vector<TensorFact> tensorsOf(const ModelGraph& graph, const ModelFlow& flow, const Bindings& bindings,
                                  const std::vector<ValueId>& values) {
  std::vector<TensorFact> facts;
  facts.reserve(values.size());
  for (const ValueId value : values) facts.push_back(factOf(graph, flow, bindings, value, graph.value(value).name));
  return facts;
}

NodeFacts factsOf(const ModelGraph& graph, const ModelFlow& flow, const Bindings& bindings, NodeId begin, NodeId end) {
  std::set<ValueId> inputs, outputs, read;
  for (const TensorUse& use : flow.uses) {
    const bool madeInside = use.from >= begin.value && use.from < end.value;
    const bool readInside = use.to >= begin.value && use.to < end.value;
    if (readInside && !madeInside) inputs.insert(use.value);
    if (madeInside && !readInside) outputs.insert(use.value);
  }
  for (auto n = begin.index(); n < end.index(); ++n) {
    for (const ValueId v : readsOf(graph.nodes[n])) read.insert(v);
  }
  return {tensorsOf(graph, flow, bindings, {inputs.begin(), inputs.end()}),
          tensorsOf(graph, flow, bindings, {outputs.begin(), outputs.end()}), statesOf(graph, flow, bindings, graph.parameters, read),
          statesOf(graph, flow, bindings, graph.buffers, read)};
}

QString boxText(const CallRow& row) {
  QStringList facts;
  if (row.forward > 0) facts << translated("F %1").arg(durationText(row.forward));
  if (row.backward > 0) facts << translated("B %1").arg(durationText(row.backward));
  if (row.parameters > 0) facts << translated("%1 parameters").arg(countText(static_cast<double>(row.parameters)));
  if (row.saved > 0) facts << translated("keeps %1").arg(sizeText(row.saved));
  return facts.join(QStringLiteral(" · "));
}

QString nodeText(const CallRow& row, const NodeFacts& facts, const std::vector<const Finding*>& findings, std::size_t most) {
  const QString label = QString::fromStdString(row.isModule && !row.path.empty() ? row.path : row.label).toHtmlEscaped();
  QString text = QStringLiteral("<b>%1</b> %2").arg(label, QString::fromStdString(row.className).toHtmlEscaped());
  const auto operators = row.endNode.value - row.firstNode.value;
  QStringList numbers{operators == 1 ? translated("1 operator") : translated("%1 operators").arg(operators)};
  if (row.forward > 0 || row.backward > 0)
    numbers << translated("forward %1").arg(durationText(row.forward)) << translated("backward %1").arg(durationText(row.backward));
  if (row.saved > 0) numbers << translated("keeps %1 for the backward").arg(sizeText(row.saved));
  if (row.parameters > 0) numbers << translated("%1 parameters").arg(countText(static_cast<double>(row.parameters)));
  text += QStringLiteral("<br>") + translated("%1, per microbatch").arg(numbers.join(QStringLiteral(" · ")));
  text += QStringLiteral("<table cellspacing='0' cellpadding='2'>") + table(translated("Inputs"), facts.inputs, most) +
          table(translated("Outputs"), facts.outputs, most) + table(translated("Parameters"), facts.parameters, most) +
          table(translated("Buffers"), facts.buffers, most) + QStringLiteral("</table>");
  return text + findingsText(findings);
}

QString tensorsText(const QString& title, const std::vector<TensorFact>& tensors, std::size_t most) {
  return QStringLiteral("<table cellspacing='0' cellpadding='2'>") + table(title.toHtmlEscaped(), tensors, most) +
         QStringLiteral("</table>");
}

}  // namespace pw::gui
