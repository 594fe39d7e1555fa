// Figures of clusters as they are typed, and the form that a cluster is edited in.
#include "app/gui/cluster/form.h"

#include <gtest/gtest.h>

#include <QStringList>
#include <random>

#include "app/gui/cluster/figures.h"
#include "backends/host/files.h"
#include "backends/resources/resources.h"

namespace pw::gui {
namespace {

Cluster preset(const std::string& name) {
  qputenv("PIPEWRIGHT_RESOURCES", PW_SOURCE_DIR "/resources");
  return loadCluster(name);
}
Cluster mixedRack() { return preset(PW_SOURCE_DIR "/resources/examples/mixed_rack.json"); }

TEST(ClusterFigures, AreReadWithTheirUnits) {
  EXPECT_EQ(latencyIn("5 µs"), 5'000);
  EXPECT_EQ(latencyIn("5us"), 5'000);
  EXPECT_EQ(latencyIn(" 0.2 ms "), 200'000);
  EXPECT_EQ(latencyIn("0"), 0);
  EXPECT_EQ(bandwidthIn("450 GB/s"), 450e9);
  EXPECT_EQ(bandwidthIn("400 Gb/s"), 50e9) << "bits";
  EXPECT_EQ(bandwidthIn("1.8 TB/s"), 1.8e12);
  EXPECT_EQ(bandwidthIn("0"), 0);
  EXPECT_EQ(memoryIn("80 GB"), 80'000'000'000);
  EXPECT_EQ(memoryIn("64GiB"), Bytes{64} << 30);
  EXPECT_EQ(speedIn("0.5"), 0.5);
}

TEST(ClusterFigures, RefuseWhatTheyCannotBe) {
  for (const char* text : {"", "5", "5 parsecs", "-5 µs", "1e9 s", "nan us", "0x5 us", "5 µs later", "1,5 ms"})
    EXPECT_FALSE(latencyIn(text)) << text;
  for (const char* text : {"", "450", "GB/s", "-1 GB/s", "0.5 B/s", "inf GB/s", "1e99 TB/s", "450 GB"})
    EXPECT_FALSE(bandwidthIn(text)) << text;
  for (const char* text : {"", "0", "80", "80 gigabytes", "-1 GB", "2e6 TiB"}) EXPECT_FALSE(memoryIn(text)) << text;
  for (const char* text : {"", "0", "-1", "fast", "1001", "0.0001", "nan"}) EXPECT_FALSE(speedIn(text)) << text;
}

TEST(ClusterFigures, AreWrittenAsTheyAreReadAgain) {
  std::mt19937_64 random(5);
  for (int run = 0; run < 20'000; ++run) {
    const auto value = static_cast<std::int64_t>(random() >> (random() % 60 + 4));
    const Ns latency(value % 1'000'000'000'000);
    ASSERT_EQ(latencyIn(latencyInput(latency)), latency) << latency;
    const Bytes bytes(value % (std::int64_t{1} << 50) + 1);
    ASSERT_EQ(memoryIn(memoryInput(bytes)), bytes) << bytes << " " << memoryInput(bytes).toStdString();
    const double rate = 1 + static_cast<double>(random()) / static_cast<double>(1 + random() % 1'000'000);
    ASSERT_EQ(bandwidthIn(bandwidthInput(rate)), rate);
  }
  EXPECT_EQ(latencyInput(5'000), "5 µs");
  EXPECT_EQ(latencyInput(1'500), "1.5 µs");
  EXPECT_EQ(bandwidthInput(450e9), "450 GB/s");
  EXPECT_EQ(memoryInput(Bytes(80'000'000'000)), "80 GB");
  EXPECT_EQ(memoryInput(Bytes{64} << 30), "64 GiB");
}

TEST(ClusterForm, OfEveryPresetIsTheSameCluster) {
  std::vector<Cluster> all{mixedRack()};
  for (const std::string& name : clusterPresets()) all.push_back(loadCluster(name));
  ASSERT_GE(all.size(), 14U);
  for (const Cluster& cluster : all) {
    const ReadForm read = readForm(formOf(cluster), cluster);
    EXPECT_TRUE(read.problems.empty()) << cluster.name;
    EXPECT_TRUE(haveSameFigures(read.cluster, cluster)) << cluster.name;
    EXPECT_EQ(read.cluster.source, cluster.source) << "nothing was edited";
  }
}

TEST(ClusterForm, ShowsDevicesThatDiffer) {
  const ClusterForm form = formOf(mixedRack());
  EXPECT_EQ(form.nodes, 2);
  EXPECT_EQ(form.devicesPerNode, 4);
  const std::vector<DeviceForm> rows{{"2", "0.6", ""}, {"6-7", "", "40 GB"}};
  EXPECT_EQ(form.devices, rows);
}

TEST(ClusterForm, MakesTheClusterThatIsTyped) {
  const Cluster base = preset("h100-nvlink");
  ClusterForm form = formOf(base);
  form.name = "two boxes";
  form.nodes = 2;
  form.devicesPerNode = 4;
  form.memory = "96 GB";
  form.sameNode = {"3 µs", "200 GB/s"};
  form.network = {"20 µs", "100 Gb/s"};
  form.devices = {{"1, 6–7", "0.5", ""}, {"0", "", "40 GiB"}};
  const auto [cluster, problems] = readForm(form, base);
  ASSERT_TRUE(problems.empty()) << problems.front().sentence.toStdString();
  EXPECT_EQ(cluster.name, "two boxes");
  EXPECT_EQ(cluster.memoryBytes, 96'000'000'000);
  const Topology& topology = cluster.topology;
  EXPECT_EQ(topology.sameNode, (LinkSpec{3'000, 200e9}));
  EXPECT_EQ(topology.network, (LinkSpec{20'000, 12.5e9}));
  const std::vector<RankSpec> ranks{
      {1, Bytes{40} << 30, 0}, {0.5, 0, 0}, {1, 0, 0}, {1, 0, 0}, {1, 0, 1}, {1, 0, 1}, {0.5, 0, 1}, {0.5, 0, 1}};
  EXPECT_EQ(topology.ranks, ranks);
  EXPECT_EQ(cluster.peakFlops, base.peakFlops) << "as it was";
  EXPECT_TRUE(cluster.source.ends_with("Figures edited by hand."));
  EXPECT_EQ(parseCluster(toJson(cluster), "itself"), cluster) << "what a file of it says";
}

TEST(ClusterForm, SaysWhatIsWrongWithEachField) {
  const Cluster base = preset("h100-nvlink");
  const auto sentence = [&](const std::function<void(ClusterForm&)>& change, ClusterField field) {
    ClusterForm form = formOf(base);
    change(form);
    const auto [cluster, problems] = readForm(form, base);
    EXPECT_EQ(problems.size(), 1U);
    EXPECT_TRUE(haveSameFigures(cluster, base) || field == ClusterField::Devices || field == ClusterField::Nodes)
        << "nothing of it is taken";
    if (problems.empty() || problems.front().field != field) return QString();
    return problems.front().sentence;
  };
  EXPECT_EQ(sentence([](ClusterForm& f) { f.sameNode.latency = "5 parsecs"; }, ClusterField::NodeLatency),
            "Latency within a node: “5 parsecs” is not a time; write for example 5 µs or 0.2 ms.");
  EXPECT_EQ(sentence([](ClusterForm& f) { f.network.bandwidth = "50"; }, ClusterField::NetworkBandwidth),
            "Bandwidth between nodes: “50” is not a rate; write for example 50 GB/s, or 400 Gb/s for bits.");
  EXPECT_EQ(sentence([](ClusterForm& f) { f.memory = "much"; }, ClusterField::Memory),
            "Memory per device: “much” is not a size; write for example 80 GB or 64 GiB.");
  EXPECT_EQ(sentence([](ClusterForm& f) { f.name = " "; }, ClusterField::Name), "Name is empty; type one for the cluster.");
  EXPECT_TRUE(sentence([](ClusterForm& f) { f.devices = {{"3", "0.5", ""}}; }, ClusterField::Nodes).contains("their number must be known"));
  EXPECT_TRUE(sentence([](ClusterForm& f) { f.nodes = 65536; }, ClusterField::Nodes).contains("use fewer"));
  const auto device = [&](const DeviceForm& row, const DeviceForm& other = {"0", "0.9", ""}) {
    return sentence([&](ClusterForm& f) { f.nodes = 1, f.devices = {other, row}; }, ClusterField::Devices);
  };
  EXPECT_EQ(device({"8", "0.5", ""}), "Devices: there is no device 8; 1 × 8 are numbered 0 to 7.");
  EXPECT_EQ(device({"0-3", "0.5", ""}), "Devices: 0 is named twice; leave one.");
  for (const char* text : {"", "x", "3-1", "1--2", "1-2-3", "-1", "1;2"})
    EXPECT_TRUE(device({text, "0.5", ""}).contains("names none")) << text;
  EXPECT_EQ(device({"3", "", " "}), "Devices 3 are as the others; type their speed or memory, or remove the row.");
  EXPECT_TRUE(device({"3", "fast", ""}).startsWith("Speed of devices 3"));
  EXPECT_TRUE(device({"3", "", "40"}).startsWith("Memory of devices 3"));
}

TEST(ClusterForm, KeepsWhatItDoesNotShowAndSaysSo) {
  Cluster cluster = mixedRack();
  EXPECT_EQ(hiddenIn(cluster), "");
  std::swap(cluster.topology.ranks[0].node, cluster.topology.ranks[7].node);
  cluster.topology.links.push_back({JobRank(3), JobRank(4), {9'000, 5e9}});
  EXPECT_TRUE(hiddenIn(cluster).contains("one by one")) << hiddenIn(cluster).toStdString();
  EXPECT_TRUE(hiddenIn(cluster).contains("A link of two devices"));
  ClusterForm form = formOf(cluster);
  form.memory = "1 GB";
  EXPECT_EQ(readForm(form, cluster).cluster.topology, cluster.topology);
  cluster.topology.ranks[5].own = {"/rack/a100.json", nullptr};
  EXPECT_TRUE(hiddenIn(cluster).contains("profile of their own"));
  ClusterForm slower = formOf(cluster);
  slower.devices.push_back({"0", "0.5", ""});
  const std::vector<RankSpec> ranks = readForm(slower, cluster).cluster.topology.ranks;
  EXPECT_EQ(ranks[5].own, cluster.topology.ranks[5].own);
  EXPECT_EQ(ranks[0].speed, 0.5);
  form.nodes = 1;
  const ReadForm fewer = readForm(form, cluster);
  ASSERT_FALSE(fewer.problems.empty());
  EXPECT_TRUE(fewer.problems.front().sentence.contains("link of device 4")) << fewer.problems.front().sentence.toStdString();
}

}  // namespace
}  // namespace pw::gui
