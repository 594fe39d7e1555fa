// Damaged plans, profiles, clusters and problem files: what is accepted is used, all else is refused in one sentence.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/costs/cluster.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/problem_file.h"
#include "simulator/plan/plan_fits.h"
#include "simulator/plan/planner.h"
#include "simulator/report/json.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "simulator/step/program.h"
#include "simulator/text/json_part.h"
#include "simulator/text/json_text.h"
#include "tests/support/graph_builder.h"
#include "tests/support/hostile.h"

namespace pw::test {
namespace {

constexpr std::size_t kUsual = 1500;

ModelGraph model() {
  GraphBuilder b;
  const ValueId x = b.input("x"), table = b.parameter("table", "s"), w = b.parameter("w"), head = b.parameter("head", "s");
  const ValueId mask = b.op("add", {b.buffer("buffer"), b.constant("constant")}, "mask");
  const ValueId h = b.op("linear", {x, table}, "h");
  const ValueId m = b.op("linear", {h, w}, "m");
  const ValueId l = b.op("linear", {m, head}, "l");
  return b.done(b.op("addcmul", {l, h, mask}, "y"));
}

Cluster cluster() {
  std::ifstream file(std::string(PW_SOURCE_DIR) + "/resources/clusters/a100-nvlink.json");
  std::ostringstream text;
  text << file.rdbuf();
  return parseCluster(text.str(), "preset");
}

PlanRequest request() {
  PlanRequest r;
  r.ranks = 3;
  r.microbatches = 4;
  r.microbatch = 2;
  r.begins = {NodeId(2), NodeId(3)};
  r.optimizer.kind = OptimizerSpec::Kind::AdamW;
  return r;
}

Plan plan() {
  const ModelGraph graph = model();
  const Profile profile = estimate(graph, 2, cluster());
  const Schedule rows = planRows(generate("1f1b", {3, 3, 4}), 1);
  return planOf(request(), graph, profile, rows, price(request(), graph, profile, rows), {});
}

/// All that `simulate` does with a schedule and its costs.
void predictAll(const Schedule& rows, const CostTable& costs) {
  const Program program = compile(rows, costs, Sending::Overlapped);
  Times times;
  execute(program, times);
  const Trace trace = traceOf(rows, costs, program, times);
  ASSERT_FALSE(predictionJson(predict(rows, costs, program, times, trace, true), rows, costs).empty());
}

void survivesJson(const std::string& name, const std::string& seed, const std::function<void(const std::string&)>& read) {
  ASSERT_NO_THROW(read(seed)) << "the seed itself is sound";
  const Survived survived = survive(
      name, mutations(kUsual), [&](std::mt19937_64& random) { return damaged(seed, random); }, read);
  EXPECT_GT(survived.refused, 0U);
}

TEST(HostileJson, PlansAreSimulatedOrRefused) {
  survivesJson("plans", toJson(plan()), [](const std::string& text) {
    const Plan read = parsePlan(text, "plan.json");
    ASSERT_EQ(parsePlan(toJson(read), "again"), read);
    predictAll(read.schedule, read.costs);
    requireFits(read, model());
  });
}

TEST(HostileJson, ProfilesPriceAPlanOrAreRefused) {
  const Schedule rows = planRows(generate("zbv", {2, 4, 4}), 2);
  PlanRequest wanted = request();
  wanted.replicas = 2;
  wanted.begins = {NodeId(2), NodeId(3), NodeId(4)};
  survivesJson("profiles", toJson(estimate(model(), 2, cluster())), [&](const std::string& text) {
    const Profile read = parseProfile(text, "p.json");
    ASSERT_EQ(parseProfile(toJson(read), "again"), read);
    const Priced priced = price(wanted, model(), read, rows);
    predictAll(rows, priced.costs);
  });
}

TEST(HostileJson, ClustersPriceAPlanOrAreRefused) {
  const Schedule rows = planRows(generate("1f1b", {3, 3, 4}), 1);
  survivesJson("clusters", toJson(cluster()), [&](const std::string& text) {
    const Cluster read = parseCluster(text, "c.json");
    ASSERT_EQ(parseCluster(toJson(read), "again"), read);
    const Priced priced = price(request(), model(), estimate(model(), 2, read), rows);
    predictAll(rows, priced.costs);
  });
}

TEST(HostileJson, ProblemFilesAreSimulatedOrRefused) {
  const std::string seed =
      R"({"ranks": 2, "microbatches": 3, "place": [0, 1, 1, 0], "forward_ns": [10, 10, 12, 9], "input_ns": [8, 9, 10, 11], "weight_ns": [4, 5, 6, 7],
    "activation": [5, 5, 5, 5], "activation_after_input": [1, 2, 3, 4], "latency_ns": [3], "limit": [100, 100], "objective": "window"})";
  survivesJson("problem files", seed, [](const std::string& text) {
    const ProblemFile read = parseProblem(text, "problem.json");
    if (read.shape.stages != 2 * read.shape.ranks || read.shape.microbatches > 64) return;
    const Schedule rows = lower(generate("zbv", read.shape));
    if (rows.placement.rankOfStage != read.placement.rankOfStage) return;
    predictAll(rows, read.costs);
  });
}

