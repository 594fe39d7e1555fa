// What stands at a stage in the margin of the model.
#include "app/gui/model/parts/stage_totals.h"

#include <gtest/gtest.h>

namespace pw::gui {
namespace {

StageTotals totals(Ns forward, Ns backward, Bytes state, Bytes activations) {
  StageTotals t;
  t.rank = Rank(0);
  t.forward = forward;
  t.backward = backward;
  t.state = state;
  t.activations = activations;
  return t;
}

TEST(StageTotals, SayTimeAndMemory) {
  EXPECT_EQ(stageFigures(totals(40'000'000, 89'000'000, Bytes{2} << 20, Bytes{1} << 20)).toStdString(), "129 ms · 3.00 MiB");
  EXPECT_EQ(stageFigures(totals(0, 0, 0, Bytes{1} << 20)).toStdString(), "0 ns · 1.00 MiB");
  EXPECT_TRUE(stageFigures(totals(0, 0, 0, 0)).isEmpty());
}

TEST(StageTotals, SayNoMemoryWhereItIsNotKnown) {
  const StageTotals ofATrace = totals(40'000'000, 89'000'000, 0, 0);
  EXPECT_EQ(stageFigures(ofATrace).toStdString(), "129 ms");
  EXPECT_FALSE(stageText(ofATrace, Stage(0)).contains(" B<")) << stageText(ofATrace, Stage(0)).toStdString();
}

TEST(StageTotals, NameBothRanksOfAMirroredStageInTheRoomOfOne) {
  StageTotals mirrored = totals(1, 1, 0, 0);
  const QString one = shortStageTitle(mirrored, Stage(0));
  EXPECT_EQ(one.toStdString(), "Stage 0 · rank 0");
  mirrored.mirror = Rank(7);
  EXPECT_EQ(shortStageTitle(mirrored, Stage(0)).toStdString(), "0 · ranks 0, 7");
  EXPECT_LE(shortStageTitle(mirrored, Stage(0)).size(), one.size());
  EXPECT_EQ(stageTitle(mirrored, Stage(0)).toStdString(), "Stage 0 · ranks 0, 7");
}

}  // namespace
}  // namespace pw::gui
