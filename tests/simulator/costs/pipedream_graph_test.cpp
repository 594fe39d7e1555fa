#include "simulator/costs/pipedream_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "schedules/error.h"
#include "tests/support/hostile.h"

namespace pw::test {
namespace {

using testing::HasSubstr;

std::string nodeLine(const std::string& id, const std::string& op, const std::string& forward, const std::string& backward,
                     const std::string& activation, const std::string& parameters = "0.000") {
  return fmt::format("{} -- {} -- forward_compute_time={}, backward_compute_time={}, activation_size={}, parameter_size={}\n", id, op,
                     forward, backward, activation, parameters);
}

std::string edge(const std::string& from, const std::string& to) { return "\t" + from + " -- " + to + "\n"; }

std::string gnmt() {
  std::ifstream file(PW_SOURCE_DIR "/tests/data/pipedream/gnmt.graph.txt");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string refusal(const std::string& text) {
  try {
    static_cast<void>(parsePipeDream(text, "g.graph.txt"));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(PipeDreamGraph, BecomesAChainInTopologicalOrder) {
  // 1 → 2 → 10, and 1 → 3 → 10; 10 comes after 3 although its text is smaller.
  const LayerTable table = parsePipeDream(
      nodeLine("node10", "Add", "0.001", "0.002", "7.0") + nodeLine("node1", "Linear(4, 4)", "1.5", "2.001", "100.000", "64.000") +
          nodeLine("node3", "ReLU()", "0.000", "0.000", "30.0") + nodeLine("node2", "Conv2d(1, 2)", "0.25", "0.5", "20.0") +
          edge("node1", "node2") + edge("node1", "node3") + edge("node2", "node10") + edge("node3", "node10"),
      "dir/small.graph.txt");
  EXPECT_EQ(table, (LayerTable{"small",
                               1,
                               0,
                               0,
                               {{"node1.Linear", 1'500'000, 1'000'500, 1'000'500, 64, 100, 100, 100, Layer::kByLink, ""},
                                {"node2.Conv2d", 250'000, 250'000, 250'000, 0, 20, 20, 100 + 20, Layer::kByLink, ""},
                                {"node3.ReLU", 0, 0, 0, 0, 30, 30, 20 + 30, Layer::kByLink, ""},
                                {"node10.Add", 1'000, 1'000, 1'000, 0, 7, 7, 0, Layer::kByLink, ""}}}));
}

TEST(PipeDreamGraph, CountsAnElementOfAListOnce) {
  // The list crosses while its second element is still to be taken; the taken element is no copy.
  const LayerTable table =
      parsePipeDream(nodeLine("node1", "LSTM(1, 1)", "1", "1", "[100.0; 20.0; 3.0]") +
                         nodeLine("node2", "__getitem__(0)", "0", "0", "100.0") + nodeLine("node3", "__getitem__(1)", "0", "0", "20.0") +
                         nodeLine("node4", "Linear", "1", "1", "5.0") + nodeLine("node5", "Add", "1", "1", "1.0") + edge("node1", "node2") +
                         edge("node1", "node3") + edge("node2", "node4") + edge("node3", "node5") + edge("node4", "node5"),
                     "t.graph.txt");
  std::vector<Bytes> crossing, held;
  for (const Layer& layer : table.layers) {
    crossing.push_back(layer.output);
    held.push_back(layer.activations);
  }
  EXPECT_EQ(crossing, (std::vector<Bytes>{120, 120, 120, 25, 0})) << "the third element is read by nobody";
  EXPECT_EQ(held, (std::vector<Bytes>{123, 0, 0, 5, 1}));
}

TEST(PipeDreamGraph, CrossingBytesAreThoseOfValuesReadLaterInRandomGraphs) {
  std::mt19937_64 random(5);
  for (int t = 0; t < 200; ++t) {
    const int count = 2 + t % 9;
    std::string text;
    std::set<std::pair<int, int>> edges;
    std::vector<Bytes> bytes;
    for (int n = 0; n < count; ++n) {
      bytes.push_back(Bytes(std::uniform_int_distribution<std::int64_t>(0, 99)(random)));
      text += nodeLine(fmt::format("node{}", n), "Op", "1.000", "2.000", fmt::format("{}.000", bytes.back().value));
    }
    for (int n = 0; n < 2 * count; ++n) {
      const int a = std::uniform_int_distribution<int>(0, count - 2)(random),
                b = std::uniform_int_distribution<int>(a + 1, count - 1)(random);
      if (edges.emplace(a, b).second) text += edge(fmt::format("node{}", a), fmt::format("node{}", b));
    }
    const LayerTable table = parsePipeDream(text, "t.txt");
    ASSERT_EQ(table.layers.size(), static_cast<std::size_t>(count));
    for (int cut = 0; cut < count; ++cut) {  // numbers ascend along edges, so layers keep their order
      std::set<int> alive;
      for (const auto& [a, b] : edges) {
        if (a <= cut && b > cut) alive.insert(a);
      }
      Bytes sum = 0;
      for (const int a : alive) sum += bytes[static_cast<std::size_t>(a)];
      EXPECT_EQ(table.layers[static_cast<std::size_t>(cut)].name, fmt::format("node{}.Op", cut));
      EXPECT_EQ(table.layers[static_cast<std::size_t>(cut)].output, sum) << text;
    }
  }
}

TEST(PipeDreamGraph, KeepsTheSumsOfGnmt) {
  std::istringstream lines(gnmt());
  double forward = 0, backward = 0, parameters = 0;
  std::size_t nodes = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto number = [&](const std::string& key) { return std::stod(line.substr(line.find(key + "=") + key.size() + 1)); };
    if (line[0] == '\t') continue;
    ++nodes;
    forward += number("forward_compute_time");
    backward += number("backward_compute_time");
    parameters += number("parameter_size");
  }
  const LayerTable table = parsePipeDream(gnmt(), "gnmt.graph.txt");
  Layer sum{};
  for (const Layer& layer : table.layers) {
    sum.forward += layer.forward;
    sum.input += layer.input + layer.weight;
    sum.parameters += layer.parameters;
  }
  EXPECT_EQ(table.layers.size(), nodes);
  EXPECT_NEAR(static_cast<double>(sum.forward), forward * 1e6, 1);
  EXPECT_NEAR(static_cast<double>(sum.input), backward * 1e6, 1);
  EXPECT_NEAR(static_cast<double>(sum.parameters), parameters, 1);
}

TEST(PipeDreamGraph, RefusesWhatIsNoGraph) {
  const std::string one = nodeLine("node1", "Op", "1", "1", "1");
  EXPECT_EQ(refusal(one), "accepted");
  EXPECT_THAT(refusal(""), HasSubstr("no nodes"));
  EXPECT_THAT(refusal("{}\n"), HasSubstr("line 1 is no node"));
  EXPECT_THAT(refusal(one + one), HasSubstr("line 2 repeats a node"));
  EXPECT_THAT(refusal(one + edge("node1", "node2")), HasSubstr("names node2, which is no node"));
  EXPECT_THAT(refusal(one + edge("node1", "node1")), HasSubstr("cycle"));
  EXPECT_THAT(refusal(one + "\tnode1\n"), HasSubstr("line 2 is no edge"));
  for (const char* bad : {"-1", "nan", "inf", "1e300", "x", ""}) {
    EXPECT_THAT(refusal(nodeLine("node1", "Op", bad, "1", "1")), HasSubstr("forward_compute_time")) << bad;
  }
  EXPECT_THAT(refusal(nodeLine("node1", "Op", "1", "1", "[1.0; 2.0")), HasSubstr("does not end"));
}

TEST(PipeDreamGraph, SurvivesDamage) {
  const auto damage = [](std::mt19937_64& random) {
    std::string text = gnmt();
    for (int i = 0; i < 4; ++i) {
      const auto at = std::uniform_int_distribution<std::size_t>(0, text.size() - 1)(random);
      text[at] = static_cast<char>(std::uniform_int_distribution<int>(0, 255)(random));
    }
    return text;
  };
  const Survived survived = survive("PipeDream graph", mutations(300), damage, [](const std::string& text) {
    const LayerTable table = parsePipeDream(text, "g.graph.txt");
    EXPECT_EQ(parseLayerTable(toJson(table), "g.json"), table);
  });
  EXPECT_GT(survived.refused, 0U);
}

}  // namespace
}  // namespace pw::test
