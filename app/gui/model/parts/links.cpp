#include "app/gui/model/parts/links.h"

#include <QStringList>
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "app/gui/common/format.h"
#include "schedules/error.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/symbolic.h"

namespace pw::gui {
namespace {

constexpr std::size_t kNamedValues = 4;

QString sizeOrNone(Bytes bytes) { return bytes > 0 ? sizeText(bytes) : QStringLiteral("–"); }

QString operators(std::size_t count) { return count == 1 ? translated("1 operator") : translated("%1 operators").arg(count); }

QString nameOf(const ModelGraph& graph, ValueId value) { return QString::fromStdString(graph.value(value).name); }

QString names(const ModelGraph& graph, const std::vector<ValueId>& values) {
  QStringList list;
  for (std::size_t i = 0; i < values.size() && i < kNamedValues; ++i) list << nameOf(graph, values[i]);
  if (values.size() > kNamedValues) list << translated("%1 more").arg(values.size() - kNamedValues);
  return list.join(QStringLiteral(", "));
}

Arc sent(const ModelGraph& graph, const Readers& readers, const Partition& partition, const Transfer& transfer, const Wiring& wiring) {
  Arc arc;
  arc.kind = ArcKind::Sent;
  arc.fromStage = transfer.from;
  arc.toStage = transfer.to;
  arc.values = {transfer.value};
  arc.from = graph.value(transfer.value).producer;
  const StageSpec& to = partition.stages[transfer.to.index()];
  arc.to = readers.first(transfer.value, to.begin, to.end).value_or(to.begin);
  const bool local = wiring.rank(transfer.from) == wiring.rank(transfer.to);
  arc.text =
      local
          ? translated("%1 goes from stage %2 to stage %3 on the same rank: nothing is sent (%4 per microbatch stay on the rank).")
          : translated("%1 goes from stage %2 straight to stage %3: %4 per microbatch are sent directly%5, bypassing the stages between.");
  arc.text = arc.text.arg(nameOf(graph, transfer.value)).arg(transfer.from.value).arg(transfer.to.value).arg(sizeText(transfer.bytes));
  if (!local) {
    const Ns time = wiring.time(transfer.from, transfer.to, transfer.bytes);
    arc.text = arc.text.arg(transfer.gradient ? translated(" in %1, and the gradient back").arg(durationText(time))
                                              : translated(" in %1").arg(durationText(time)));
  }
  return arc;
}

std::optional<Arc> recomputed(const ModelGraph& graph, const Readers& readers, const Partition& partition, std::size_t stage) {
  const StageSpec& spec = partition.stages[stage];
  Arc arc;
  arc.kind = ArcKind::Recomputed;
  arc.toStage = Stage(stage);
  arc.to = spec.end;
  for (const NodeId node : spec.recomputed) {
    for (const ValueId value : graph.node(node).outputs) {
      const auto reader = readers.first(value, spec.begin, spec.end);
      if (!reader || graph.value(value).symbolic) continue;
      if (arc.values.empty()) arc.from = node;
      arc.values.push_back(value);
      arc.to = std::min(arc.to, *reader);
    }
  }
  if (arc.values.empty()) return std::nullopt;
  std::vector<NodeId> begins;
  for (std::size_t s = 1; s < partition.stages.size(); ++s) begins.push_back(partition.stages[s].begin);
  arc.fromStage = Stage(static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), arc.from) - begins.begin()));
  arc.text = translated("Stage %1 recomputes %2 (%3) instead of receiving it.")
                 .arg(stage)
                 .arg(names(graph, arc.values), operators(spec.recomputed.size()));
  return arc;
}

/// The first node of a stage that reads a parameter of this storage.
NodeId firstUse(const ModelGraph& graph, const Readers& readers, const StageSpec& stage, const std::string& storage) {
  NodeId use = stage.end;
  for (const StateTensor& parameter : graph.parameters) {
    if (storageOf(parameter) == storage) use = std::min(use, readers.first(parameter.value, stage.begin, stage.end).value_or(stage.end));
  }
  return use == stage.end ? stage.begin : use;
}

