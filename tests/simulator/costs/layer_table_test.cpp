#include "simulator/costs/layer_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "schedules/error.h"
#include "simulator/costs/layer_chain.h"
#include "tests/support/hostile.h"

namespace pw::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Two layers that use every field.
LayerTable sample() {
  LayerTable table{"gpt-2", 4, 30, 0.125, {}, 12};
  table.layers.push_back({"embed", 7, 0, 3, 1000, 500, 500, 64, 3, "front.embed"});
  table.layers.push_back({"head, \"last\"", 900, 950, 850, 10, 0, 20, 0, Layer::kByLink, ""});
  table.layers[1].optimizer = 44;
  return table;
}

LayerTable read(const std::string& text, const std::string& source = "t.json") { return parseLayerTable(text, source); }

/// A table of one layer with these members besides its name.
LayerTable oneLayer(const std::string& members) { return read(R"({"layers": [{"name": "a", )" + members + "}]}"); }

constexpr const char* kRest = R"(, "parameter_bytes": 1, "activation_bytes": 8, "output_bytes": 3)";

std::string refusal(const std::string& text, const std::string& source = "t.json") {
  try {
    static_cast<void>(read(text, source));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LayerTable, IsReadFromTheFormThatTheFormatsShow) {
  const LayerTable table = read(R"({"version": 1, "name": "gpt-96", "microbatch": 1,
     "layers": [{"name": "blocks.0", "forward_ns": 900, "input_ns": 950, "weight_ns": 850,
                 "parameter_bytes": 1000, "activation_bytes": 500, "output_bytes": 64, "sent_ns": 3}]})");
  EXPECT_EQ(table, (LayerTable{"gpt-96", 1, 0, 0, {{"blocks.0", 900, 950, 850, 1000, 500, 500, 64, 3, ""}}}));
  EXPECT_EQ(read("name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes,sent_ns\r\n"
                 "blocks.0,900,950,850,1000,500,64,3\r\n",
                 "dir/gpt-96.csv"),
            table);
}

TEST(LayerTable, IsReadFromWhatSpreadsheetsWrite) {
  const LayerTable wanted = read("name,forward_ns,backward_ns,parameter_bytes,activation_bytes,output_bytes\na,1,2,3,40,5\n", "t.csv");
  EXPECT_EQ(read("name;forward_ns;backward_ns;parameter_bytes;activation_bytes;output_bytes\r\na;1;2;3;40;5\r\n", "t.csv"), wanted);
  EXPECT_EQ(read("name\tforward_ns\tbackward_ns\tparameter_bytes\tactivation_bytes\toutput_bytes\na\t1\t2\t3\t40\t5\n", "t.csv"), wanted);
  EXPECT_EQ(read("name, forward_ns, backward_ns, parameter_bytes, activation_bytes, output_bytes\n\"a\" , 1, 2.0, 3, 40.00, 5\n", "t.csv"),
            wanted);
  EXPECT_THAT(refusal("name;forward_ns;backward_ns;parameter_bytes;activation_bytes;output_bytes\na;1.000;2;3;40;5\n", "t.csv"),
              HasSubstr("layer a has \"1.000\" as `forward_ns`"))
      << "one, or a thousand";
  EXPECT_EQ(read(R"({"version": 1, "name": "t", "microbatch": 1, "layers": [
      {"name": "a", "forward_ns": 1.0, "backward_ns": 2e0, "parameter_bytes": 3, "activation_bytes": 40.0, "output_bytes": 5}]})")
                .layers,
            wanted.layers);
  const std::string header = "name,forward_ns,backward_ns,parameter_bytes,activation_bytes,output_bytes\n";
  for (const char* bad : {"1.5", "1.", ".0", "-1.0", "1.0e1", "1.0.0"})
    EXPECT_THAT(refusal(header + "a," + bad + ",2,3,4,5\n", "t.csv"), HasSubstr("layer a has")) << bad;
}

