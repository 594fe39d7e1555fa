#include "app/gui/cluster/form.h"

#include <QLocale>
#include <QStringList>
#include <algorithm>
#include <optional>
#include <utility>

#include "app/gui/cluster/figures.h"
#include "app/gui/common/format.h"

namespace pw::gui {
namespace {

constexpr int kMostDevices = 1 << 16;  ///< that are listed one by one

LinkForm linkForm(const LinkSpec& link) { return {latencyInput(link.latency), bandwidthInput(link.bytesPerSecond)}; }

/// Devices of a topology, in nodes of `ranksPerNode` in the order of their numbers.
bool isRegular(const Topology& topology) {
  const int perNode = topology.ranksPerNode;
  if (perNode <= 0 || topology.ranks.size() % static_cast<std::size_t>(perNode) != 0) return topology.ranks.empty();
  for (std::size_t r = 0; r < topology.ranks.size(); ++r) {
    if (topology.ranks[r].node != static_cast<int>(r) / perNode) return false;
  }
  return true;
}

bool differs(const RankSpec& rank) { return rank.speed != 1 || rank.memoryBytes > 0; }

/// Consecutive devices that differ in the same way are one row.
std::vector<DeviceForm> devicesOf(const Topology& topology) {
  std::vector<DeviceForm> rows;
  const std::vector<RankSpec>& ranks = topology.ranks;
  for (std::size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    const auto isAlike = [&](const RankSpec& rank) {
      return rank.speed == ranks[begin].speed && rank.memoryBytes == ranks[begin].memoryBytes;
    };
    for (end = begin + 1; end < ranks.size() && isAlike(ranks[end]); ++end) {}
    if (!differs(ranks[begin])) continue;
    DeviceForm row{QString::number(begin), {}, {}};
    if (end - begin > 1) row.devices += QLatin1Char('-') + QString::number(end - 1);
    if (ranks[begin].speed != 1) row.speed = QString::number(ranks[begin].speed, 'g', QLocale::FloatingPointShortest);
    if (ranks[begin].memoryBytes > 0) row.memory = memoryInput(ranks[begin].memoryBytes);
    rows.push_back(std::move(row));
  }
  return rows;
}

/// `3`, `0-3, 8` as ranges; nothing for anything else.
std::optional<std::vector<std::pair<int, int>>> rangesIn(const QString& text) {
  std::vector<std::pair<int, int>> ranges;
  for (const QString& part : text.split(QLatin1Char(','))) {
    const QStringList ends = QString(part).replace(QChar(0x2013), QLatin1Char('-')).split(QLatin1Char('-'));
    bool first = false, last = false;
    const int from = ends.front().trimmed().toInt(&first), to = ends.back().trimmed().toInt(&last);
    if (ends.size() > 2 || !first || !last || from < 0 || to < from) return std::nullopt;
    ranges.emplace_back(from, to);
  }
  return ranges;
}

/// Reads one form; problems are collected.
class Reader {
 public:
  Reader(const ClusterForm& form, const Cluster& base) : form_(form), shown_(formOf(base)) { read_.cluster = base; }

  ReadForm read() {
    Cluster& cluster = read_.cluster;
    cluster.origin.clear();
    if (form_.name.trimmed().isEmpty())
      refuse(ClusterField::Name, translated("Name is empty; type one for the cluster."));
    else if (form_.name != shown_.name)
      cluster.name = form_.name.trimmed().toStdString();
    if (form_.memory != shown_.memory) {
      const auto bytes = memoryIn(form_.memory);
      if (bytes)
        cluster.memoryBytes = *bytes;
      else
        refuse(ClusterField::Memory,
               translated("Memory per device: “%1” is not a size; write for example 80 GB or 64 GiB.").arg(form_.memory));
    }
    link(form_.sameNode, shown_.sameNode, cluster.topology.sameNode, ClusterField::NodeLatency, translated("within a node"));
    link(form_.network, shown_.network, cluster.topology.network, ClusterField::NetworkLatency, translated("between nodes"));
    devices();
    return std::move(read_);
  }

 private:
  void refuse(ClusterField field, const QString& sentence, int row = -1, int column = -1) {
    read_.problems.push_back({field, row, column, sentence});
  }

  /// `latency`: the field of this link's latency, which that of its bandwidth follows.
  void link(const LinkForm& form, const LinkForm& shown, LinkSpec& link, ClusterField latency, const QString& where) {
    const auto bandwidth = static_cast<ClusterField>(static_cast<int>(latency) + 1);
    if (form.latency != shown.latency) {
      if (const auto time = latencyIn(form.latency))
        link.latency = *time;
      else
        refuse(latency, translated("Latency %1: “%2” is not a time; write for example 5 µs or 0.2 ms.").arg(where, form.latency));
    }
    if (form.bandwidth == shown.bandwidth) return;
    if (const auto rate = bandwidthIn(form.bandwidth))
      link.bytesPerSecond = *rate;
    else
      refuse(bandwidth,
             translated("Bandwidth %1: “%2” is not a rate; write for example 50 GB/s, or 400 Gb/s for bits.").arg(where, form.bandwidth));
  }

