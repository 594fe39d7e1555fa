// Stores of other versions: older ones are brought to ours beside a copy, newer ones are read as far as they are known.
#include "backends/store/migrations.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <tuple>

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/host/files.h"
#include "backends/store/run_store.h"
#include "backends/store/trace_blob.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/folder.h"
#include "tests/support/whole_run.h"

namespace pw {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Mode = RunStore::Mode;

/// Version 1 as it was on 22 November 2026, and before a day earlier, when the profile had a column of its own.
std::string version1(bool profileColumn) {
  return std::string(
             "PRAGMA application_id = 0x50777274;"
             "PRAGMA user_version = 1;"
             "CREATE TABLE run ("
             "  id INTEGER PRIMARY KEY AUTOINCREMENT, started_at TEXT NOT NULL, backend TEXT NOT NULL, failure TEXT NOT NULL,"
             "  seed INTEGER NOT NULL, model TEXT NOT NULL, schedule TEXT NOT NULL, ranks INTEGER NOT NULL,"
             "  microbatches INTEGER NOT NULL, host TEXT NOT NULL, processor TEXT NOT NULL, cores INTEGER NOT NULL,"
             "  device TEXT NOT NULL, plan TEXT NOT NULL,") +
         (profileColumn ? "profile TEXT NOT NULL," : "") +
         "  predicted_ns INTEGER NOT NULL, predicted BLOB NOT NULL) STRICT;"
         "CREATE TABLE step ("
         "  run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE, position INTEGER NOT NULL, step INTEGER NOT NULL,"
         "  loss REAL, duration_ns INTEGER NOT NULL, measured BLOB NOT NULL, PRIMARY KEY (run, position)) STRICT;";
}

Trace traceOf(Ns duration) { return {1, {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 0, duration}}, {}}; }

Plan smallPlan() {
  Plan plan;
  plan.modelFiles = {"/models/small.pt2"};
  plan.modelName = "small";
  plan.batch = 1;
  plan.schedule = lower(generate("gpipe", {1, 1, 1}));
  plan.costs = syntheticTable(
      {.forward = {10}, .backward = {20}, .backwardInput = {10}, .backwardWeight = {10}, .latency = 0, .transfer = 0, .overlap = {}}, 1);
  plan.partition.stages = {{NodeId(0), NodeId(4), {}, {}, {}, {}, {}, {}}};
  plan.profile.machine.processor = "a 'processor'";
  return plan;
}

class OtherVersions : public testing::Test {
 protected:
  [[nodiscard]] SQLite::Database open() const { return {path_, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE}; }

  /// A store of version 1 with a run for each pair of backend and failure, each with steps of 9, 4 and 5 ns.
  void makeVersion1(const std::vector<std::pair<std::string, std::string>>& runs, bool profileColumn = false) const {
    SQLite::Database db = open();
    db.exec(version1(profileColumn));
    for (const auto& [backend, failure] : runs) {
      std::string plan = toJson(smallPlan()), profile;
      if (profileColumn) {  // the plan then had none
        SQLite::Statement split(db, "SELECT json_remove(?1, '$.profile'), json_extract(?1, '$.profile')");
        split.bind(1, plan);
        split.executeStep();
        plan = split.getColumn(0).getString();
        profile = split.getColumn(1).getString();
      }
      SQLite::Statement insert(db, std::string("INSERT INTO run (started_at, backend, failure, seed, model, schedule, ranks, microbatches, "
                                               "host, processor, cores, device, plan, ") +
                                       (profileColumn ? "profile, " : "") +
                                       "predicted_ns, predicted) VALUES ('2026-11-21T12:00:00Z', ?1, ?2, 3, 'small', 'gpipe', 1, 1, 'h', "
                                       "'p', 2, 'cpu', ?3, " +
                                       (profileColumn ? "?5, " : "") + "10, ?4)");
      const std::string predicted = toBlob(traceOf(10));
      insert.bind(1, backend);
      insert.bind(2, failure);
      insert.bind(3, plan);
      insert.bind(4, predicted.data(), static_cast<int>(predicted.size()));
      if (profileColumn) insert.bind(5, profile);
      insert.exec();
      const auto run = db.getLastInsertRowid();
      for (const Ns duration : {Ns{9}, Ns{4}, Ns{5}}) {
        const std::string measured = toBlob(traceOf(duration));
        SQLite::Statement step(db, "INSERT INTO step VALUES (?1, (SELECT count(*) FROM step WHERE run = ?1), 0, 0.25, ?2, ?3)");
        step.bind(1, run);
        step.bind(2, duration.value);
        step.bind(3, measured.data(), static_cast<int>(measured.size()));
        step.exec();
      }
    }
  }