TEST(LayerTable, IsReadBackAsItWasWritten) {
  EXPECT_EQ(read(toJson(sample())), sample());
  EXPECT_EQ(read(toCsv(sample()), "gpt-2.csv"), sample());
  EXPECT_EQ(tableOf(chainOf(sample(), "/t.json")), sample()) << "as a model";
  LayerTable blank = sample();
  blank.layers[0].name = " blank, around ";
  blank.layers[1].name = " blank";
  EXPECT_EQ(read(toCsv(blank), "gpt-2.csv"), blank);
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    LayerTable table{"t", std::uniform_int_distribution<std::int64_t>(1, 3)(random), Ns(i % 7), 0.1 * i, {}};
    for (int l = 0; l < 1 + i % 5; ++l) {
      const auto draw = [&] { return std::uniform_int_distribution<std::int64_t>(0, i % 2 == 0 ? 3 : 1LL << 55)(random); };
      table.layers.push_back({"l\"," + std::to_string(l), Ns(draw()), Ns(draw()), Ns(draw()), Bytes(draw()), Bytes(draw()), Bytes(draw()),
                              Bytes(draw()), i % 3 == 0 ? Layer::kByLink : Ns(draw()), i % 4 == 0 ? "m, \"x\"" : ""});
    }
    EXPECT_EQ(read(toJson(table)), table);
    EXPECT_EQ(read(toCsv(table), "t.csv"), table);
  }
}

TEST(LayerTable, TakesTheWholeBackwardForItsParts) {
  const auto parts = [](const std::string& members) {
    const Layer layer = oneLayer(members + kRest).layers[0];
    return std::pair(layer.input, layer.weight);
  };
  EXPECT_EQ(parts(R"("forward_ns": 1, "backward_ns": 7)"), std::pair(Ns{3}, Ns{4})) << "half, rounded down, for the inputs";
  EXPECT_EQ(parts(R"("forward_ns": 1, "backward_ns": 7, "input_ns": 6)"), std::pair(Ns{6}, Ns{1}));
  EXPECT_EQ(parts(R"("forward_ns": 1, "backward_ns": 7, "weight_ns": 7)"), std::pair(Ns{0}, Ns{7}));
  EXPECT_EQ(parts(R"("forward_ns": 1, "backward_ns": 7, "input_ns": 5, "weight_ns": 2)"), std::pair(Ns{5}, Ns{2}));
}

TEST(LayerTable, KeepsActivationsUntilTheWeightsUnlessItSaysWhat) {
  EXPECT_EQ(oneLayer(std::string(R"("forward_ns": 1, "backward_ns": 2)") + kRest).layers[0].afterInput, 8);
  EXPECT_EQ(oneLayer(std::string(R"("forward_ns": 1, "backward_ns": 2, "activation_after_input_bytes": 5)") + kRest).layers[0].afterInput,
            5);
}

