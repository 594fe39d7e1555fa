// From the options of `plan` and `search` to a plan, without measuring.
#include "engine/planning/plan_model.h"

#include <gtest/gtest.h>

#include "backends/resources/resources.h"
#include "engine/planning/search_model.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/costs/estimate.h"
#include "simulator/step/simulate.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

const std::string kModel = PW_SOURCE_DIR "/resources/models/gpt_small.pt2";
constexpr const char* kCluster = "cpu-workstation";

PlanOptions options() {
  PlanOptions options;
  options.models = {kModel};
  options.cluster = kCluster;
  options.ranks = 2;
  options.microbatches = 4;
  return options;
}

std::string refusalOf(const PlanOptions& given) {
  return usageErrorOf([&] { static_cast<void>(planModel(given, {})); });
}

TEST(PlanModel, IsItsPartsPutTogetherByHand) {
  const PlannedModel planned = planModel(options(), {});
  const ModelGraph graph = loadModel({kModel});
  const Profile profile = estimate(graph, exportedBatch(graph), loadCluster(kCluster));
  PlanRequest request;
  request.ranks = 2;
  request.microbatches = 4;
  request.microbatch = exportedBatch(graph);
  request.batch = 4 * exportedBatch(graph);
  request.loss = defaultLoss(graph);
  request.begins = balancedSplits(graph, profile, 2, Balance::Time);
  const Schedule rows = planRows(generate("1f1b", {2, 2, 4}), 1);
  const Priced priced = price(request, graph, profile, rows);
  EXPECT_EQ(planned.profile, profile);
  EXPECT_EQ(planned.request.begins, request.begins);
  EXPECT_EQ(planned.plan.schedule, rows);
  EXPECT_EQ(planned.plan.partition, priced.partition);
  EXPECT_EQ(planned.plan.costs, priced.costs);
  EXPECT_EQ(planned.trace, simulate(rows, priced.costs)) << "plain SGD has no state";
}

TEST(PlanModel, FillsInDefaultsAndSaysSo) {
  PlanOptions given = options();
  given.microbatches = 0;
  const PlannedModel planned = planModel(given, {});
  EXPECT_TRUE(planned.microbatchesByDefault);
  EXPECT_EQ(planned.options.microbatches, 4 * 2) << "4 R";
  EXPECT_EQ(planned.plan.loss, defaultLoss(planned.graph));
  EXPECT_FALSE(planned.tooLarge);
}

TEST(PlanModel, SplitsWhereTheOptionsSay) {
  PlanOptions given = options();
  given.splits = {"blocks.1"};
  const PlannedModel planned = planModel(given, {});
  ASSERT_EQ(planned.request.begins.size(), 1U);
  EXPECT_EQ(planned.request.begins.front(), findSplit(planned.graph, "blocks.1"));
  given.splits = {"no.such.module"};
  EXPECT_NE(refusalOf(given).find("no.such.module"), std::string::npos);
}

TEST(PlanModel, NamesTheFirstRankThatIsTooLarge) {
  PlanOptions given = options();
  given.memoryLimit = "1KiB";
  const PlannedModel planned = planModel(given, {});
  ASSERT_TRUE(planned.tooLarge);
  EXPECT_EQ(*planned.tooLarge, Rank(0));
  EXPECT_EQ(planned.limits, (std::vector<Bytes>{1024, 1024}));
  EXPECT_NE(tooLargeSentence(planned).find("1.00 KiB"), std::string::npos) << tooLargeSentence(planned);
  const auto suggests = [](PlannedModel tooLarge, const Recompute& recompute) {
    tooLarge.options.recompute = recompute;
    return tooLargeSentence(tooLarge).find("--recompute auto") != std::string::npos;
  };
  EXPECT_TRUE(suggests(planned, RecomputeNone()));
  EXPECT_FALSE(suggests(planned, RecomputeAuto())) << "it was given";
}

TEST(PlanModel, CountsTheOptimizersState) {
  PlanOptions given = options();
  given.optimizer.kind = OptimizerSpec::Kind::AdamW;
  const PlannedModel planned = planModel(given, {});
  for (const StageCost& stage : planned.costs.stages) EXPECT_EQ(stage.optimizerBytes, 2 * stage.updatedBytes) << "exp_avg and exp_avg_sq";
  EXPECT_EQ(planned.plan.optimizer->update.kind, OptimizerSpec::Kind::AdamW);
  given.optimizer.momentum = 0.9;
  EXPECT_NE(refusalOf(given).find("--momentum does not apply to adamw"), std::string::npos);
}

