// Dumps of a job that hangs, opened in the app: what it says and what it marks.
#include <algorithm>

#include "app/gui/document/dumps.h"
#include "backends/dumps/read.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

const QString kData = QStringLiteral(PW_SOURCE_DIR "/tests/data/torch_hangs/");

class HangWindow : public WindowFixture {
 protected:
  /// The highlighted actions of the predicted timeline, as `rank:F1`.
  [[nodiscard]] QStringList marked() const {
    const Scene& scene = window_->findChild<TimelineWidget*>()->scene();
    QStringList names;
    for (const SourcedSpan& at : scene.highlighted) {
      const Span span = spanOf(*scene.predicted, at.span);
      names << QStringLiteral("%1:%2%3")
                   .arg(span.rank.value)
                   .arg(QString::fromStdString(std::string(nameOf(span.kind))))
                   .arg(span.microbatch.value);
    }
    names.sort();
    return names;
  }
  [[nodiscard]] QString selected() const {
    const Scene& scene = window_->findChild<TimelineWidget*>()->scene();
    if (!scene.selected) return {};
    const Span span = spanOf(*scene.predicted, scene.selected->span);
    return QStringLiteral("%1:%2%3")
        .arg(span.rank.value)
        .arg(QString::fromStdString(std::string(nameOf(span.kind))))
        .arg(span.microbatch.value);
  }
};

TEST_F(HangWindow, AFolderWithItsScheduleIsDrawnWithTheStuckActionsMarked) {
  open(kData + "killed");
  // Rank 1 waits for the gradient that B0 needs, rank 0 for that of its own B0; rank 2 is silent after RECV_F1: in F1, B0 or before its
  // send.
  ASSERT_TRUE(QTest::qWaitFor([this] { return !marked().isEmpty(); }, kLongMs));
  EXPECT_EQ(marked(), (QStringList{"0:B0", "1:B0", "2:B0", "2:F1"}));
  EXPECT_EQ(selected(), "1:B0");
  EXPECT_TRUE(window_->message().startsWith("Rank 2 is silent: it left no dump, and the schedule has 2F1"))
      << window_->message().toStdString();
  EXPECT_TRUE(window_->message().contains("No dump of rank 2"));
  EXPECT_EQ(document().design().request.ranks, 3);
}

TEST_F(HangWindow, DumpsAloneAreExplainedWithTheScheduleThatIsOpen) {
  for (const char* file : {"nccl_trace_rank_0.json", "nccl_trace_rank_1.json"})
    ASSERT_TRUE(QFile::copy(kData + "killed/" + file, folder_.filePath(file)));
  open(kData + "killed/schedule.csv");
  open(folder_.path());
  ASSERT_TRUE(QTest::qWaitFor([this] { return !marked().isEmpty(); }, kLongMs));
  EXPECT_EQ(selected(), "1:B0");
  window_->findChild<TimelineWidget*>()->clearSelection();
  EXPECT_TRUE(marked().isEmpty());
}

TEST_F(HangWindow, ATableBesideDumpsThatIsNoScheduleIsNoted) {
  for (const char* file : {"nccl_trace_rank_0.json", "nccl_trace_rank_1.json"})
    ASSERT_TRUE(QFile::copy(kData + "killed/" + file, folder_.filePath(file)));
  QFile table(folder_.filePath("nodes.csv"));
  ASSERT_TRUE(table.open(QIODevice::WriteOnly));
  table.write("host,temperature\nnode-1,71\n");
  table.close();
  open(kData + "killed/schedule.csv");
  open(folder_.path());
  ASSERT_TRUE(QTest::qWaitFor([this] { return !marked().isEmpty(); }, kLongMs));
  EXPECT_TRUE(window_->message().contains("the table beside the dumps is left out: ")) << window_->message().toStdString();
  EXPECT_TRUE(window_->message().contains("nodes.csv")) << window_->message().toStdString();
}

TEST_F(HangWindow, MarksAreInTheRowOfTheDiagnosis) {
  open(kData + "killed");
  ASSERT_TRUE(QTest::qWaitFor([this] { return !marked().isEmpty(); }, kLongMs));
  hang::Diagnosis diagnosis;
  hang::Spot stuck;
  stuck.rank = JobRank{2};  // of pipeline 0, 2, 4
  stuck.row = Rank{1};
  stuck.action = Action{Stage{1}, ActionKind::RecvForward, Microbatch{0}};
  diagnosis.firstStuck = stuck;
  hang::SilentRank silent;
  silent.rank = JobRank{4};
  silent.row = Rank{2};
  silent.possible = {Action{Stage{2}, ActionKind::Forward, Microbatch{0}}};
  diagnosis.silent.push_back(silent);
  const std::vector<SpanRef> spans = stuckSpans(diagnosis, *window_->findChild<TimelineWidget*>()->scene().predicted);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].rank, Rank{1});
  EXPECT_EQ(spans[1].rank, Rank{2});
}

TEST_F(HangWindow, AScheduleThatDeadlocksIsSaidToBeTheFault) {
  open(kData + "inverted_order");
  EXPECT_TRUE(window_->message().contains("wait for each other")) << window_->message().toStdString();
  EXPECT_TRUE(window_->message().contains("The schedule itself has the fault: deadlock")) << window_->message().toStdString();
}

TEST_F(HangWindow, PickledDumpsAreRefused) {
  QFile file(folder_.filePath("nccl_trace_rank_0"));
  ASSERT_TRUE(file.open(QIODevice::WriteOnly));
  file.write("\x80\x02}q");
  file.close();
  open(folder_.path());
  EXPECT_TRUE(window_->message().contains("_dump_fr_trace_json")) << window_->message().toStdString();
}

}  // namespace
}  // namespace pw::gui
