// Damaged projects and views: opened, shown and predicted, or refused in one sentence.
#include <nlohmann/json.hpp>

#include "app/gui/common/json_object.h"
#include "app/gui/document/loading.h"
#include "app/gui/document/project.h"
#include "app/gui/timeline/facts/navigation.h"
#include "backends/host/files.h"
#include "schedules/error.h"
#include "tests/app/gui/window_fixture.h"
#include "tests/support/hostile.h"

namespace pw::gui {
namespace {

std::string seed(const std::string& model, bool isMeasured) {
  Project project;
  project.design.models = {model};
  project.design.request.begins = {NodeId(20)};
  project.design.request.sharing = Sharing::Transmit;
  if (isMeasured) {
    Profile profile;
    profile.microbatch = profile.ranksAtOnce = profile.threads = 1;
    profile.nodes.resize(3);
    project.design.profile = std::make_shared<const Profile>(profile);
  }
  project.trace = {"/t.json"};
  project.step = 2;
  project.store = QStringLiteral("runs.db");
  project.view = toJson(SavedView{});
  const Trace trace{1, {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 0, 100}}, {{Rank(0), 0, 8}}};
  project.pins.push_back({"A", project.design, pinnedStep("A", "A: 1f1b", trace, {}, 8)});
  return toJson(project);
}

TEST(HostileProjects, AreReadOrRefused) {
  const std::string document = seed("model.pt2", true);
  ASSERT_NO_THROW(static_cast<void>(parseProject(document, "p.pwproj"))) << "the seed itself is sound";
  const test::Survived survived = test::survive(
      "projects", test::mutations(5000), [&](std::mt19937_64& random) { return test::damaged(document, random); },
      [](const std::string& text) {
        const Project read = parseProject(text, "p.pwproj");
        static_cast<void>(parseView(read.view));
        ASSERT_EQ(parseProject(toJson(read), "again").design.request, read.design.request);
      });
  EXPECT_GT(survived.refused, 0U);
}

TEST(HostileProjects, ASharingThatIsNotKnownIsRefusedAndNotReplaced) {
  std::string text = seed("model.pt2", false);
  text.replace(text.find("transmit"), 8, "borrowed");
  try {
    static_cast<void>(parseProject(text, "p.pwproj"));
    FAIL() << "was read";
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(),
                 "p.pwproj is not a usable project: `sharing` is \"borrowed\", neither replicate nor transmit; open a .pwproj file that "
                 "this app saved.");
  }
}

TEST(HostileProjects, AClusterIsANameOrAWholeCluster) {
  const std::string text = seed("model.pt2", false), name = "\"cpu-workstation\"";
  for (const char* cluster : {"\"{\"", "{}", "{\"version\": 1}", "7", "[]"}) {
    std::string damaged = text;
    for (auto at = damaged.find(name); at != std::string::npos; at = damaged.find(name)) damaged.replace(at, name.size(), cluster);
    EXPECT_THROW(static_cast<void>(parseProject(damaged, "p.pwproj")), UsageError) << cluster;
  }
}

TEST(HostileProjects, ViewsAndLinesOfChildrenAreReadOrIgnored) {
  const std::string view = toJson(SavedView{}).toStdString();
  test::survive(
      "views", test::mutations(2000), [&](std::mt19937_64& random) { return test::damaged(view, random); },
      [](const std::string& text) {
        const QByteArray bytes = QByteArray::fromStdString(text);
        static_cast<void>(parseView(bytes));
        static_cast<void>(readObject(bytes).value(QLatin1String("run_id")).toInt(0));
      });
}

struct HostileWindow : WindowFixture {
  /// Opens a project of the sample with other begins; whether it was shown.
  bool opens(const std::string& from, const std::string& to) {
    std::string text = seed(sample("gpt_small.pt2").toStdString(), false);
    const std::size_t at = text.find(from);
    text.replace(at, from.size(), to);
    writeFile(folder_.filePath("p.pwproj").toStdString(), text);
    open(folder_.filePath("p.pwproj"));
    window_->grab();
    return document().prediction() != nullptr;
  }
};

TEST_F(HostileWindow, SplitsOutsideTheModelAreBalancedAnew) {
  EXPECT_TRUE(opens("20\n", "2000000000\n"));
  EXPECT_EQ(document().design().request.begins.size(), 1U) << "two stages";
  EXPECT_LT(document().design().request.begins.front().index(), document().graph()->nodes.size());
  EXPECT_TRUE(window_->message().contains("outside its model")) << window_->message().toStdString();
}

TEST_F(HostileWindow, SplitsThatDescendOrAreNegativeAreRefused) {
  for (const char* begins : {"-1\n", "0\n", "20, 20\n", "20, 10\n", "2000000000000\n"}) {
    EXPECT_FALSE(opens("20\n", begins)) << begins;
    EXPECT_TRUE(window_->message().contains("is not a usable project")) << begins << ": " << window_->message().toStdString();
  }
}

TEST_F(HostileWindow, DamagedProjectsOfAModelAreShownOrRefused) {
  const auto document = nlohmann::ordered_json::parse(seed(sample("gpt_small.pt2").toStdString(), false));
  const std::size_t count = test::mutations(25);
  for (std::size_t number = 0; number < std::min<std::size_t>(count, 2000); ++number) {
    std::mt19937_64 random(number);
    nlohmann::ordered_json project = document;
    test::changeStructure(project["request"], random);
    // What a plan of enormous size needs in time is not the subject.
    for (const char* key : {"microbatches", "ranks", "chunks"}) {
      if (!project["request"].is_object()) break;
      auto& value = project["request"][key];
      if (value.is_number_integer() && value.get<std::int64_t>() > 64) value = 64;
    }
    writeFile(folder_.filePath("p.pwproj").toStdString(), project.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    open(folder_.filePath("p.pwproj"));
    window_->grab();
    const std::string said = window_->message().toStdString();
    for (const char* raw : {"json.exception", "std::", "bad_alloc", "filesystem error"})
      ASSERT_EQ(said.find(raw), std::string::npos) << number << ": " << said;
  }
}

}  // namespace
}  // namespace pw::gui
