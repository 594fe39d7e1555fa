#include "app/gui/document/document.h"

#include <gtest/gtest.h>

#include <map>

#include <QSignalSpy>
#include <QTest>
#include <nlohmann/json.hpp>

#include "app/gui/document/loading.h"
#include "app/gui/document/project.h"
#include "backends/host/files.h"
#include "engine/planning/plan_model.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/job/job_json.h"
#include "simulator/job/recover.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "tests/app/gui/constants.h"
#include "tests/support/folder.h"

namespace pw::gui {
namespace {

/// A document with the small GPT, predicted.
struct DocumentTest : testing::Test {
  void SetUp() override {
    document.adopt(*loadFiles({kGpt}, {}));
    ASSERT_TRUE(predicted());
  }
  bool predicted() {
    return QTest::qWaitFor([this] { return !document.isPredicting(); }, kLongMs);
  }
  Document document;
};

TEST_F(DocumentTest, PredictsAFreshModelAsABalancedPipeline) {
  const PlanRequest& r = document.design().request;
  EXPECT_EQ(r.schedule, "1f1b");
  EXPECT_EQ(r.ranks, 4);
  EXPECT_EQ(r.begins.size(), 3U);
  ASSERT_NE(document.prediction(), nullptr);
  EXPECT_GT(document.prediction()->makespan, 0);
  EXPECT_FALSE(document.isModified());
}

TEST_F(DocumentTest, AModelThatTheClusterUsedLastDoesNotHoldIsPlannedForOneThatDoes) {
  Cluster small = document.cluster();
  small.name = "mine";
  small.memoryBytes = 1'000;
  small.topology.ranks.resize(2);
  const auto loaded = loadFiles({kGpt}, {}, toJson(small));
  EXPECT_EQ(loaded->design.cluster, "cpu-workstation");
  EXPECT_EQ(loaded->notes, QStringList("Planned for 4 ranks of cpu-workstation, the smallest preset that holds this model; choose another "
                                       "under Plan."));
  document.adopt(*loaded);
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.problem(), "");
  small = document.cluster();  // of which one device holds less
  small.topology.ranks = {{}, {1, 1'000, 0, {}}, {}, {}};
  EXPECT_EQ(loadFiles({kGpt}, {}, toJson(small))->notes, loaded->notes);
}

TEST_F(DocumentTest, AnOrderOfAFileIsAsGoodAsTheFileSaysUntilThePlanChanges) {
  document.edit("Schedule", [](Design& d) {
    d.request.schedule = "auto";
    d.request.ranks = 2;
    d.request.microbatches = 4;
  });
  ASSERT_TRUE(predicted() && QTest::qWaitFor([&] { return !document.isOrdering(); }, 60'000));
  Plan plan = document.plan();
  plan.certificate = document.certificate();
  ASSERT_TRUE(plan.certificate);
  const test::Folder folder;
  document.adopt(*loadFiles({folder.with("plan.json", toJson(plan))}, {}));
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.certificate(), plan.certificate);
  document.edit("Microbatch size", [](Design& d) { d.request.microbatch *= 2; });
  ASSERT_TRUE(predicted());
  EXPECT_FALSE(document.certificate());
  document.undo();
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.certificate(), plan.certificate);
  document.edit("Attention", [](Design& d) { d.attention = Attention::Unfused; });
  ASSERT_TRUE(predicted());
  EXPECT_FALSE(document.certificate()) << "of other costs";
}

TEST_F(DocumentTest, PlansAJobOfAnotherProgramAsItRan) {
  MeasuredJob measured{.name = "job"};
  SyntheticCosts costs{.forward = {1'200'000}, .backward = {2'400'000}, .backwardInput = {}, .backwardWeight = {}, .overlap = {}};
  measured.steps.push_back({"step 1", simulate(generate("1f1b", {3, 3, 5}), syntheticTable(costs, 3)), {}});
  const test::Folder folder;
  document.adopt(*loadFiles({folder.with("job.json", toJson(jobOf(measured)))}, {}));
  ASSERT_TRUE(predicted());
  const PlanRequest& r = document.design().request;
  EXPECT_EQ(r.schedule, "1f1b");
  EXPECT_EQ(r.ranks, 3);
  EXPECT_EQ(r.microbatches, 5);
  ASSERT_NE(document.prediction(), nullptr);
  EXPECT_EQ(document.prediction()->makespan, (5 + 2) * 3'600'000);
}

/// The prediction shown is then still the one before.
TEST_F(DocumentTest, LimitsOfRanksAreThePlansWhileTheClusterHasTooFew) {
  document.adopt(*loadFiles({kGpt}, {}));
  ASSERT_TRUE(predicted());
  const auto before = document.prediction();
  ASSERT_EQ(before->ranks.size(), 4U);
  Cluster small = document.cluster();
  small.topology.ranks = {{1, 1'000, 0, {}}, {1, 1'000, 0, {}}};
  document.edit("Two devices", [&](Design& d) {
    d.cluster = toJson(small);
    d.request.memoryLimit = 5'000;
  });
  ASSERT_TRUE(predicted());
  EXPECT_NE(document.problem(), "");
  EXPECT_EQ(document.prediction(), before);
  EXPECT_EQ(document.rankLimits(), std::vector<Bytes>(4, 5'000));
}

TEST_F(DocumentTest, UndoesAndRedoesEachEdit) {
  const Design first = document.design();
  document.edit("Ranks", [](Design& d) { d.request.ranks = 2; });
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.design().request.begins.size(), 1U) << "another number of stages is balanced again";
  const Design second = document.design();
  EXPECT_EQ(document.undoText(), "Ranks");
  document.undo();
  EXPECT_EQ(document.design(), first);
  EXPECT_FALSE(document.isModified());
  document.redo();
  EXPECT_EQ(document.design(), second);
}

TEST_F(DocumentTest, MakesAWholeDragOneStep) {
  const Design first = document.design();
  document.beginDrag("Move split");
  for (std::size_t i = 0; i < 5; ++i) {
    document.edit("Move split", [&](Design& d) { d.request.begins[1] = document.splitPoints()[6 + i].begin; });
  }
  document.endDrag(true);
  EXPECT_NE(document.design(), first);
  document.undo();
  EXPECT_EQ(document.design(), first);
  EXPECT_TRUE(document.undoText().isEmpty());
}

TEST_F(DocumentTest, ForgetsADragThatIsGivenUp) {
  const Design first = document.design();
  document.beginDrag("Move split");
  document.edit("Move split", [](Design& d) { d.request.begins[0].value += 1; });
  document.endDrag(false);
  EXPECT_EQ(document.design(), first);
  EXPECT_TRUE(document.undoText().isEmpty());
}

TEST_F(DocumentTest, KeepsTheLastPredictionWhereADesignCannotBePredicted) {
  const auto before = document.prediction();
  document.edit("Recompute", [](Design& d) { d.request.recompute = RecomputeAuto(); });  // needs a limit
  ASSERT_TRUE(predicted());
  EXPECT_FALSE(document.problem().isEmpty());
  EXPECT_EQ(document.prediction(), before);
  EXPECT_THROW(static_cast<void>(document.plan()), UsageError);
  document.undo();
  ASSERT_TRUE(predicted());
  EXPECT_TRUE(document.problem().isEmpty());
}

TEST_F(DocumentTest, ShowsTheNewestOfManyEdits) {
  for (int m = 1; m <= 60; ++m) document.edit("Microbatches", [m](Design& d) { d.request.microbatches = m; });
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.prediction()->rows->microbatches, 60);
}

TEST_F(DocumentTest, MakesThePlanItPredicts) {
  document.edit("Schedule", [](Design& d) {
    d.request.schedule = "zbv";
    d.request.ranks = 2;
    d.request.chunks = 2;
  });
  ASSERT_TRUE(predicted());
  const Plan plan = document.plan();
  EXPECT_EQ(parsePlan(toJson(plan), "plan"), plan);
  EXPECT_EQ(plan.partition.stages.size(), 4U);
  EXPECT_EQ(metricsOf(simulate(plan.schedule, plan.costs)).makespan, document.prediction()->makespan);
}

TEST_F(DocumentTest, MakesAnOrderForTheCostsAndAgainWhenASplitMoves) {
  const auto ordered = [&] { return predicted() && QTest::qWaitFor([&] { return !document.isOrdering(); }, 60'000); };
  document.edit("Schedule", [](Design& d) {
    d.request.schedule = "zb-h1";
    d.request.ranks = 2;
    d.request.chunks = 1;
    d.request.microbatches = 6;
  });
  ASSERT_TRUE(predicted());
  const Ns family = document.prediction()->makespan;
  EXPECT_FALSE(document.certificate());
  document.edit("Schedule", [](Design& d) { d.request.schedule = "auto"; });
  ASSERT_TRUE(ordered());
  ASSERT_TRUE(document.certificate()) << document.problem().toStdString();
  EXPECT_EQ(document.certificate()->time, document.prediction()->makespan);
  EXPECT_LE(document.prediction()->makespan, family);
  const Plan plan = document.plan();
  EXPECT_EQ(plan.schedule.name, "auto");
  EXPECT_EQ(metricsOf(simulate(plan.schedule, plan.costs)).makespan, document.prediction()->makespan);
  const Design first = document.design();
  document.beginDrag("Move split");
  for (std::size_t i = 0; i < document.splitPoints().size(); ++i)
    document.edit("Move split", [&](Design& d) { d.request.begins[0] = document.splitPoints()[i].begin; });
  document.endDrag(true);
  ASSERT_TRUE(ordered());
  ASSERT_TRUE(document.certificate());
  EXPECT_EQ(document.certificate()->time, document.prediction()->makespan) << "of the last split";
  document.undo();
  ASSERT_TRUE(ordered());
  EXPECT_EQ(document.design(), first);
  EXPECT_EQ(document.prediction()->makespan, metricsOf(simulate(plan.schedule, plan.costs)).makespan);
  // A saved plan has its order, whatever a search would find later.
  const test::Folder folder;
  const auto loaded = loadFiles({folder.with("plan.json", toJson(plan))}, {});
  ASSERT_TRUE(loaded->design.customRows);
  EXPECT_EQ(*loaded->design.customRows, plan.schedule);
}

TEST_F(DocumentTest, TakesTheClusterOfAPlanThatWasEstimatedForOne) {
  document.edit("Cluster", [](Design& d) { d.cluster = "h100-nvlink"; });
  ASSERT_TRUE(predicted());
  const test::Folder folder;
  EXPECT_EQ(loadFiles({folder.with("plan.json", toJson(document.plan()))}, {})->design.cluster, "h100-nvlink");
  document.edit("Links and precision", [](Design& d) {
    d.cluster = "h100-nvlink+ethernet-25";
    d.precision = DType::BFloat16;
    d.attention = Attention::Unfused;
  });
  ASSERT_TRUE(predicted());
  const Ns step = document.prediction()->step;
  const auto opened = loadFiles({folder.with("plan.json", toJson(document.plan()))}, {});
  EXPECT_EQ(opened->design.cluster, "h100-nvlink+ethernet-25");
  EXPECT_EQ(opened->design.precision, DType::BFloat16);
  EXPECT_EQ(opened->design.attention, Attention::Unfused);
  EXPECT_EQ(opened->design.profile, nullptr) << "estimated again, so that it follows the cluster";
  document.adopt(*opened);
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.prediction()->step, step);
}

TEST_F(DocumentTest, OpensAPlanWithItsOptimizerAndSharing) {
  document.adopt(*loadFiles({PW_SOURCE_DIR "/resources/models/hf_gpt2.pt2"}, {}));  // whose head is its embedding
  ASSERT_TRUE(predicted());
  for (const auto sharing : {std::optional<Sharing>(), std::optional(Sharing::Transmit), std::optional(Sharing::Replicate)}) {
    document.edit("Optimizer", [&](Design& d) {
      d.request.replicas = 2;
      d.request.optimizer.kind = OptimizerSpec::Kind::AdamW;
      d.request.zero1 = true;
      d.request.sharing = sharing;
    });
    ASSERT_TRUE(predicted());
    const Plan plan = document.plan();
    ASSERT_FALSE(plan.partition.shared.empty());
    const test::Folder folder;
    const auto opened = loadFiles({folder.with("plan.json", toJson(plan))}, {});
    EXPECT_EQ(opened->design.request.optimizer.kind, OptimizerSpec::Kind::AdamW);
    EXPECT_TRUE(opened->design.request.zero1);
    if (!sharing) {
      EXPECT_EQ(opened->design.request.sharing, std::nullopt) << "chosen anew when the plan changes";
    }
    document.adopt(*opened);
    ASSERT_TRUE(predicted());
    if (sharing) {
      EXPECT_EQ(document.plan().partition.shared.front().sharing, *sharing);
    }
    EXPECT_EQ(document.plan().partition.shared, plan.partition.shared);
    EXPECT_EQ(document.plan().costs, plan.costs);
    EXPECT_EQ(document.plan().optimizer, plan.optimizer);
  }
}

TEST_F(DocumentTest, KeepsTheSplitsOfEachReplicaUntilOneMoves) {
  const test::Folder folder;
  auto cluster = nlohmann::json::parse(readFile(PW_SOURCE_DIR "/resources/clusters/cpu-workstation.json"));
  cluster["ranks"] = nlohmann::json::parse(R"([{"speed": 1}, {"speed": 0.4}, {"speed": 0.4}, {"speed": 1}])");
  const std::string mixed = folder.with("mixed.json", cluster.dump());
  PlanOptions options;
  options.models = {kGpt};
  options.ranks = options.replicas = 2;
  options.microbatches = 8;
  options.cluster = mixed;
  const PlannedModel planned = planModel(options, {});
  ASSERT_TRUE(planned.plan.cuts);
  document.adopt(*loadFiles({folder.with("plan.json", toJson(planned.plan))}, {}));
  ASSERT_TRUE(predicted());
  const auto own = document.design().request.replicaBegins;
  ASSERT_EQ(own.size(), 2U);
  EXPECT_NE(own[0], own[1]);
  ASSERT_EQ(document.problem(), "");
  EXPECT_EQ(document.plan().cuts, planned.plan.cuts);
  EXPECT_EQ(parseProject(toJson(Project{document.design(), "", ""}), "p").design.request, document.design().request);
  document.edit("Microbatches", [](Design& d) { d.request.microbatches = 12; });
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.design().request.replicaBegins, own);
  const Ns before = document.prediction()->step;
  document.edit("Move split", [&](Design& d) { d.request.begins = own[0] == d.request.begins ? own[1] : own[0]; });
  ASSERT_TRUE(predicted());
  EXPECT_TRUE(document.design().request.replicaBegins.empty()) << "all replicas have the splits shown";
  EXPECT_GT(document.prediction()->step, before);
  document.undo();
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.design().request.replicaBegins, own);
  EXPECT_EQ(document.prediction()->step, before);
}

TEST_F(DocumentTest, OpensALayerTableAndMovesItsSplits) {
  const test::Folder folder;
  const std::string table = folder.with("four.csv",
                                        "name,forward_ns,backward_ns,parameter_bytes,activation_bytes,output_bytes\n"
                                        "a,1,3,10,7,3\nb,1,3,10,7,3\nc,1,3,10,7,3\nd,1,3,10,7,0\n");
  document.adopt(*loadFiles({table}, {}));
  ASSERT_TRUE(predicted());
  ASSERT_EQ(document.problem(), "");
  ASSERT_EQ(document.splitPoints().size(), 3U);
  EXPECT_EQ(document.splitPoints()[0].name, "b");
  document.edit("Shape", [](Design& d) {
    d.request.schedule = "gpipe";
    d.request.ranks = 2;
    d.request.microbatches = 3;
  });
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.prediction()->makespan, (3 + 1) * (2 + 6)) << "(M + R − 1)(F + B) of two equal stages";
  document.edit("Split", [](Design& d) { d.request.begins = {NodeId(1)}; });
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.prediction()->makespan, 1 + 3 * (3 + 9) + 3) << "the larger stage, and the smaller one before and after it";
  const Plan plan = document.plan();
  EXPECT_EQ(plan.splitNames, std::vector<std::string>{"b"});
  const auto again = loadFiles({folder.with("plan.json", toJson(plan))}, {});
  EXPECT_EQ(again->graph->nodes.size(), 4U);
  EXPECT_TRUE(again->notes.empty());
  EXPECT_THROW(static_cast<void>(loadFiles({folder.with("bad.csv", "name,forward_ns\n")}, {})), UsageError);
}