  [[nodiscard]] std::string errorOf(Mode mode) const {
    try {
      RunStore(path_, mode);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  [[nodiscard]] std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(fs::path(path_).parent_path())) names.insert(entry.path().filename().string());
    return names;
  }
  /// Tables and indices with their columns' names, types and constraints, whatever their order.
  [[nodiscard]] static std::set<std::string> schemaOf(SQLite::Database& db) {
    std::set<std::string> schema;
    SQLite::Statement columns(db,
                              "SELECT m.type, m.name, c.name, c.type, c.\"notnull\", c.pk, c.dflt_value FROM sqlite_master m LEFT JOIN "
                              "pragma_table_info(m.name) c WHERE m.name NOT LIKE 'sqlite_%'");
    while (columns.executeStep()) {
      std::string line;
      for (int i = 0; i < 7; ++i) line += columns.getColumn(i).getString() + " ";
      schema.insert(line);
    }
    return schema;
  }

  test::Folder folder_;
  std::string path_ = folder_.file("runs.db");
};

TEST_F(OtherVersions, Version2GetsTheColumnsOfLaterVersions) {
  {
    SQLite::Database db = open();
    db.exec(readFile(PW_SOURCE_DIR "/resources/schema.sql"));  // has stayed as version 2 made it
    ASSERT_EQ(db.execAndGet("PRAGMA user_version").getInt(), 2);
    SQLite::Statement insert(
        db,
        "INSERT INTO run (started_at, backend, tf32, failure, seed, model, schedule, ranks, microbatches, host, processor, "
        "cores, device, plan, predicted_ns, predicted) "
        "VALUES ('2026-11-21T12:00:00Z', 'ucx', 1, '', 3, 'small', 'gpipe', 1, 1, 'h', 'p', 2, 'cpu', ?, 10, ?)");
    const std::string predicted = toBlob(traceOf(10));
    insert.bind(1, toJson(smallPlan()));
    insert.bind(2, predicted.data(), static_cast<int>(predicted.size()));
    insert.exec();
  }
  RunStore store(path_, Mode::ReadWrite);
  EXPECT_TRUE(files().contains("runs.db.v2.bak"));
  RunRecord run = store.load({});
  RunFacts known{};
  known.tf32 = true;
  EXPECT_EQ(run.facts, known);
  run.facts.optimizer = OptimizerSpec::Kind::AdamW;
  EXPECT_EQ(store.load(store.add(run)).facts.optimizer, OptimizerSpec::Kind::AdamW);
  SQLite::Database fresh(folder_.file("fresh.db"), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE), migrated = open();
  createStore(fresh);
  EXPECT_EQ(schemaOf(migrated), schemaOf(fresh));
  EXPECT_EQ(fresh.execAndGet("PRAGMA user_version").getInt(), kStoreVersion);
}

TEST_F(OtherVersions, Version1GetsItsColumnsFromTheTextThatHeldThem) {
  makeVersion1({{"gloo", ""}, {"ucx, bf16", ""}, {"nccl, fp16, tf32", "Rank 1 was ended"}, {"nccl, tf32", ""}, {"ucx, synthetic", ""}});
  const std::vector<RunSummary> runs = RunStore(path_, Mode::ReadWrite).list();
  std::vector<std::tuple<std::optional<Transport>, DType, bool, bool, RunState, std::string>> how;
  for (const RunSummary& run : runs) {
    how.emplace_back(run.transport, run.facts.precision, run.facts.tf32, run.facts.synthetic, run.state, run.failure);
    EXPECT_EQ(run.steps, 3);
    EXPECT_EQ(run.medianMeasuredStep, 4) << "of 4 and 5 after the first, the shorter";
  }
  EXPECT_THAT(how, ElementsAre(std::tuple(Transport::Gloo, DType::Unknown, false, false, RunState::Completed, ""),
                               std::tuple(Transport::Ucx, DType::BFloat16, false, false, RunState::Completed, ""),
                               std::tuple(Transport::Nccl, DType::Float16, true, false, RunState::Failed, "Rank 1 was ended"),
                               std::tuple(Transport::Nccl, DType::Unknown, true, false, RunState::Completed, ""),
                               std::tuple(Transport::Ucx, DType::Unknown, false, true, RunState::Completed, "")));
}

