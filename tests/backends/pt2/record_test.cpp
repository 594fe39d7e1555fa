// The exporter's record in an archive: what is read, what is shown, what is refused.
#include <gtest/gtest.h>

#include "backends/pt2/read.h"
#include "backends/pt2/record.h"
#include "schedules/error.h"

namespace pw {
namespace {

ExportRecord parse(const std::string& text) { return pt2::parseExportRecord(text, "m.pt2: extra/pipewright.json"); }

TEST(ExportRecord, CountsOfAnEqualTraceAreReadAndShown) {
  const ExportRecord record = parse(
      R"({"format": 1, "torch": "2.11.0", "check": "equal", "outputs": 1, "gradients": 148, "buffers": 0, "batch_dims": {"x": 1, "y": 0}})");
  EXPECT_EQ(record.check, TraceCheck::Equal);
  EXPECT_EQ(record.batchDims, (std::map<std::string, std::int64_t>{{"x", 1}, {"y", 0}}));
  EXPECT_EQ(describe(record), "checked against eager at export: 1 output, 148 gradients, 0 buffers");
  EXPECT_EQ(toJson(record), R"({"check": "equal", "outputs": 1, "gradients": 148, "buffers": 0})");
}

TEST(ExportRecord, SaysHowEvaluationsDiffer) {
  const ExportRecord plain = parse(R"({"format": 1, "check": "meta", "batch_dims": {}})");
  const ExportRecord differs = parse(R"({"format": 1, "check": "meta", "batch_dims": {}, "eval_differs": "output `y` differs"})");
  EXPECT_EQ(plain.evalDiffers, "");
  EXPECT_EQ(differs.evalDiffers, "output `y` differs");
  EXPECT_EQ(joinExportRecords(plain, differs).evalDiffers, "output `y` differs");
}

TEST(ExportRecord, AnUncheckedTraceIsShownAsAWarning) {
  const ExportRecord record = parse(R"({"format": 1, "check": "unchecked", "batch_dims": {}})");
  EXPECT_TRUE(describe(record).starts_with("WARNING: exported with --unchecked"));
  EXPECT_EQ(toJson(record), R"({"check": "unchecked"})");
}

TEST(ExportRecord, AnArchiveOfAnotherExporterIsNotChecked) {
  EXPECT_EQ(readExportRecord(readPt2(PW_SOURCE_DIR "/tests/data/unet.pt2")), ExportRecord());
  EXPECT_TRUE(describe(ExportRecord()).starts_with("not checked against eager"));
}

TEST(ExportRecord, TheWeakerOfTwoPartsDecides) {
  ExportRecord equal, unchecked;
  equal.check = TraceCheck::Equal;
  equal.gradients = 3;
  unchecked.check = TraceCheck::Unchecked;
  EXPECT_EQ(joinExportRecords(equal, equal).gradients, 6);
  EXPECT_EQ(joinExportRecords(equal, unchecked).check, TraceCheck::Unchecked);
  EXPECT_EQ(joinExportRecords(unchecked, equal).check, TraceCheck::Unchecked);
  EXPECT_EQ(joinExportRecords(equal, ExportRecord()).check, TraceCheck::None);
}

TEST(ExportRecord, DamagedAndNewerRecordsAreRefused) {
  for (const char* text : {"", "[]", "{}", R"({"format": "1"})", R"({"format": 1, "check": 3, "batch_dims": {}})",
                           R"({"format": 1, "check": "fine", "batch_dims": {}})", R"({"format": 1, "check": "equal", "batch_dims": {}})",
                           R"({"format": 1, "check": "meta"})", R"({"format": 1, "check": "meta", "batch_dims": {"x": "1"}})",
                           R"({"format": 1, "check": "equal", "outputs": -1, "gradients": 1, "buffers": 1, "batch_dims": {}})",
                           R"({"format": 2, "check": "equal"})"}) {
    EXPECT_THROW(static_cast<void>(parse(text)), UsageError) << text;
  }
}

}  // namespace
}  // namespace pw