  /// As in the base where nobody changed them, however they are placed there.
  void devices() {
    Topology& topology = read_.cluster.topology;
    if (form_.nodes == shown_.nodes && form_.devicesPerNode == shown_.devicesPerNode && form_.devices == shown_.devices) return;
    const std::int64_t count = std::int64_t{form_.nodes} * form_.devicesPerNode;
    if (count > kMostDevices) {
      return refuse(ClusterField::Nodes,
                    translated("Nodes: %1 × %2 are %3 devices, more than %4; use fewer, or let nodes be as many as needed.")
                        .arg(form_.nodes)
                        .arg(form_.devicesPerNode)
                        .arg(count)
                        .arg(kMostDevices));
    }
    if (form_.nodes == 0 && !form_.devices.empty())
      return refuse(ClusterField::Nodes,
                    translated("Nodes: some devices differ, so their number must be known; set it, or remove those rows."));
    topology.ranksPerNode = form_.devicesPerNode;
    topology.ranks.resize(static_cast<std::size_t>(count));
    for (std::size_t r = 0; r < topology.ranks.size(); ++r)
      topology.ranks[r] = {1, 0, static_cast<int>(r) / form_.devicesPerNode, std::move(topology.ranks[r].own)};
    for (const RankLink& link : topology.links) {
      const int last = std::max(link.a, link.b).value;
      if (count == 0 || last < count) continue;
      refuse(ClusterField::Nodes, translated("Nodes: the cluster has a link of device %1, and %2 devices end at %3; use more.")
                                      .arg(last)
                                      .arg(count)
                                      .arg(count - 1));
      break;
    }
    std::vector<bool> named(topology.ranks.size(), false);
    for (std::size_t row = 0; row < form_.devices.size(); ++row) device(form_.devices[row], static_cast<int>(row), named);
  }

  void device(const DeviceForm& form, int row, std::vector<bool>& named) {
    RankSpec as;
    const auto speed = form.speed.trimmed().isEmpty() ? std::optional(1.0) : speedIn(form.speed);
    const auto memory = form.memory.trimmed().isEmpty() ? std::optional(Bytes{0}) : memoryIn(form.memory);
    if (!speed)
      refuse(ClusterField::Devices,
             translated("Speed of devices %1: “%2” is not a number from 0.001 to 1000; 0.5 is half as fast.").arg(form.devices, form.speed),
             row, 1);
    if (!memory)
      refuse(ClusterField::Devices,
             translated("Memory of devices %1: “%2” is not a size; write for example 40 GB.").arg(form.devices, form.memory), row, 2);
    as.speed = speed.value_or(1);
    as.memoryBytes = memory.value_or(Bytes{0});
    const auto ranges = rangesIn(form.devices);
    if (!ranges)
      return refuse(ClusterField::Devices, translated("Devices: “%1” names none; write for example 3, or 0-3, 8.").arg(form.devices), row,
                    0);
    if (form.speed.trimmed().isEmpty() && form.memory.trimmed().isEmpty())
      return refuse(ClusterField::Devices,
                    translated("Devices %1 are as the others; type their speed or memory, or remove the row.").arg(form.devices), row, 0);
    auto& ranks = read_.cluster.topology.ranks;
    for (const auto& [from, to] : *ranges) {
      if (static_cast<std::size_t>(to) >= ranks.size())
        return refuse(ClusterField::Devices,
                      translated("Devices: there is no device %1; %2 × %3 are numbered 0 to %4.")
                          .arg(to)
                          .arg(form_.nodes)
                          .arg(form_.devicesPerNode)
                          .arg(static_cast<int>(ranks.size()) - 1),
                      row, 0);
      for (auto r = static_cast<std::size_t>(from); r <= static_cast<std::size_t>(to); ++r) {
        if (named[r]) return refuse(ClusterField::Devices, translated("Devices: %1 is named twice; leave one.").arg(r), row, 0);
        named[r] = true;
        ranks[r].speed = as.speed;
        ranks[r].memoryBytes = as.memoryBytes;
      }
    }
  }

  const ClusterForm& form_;
  const ClusterForm shown_;
  ReadForm read_;
};

}  // namespace

ClusterForm formOf(const Cluster& cluster) {
  const Topology& topology = cluster.topology;
  ClusterForm form;
  form.name = QString::fromStdString(cluster.name);
  form.devicesPerNode = std::max(1, topology.ranksPerNode);
  const auto perNode = static_cast<std::size_t>(form.devicesPerNode);
  form.nodes = static_cast<int>((topology.ranks.size() + perNode - 1) / perNode);
  form.memory = memoryInput(cluster.memoryBytes);
  form.sameNode = linkForm(topology.sameNode);
  form.network = linkForm(topology.network);
  form.devices = devicesOf(topology);
  return form;
}

QString hiddenIn(const Cluster& cluster) {
  QStringList sentences;
  const auto links = static_cast<int>(cluster.topology.links.size());
  if (!isRegular(cluster.topology))
    sentences << translated("Its %1 devices are placed on nodes one by one; this stays until nodes or devices are changed.")
                     .arg(cluster.topology.ranks.size());
  if (links > 0)
    sentences << (links == 1 ? translated("A link of two devices of its own stays as it is.")
                             : translated("%1 links of two devices of their own stay as they are.").arg(links));
  if (std::ranges::any_of(cluster.topology.ranks, [](const RankSpec& rank) { return rank.own.exists(); }))
    sentences << translated("Devices with times of a profile of their own keep them.");
  return sentences.join(QLatin1Char(' '));
}

ReadForm readForm(const ClusterForm& form, const Cluster& base) {
  ReadForm read = Reader(form, base).read();
  const std::string note = translated("Figures edited by hand.").toStdString();
  if (!haveSameFigures(read.cluster, base) && !base.source.ends_with(note)) read.cluster.source += (base.source.empty() ? "" : " ") + note;
  return read;
}

bool haveSameFigures(const Cluster& a, const Cluster& b) {
  Cluster other = b;
  other.source = a.source;
  other.origin = a.origin;
  return a == other;
}

}  // namespace pw::gui
