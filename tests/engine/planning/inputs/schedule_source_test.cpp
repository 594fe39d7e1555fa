// Which schedule a name, a file and a shape mean together.
#include "engine/planning/inputs/schedule_source.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/planning/inputs/limits.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "tests/support/folder.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

std::string refusalOf(const std::string& name, const ShapeOptions& options) {
  return usageErrorOf([&] { static_cast<void>(generateFrom(name, options)); });
}

TEST(GenerateFrom, TakesTheFamilysChunksWhereNoneAreGiven) {
  EXPECT_EQ(generateFrom("1f1b", {.ranks = 3, .microbatches = 5}), generate("1f1b", {3, 3, 5}));
  EXPECT_EQ(generateFrom("zbv", {.ranks = 2, .microbatches = 4}), generate("zbv", {2, 4, 4})) << "two on a rank";
  EXPECT_EQ(generateFrom("interleaved-1f1b", {.ranks = 2, .chunks = 3, .microbatches = 4}), generate("interleaved-1f1b", {2, 6, 4}));
}

TEST(GenerateFrom, NamesTheOptionThatIsMissing) {
  EXPECT_EQ(refusalOf("gpipe", {}), "schedule gpipe needs the number of ranks and microbatches; give --ranks and --microbatches");
  EXPECT_EQ(refusalOf("gpipe", {.microbatches = 2}), "schedule gpipe needs the number of ranks and microbatches; give --ranks");
  EXPECT_EQ(refusalOf("gpipe", {.ranks = 2}), "schedule gpipe needs the number of ranks and microbatches; give --microbatches");
}

TEST(GenerateFrom, RefusesWhatTheScheduleDoesNotHave) {
  EXPECT_EQ(refusalOf("gpipe", {.ranks = 2, .microbatches = 2, .group = 2}),
            "schedule gpipe has no groups; omit --group, or use interleaved-1f1b");
  EXPECT_EQ(refusalOf("gpipe", {.ranks = -1, .microbatches = 2}), "--ranks -1 is not an integer from 0 to " + std::to_string(kMaxRanks));
  EXPECT_NE(refusalOf("auto", {.ranks = 2, .microbatches = 2}).find("is made for given costs"), std::string::npos);
  EXPECT_NE(refusalOf("no-such", {.ranks = 2, .microbatches = 2}), "no error");
}

TEST(GenerateFrom, ReadsAFileWhoseShapeTheOptionsMustNotContradict) {
  const Folder folder;
  const Schedule written = generate("1f1b", {2, 2, 4});
  const std::string path = folder.with("own.csv", toCsv(written));
  const Schedule read = generateFrom(path, {});
  EXPECT_EQ(read.name, "own");
  EXPECT_EQ(read.rows, written.rows);
  EXPECT_EQ(generateFrom(path, {.ranks = 2, .chunks = 1, .microbatches = 4}), read);
  EXPECT_EQ(refusalOf(path, {.ranks = 3}), path + " has 2 ranks, not 3; leave out the option");
  EXPECT_EQ(refusalOf(path, {.chunks = 2}), path + " has 2 stages, not 4; leave out the option");
  EXPECT_EQ(refusalOf(path, {.microbatches = 8}), path + " has 4 microbatches, not 8; leave out the option");
  EXPECT_EQ(refusalOf(path, {.strict = true}), path + " is not a schedule of torch's or Megatron's; omit --strict and --group");
}

TEST(ShapeLine, CountsInWords) {
  EXPECT_EQ(shapeLine(generate("1f1b", {4, 4, 8})), "1f1b: 4 ranks, 4 stages, 8 microbatches");
  EXPECT_EQ(shapeLine(generate("gpipe", {1, 1, 1})), "gpipe: 1 rank, 1 stage, 1 microbatch");
}

TEST(Limits, NameTheOptionAndItsRange) {
  EXPECT_EQ(usageErrorOf([] { requireWhole("--x", 0, 1, 3); }), "--x 0 is not an integer from 1 to 3");
  EXPECT_EQ(usageErrorOf([] { requireWhole("--x", 4, 1, 3); }), "--x 4 is not an integer from 1 to 3");
  EXPECT_NO_THROW(requireWhole("--x", 1, 1, 3));
  EXPECT_NO_THROW(requireWhole("--x", 3, 1, 3));
  EXPECT_EQ(usageErrorOf([] { requireNumber("--y", 2.5, 0, 1); }), "--y 2.5 is not a number from 0 to 1");
  EXPECT_EQ(usageErrorOf([] { requireNumber("--y", std::nan(""), 0, 1); }), "--y nan is not a number from 0 to 1");
}

}  // namespace
}  // namespace pw::test