TEST(PlanModel, RefusesWhatContradictsItself) {
  PlanOptions given = options();
  given.recompute = RecomputeAuto();
  EXPECT_NE(refusalOf(given).find("set --memory-limit"), std::string::npos);
  given = options();
  given.recompute = RecomputeModules{{"no.such.module"}};
  EXPECT_NE(refusalOf(given).find("has no module no.such.module"), std::string::npos);
  given = options();
  given.batch = 3;
  EXPECT_NE(refusalOf(given).find("A batch of 3 cannot be cut into 4 microbatches"), std::string::npos);
  given = options();
  given.how.device = OnGpus();
  EXPECT_NE(refusalOf(given).find("estimated costs for a cluster are not measured now"), std::string::npos);
}

TEST(MeasuredPeaks, AreOfThePresetThatNamesTheGpu) {
  const ModelGraph graph = test::chain(2);
  Profile measured;
  measured.computing = {.onGpu = true, .precision = DType::BFloat16};
  measured.machine.processor = "NVIDIA H100 80GB HBM3";
  EXPECT_EQ(peakOfGpu(graph, measured), 989.5e12) << "data sheet, without sparsity";
  measured.computing.precision = DType::Unknown;
  EXPECT_EQ(peakOfGpu(graph, measured), 67e12) << "float32";
  measured.computing.tf32 = true;
  EXPECT_EQ(peakOfGpu(graph, measured), 494.5e12);
  measured.machine.processor = "NVIDIA H100 80GB HBM3 MIG 1g.10gb";
  EXPECT_EQ(peakOfGpu(graph, measured), 0) << "a part of one";
  measured.machine.processor = "";
  EXPECT_EQ(peakOfGpu(graph, measured), 0);
  measured = {};
  measured.machine.processor = "NVIDIA H100 80GB HBM3";
  EXPECT_EQ(peakOfGpu(graph, measured), 0) << "measured on the CPU beside it";
}

TEST(MeasureDevices, AreTheirNamesAndNothingElse) {
  for (const MeasureDevice& device : {MeasureDevice(OnCpus()), MeasureDevice(OnGpus()), MeasureDevice(OnGpu{0}), MeasureDevice(OnGpu{12})})
    EXPECT_EQ(parseMeasureDevice(nameOf(device)), device) << nameOf(device);
  EXPECT_EQ(nameOf(MeasureDevice(OnGpu{3})), "cuda:3");
  for (const char* other : {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999999999", "CPU"})
    EXPECT_EQ(usageErrorOf([&] { static_cast<void>(parseMeasureDevice(other)); }),
              "There is no device '" + std::string(other) + "'; give cpu, cuda, or cuda:0 and so on.");
  EXPECT_EQ(gpuNumber({}), std::nullopt);
  EXPECT_EQ(gpuNumber({.device = OnCpus()}), std::nullopt);
  EXPECT_EQ(gpuNumber({.device = OnGpus()}), 0);
  EXPECT_EQ(gpuNumber({.device = OnGpu{5}}), 5);
}

TEST(SearchedModels, AreListedByWhatLeadsAndWhatIsOnTheFront) {
  Found found;
  for (const double rate : {9.0, 7.0, 8.0, 6.0}) {
    Candidate& c = found.candidates.emplace_back();
    c.samplesPerSecond = rate;
    c.leads = rate != 7.0;
    c.onFront = rate < 9.0;
  }
  const auto rates = [](const std::vector<const Candidate*>& list) {
    std::vector<double> each;
    for (const Candidate* c : list) each.push_back(c->samplesPerSecond);
    return each;
  };
  EXPECT_EQ(rates(bestOf(found, 2)), (std::vector<double>{9, 8})) << "in their order";
  EXPECT_EQ(rates(bestOf(found, 9)), (std::vector<double>{9, 8, 6}));
  EXPECT_EQ(rates(frontOf(found)), (std::vector<double>{8, 7, 6})) << "fastest first";
}

TEST(SearchedModels, GiveThePlanOfACandidate) {
  SearchOptions search;
  search.models = {kModel};
  search.cluster = kCluster;
  search.ranks = 2;
  search.microbatches = {4};
  search.schedules = {"1f1b"};
  search.noRecompute = true;
  const SearchedModel searched = searchModel(search, {}, {});
  ASSERT_FALSE(searched.found.candidates.empty());
  const Candidate& best = searched.found.candidates.front();
  const Plan plan = planOf(searched, best);
  EXPECT_EQ(plan.schedule.name, "1f1b");
  CostTable costs = plan.costs;
  EXPECT_EQ(metricsOf(simulate(plan.schedule, costs)).step, best.step) << "plain SGD has no state";
  search.ranks = 0;
  EXPECT_NE(usageErrorOf([&] { static_cast<void>(searchModel(search, {}, {})); }), "no error");
}

}  // namespace
}  // namespace pw::test