TEST_F(OtherVersions, RunsOfVersion1ComeBackWhole) {
  for (const bool profileColumn : {false, true}) {
    SCOPED_TRACE(profileColumn ? "with a column for the profile" : "with the profile in the plan");
    fs::remove(path_);
    makeVersion1({{"gloo", ""}}, profileColumn);
    RunStore store(path_, Mode::ReadWrite);
    const RunRecord run = test::wholeRun(store, RunId(1));
    EXPECT_EQ(run.plan, smallPlan());
    EXPECT_EQ(run.predicted, traceOf(10));
    ASSERT_EQ(run.steps.size(), 3U);
    EXPECT_EQ(run.steps[1], (StepRecord{0, 0.25, traceOf(4), std::nullopt}));
    RunRecord next = run;
    EXPECT_EQ(next.id = store.add(next), RunId(2));
    EXPECT_EQ(test::wholeRun(store), next);
  }
}

TEST_F(OtherVersions, AMigratedStoreHasTheSchemaOfANewOne) {
  makeVersion1({{"gloo", ""}}, true);
  static_cast<void>(RunStore(path_, Mode::ReadWrite));
  SQLite::Database migrated = open();
  path_ = folder_.file("new.db");
  static_cast<void>(RunStore(path_, Mode::ReadWrite));
  SQLite::Database fresh = open();
  EXPECT_EQ(schemaOf(migrated), schemaOf(fresh));
  EXPECT_EQ(migrated.execAndGet("PRAGMA user_version").getInt(), kStoreVersion);
  EXPECT_EQ(fresh.execAndGet("PRAGMA user_version").getInt(), kStoreVersion);
}

TEST_F(OtherVersions, ACopyOfTheOlderStoreIsKeptAndNoneIsOverwritten) {
  makeVersion1({{"ucx, bf16", ""}});
  const std::string kept = path_ + ".v1.bak";
  static_cast<void>(folder_.with("runs.db.v1.bak", "somebody else's"));
  static_cast<void>(RunStore(path_, Mode::ReadWrite));
  EXPECT_EQ(test::contentOf(kept), "somebody else's");
  SQLite::Database copy(path_ + ".v1.2.bak");
  EXPECT_EQ(copy.execAndGet("PRAGMA user_version").getInt(), 1);
  EXPECT_EQ(copy.execAndGet("SELECT backend FROM run").getString(), "ucx, bf16");
  EXPECT_EQ(copy.execAndGet("SELECT count(*) FROM step").getInt(), 3);
  static_cast<void>(RunStore(path_, Mode::ReadWrite));
  EXPECT_EQ(files(), (std::set<std::string>{"runs.db", "runs.db.v1.bak", "runs.db.v1.2.bak"})) << "migrated once";
}

TEST_F(OtherVersions, AStoreThatCannotBeMigratedStaysAsItWas) {
  makeVersion1({{"ucx, bf16", ""}});
  open().exec("CREATE INDEX step_duration ON step (run)");  // in the migration's way
  EXPECT_NE(errorOf(Mode::ReadWrite), "");
  EXPECT_EQ(files(), std::set<std::string>{"runs.db"}) << "no copy is left of what did not change";
  SQLite::Database db = open();
  EXPECT_EQ(db.execAndGet("PRAGMA user_version").getInt(), 1);
  EXPECT_EQ(db.execAndGet("SELECT backend FROM run").getString(), "ucx, bf16");
}

TEST_F(OtherVersions, AReaderOfAnOlderStoreMigratesItToo) {
  makeVersion1({{"ucx, bf16", ""}});
  EXPECT_EQ(RunStore(path_, Mode::ReadOnly).list().front().facts.precision, DType::BFloat16);
  EXPECT_EQ(files(), (std::set<std::string>{"runs.db", "runs.db.v1.bak"}));
}

