#include "backends/store/study_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>

#include <SQLiteCpp/SQLiteCpp.h>

#include "schedules/error.h"
#include "tests/support/folder.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

constexpr const char* kInputs = "m.pt2 1234\nc.json abcd\n";

const std::string kStudy =
    R"({"version": 1, "model": "a, \"b\".pt2", "ranks": [2, 4], "microbatches": [4, 8, 16], "recompute": [["x", "y"], "none"]})";

StudyRow rowOf(const Study& study, std::int64_t number) {
  StudyResult result;
  result.point = number;
  result.stages = static_cast<int>(number) + 1;
  result.step = Ns(1'000 + number);
  result.samples = 8;
  result.samplesPerSecond = 100.5 - static_cast<double>(number);
  result.peak = 50;
  result.splits = "blocks.1 @add";
  return {pointOf(study, number), result};
}

std::vector<StudyRow> rowsOf(const StudyStore& store) {
  std::vector<StudyRow> rows;
  store.forEach([&](const StudyRow& row) { rows.push_back(row); });
  return rows;
}

TEST(StudyStore, KeepsRowsOnceAndInOrder) {
  const Folder folder;
  const std::string path = folder.file("s.db");
  {
    StudyStore store(path, kStudy, kInputs);
    store.add({rowOf(store.study(), 7), rowOf(store.study(), 2)});
  }
  StudyStore store(path, kStudy, kInputs);
  StudyRow other = rowOf(store.study(), 2);
  other.result.step = 5;
  store.add({other, rowOf(store.study(), 3)});
  EXPECT_EQ(rowsOf(store), (std::vector<StudyRow>{rowOf(store.study(), 2), rowOf(store.study(), 3), rowOf(store.study(), 7)}))
      << "a row that is there stays";
  std::vector<bool> done(12, false);
  done[2] = done[3] = done[7] = true;
  EXPECT_EQ(store.done(), done);
}

TEST(StudyStore, CountsAndRanksWhatFits) {
  const Folder folder;
  StudyStore store(folder.file("s.db"), kStudy, kInputs);
  StudyRow large = rowOf(store.study(), 0), impossible = rowOf(store.study(), 1);
  large.result.excess = 3;
  large.result.samplesPerSecond = 1e9;
  impossible.result = {};
  impossible.result.point = 1;
  impossible.result.problem = "no";
  store.add({large, impossible, rowOf(store.study(), 2), rowOf(store.study(), 5), rowOf(store.study(), 3), rowOf(store.study(), 6)});
  EXPECT_EQ(store.counts(), (StudyCounts{6, 4, 1, 1}));
  EXPECT_EQ(store.best(2), (std::vector<StudyRow>{rowOf(store.study(), 2), rowOf(store.study(), 3)}));
  // Recomputation varies first, then ranks: points 0, 1, 4, 5 have two ranks, 2, 3, 6, 7 four.
  EXPECT_EQ(store.bestOfRanks(), (std::vector<StudyRow>{rowOf(store.study(), 5), rowOf(store.study(), 2)}));
}

TEST(StudyStore, MergesPartsOfOneStudy) {
  const Folder folder;
  StudyStore whole(folder.file("whole.db"), kStudy, kInputs), a(folder.file("a.db"), kStudy, kInputs),
      b(folder.file("b.db"), kStudy, kInputs);
  a.add({rowOf(a.study(), 0), rowOf(a.study(), 4)});
  b.add({rowOf(b.study(), 4), rowOf(b.study(), 9)});
  whole.merge(a);
  whole.merge(b);
  EXPECT_EQ(rowsOf(whole), (std::vector<StudyRow>{rowOf(a.study(), 0), rowOf(a.study(), 4), rowOf(a.study(), 9)}));
  const std::string other = R"({"version": 1, "model": "c.pt2", "ranks": 2, "microbatches": 4})";
  const std::string refusal = usageErrorOf([&] { whole.merge(StudyStore(folder.file("c.db"), other, kInputs)); });
  EXPECT_NE(refusal.find("are of different studies"), std::string::npos) << refusal;
  const std::string changed = "m.pt2 1234\nc.json dcba\n";
  EXPECT_NE(usageErrorOf([&] { whole.merge(StudyStore(folder.file("d.db"), kStudy, changed)); }).find("different contents of c.json"),
            std::string::npos);
}

TEST(StudyStore, RefusesResultsOfOtherInputs) {
  const Folder folder;
  static_cast<void>(StudyStore(folder.file("s.db"), kStudy, kInputs));
  static_cast<void>(StudyStore(folder.file("s.db"), kStudy, kInputs));
  EXPECT_NE(usageErrorOf([&] {
              static_cast<void>(StudyStore(folder.file("s.db"), kStudy, "m.pt2 9\nc.json abcd\n"));
            }).find("has results of other contents of m.pt2; give another --out, or delete it."),
            std::string::npos);
  EXPECT_EQ(StudyStore(folder.file("s.db")).inputs(), kInputs);
}

TEST(StudyStore, RanksEachModelAndCountsProblems) {
  const Folder folder;
  const std::string two = R"({"version": 1, "model": ["a.pt2", "b.pt2"], "ranks": [2, 4], "microbatches": 4})";  // ranks vary first
  StudyStore store(folder.file("s.db"), two, kInputs);
  std::vector<StudyRow> rows;
  for (std::int64_t number = 0; number < 4; ++number) rows.push_back(rowOf(store.study(), number));
  store.add({rows[0], rows[1], rows[3]});
  EXPECT_EQ(store.best(1), (std::vector<StudyRow>{rows[0], rows[3]})) << "samples of different models do not compare";
  EXPECT_EQ(store.bestOfRanks(), (std::vector<StudyRow>{rows[0], rows[1], rows[3]}));
  EXPECT_TRUE(store.problems(5).empty());
  const Folder other;
  StudyStore failing(other.file("s.db"), kStudy, kInputs);
  for (std::int64_t number = 0; number < 5; ++number) {
    StudyRow row{pointOf(failing.study(), number), {}};
    row.result.point = number;
    row.result.problem = number == 1 ? "rare" : "frequent";
    failing.add({row});
  }
  EXPECT_EQ(failing.problems(5), (std::vector<std::pair<std::string, std::int64_t>>{{"frequent", 4}, {"rare", 1}}));
  EXPECT_EQ(failing.problems(1).size(), 1U);
}

TEST(StudyStore, RefusesOtherFiles) {
  const Folder folder;
  static_cast<void>(StudyStore(folder.file("s.db"), kStudy, kInputs));
  const std::string other = R"({"version": 1, "model": "c.pt2", "ranks": 2, "microbatches": 4})";
  const auto open = [&](const std::string& name, const std::string& text) {
    return usageErrorOf([&] { static_cast<void>(StudyStore(folder.file(name), text, kInputs)); });
  };
  EXPECT_NE(open("s.db", other).find("has the results of another study"), std::string::npos);
  EXPECT_EQ(open("s.db", R"({"recompute": [["x", "y"], "none"], "microbatches": {"from": 4, "to": 16, "times": 2}, "ranks": [2, 4], )"
                         R"("model": "a, \"b\".pt2", "version": 1})"),
            "no error")
      << "the same study in other words";
  std::ofstream(folder.file("text.db")) << "not a database, but long enough to be taken for one by its size, and then some more text here";
  EXPECT_NE(open("text.db", kStudy).find("is not a study"), std::string::npos);
  EXPECT_NE(usageErrorOf([&] { static_cast<void>(StudyStore(folder.file("none.db"))); }).find("There is no study"), std::string::npos);
}