TEST(LayerTable, RefusesWhatIsWrongByFileLayerAndKey) {
  const auto one = [](const std::string& members) { return refusal(R"({"layers": [{"name": "a", )" + members + "}]}", "dir/t.json"); };
  const std::string good = std::string(R"("forward_ns": 1, "backward_ns": 2)") + kRest;
  EXPECT_EQ(one(good), "accepted");
  EXPECT_THAT(one(R"("forward_ns": 1, "backward_ns": 2, "parameter_bytes": 1, "activation_bytes": 8)"),
              AllOf(HasSubstr("dir/t.json"), HasSubstr("layer a lacks `output_bytes`")));
  EXPECT_THAT(one(std::string(R"("forward_ns": 1, "input_ns": 2)") + kRest), HasSubstr("layer a lacks `weight_ns`"));
  for (const char* bad : {"-1", "1.5", "1e300", "\"7\"", "null", "true", "[1]", "99999999999999999999"}) {
    EXPECT_THAT(one(std::string(R"("backward_ns": 2, "forward_ns": )") + bad + kRest), HasSubstr("layer a has")) << bad;
  }
  EXPECT_THAT(one(std::string(R"("forward_ns": 1, "backward_ns": 2, "input_ns": 1, "weight_ns": 2)") + kRest), HasSubstr("not the sum"));
  EXPECT_THAT(one(R"("activation_byte": 3, "send_ns": 3, )" + good), HasSubstr("layer a has `send_ns`, which is no cost of a layer"));
  const std::string layer = R"({"name": "a", )" + good + "}";
  for (const char* misspelt : {"action_overhed_ns", "optimiser_ns_per_byte", "parameter_bytes"}) {
    EXPECT_THAT(refusal(std::string(R"({")") + misspelt + R"(": 1, "layers": [)" + layer + "]}"),
                HasSubstr(std::string("it has `") + misspelt + "`, which is no figure of a table"));
  }
  EXPECT_THAT(refusal("{\"layers\": [" + layer + "," + layer + "]}"), HasSubstr("layer a is there twice"));
  EXPECT_THAT(refusal(R"({"layers": []})"), HasSubstr("no layers"));
  EXPECT_THAT(refusal(R"({"version": 2, "layers": []})"), HasSubstr("version 2"));
  EXPECT_THAT(refusal(R"({"microbatch": 0, "layers": []})"), HasSubstr("`microbatch`"));
  EXPECT_THAT(refusal(R"({"layers": [{"name": "a\u001b[2J", )" + good + "}]}"), HasSubstr("control characters"));
  const std::string huge = std::string(R"("forward_ns": 3000000000000000000, "backward_ns": 0)") + kRest;
  EXPECT_THAT(refusal(R"({"layers": [{"name": "a", )" + huge + R"(}, {"name": "b", )" + huge + "}]}"),
              HasSubstr("layer b makes the sum of `forward_ns` too large"));
  const std::string header = "name,forward_ns,backward_ns,parameter_bytes,activation_bytes,output_bytes\n";
  EXPECT_EQ(refusal(header + "a,1,2,3,4,5\n", "t.csv"), "accepted");
  EXPECT_THAT(refusal(header + "a,1,2,3,4\n", "t.csv"), HasSubstr("line 2 has 5 cells, the header 6"));
  EXPECT_THAT(refusal(header + "a,1,2,3,4,5x\n", "t.csv"), HasSubstr("layer a has \"5x\" as `output_bytes`"));
  EXPECT_THAT(refusal(header + "a,1,,3,4,5\n", "t.csv"), HasSubstr("layer a lacks `input_ns`"));
  EXPECT_THAT(refusal(header + "\"a,1,2,3,4,5\n", "t.csv"), HasSubstr("quote that does not end"));
  EXPECT_THAT(refusal(header, "t.csv"), HasSubstr("no layers"));
  EXPECT_THAT(refusal("0F0,,0B0\n", "t.csv"), HasSubstr("header"));
  EXPECT_THAT(refusal("microbatch," + header + "4,a,1,2,3,4,5\n5,b,1,2,3,4,5\n", "t.csv"), HasSubstr("layer b has another `microbatch`"));
  EXPECT_THAT(refusal("name,name\n", "t.csv"), HasSubstr("twice"));
}

TEST(LayerTable, SurvivesDamage) {
  const auto use = [](const std::string& text) {
    const LayerTable table = read(text);
    EXPECT_EQ(read(toJson(table)), table);
    EXPECT_FALSE(profileOf(chainOf(table, "/t.json")).nodes.empty());
  };
  const Survived json = survive(
      "layer table", mutations(1500), [](auto& random) { return damaged(toJson(sample()), random); }, use);
  EXPECT_GT(json.refused, 0U);
  EXPECT_GT(json.accepted, 0U);
  const auto csv = [](std::mt19937_64& random) {
    std::string text = toCsv(sample());
    for (int i = 0; i < 2; ++i) {
      const auto at = std::uniform_int_distribution<std::size_t>(0, text.size() - 1)(random);
      text[at] = static_cast<char>(std::uniform_int_distribution<int>(0, 255)(random));
      if (i == 1 && at % 7 == 0) text.resize(at + 1);
    }
    return text;
  };
  EXPECT_GT(survive("layer table as CSV", mutations(1500), csv, use).refused, 0U);
}

}  // namespace
}  // namespace pw::test
