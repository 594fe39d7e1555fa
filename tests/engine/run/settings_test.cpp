#include "engine/run/settings.h"

#include <gtest/gtest.h>

#include <string>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "tests/support/graph_builder.h"

namespace pw {
namespace {

/// Why a plan is refused whose one stage on rank 0 has an embedding that is shortened (max_norm) and a head tied to it; "" where it is not.
std::string refusalOfTiedEmbedding(const std::string& schedule, int ranks, int microbatches, bool evaluates = false) {
  test::GraphBuilder g;
  const ValueId tokens = g.input("tokens"), table = g.parameter("table");
  g.call("embedding_renorm_", {{"self", table}, {"indices", tokens}, {"max_norm", 1.0}, {"norm_type", 2.0}}, "shortened");
  const ValueId rows = g.call("embedding", {{"weight", table}, {"indices", tokens}}, "rows");
  const ModelGraph graph = g.done(g.call("linear", {{"input", rows}, {"weight", table}}, "y"));
  Plan plan;
  plan.modelName = "tied";
  plan.schedule = generate(schedule, {ranks, ranks, microbatches});
  plan.partition.stages.resize(static_cast<std::size_t>(ranks));
  plan.partition.stages.front().parameters = {0};
  RunSettings settings;
  settings.request.evaluates = evaluates;
  try {
    refuseForModel(settings, plan, graph);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

/// The head's backward reads the table as autograd kept it: F0 B0 F1 B1 lets nothing come between, F0 F1 B0 B1 does.
TEST(RefuseForModel, NamesAParameterThatChangesBetweenAForwardAndItsBackward) {
  EXPECT_EQ(refusalOfTiedEmbedding("1f1b", 1, 4), "");
  EXPECT_EQ(refusalOfTiedEmbedding("gpipe", 1, 1), "");
  EXPECT_EQ(refusalOfTiedEmbedding("gpipe", 1, 4, true), "");
  for (const auto& [schedule, ranks] : {std::pair{"gpipe", 1}, {"1f1b", 2}, {"zb-h1", 2}}) {
    const std::string why = refusalOfTiedEmbedding(schedule, ranks, 4);
    EXPECT_NE(why.find("the forward of tied changes the parameter table"), std::string::npos) << schedule << why;
  }
}

}  // namespace
}  // namespace pw
