// The figures of a plan: of which plan they are, and what they mean.
#include "app/gui/plan/results.h"

#include <gtest/gtest.h>

#include <QLabel>
#include <QTest>
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "app/gui/plan/panel.h"
#include "app/gui/plan/past_runs.h"
#include "backends/resources/resources.h"
#include "backends/store/run_store.h"
#include "simulator/step/simulate.h"
#include "tests/app/gui/constants.h"
#include "tests/support/folder.h"

namespace pw::gui {
namespace {

class PlanResultsTest : public testing::Test {
 protected:
  void SetUp() override {
    document.adopt(*loadFiles({kGpt}, {}));
    settle();
    ASSERT_NE(document.prediction(), nullptr);
  }
  void settle() {
    ASSERT_TRUE(QTest::qWaitFor([this] { return !document.isPredicting() && panel.isIdle(); }, kLongMs));
  }
  void change(const std::function<void(PlanRequest&)>& change) {
    document.edit("change", [&](Design& design) { change(design.request); });
    settle();
  }
  /// By name, the values that are shown.
  std::map<std::string, std::string> figures() {
    std::map<std::string, std::string> all;
    for (const auto* label : panel.findChild<PlanResults*>()->findChildren<QLabel*>()) {
      if (!label->isHidden() && label->accessibleName() != "Problem" && !label->accessibleName().isEmpty())
        all[label->accessibleName().toStdString()] = label->text().toStdString();
    }
    return all;
  }

  Document document;
  PlanPanel panel{document};
};

TEST_F(PlanResultsTest, OfAScheduleWithoutAModelNoRunsCanTell) {
  EXPECT_EQ(figures()["Prediction error so far"], "no comparable runs yet");
  const test::Folder folder;
  document.adopt(*loadFiles({folder.with("order.csv", "0F0,0F1,0B0,0B1\n")}, {}));
  settle();
  EXPECT_EQ(figures()["Prediction error so far"], "–");
}

TEST(PastRuns, AreOfCpusWhereTheClustersDeviceIsNamedSo) {
  const auto named = [](const std::string& device) {
    Cluster cluster;
    cluster.deviceName = device;
    return isOfCpus(cluster);
  };
  for (const char* device : {"8 cores", "Intel Xeon Platinum 8480+", "CPU", "one socket of our server"})
    EXPECT_TRUE(named(device)) << device;
  for (const char* device : {"", "NVIDIA H100 Tensor Core GPU", "AMD Instinct MI300X 192GB", "Gaudi 3", "Scorecard"})
    EXPECT_FALSE(named(device)) << device;
  for (const std::string& preset : clusterPresets()) EXPECT_EQ(isOfCpus(loadCluster(preset)), preset.starts_with("cpu-")) << preset;
}

TEST_F(PlanResultsTest, OfAClusterOfGpusNoRunOnCpusCountsAsAnErrorOfItsEstimates) {
  const test::Folder folder;
  const std::string store = folder.file("runs.db");
  const auto recordOn = [&](Transport transport, double factor) {
    RunRecord run;
    run.state = RunState::Completed;
    run.startedAt = "2024-11-22T14:03:00Z";
    run.transport = transport;
    run.facts = {};
    run.facts.costs = CostSource::Estimated;
    run.plan = document.plan();
    run.predicted = simulate(run.plan.schedule, run.plan.costs);
    CostTable costs = run.plan.costs;
    for (StageCost& stage : costs.stages) {
      for (Ns* time : {&stage.forward, &stage.backward}) *time = Ns(std::llround(factor * static_cast<double>(*time)));
    }
    for (int step = 0; step < 3; ++step) run.steps.push_back({step, 2.5, simulate(run.plan.schedule, costs)});
    static_cast<void>(RunStore(store, RunStore::Mode::ReadWrite).add(run));
    document.setStorePath(QString::fromStdString(store));
    settle();
  };
  recordOn(Transport::Gloo, 20);
  EXPECT_NE(figures()["Prediction error so far"], "no comparable runs yet") << "the cluster is one of CPUs";
  recordOn(Transport::Nccl, 1.1);
  const std::string ofCpus = figures()["Prediction error so far"];
  recordOn(Transport::Nccl, 1.1);
  EXPECT_EQ(figures()["Prediction error so far"], ofCpus) << "nor does a run on GPUs count for CPUs";
  for (const char* cluster : {"h100-nvlink", "mi300x"}) {  // CUDA has no name for the latter
    SCOPED_TRACE(cluster);
    document.edit("cluster", [&](Design& design) { design.cluster = cluster; });
    settle();
    recordOn(Transport::Gloo, 20);
    EXPECT_EQ(figures()["Prediction error so far"], "no comparable runs yet");
    recordOn(Transport::Nccl, 1.1);
    EXPECT_NE(figures()["Prediction error so far"], "no comparable runs yet");
  }
}

TEST_F(PlanResultsTest, OfARefusedCombinationAllStayAsTheyWere) {
  const auto before = figures();
  ASSERT_TRUE(before.contains("Samples/s"));
  ASSERT_TRUE(before.contains("MFU"));
  change([](PlanRequest& r) {
    r.schedule = "dualpipe";
    r.microbatches = 3;
  });
  ASSERT_FALSE(document.problem().isEmpty());
  EXPECT_EQ(figures(), before);
  change([](PlanRequest& r) {
    r.ranks = 3;
    r.microbatch *= 2;
    r.replicas = 2;
  });
  ASSERT_FALSE(document.problem().isEmpty());
  EXPECT_EQ(figures(), before) << "also where the model is estimated anew";
}

TEST_F(PlanResultsTest, OfAPlanThatIsPossibleAgainAllAreNew) {
  const std::string before = figures()["Samples/s"];
  change([](PlanRequest& r) {
    r.schedule = "dualpipe";
    r.microbatches = 3;
  });
  ASSERT_FALSE(document.problem().isEmpty());
  change([](PlanRequest& r) {
    r.schedule = "1f1b";
    r.microbatches = 32;
  });
  ASSERT_TRUE(document.problem().isEmpty()) << document.problem().toStdString();
  EXPECT_NE(figures()["Samples/s"], before);
}

TEST_F(PlanResultsTest, AProblemBeginsAsASentence) {
  change([](PlanRequest& r) {
    r.schedule = "dualpipe";
    r.microbatches = 3;
  });
  ASSERT_TRUE(document.problem().startsWith("schedule")) << document.problem().toStdString();
  const auto labels = panel.findChildren<QLabel*>();
  const auto problem = std::ranges::find(labels, "Problem", [](const QLabel* label) { return label->accessibleName(); });
  ASSERT_NE(problem, labels.end());
  EXPECT_TRUE((*problem)->text().startsWith("Schedule")) << (*problem)->text().toStdString();
}

TEST_F(PlanResultsTest, EachNameSaysWhatItMeansAsItsValueDoes) {
  int names = 0;
  for (const auto* label : panel.findChildren<QLabel*>()) {
    const bool isName = label->accessibleName().isEmpty() && !label->text().isEmpty() && !label->isHidden();
    if (!isName) continue;
    ++names;
    EXPECT_FALSE(label->toolTip().isEmpty()) << label->text().toStdString();
  }
  EXPECT_GT(names, 15);
}

}  // namespace
}  // namespace pw::gui