QString sharedText(const SharedParameter& shared, const SharingChoice* choice, const Wiring& wiring) {
  QStringList stages;
  for (const Stage stage : shared.stages) stages << QString::number(stage.value);
  const QString last = stages.takeLast();
  const QString list = translated("%1 and %2").arg(stages.join(QStringLiteral(", ")), last);
  QString head = translated("%1 (%2) is read by stages %3").arg(QString::fromStdString(shared.name), sizeText(shared.bytes), list);
  const bool oneRank = choice != nullptr ? choice->ranks < 2 : std::all_of(shared.stages.begin(), shared.stages.end(), [&](Stage s) {
    return wiring.rank(s) == wiring.rank(shared.stages.front());
  });
  if (oneRank) return translated("%1, all on rank %2: one copy, nothing is sent.").arg(head).arg(wiring.rank(shared.stages.front()).value);
  switch (shared.sharing) {
    case Sharing::Replicate:
      return translated("%1. Replicated: each updates its own copy; the gradients are summed once per step.").arg(head);
    case Sharing::Transmit:
      return translated("%1. Transmitted: stage %2 owns and updates it, and sends the new values to the others once per step.")
          .arg(head)
          .arg(shared.stages.front().value);
  }
  return head;
}

}  // namespace

QString shapeText(const TensorMeta& meta, const Bindings& bindings) {
  const auto shape = knownShape(meta, bindings);
  if (!shape) return translated("data-dependent");
  QStringList sizes;
  for (const std::int64_t size : *shape) sizes << QString::number(size);
  return sizes.isEmpty() ? translated("scalar") : sizes.join(QStringLiteral(" × "));
}

Readers::Readers(const ModelGraph& graph) : nodes_(graph.values.size()), isOutput_(graph.values.size(), false) {
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId v : readsOf(graph.nodes[n])) nodes_[v.index()].emplace_back(n);
  }
  for (const ValueId v : graph.outputs) {
    isOutput_[v.index()] = true;
    if (!graph.nodes.empty()) nodes_[v.index()].emplace_back(graph.nodes.size() - 1);
  }
}

std::optional<NodeId> Readers::first(ValueId value, NodeId begin, NodeId end) const {
  const auto& nodes = nodes_[value.index()];
  const auto found = std::lower_bound(nodes.begin(), nodes.end(), begin);
  return found != nodes.end() && *found < end ? std::optional(*found) : std::nullopt;
}

Ns Wiring::time(Stage from, Stage to, Bytes bytes) const {
  if (rank(from) == rank(to)) return 0;
  const auto listed = static_cast<int>(topology.ranks.size());
  if (listed > 0 && std::max(rank(from).value, rank(to).value) >= listed) return 0;  // a rank that the cluster does not have
  const LinkSpec& link = linkBetween(topology, JobRank(rank(from).value), JobRank(rank(to).value));
  return link.latency + transferTime(link, bytes);
}

Wiring wiringOf(const Document& document) {
  Wiring wiring;
  wiring.topology = document.cluster().topology;
  if (const auto profile = document.profile()) wiring.topology = profile->topology;
  const std::size_t stages = document.design().request.begins.size() + 1;
  const auto prediction = document.prediction();
  if (prediction && prediction->rows && prediction->rows->placement.stages() == stages) {
    wiring.rankOfStage = prediction->rows->placement.rankOfStage;
  } else {
    const int ranks = std::max(1, document.design().request.ranks);
    for (std::size_t s = 0; s < stages; ++s) wiring.rankOfStage.emplace_back(static_cast<int>(s) % ranks);
  }
  return wiring;
}

bool isOf(const Partition& partition, const std::vector<NodeId>& begins) {
  if (partition.stages.size() != begins.size() + 1) return false;
  for (std::size_t s = 0; s < begins.size(); ++s) {
    if (partition.stages[s + 1].begin != begins[s]) return false;
  }
  return true;
}

std::optional<Partition> partitionOf(const Document& document) {
  const auto& begins = document.design().request.begins;
  const auto prediction = document.prediction();
  if (prediction && isOf(prediction->priced.partition, begins)) return prediction->priced.partition;
  const auto graph = document.graph();
  if (!graph) return std::nullopt;
  try {
    return cutGraph(*graph, begins, bindBatch(*graph, document.design().request.microbatch), document.profile().get());
  } catch (const Error&) {
    return std::nullopt;  // the document's problem says why
  }
}

std::vector<Crossing> crossing(const Partition& partition, std::size_t split, const Wiring& wiring) {
  std::vector<Crossing> list;
  for (const Transfer& t : partition.transfers) {
    if (t.from.index() <= split && t.to.index() > split)
      list.push_back({t.value, t.from, t.to, t.gradient, t.bytes, wiring.time(t.from, t.to, t.bytes)});
  }
  std::stable_sort(list.begin(), list.end(), [](const Crossing& a, const Crossing& b) { return a.bytes > b.bytes; });
  return list;
}