TEST(HostileJson, EveryFieldIsRefusedByItsPathAndWhatItShouldBe) {
  const JsonDocument document{"sizes.json", "list of sizes", "write one"};
  const auto json = document.parse(R"({"a": [1, {"b": "text"}], "n": 1.5})");
  const JsonPart part(json, document);
  const auto refusal = [](const auto& read) {
    try {
      static_cast<void>(read());
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const auto expect = [&](const std::string& what, const auto& read) {
    EXPECT_EQ(refusal(read), "sizes.json is not a usable list of sizes: " + what + "; write one.");
  };
  expect("it lacks `c`", [&] { return part["c"].json().size(); });
  expect("it lacks `a[2]`", [&] { return part["a"][2].json().size(); });
  expect("it lacks `a[1].c`", [&] { return part["a"][1]["c"].json().size(); });
  expect("`a[1].b` is not a list", [&] { return part["a"][1]["b"].size(); });
  expect("`a[1].b` is not true or false", [&] { return part["a"][1]["b"].as<bool>(); });
  expect("`a[1].b` is not a number", [&] { return part["a"][1]["b"].as<double>(); });
  expect("`n` is not an integer in range: 1.5", [&] { return part["n"].as<int>(); });
  expect("`n` is not a string", [&] { return part["n"].as<std::string>(); });
  expect("`a` is not a JSON object", [&] { return part["a"].keys(); });
  expect("`a[0]` is 1, outside 2 to 3", [&] { return part["a"][0].within(2, 3); });
  EXPECT_EQ(part["a"][0].within<int>(1, 1), 1);
  EXPECT_EQ(part["a"][1].keys(), std::vector<std::string>{"b"});
}

TEST(HostileJson, IsRefusedByPlaceDepthAndMemberNames) {
  const JsonDocument document{"sizes.json", "list of sizes", "write one"};
  const auto refusal = [&](const std::string& text) {
    try {
      static_cast<void>(document.parse(text));
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal("{\n  \"a\": [1, 2,,]}"),
            "sizes.json is not a usable list of sizes: it is not JSON, or truncated (line 2, column 14); write one.");
  EXPECT_EQ(refusal("{\"a\": 1, \"a\": 2}"), "sizes.json is not a usable list of sizes: it has \"a\" twice in one object; write one.");
  EXPECT_EQ(refusal("[1e400]"),
            "sizes.json is not a usable list of sizes: it contains a number that is too large (line 1, column 6); write one.");
  EXPECT_EQ(refusal(std::string(256, '[') + std::string(256, ']')), "accepted");
  EXPECT_EQ(refusal(std::string(257, '[') + std::string(257, ']')),
            "sizes.json is not a usable list of sizes: it is nested more than 256 levels deep; write one.");
  EXPECT_EQ(refusal(std::string(117'000, '[')),
            "sizes.json is not a usable list of sizes: it is nested more than 256 levels deep; write one.");
  std::string many = "{";
  for (int i = 0; i <= 1024; ++i) many += (i > 0 ? ", \"" : "\"") + std::to_string(i) + "\": 0";
  EXPECT_NE(refusal(many + "}").find("more than 1024 members"), std::string::npos);
  for (const char* text : {"", "nul", "{\"a\": \"\xFF\"}", "[1] 2", "{\"a\"}", "\x01"})
    EXPECT_NE(refusal(text).find("it is not JSON"), std::string::npos) << text;
}

TEST(Cluster, RefusesFiguresThatOverflowOrNameThemWhenATimeDoes) {
  const auto refusal = [](const char* from, const char* to) {
    std::string text = toJson(cluster());
    text.replace(text.find(from), std::string(from).size(), to);
    try {
      const Cluster read = parseCluster(text, "c.json");
      static_cast<void>(price(request(), model(), estimate(model(), 2, read), planRows(generate("1f1b", {3, 3, 4}), 1)));
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const std::string bad = "c.json is not a usable cluster: ", see = "; resources/clusters has examples.";
  EXPECT_EQ(refusal("\"latency_ns\": 5000", "\"latency_ns\": 9223372036854775807"),
            bad + "`links.same_node.latency_ns` is 9223372036854775807, outside 0 to 1000000000000" + see);
  EXPECT_EQ(refusal("\"bytes_per_s\": 300000000000.0", "\"bytes_per_s\": 1e-300"),
            bad + "`links.same_node.bytes_per_s` is 1e-300; use 0, or 1 per second or more" + see);
  EXPECT_EQ(refusal("19500000000000.0", "1e308"), bad + "`device.peak_flops.fp32` is 1e+308, more than 1e+24" + see);
}

}  // namespace
}  // namespace pw::test