TEST_F(OtherVersions, AReaderOfAnOlderStoreItMayNotWriteSeesAMigratedCopy) {
  makeVersion1({{"ucx, bf16", ""}});
  ::chmod(path_.c_str(), 0444);
  fs::permissions(folder_.file("."), fs::perms(0555));
  const bool isRoot = ::geteuid() == 0;
  ASSERT_EQ(isRoot ? ::seteuid(65534) : 0, 0);
  RunSummary run;
  const std::string error = [&] {
    try {
      run = RunStore(path_, Mode::ReadOnly).list().front();
    } catch (const Error& problem) {
      return std::string(problem.what());
    }
    return std::string();
  }();
  ASSERT_EQ(isRoot ? ::seteuid(0) : 0, 0);
  fs::permissions(folder_.file("."), fs::perms(0755));
  EXPECT_EQ(error, "");
  EXPECT_EQ(run.facts.precision, DType::BFloat16);
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(open().execAndGet("PRAGMA user_version").getInt(), 1);
}

/// A store of a later version that has columns and tables we do not know.
void makeNewer(const std::string& path, const char* change) {
  RunRecord run;
  run.startedAt = "2030-01-01T00:00:00Z";
  run.transport = Transport::Ucx;
  run.plan = smallPlan();
  run.predicted = traceOf(10);
  run.steps = {{0, 0.5, traceOf(12), std::nullopt}};
  static_cast<void>(RunStore(path, Mode::ReadWrite).add(run));
  SQLite::Database db(path, SQLite::OPEN_READWRITE);
  db.exec(change);
  db.exec(fmt::format("PRAGMA user_version = {}", kStoreVersion + 1));
}

TEST_F(OtherVersions, ANewerStoreIsReadWithANoteAndRefusedForWriting) {
  makeNewer(path_, "ALTER TABLE run ADD COLUMN mood TEXT NOT NULL DEFAULT 'fine'; CREATE TABLE wish (text TEXT)");
  const RunStore store(path_, Mode::ReadOnly);
  EXPECT_THAT(store.note(), AllOf(HasSubstr(path_), HasSubstr(fmt::format("format {}, here {}", kStoreVersion + 1, kStoreVersion)),
                                  HasSubstr("update Pipewright")));
  ASSERT_EQ(store.list().size(), 1U);
  EXPECT_EQ(store.list().front().medianMeasuredStep, 12);
  EXPECT_EQ(test::wholeRun(store).steps.front().measured, traceOf(12));
  EXPECT_THAT(errorOf(Mode::ReadWrite), AllOf(HasSubstr(fmt::format("format {}, newer than the {}", kStoreVersion + 1, kStoreVersion)),
                                              HasSubstr("can be listed and compared"), HasSubstr("update Pipewright or give another")));
  EXPECT_FALSE(files().contains(fmt::format("runs.db.v{}.bak", kStoreVersion + 1)));
}

TEST_F(OtherVersions, ANewerStateOfARunIsTakenForAFailure) {
  makeNewer(path_, "UPDATE run SET state = 'paused'");
  const RunSummary run = RunStore(path_, Mode::ReadOnly).list().front();
  EXPECT_EQ(run.state, RunState::Failed);
  EXPECT_EQ(run.failure, "paused");
}

TEST_F(OtherVersions, ATransportThatIsUnknownHereIsCalledSo) {
  makeNewer(path_, "UPDATE run SET backend = 'pigeons'");
  const RunSummary run = RunStore(path_, Mode::ReadOnly).list().front();
  EXPECT_EQ(run.transport, std::nullopt);
  EXPECT_EQ(howComputed(run), "unknown");
}

TEST_F(OtherVersions, ANewerStoreWithoutWhatWeReadIsRefusedByNumber) {
  makeNewer(path_, "ALTER TABLE run RENAME COLUMN predicted_ns TO forecast_ns");
  EXPECT_THAT(errorOf(Mode::ReadOnly), AllOf(HasSubstr(fmt::format("format {}", kStoreVersion + 1)),
                                             HasSubstr(fmt::format("reads up to {}", kStoreVersion)), HasSubstr("update Pipewright")));
}

TEST_F(OtherVersions, AStoreOfOurVersionHasNoNote) {
  static_cast<void>(RunStore(path_, Mode::ReadWrite));
  EXPECT_EQ(RunStore(path_, Mode::ReadOnly).note(), "");
}

}  // namespace
}  // namespace pw