TEST_F(DocumentTest, SaysHowToOpenMeasuredLayersOfOtherTools) {
  try {
    (void)loadFiles({PW_SOURCE_DIR "/tests/data/pipedream/gnmt.graph.txt"}, {});
    FAIL() << "it was opened";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("`pipewright import gnmt.graph.txt --out layers.json`"), std::string::npos) << error.what();
  }
}

TEST_F(DocumentTest, OpensTracesOfOtherToolsWhateverTheirFilesAreCalled) {
  const std::string data = PW_SOURCE_DIR "/tests/data/";
  const test::Folder folder;
  const std::string spans = folder.with("spans.csv", "rank,kind,stage,microbatch,peer,bytes,start_ns,end_ns\n0,F,0,0,0,0,0,5\n");
  // The number of steps that each holds.
  const std::map<std::vector<std::string>, std::size_t> traces{
      {{data + "foreign/nsight.sqlite"}, 2U},
      {{folder.with("runs.db", test::contentOf(data + "foreign/nsight.sqlite"))}, 2U},
      {{data + "foreign/chakra.0.et", data + "foreign/chakra.1.et"}, 2U},
      {{data + "torch_traces/zbv"}, 2U},
      {{data + "torch_traces/1f1b/rank0.json.gz"}, 2U},
      {{spans}, 1U},
  };
  for (const auto& [paths, steps] : traces) {
    const auto loaded = loadFiles(paths, {});
    ASSERT_TRUE(loaded) << paths.front();
    EXPECT_EQ(loaded->measured.size(), steps) << paths.front();
    EXPECT_FALSE(loaded->hasDesign);
  }
}