QString crossingText(const Document& document, std::size_t split, const QString& name, std::size_t most) {
  const auto graph = document.graph();
  const auto partition = partitionOf(document);
  const Wiring wiring = wiringOf(document);
  const Stage before(split), after(split + 1);
  QString text = QStringLiteral("<b>%1</b><br>%2")
                     .arg(translated("Stage %1 begins at %2").arg(after.value).arg(name.toHtmlEscaped()),
                          wiring.rank(before) == wiring.rank(after)
                              ? translated("stays on rank %1").arg(wiring.rank(before).value)
                              : translated("rank %1 → rank %2").arg(wiring.rank(before).value).arg(wiring.rank(after).value));
  if (!graph || !partition) return text;
  const Bindings bindings = bindBatch(*graph, document.design().request.microbatch);
  const std::vector<Crossing> values = crossing(*partition, split, wiring);
  Bytes total = 0;
  text += QStringLiteral("<table cellspacing='0' cellpadding='2'>");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Crossing& value = values[i];
    total += value.bytes;
    if (i >= most) continue;
    const auto& tensor = graph->value(value.value).tensor;
    const std::optional<TensorMeta> meta = isLayerChain(*graph) ? std::nullopt : tensor;  // whose values have a size alone, if that
    QString note =
        value.to == after && value.from == before ? QString() : translated("stage %1 → %2").arg(value.from.value).arg(value.to.value);
    if (value.gradient) note += (note.isEmpty() ? QString() : QStringLiteral(", ")) + translated("gradient back");
    text += QStringLiteral("<tr><td>%1</td><td>%2</td><td>%3</td><td align='right'>%4</td><td align='right'>%5</td><td>%6</td></tr>")
                .arg(nameOf(*graph, value.value).toHtmlEscaped(), meta ? shapeText(*meta, bindings) : QString(),
                     meta ? QString::fromLatin1(pw::nameOf(meta->dtype).data(), static_cast<qsizetype>(pw::nameOf(meta->dtype).size()))
                          : QString(),
                     sizeOrNone(value.bytes), durationText(value.time), note);
  }
  text += QStringLiteral("</table>");
  if (values.size() > most) text += translated("… and %1 more").arg(values.size() - most) + QStringLiteral("<br>");
  text += values.empty() ? translated("Nothing is sent here.")
                         : (values.size() == 1 ? translated("1 value, %1 per microbatch").arg(sizeOrNone(total))
                                               : translated("%1 values, %2 per microbatch").arg(values.size()).arg(sizeOrNone(total)));
  const StageSpec& stage = partition->stages[after.index()];
  if (!stage.recomputed.empty())
    text +=
        QStringLiteral("<br>") +
        translated("Stage %1 recomputes %2 instead of receiving their results.").arg(after.value).arg(operators(stage.recomputed.size()));
  return text;
}

std::vector<Arc> arcsOf(const ModelGraph& graph, const Readers& readers, const Partition& partition,
                        const std::vector<SharingChoice>& sharing, const Wiring& wiring) {
  std::vector<Arc> arcs;
  for (const Transfer& transfer : partition.transfers) {
    if (transfer.to.value > transfer.from.value + 1) arcs.push_back(sent(graph, readers, partition, transfer, wiring));
  }
  for (std::size_t s = 1; s < partition.stages.size(); ++s) {
    if (auto arc = recomputed(graph, readers, partition, s)) arcs.push_back(std::move(*arc));
  }
  for (const SharedParameter& shared : partition.shared) {
    const auto choice = std::find_if(sharing.begin(), sharing.end(), [&](const SharingChoice& c) { return c.name == shared.name; });
    const QString text = sharedText(shared, choice == sharing.end() ? nullptr : &*choice, wiring);
    for (std::size_t i = 1; i < shared.stages.size(); ++i) {
      const Stage a = shared.stages[i - 1], b = shared.stages[i];
      arcs.push_back({ArcKind::Shared,
                      firstUse(graph, readers, partition.stages[a.index()], shared.storage),
                      firstUse(graph, readers, partition.stages[b.index()], shared.storage),
                      a,
                      b,
                      {},
                      text});
    }
  }
  return arcs;
}

}  // namespace pw::gui
