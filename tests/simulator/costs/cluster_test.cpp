#include "simulator/costs/cluster.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "schedules/error.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

std::string preset(const std::string& name) {
  std::ifstream in(std::string(PW_SOURCE_DIR) + "/resources/clusters/" + name + ".json", std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error("the text has no " + from);
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& json) {
  try {
    (void)parseCluster(json, "my.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Cluster, PresetsAreReadAndSurviveARoundTrip) {
  int presets = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::string(PW_SOURCE_DIR) + "/resources/clusters")) {
    if (file.path().extension() != ".json") continue;
    ++presets;
    const std::string name = file.path().stem().string();
    const Cluster cluster = parseCluster(preset(name), name);
    EXPECT_EQ(cluster.name, name);
    EXPECT_FALSE(cluster.source.empty());
    for (const char* dtype : {"fp32", "tf32", "bf16", "fp16"}) EXPECT_GT(cluster.peakFlops.at(dtype), 0) << name;
    EXPECT_GE(cluster.efficiency.at("default").size(), 2u);
    EXPECT_EQ(parseCluster(toJson(cluster), name), cluster);
  }
  EXPECT_GE(presets, 4);
}

TEST(Cluster, PresetFiguresAreDenseAndPerDirection) {
  const Cluster h100 = parseCluster(preset("h100-nvlink"), "h100-nvlink");
  EXPECT_DOUBLE_EQ(h100.peakFlops.at("bf16"), 1979e12 / 2);            // data sheet, with sparsity
  EXPECT_DOUBLE_EQ(h100.topology.sameNode.bytesPerSecond, 900e9 / 2);  // both directions together
  EXPECT_DOUBLE_EQ(h100.topology.network.bytesPerSecond, 400e9 / 8);
}

TEST(Cluster, RefusesANewerVersionByNumber) {
  const std::string message = refusal(replaced(preset("h100-nvlink"), "\"version\": 1", "\"version\": 2"));
  EXPECT_NE(message.find("my.json"), std::string::npos) << message;
  EXPECT_NE(message.find("version 2"), std::string::npos) << message;
}

TEST(Cluster, RefusesBadFieldsByName) {
  const std::string good = preset("a100-pcie");
  ASSERT_EQ(refusal(good), "");
  const auto expect = [](const std::string& json, const std::string& what) {
    EXPECT_EQ(refusal(json), "my.json is not a usable cluster: " + what + "; resources/clusters has examples.");
  };
  expect("nonsense", "it is not JSON, or truncated (line 1, column 2)");
  expect("[]", "it is not a JSON object");
  expect("{}", "it lacks `version`");
  expect(replaced(good, "ranks_per_node\": 4", "ranks_per_node\": 0"), "`ranks_per_node` is 0, outside 1 to 4096");
  expect(replaced(good, "latency_ns\": 2000", "latency_ns\": -1"), "`links.same_device.latency_ns` is -1, outside 0 to 1000000000000");
  expect(replaced(good, "latency_ns\": 2000", "latency_ns\": 18446744073709551615"),
         "`links.same_device.latency_ns` is not an integer in range: 18446744073709551615");
  expect(replaced(good, "same_node", "node"), "it lacks `links.same_node`");
  expect(replaced(good, "0.002", "1.5"), "`device.efficiency.default[0][1]` is 1.5, more than 1");
  expect(replaced(good, "[10000000.0, 0.01]", "[10.0, 0.01]"), "`device.efficiency.default` is not ordered by ascending FLOPs");
  const auto withRanks = [&](const std::string& ranks) {
    return replaced(good, "\"ranks_per_node\": 4", "\"ranks_per_node\": 4, \"ranks\": " + ranks);
  };
  ASSERT_EQ(refusal(withRanks("[{\"count\": 8}]")), "");
  expect(withRanks("[{\"speed\": 0}]"), "`ranks[0].speed` is 0, less than 0.001");
  expect(withRanks("[{}, {\"memory_bytes\": 0}]"), "`ranks[1].memory_bytes` is 0, outside 1 to 1152921504606846976");
  expect(withRanks("[{\"count\": 99999999}]"), "`ranks[0].count` is 99999999, outside 1 to 1048576");
  expect(withRanks("[{\"spede\": 1}]"), "`ranks[0]` has the unknown member spede; it takes speed, profile, memory_bytes, node, count");
  expect(replaced(withRanks("[{}]"), "\"ranks\":", "\"rank\":"),
         "it has the unknown member rank; it takes version, name, source, device, ranks_per_node, links, ranks");
  expect(replaced(withRanks("[{}]"), "\"same_node\":", "\"betwen\": [], \"same_node\":"),
         "`links` has the unknown member betwen; it takes same_device, same_node, network, between");
  expect(replaced(withRanks("[{}, {}]"), "\"links\": {",
                  R"("links": {"between": [{"ranks": [0, 2], "latency_ns": 1, "bytes_per_s": 1e9, "duplex": true}],)"),
         "`links.between[0].ranks[1]` is 2, outside 0 to 1");
  expect(replaced(withRanks("[{}, {}]"), "\"links\": {",
                  R"("links": {"between": [{"ranks": [0, 1], "latency_ns": 1, "bytes_per_s": 1e9, "duplex": true},)"
                  R"({"ranks": [1, 0], "latency_ns": 2, "bytes_per_s": 1e9, "duplex": true}],)"),
         "`links.between[1].ranks` names two ranks whose link has been given");
  expect(replaced(good, "\"bf16\": [\n", "\"bf61\": [\n"), "`device.efficiency` has bf61, of which there is no peak");
  expect(replaced(good, "\"duplex\": true", "\"duplex\": 1"), "`links.same_device.duplex` is not true or false");
  expect(replaced(good, "\"duplex\": true", "\"duplex\": false"),
         "`links.same_device.duplex` is false, and links that serve one direction at a time are not simulated; use true");
}

TEST(TransferTime, IsBytesOverBandwidthWithoutTheLatency) {
  EXPECT_EQ(transferTime({5000, 2e9}, 1'000'000), 500'000);
  EXPECT_EQ(transferTime({5000, 3e9}, 1), 0);  // 0.33 ns
  EXPECT_EQ(transferTime({5000, 3e9}, 2), 1);  // 0.67 ns
  EXPECT_EQ(transferTime({5000, 0}, 1'000'000), 0);
}

TEST(FitLink, RecoversAnExactLink) {
  const LinkSpec link = fitLink({std::pair(Bytes{1000}, Ns{130'000 + 500}), std::pair(Bytes{1'000'000}, Ns{130'000 + 500'000}),
                                 std::pair(Bytes{16'000'000}, Ns{130'000 + 8'000'000})});
  EXPECT_EQ(link.latency, 130'000);
  EXPECT_NEAR(link.bytesPerSecond, 2e9, 1);
}

TEST(FitLink, SmallMessagesCountAsMuchAsLargeOnes) {
  // 1000 ns + 0.5 ns a byte, but the largest message 10 % slower: that pulls the slope to about 0.52, and the latency by 1 %
  // where residuals are relative (1000 bytes took 1500 ns). Unweighted, the two large ones alone would set it, at about −550 µs.
  const LinkSpec link = fitLink({{100, 1'050}, {1'000, 1'500}, {10'000'000, 5'001'000}, {100'000'000, 55'001'000}});
  EXPECT_NEAR(static_cast<double>(link.latency), 1000, 30);
  EXPECT_NEAR(1e9 / link.bytesPerSecond, 0.524, 0.005);
}

TEST(FitLink, IsBetterThanNearbyLinesAndNeverNegative) {
  const auto badness = [](const std::vector<std::pair<Bytes, Ns>>& times, double latency, double perByte) {
    double sum = 0;
    for (const auto& [bytes, time] : times) {
      const double relative = (latency + perByte * static_cast<double>(bytes)) / static_cast<double>(time) - 1;
      sum += relative * relative;
    }
    return sum;
  };
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::vector<std::pair<Bytes, Ns>> times;
    for (int i = 0; i < 6; ++i) times.emplace_back(test::draw(random, 1, 1000) * 1000 + i, test::draw(random, 1'000'000, 9'000'000));
    const LinkSpec link = fitLink(times);
    ASSERT_GE(link.latency, 0);
    ASSERT_GE(link.bytesPerSecond, 0);
    const auto latency = static_cast<double>(link.latency);
    const double perByte = link.bytesPerSecond > 0 ? 1e9 / link.bytesPerSecond : 0;
    const double best = badness(times, latency, perByte);
    for (const double a : {0.0, 0.9 * latency, 1.1 * latency, latency + 1e5}) {
      for (const double b : {0.0, 0.9 * perByte, 1.1 * perByte, perByte + 0.1}) EXPECT_LE(best, badness(times, a, b) + 1e-9);
    }
  }
}

TEST(FitLink, TimesThatFallWithSizeGiveAFreeLink) {
  const LinkSpec link = fitLink({{1, 3000}, {1000, 2000}});
  EXPECT_EQ(link.bytesPerSecond, 0);
  EXPECT_GE(link.latency, 2000);
  EXPECT_LE(link.latency, 3000);
}

TEST(FitLink, NeedsTwoSizes) {
  EXPECT_THROW((void)fitLink({}), UsageError);
  EXPECT_THROW((void)fitLink({{8, 100}, {8, 110}}), UsageError);
}

TEST(Cluster, EfficienciesAreOfEachPrecision) {
  const Cluster a100 = parseCluster(preset("a100-nvlink"), "a100-nvlink");
  EXPECT_DOUBLE_EQ(efficiencyAt(a100, "bf16", 1e12), 0.74) << "measured";
  EXPECT_DOUBLE_EQ(efficiencyAt(a100, "tf32", 1e12), 0.7);
  EXPECT_DOUBLE_EQ(efficiencyAt(a100, "bf16", 1e14), 0.74) << "beyond the table";
  EXPECT_DOUBLE_EQ(efficiencyAt(a100, "fp32", std::sqrt(1e11 * 1e12)), (0.65 + 0.7) / 2) << "halfway on the logarithm";
  EXPECT_DOUBLE_EQ(efficiencyAt({}, "fp32", 1), 1);
}

TEST(Links, ReplaceThoseOfAClusterAndSayWhereTheyAreFrom) {
  const std::string file = std::string(PW_SOURCE_DIR) + "/resources/links.json";
  std::ifstream stream(file);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  const std::vector<NamedLink> links = parseLinks(text, file);
  EXPECT_GE(links.size(), 8U);
  const Cluster h100 = parseCluster(preset("h100-nvlink"), "h100-nvlink");
  for (const NamedLink& link : links) {
    const Cluster other = withLink(h100, link);
    EXPECT_EQ(other.name, "h100-nvlink+" + link.name);
    EXPECT_NE(other.source.find(link.source), std::string::npos);
    EXPECT_EQ(other.topology.network, link.betweenNodes ? link.link : h100.topology.network);
    EXPECT_EQ(other.topology.sameNode, link.betweenNodes ? h100.topology.sameNode : link.link);
    EXPECT_EQ(parseCluster(toJson(other), "other"), other);
  }
  EXPECT_THROW(static_cast<void>(parseLinks(R"({"version": 2, "links": {}})", "newer")), UsageError);
  EXPECT_THROW(static_cast<void>(parseLinks(R"({"version": 1, "links": {"a": {"connects": "moon"}}})", "moon")), UsageError);
}

}  // namespace
}  // namespace pw
