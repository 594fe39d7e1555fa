// What `inspect --report` and `--try` say of models that differ in one thing (tests/support/python/verdict_models.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/app/cli/call.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

class Verdict : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<Folder>();
    const std::string command =
        "OMP_NUM_THREADS=1 " PW_PYTHON " -W ignore " PW_SOURCE_DIR "/tests/support/python/verdict_models.py " + folder_->file("");
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string model(const std::string& name) { return folder_->file(name + ".pt2"); }
  static Json inspected(const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> words{"inspect", "--json", model(name)};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out);
  }
  static std::string derived(const std::string& name) { return inspected(name, {"--report"})["verdict"]["same"]; }
  static bool finds(const std::string& name, const std::string& kind) {
    const Json json = inspected(name, {"--report"});
    for (const Json& finding : json["report"]) {
      if (finding["kind"] == kind) return true;
    }
    return false;
  }

  static inline std::unique_ptr<Folder> folder_;
};

TEST_F(Verdict, IsYesOnlyWhereItIsDerived) {
  EXPECT_EQ(derived("plain"), "yes");
  EXPECT_EQ(derived("dropout"), "yes");
  EXPECT_EQ(derived("counter"), "buffers");
  EXPECT_EQ(derived("instance_norm"), "buffers");
  EXPECT_EQ(derived("spectral_norm"), "no");
  EXPECT_TRUE(finds("spectral_norm", "power-iteration"));
  EXPECT_EQ(derived("token_mean"), "counted");
  EXPECT_EQ(derived("root"), "no");
  EXPECT_EQ(derived("total"), "no");
  EXPECT_EQ(derived("experts"), "unknown");
}

TEST_F(Verdict, CitesWhatWasTried) {
  const auto tried = [](const std::string& name) { return inspected(name, {"--report", "--try"}); };
  const Json plain = tried("plain");
  EXPECT_EQ(plain["verdict"]["same"], "yes");
  EXPECT_EQ(plain["verdict"]["disagrees"], false);
  ASSERT_EQ(plain["tried"].size(), 1U);
  EXPECT_EQ(plain["tried"][0]["batch"], 4);
  EXPECT_EQ(plain["tried"][0]["same_results"], true);
  EXPECT_EQ(plain["tried"][0]["steps"].size(), 3U);
  const Json dropout = tried("dropout");
  EXPECT_EQ(dropout["tried"][0]["switched_off"], Json({"dropout"}));
  EXPECT_EQ(dropout["tried"][0]["same_results"], true);
  const Json norm = tried("instance_norm");
  EXPECT_EQ(norm["tried"][0]["same_results"], true);
  EXPECT_EQ(norm["tried"][0]["same_buffers"], false);
  EXPECT_EQ(norm["verdict"]["disagrees"], false);
  EXPECT_EQ(tried("spectral_norm")["tried"][0]["same_results"], false);
  const Json noise = tried("noise");
  EXPECT_EQ(noise["tried"][0]["random"], Json({"randn_like"}));
  EXPECT_EQ(noise["verdict"]["same"], "yes") << "apart from random draws, which are why it differs";
}

TEST_F(Verdict, OfATokenMeanTriesTheCountThatMakesItEqual) {
  const Json json = inspected("token_mean", {"--report", "--try"});
  ASSERT_EQ(json["tried"].size(), 2U);
  EXPECT_EQ(json["tried"][0]["ignored_targets"], true);
  EXPECT_EQ(json["tried"][0]["same_results"], false);
  EXPECT_EQ(json["tried"][1]["loss_count"], "auto");
  EXPECT_EQ(json["tried"][1]["same_results"], true);
}

TEST_F(Verdict, IsToldByPlanAndRunForALossThatIsNoMeanOverSamples) {
  const std::string plan = folder_->file("plan.json");
  const Outcome planned =
      call({"plan", model("token_mean"), "--ranks", "1", "--microbatches", "2", "--cluster", "a100-nvlink", "--out", plan});
  ASSERT_EQ(planned.status, 0) << planned.err;
  EXPECT_NE(planned.err.find("--loss-count auto"), std::string::npos) << planned.err;
  const Outcome biased = call({"run", plan});
  EXPECT_EQ(biased.status, 0) << biased.err;
  EXPECT_NE(biased.err.find("11 % more"), std::string::npos) << biased.err;
  const Outcome weighed = call({"run", plan, "--loss-count", "auto", "--verify"});
  EXPECT_EQ(weighed.status, 0) << weighed.err;
  EXPECT_EQ(weighed.err.find("11 % more"), std::string::npos) << weighed.err;
  const Outcome unknown = call({"run", plan, "--loss-count", "words"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("no output or input words"), std::string::npos) << unknown.err;
}

}  // namespace
}  // namespace pw::test