TEST_F(DocumentTest, ComesBackFromItsProject) {
  document.edit("Microbatches", [](Design& d) {
    d.request.microbatches = 12;
    d.request.recompute = RecomputeFull();
    d.request.memoryLimit = 1 << 30;
  });
  const Project project{document.design(), "runs.db", QByteArray("{\"a\":1}")};
  const Project back = parseProject(toJson(project), "p");
  EXPECT_EQ(back.design, project.design);
  EXPECT_EQ(back.store, project.store);
  EXPECT_EQ(back.view, project.view);
}

TEST_F(DocumentTest, RefusesDamagedProjects) {
  EXPECT_THROW(static_cast<void>(parseProject("", "p")), UsageError);
  EXPECT_THROW(static_cast<void>(parseProject("{}", "p")), UsageError);
  std::string newer = toJson(Project{document.design(), {}, {}});
  newer.replace(newer.find("\"pipewright_project\": 1"), 23, "\"pipewright_project\": 9");
  try {
    static_cast<void>(parseProject(newer, "p"));
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("newer version"), std::string::npos);
  }
  const std::string good = toJson(Project{document.design(), {}, {}});
  for (std::size_t cut = 0; cut < good.size(); cut += 7)
    EXPECT_THROW(static_cast<void>(parseProject(good.substr(0, cut), "p")), UsageError) << cut;
}

}  // namespace
}  // namespace pw::gui