/// Runs SQL on a closed study.
void change(const std::string& path, const std::string& sql) {
  SQLite::Database db(path, SQLite::OPEN_READWRITE);
  db.exec(sql);
}

TEST(StudyStore, ReadsTheFirstVersionWhichKnewNothingOfItsInputs) {
  const Folder folder;
  const std::string path = folder.file("s.db");
  std::vector<StudyRow> rows;
  {
    StudyStore store(path, kStudy, kInputs);
    rows = {rowOf(store.study(), 2), rowOf(store.study(), 7)};
    store.add(rows);
  }
  change(path,
         "ALTER TABLE study DROP COLUMN inputs; ALTER TABLE point DROP COLUMN lower_bound_ns; ALTER TABLE point DROP COLUMN found_by; "
         "UPDATE study SET version = 1");
  EXPECT_EQ(rowsOf(StudyStore(path)), rows);
  StudyStore resumed(path, kStudy, kInputs);
  EXPECT_EQ(resumed.inputs(), "") << "not known";
  EXPECT_EQ(rowsOf(resumed), rows);
  EXPECT_EQ(SQLite::Database(path).execAndGet("SELECT version FROM study").getInt(), 3);
}

TEST(StudyStore, RefusesWhatIsNewerOrEmpty) {
  const Folder folder;
  const std::string path = folder.file("s.db");
  static_cast<void>(StudyStore(path, kStudy, kInputs));
  const auto open = [&] { return usageErrorOf([&] { static_cast<void>(StudyStore(path)); }); };
  change(path, "UPDATE study SET version = 4");
  EXPECT_NE(open().find("has format 4, newer than this program reads (3); update Pipewright"), std::string::npos) << open();
  change(path, "DELETE FROM study");
  EXPECT_NE(open().find("is damaged: it is empty"), std::string::npos) << open();
}

TEST(StudyStore, RefusesPointsThatTheStudyDoesNotHave) {
  for (const std::int64_t number : {std::int64_t{-1}, std::int64_t{12}, std::numeric_limits<std::int64_t>::max()}) {
    const Folder folder;
    StudyStore store(folder.file("s.db"), kStudy, kInputs);
    StudyRow row = rowOf(store.study(), 0);
    row.point.number = number;
    store.add({row});
    EXPECT_EQ(store.done(), std::vector<bool>(12, false));
    for (const auto& read :
         std::vector<std::function<void()>>{[&] { static_cast<void>(rowsOf(store)); }, [&] { static_cast<void>(store.best(5)); }}) {
      try {
        read();
        ADD_FAILURE() << number;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("is damaged: it has no point " + std::to_string(number)), std::string::npos)
            << error.what();
      }
    }
  }
}

TEST(StudyCsv, HasACellForEachColumn) {
  const Study study = parseStudy(kStudy, "s.json");
  EXPECT_EQ(studyCsvLine(rowOf(study, 0)),
            "0,\"a, \"\"b\"\".pt2\",,traced,traced,1f1b,2,1,0,4,0,0,time,\"x,y\",sgd,0,0,,1,8,1000,0,0,50,0,100.5,0,blocks.1 @add,0,\n");
  const std::string header = studyCsvHeader();
  EXPECT_EQ(std::count(header.begin(), header.end(), ','), 29);
}

}  // namespace
}  // namespace pw::test
