// The command line that opens what a window shows: taken apart as a shell does, parsed as the program does, opened in another window.
#include "app/gui/window/view_link.h"

#include <QClipboard>
#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QLabel>
#include <QProcess>
#include <algorithm>

#include "app/gui/command_line.h"
#include "app/gui/runs/panel.h"
#include "app/gui/timeline/facts/navigation.h"
#include "tests/app/gui/stored_run.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

/// The words of a command, as the shell takes it apart.
QStringList wordsOf(const QString& command) {
  QProcess shell;
  shell.start(QStringLiteral("/bin/sh"), {QStringLiteral("-c"), QStringLiteral("printf '%s\\n' ") + command});
  EXPECT_TRUE(shell.waitForFinished(kLongMs));
  QStringList words = QString::fromUtf8(shell.readAllStandardOutput()).split(QLatin1Char('\n'));
  words.removeLast();
  return words;
}

struct ViewLink : WindowFixture {
  /// Another window, opened by the link.
  void openLink(const QString& link) {
    const QStringList words = wordsOf(link);
    const Call call = parse(words);
    ASSERT_FALSE(call.status) << link.toStdString();
    other_ = std::make_unique<MainWindow>(false);
    other_->document().setStorePath(call.store.isEmpty() ? folder_.filePath("other.db") : call.store);
    other_->resize(1400, 900);
    other_->show();
    other_->open(call.options.files);
    goWhenOpen(*other_, call.options.target);
    ASSERT_TRUE(
        QTest::qWaitFor([&] { return other_->isIdle() && other_->timeline().saveView() == window_->timeline().saveView(); }, 20'000))
        << link.toStdString() << "\nhere  " << window_->timeline().saveView().toStdString() << "\nthere "
        << other_->timeline().saveView().toStdString();
  }
  SourcedSpan blockAt(int rank, int index) { return {Source::Predicted, {Rank(rank), TrackKind::Compute, index}}; }

  std::unique_ptr<MainWindow> other_;
};

TEST(ViewLinkText, IsQuotedForAShell) {
  for (const char* text : {"plain.json", "with space", "it's", "$(touch x)`y`\\\"!", "{\"a\":1}", "-x", "µ"}) {
    const QString argument = QString::fromUtf8(text);
    EXPECT_EQ(wordsOf(quoted(argument)), QStringList{argument});
  }
  EXPECT_EQ(quoted(QStringLiteral("/a/b-c_1.json")), "/a/b-c_1.json");
  EXPECT_EQ(wordsOf(commandLineOf({QStringLiteral("-x.json")}, {})), (QStringList{"pipewright-gui", "./-x.json"}));
}

TEST(ViewLinkText, OfAViewThatIsUnusableIsRefused) {
  for (const char* view : {"", "x", "[1]", "{\"from\":"}) {
    const Call call = parse({"pipewright-gui", "a.json", "--view", QString::fromUtf8(view)});
    EXPECT_EQ(call.status, kUnusable) << view;
  }
  EXPECT_EQ(parse({"pipewright-gui", "a.json", "--step", "0"}).status, kUnusable);
}

TEST_F(ViewLink, OfAViewAsWideAsNumbersGoIsShown) {
  open(sample("gpt_small.pt2"));
  window_->timeline().restoreView(R"({"from": -1e19, "to": 1e19})");
  (void)window_->grab();  // ends
  EXPECT_LE(window_->timeline().viewport().end() - window_->timeline().viewport().start, 1e17);
}

TEST_F(ViewLink, OpensTheSameFileAtTheSameBlockAndZoom) {
  open(sample("gpt_small.pt2"));
  EXPECT_FALSE(window_->document().isModified());
  TimelineWidget& timeline = window_->timeline();
  timeline.select(blockAt(2, 5));
  timeline.fitSelection();
  timeline.setColourBy(ColourBy::Stage);
  timeline.togglePin();
  openLink(window_->viewLink());
  ASSERT_TRUE(other_);
  EXPECT_EQ(other_->timeline().scene().selected, blockAt(2, 5));
  const Viewport own = timeline.viewport(), opened = other_->timeline().viewport();
  EXPECT_EQ(opened.width, own.width);
  // The link has both ends as decimals: the scale follows from them but for rounding.
  EXPECT_NEAR(opened.xOf(0), own.xOf(0), 1e-6) << "pixels";
  EXPECT_NEAR(opened.nsPerPixel / own.nsPerPixel, 1, 1e-9);
  EXPECT_EQ(other_->timeline().scene().ranks, timeline.scene().ranks);
  for (MainWindow* window : {window_.get(), other_.get()}) {
    if (QWidget* focused = window->focusWidget()) focused->clearFocus();  // whose frame only one of them has
  }
  const QImage picture = timeline.grab().toImage(), other = other_->timeline().grab().toImage();
  EXPECT_EQ(other, picture) << "they look alike";
}

TEST_F(ViewLink, OpensARangeABubbleAndAllOfTheStep) {
  open(sample("gpt_small.pt2"));
  TimelineWidget& timeline = window_->timeline();
  openLink(window_->viewLink());
  EXPECT_FALSE(window_->viewLink().contains("ranks")) << "what is as usual is left out: " << window_->viewLink().toStdString();
  timeline.selectRange(1'000'000, 2'500'000);
  openLink(window_->viewLink());
  EXPECT_EQ(other_->timeline().scene().range, std::pair(Ns{1'000'000}, Ns{2'500'000}));
  const auto bubble = bubbleUnder(*timeline.scene().predicted, Source::Predicted, Rank(3), 0);  // it waits from the beginning
  ASSERT_TRUE(bubble);
  timeline.selectBubble(*bubble);
  openLink(window_->viewLink());
  EXPECT_EQ(other_->timeline().selectedBubble(), bubble);
}

TEST_F(ViewLink, OfAProjectOpensTheProject) {
  open(sample("gpt_small.pt2"));
  document().edit(QStringLiteral("Choose"), [](Design& design) { design.request.microbatches = 6; });
  ASSERT_TRUE(settle());
  const QString path = folder_.filePath("it's a project.pwproj");
  ASSERT_TRUE(window_->saveProject(path));
  window_->timeline().select(blockAt(1, 2));
  openLink(window_->viewLink());
  EXPECT_EQ(other_->document().design().request.microbatches, 6);
  EXPECT_EQ(other_->document().projectPath(), path);
}

/// A trace as torch.profiler writes it: three steps of two ranks, each longer than the one before.
void writeTrace(const QString& path) {
  QJsonArray events;
  const auto add = [&](const QString& name, int rank, double start, double duration) {
    events.append(QJsonObject{
        {"ph", "X"}, {"cat", "user_annotation"}, {"name", name}, {"pid", rank}, {"tid", rank}, {"ts", start}, {"dur", duration}});
  };
  for (int step = 0; step < 3; ++step) {
    const double from = 100'000.0 * step;
    add(QStringLiteral("ProfilerStep#%1").arg(step), 0, from, 90'000);
    for (int rank = 0; rank < 2; ++rank) {
      add(QStringLiteral("PP:%1F0").arg(rank), rank, from + 5'000 * rank, 1'000 * (step + 1));
      add(QStringLiteral("PP:%1B0").arg(rank), rank, from + 30'000 - 9'000 * rank, 2'000 * (step + 1));
    }
  }
  QFile file(path);
  ASSERT_TRUE(file.open(QIODevice::WriteOnly));
  file.write(QJsonDocument(QJsonObject{{"traceEvents", events}}).toJson());
}

TEST_F(ViewLink, OfATraceOpensTheSameStep) {
  const QString path = folder_.filePath("three steps.json");
  writeTrace(path);
  open(path);
  ASSERT_NE(document().measured(), nullptr) << window_->message().toStdString();
  for (int step = 1; step <= 3; ++step) {
    window_->showStep(step);
    window_->timeline().select({Source::Measured, {Rank(1), TrackKind::Compute, 1}});
    ASSERT_TRUE(settle());
    EXPECT_TRUE(window_->viewLink().contains(QStringLiteral("--step %1 ").arg(step))) << window_->viewLink().toStdString();
    openLink(window_->viewLink());
    EXPECT_EQ(other_->document().measured()->title, document().measured()->title);
    EXPECT_EQ(other_->document().measured()->trace, document().measured()->trace);
  }
}

TEST_F(ViewLink, OfAStoredRunOpensTheRunOfItsStoreAtTheSameBlock) {
  open(sample("gpt_small.pt2"));
  const QString store = folder_.filePath("it's a store.db");
  document().setStorePath(store);
  static_cast<void>(storeRun(store.toStdString(), document().plan(), {1, 2}));
  const RunId id = storeRun(store.toStdString(), document().plan(), {1, 3});
  window_->showPanel(Panel::Runs);
  window_->runs().chooseRun(id);
  ASSERT_TRUE(QTest::qWaitFor([&] { return document().measured() && document().measured()->run; }, 20'000));
  ASSERT_TRUE(settle());
  window_->timeline().select({Source::Measured, {Rank(1), TrackKind::Compute, 1}});
  ASSERT_TRUE(settle());
  const QString link = window_->viewLink();
  EXPECT_TRUE(link.contains(QStringLiteral(" --show-run %1 --store ").arg(id.value))) << link.toStdString();
  const Call call = parse(wordsOf(link));
  EXPECT_EQ(call.store, store);
  EXPECT_EQ(call.options.target.run, id);
  openLink(link);
  ASSERT_TRUE(other_->document().measured() && other_->document().measured()->run);
  EXPECT_EQ(other_->document().storePath(), store);
  EXPECT_EQ(other_->document().measured()->run->id, id);
  EXPECT_EQ(other_->document().measured()->trace, document().measured()->trace);
  EXPECT_EQ(other_->timeline().scene().selected, (SourcedSpan{Source::Measured, {Rank(1), TrackKind::Compute, 1}}));
}

TEST_F(ViewLink, StandsBeforeTheViewOfAProjectAlsoWhenItsRunIsShown) {
  open(sample("gpt_small.pt2"));
  const QString store = folder_.filePath("runs.db");
  document().setStorePath(store);
  window_->runs().chooseRun(storeRun(store.toStdString(), document().plan(), {1, 2}));
  ASSERT_TRUE(QTest::qWaitFor([&] { return document().measured() && document().measured()->run; }, kLongMs));
  ASSERT_TRUE(settle());
  const QString path = folder_.filePath("with a run.pwproj");
  ASSERT_TRUE(window_->saveProject(path));
  window_->timeline().select({Source::Measured, {Rank(1), TrackKind::Compute, 1}});
  window_->timeline().fitSelection();
  const QByteArray view = window_->timeline().shortView(), all = window_->timeline().saveView();
  other_ = std::make_unique<MainWindow>(false);
  other_->resize(window_->size());
  other_->show();
  other_->open({path});
  ASSERT_TRUE(QTest::qWaitFor([&] { return other_->document().prediction() != nullptr; }, kLongMs));
  ASSERT_EQ(other_->document().measured(), nullptr) << "the run is later";
  other_->showView(view);
  ASSERT_TRUE(QTest::qWaitFor([&] { return other_->document().measured() && other_->document().measured()->run; }, kLongMs));
  EXPECT_EQ(other_->timeline().saveView(), all) << "with the block of the run";
}

TEST_F(ViewLink, OfAStepOrRunThatIsNotThereSaysSo) {
  const QString path = folder_.filePath("three steps.json");
  writeTrace(path);
  open(path);
  const auto measured = document().measured();
  ViewTarget target;
  target.step = 99;
  goWhenOpen(*window_, target);
  const QString sentence = QStringLiteral("There is no step 99: the trace has 3, numbered from 1.");
  ASSERT_TRUE(QTest::qWaitFor([&] { return window_->message() == sentence; }, 20'000)) << window_->message().toStdString();
  EXPECT_EQ(document().measured(), measured);
  ASSERT_TRUE(window_->showStep(2));
  target.step = 0;
  target.run = RunId(99);
  goWhenOpen(*window_, target);
  ASSERT_TRUE(QTest::qWaitFor([&] { return window_->message().startsWith(QStringLiteral("There is no run 99 in ")); }, kLongMs))
      << window_->message().toStdString();
  EXPECT_TRUE(window_->message().contains(QStringLiteral("runs.db"))) << window_->message().toStdString();
}

TEST_F(ViewLink, ThePictureOfAStepOrRunThatIsNotThereIsRefused) {
  const QString path = folder_.filePath("three steps.json");
  writeTrace(path);
  const auto grab = [&](const QStringList& more) {
    QProcess process;
    process.start(
        QFileInfo(QStringLiteral(PIPEWRIGHT)).dir().filePath(QStringLiteral("pipewright-gui")),
        QStringList{path, QStringLiteral("--grab"), folder_.filePath("a.png"), QStringLiteral("--store"), folder_.filePath("none.db")} +
            more);
    EXPECT_TRUE(process.waitForFinished(kLongMs));
    return std::pair(process.exitCode(), QString::fromUtf8(process.readAllStandardError()));
  };
  const auto [status, sentence] = grab({QStringLiteral("--step"), QStringLiteral("99")});
  EXPECT_EQ(status, kUnusable);
  EXPECT_TRUE(sentence.contains(QStringLiteral("There is no step 99: the trace has 3"))) << sentence.toStdString();
  const auto [noRun, said] = grab({QStringLiteral("--show-run"), QStringLiteral("99")});
  EXPECT_EQ(noRun, kUnusable);
  EXPECT_TRUE(said.contains(QStringLiteral("There is no run 99 in "))) << said.toStdString();
  EXPECT_EQ(grab({QStringLiteral("--step"), QStringLiteral("2")}).first, 0);
}

TEST_F(ViewLink, IsCopiedByItsCommand) {
  EXPECT_TRUE(window_->viewLink().isEmpty()) << "nothing is open";
  open(sample("gpt_small.pt2"));
  const auto& commands = window_->commands();
  const auto copy = std::ranges::find_if(commands, [](const QAction* action) { return action->text() == "Copy &link to this view"; });
  ASSERT_NE(copy, commands.end());
  (*copy)->trigger();
  EXPECT_EQ(QApplication::clipboard()->text(), window_->viewLink());
  EXPECT_TRUE(QApplication::clipboard()->text().startsWith("pipewright-gui /")) << QApplication::clipboard()->text().toStdString();
  EXPECT_TRUE(window_->message().isEmpty());
  document().edit(QStringLiteral("Choose"), [](Design& design) { design.request.microbatches = 6; });
  ASSERT_TRUE(settle());
  (*copy)->trigger();
  EXPECT_TRUE(window_->message().contains("without the changes since")) << window_->message().toStdString();
}

}  // namespace
}  // namespace pw::gui
