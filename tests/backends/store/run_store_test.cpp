#include "backends/store/run_store.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <span>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "backends/resources/resources.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/costs/cluster.h"
#include "simulator/step/cost_table.h"
#include "tests/support/whole_run.h"

namespace pw {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Mode = RunStore::Mode;

Trace traceOf(Ns duration) {
  return {2,
          {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 0, duration / 2},
           {Rank(1), SpanKind::Backward, Stage(1), Microbatch(0), Rank(1), 0, duration / 2, duration}},
          {{Rank(0), 0, 64}, {Rank(1), duration, 128}}};
}

/// A run of a two-stage plan whose steps took so long.
RunRecord runOf(const std::vector<Ns>& steps) {
  RunRecord run;
  run.startedAt = "2026-11-21T12:00:00Z";
  run.transport = Transport::Gloo;
  run.seed = std::numeric_limits<std::uint64_t>::max();
  run.machine = {"host", "a processor", 2, "cpu"};
  run.plan.modelFiles = {"/models/small.pt2"};
  run.plan.modelName = "small";
  run.plan.batch = 3;
  run.plan.schedule = lower(generate("1f1b", {2, 2, 3}));
  run.plan.costs = syntheticTable(
      {.forward = {10}, .backward = {20}, .backwardInput = {10}, .backwardWeight = {10}, .latency = 1, .transfer = 2, .overlap = {}}, 2);
  run.plan.partition.stages = {{NodeId(0), NodeId(4), {}, {ValueId(0)}, {0}, {}, {}, {}}, {NodeId(4), NodeId(9), {}, {}, {1}, {}, {}, {}}};
  run.plan.partition.transfers = {{ValueId(5), Stage(0), Stage(1), true, 4096}};
  run.plan.splitNames = {"blocks.1"};
  run.plan.profile.machine.processor = "a 'processor'";
  run.predicted = traceOf(1'000);
  for (std::size_t i = 0; i < steps.size(); ++i)
    run.steps.push_back({static_cast<int>(i), 1.0 / static_cast<double>(i + 3), traceOf(steps[i])});
  return run;
}

std::string errorOf(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string bytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return (std::ostringstream() << file.rdbuf()).str();
}

/// Root may write everywhere: permissions are tested as somebody else.
class AsNobody {
 public:
  AsNobody() {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) throw std::runtime_error("cannot become nobody");
  }
  ~AsNobody() {
    if (::geteuid() != ::getuid() && ::seteuid(::getuid()) != 0) std::abort();
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;
};

class RunStoreTest : public testing::Test {
 protected:
  RunStoreTest() {
    std::string name = (fs::temp_directory_path() / "run_store_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
    fs::permissions(folder_, fs::perms::all);
    path_ = (folder_ / "runs.db").string();
  }
  void TearDown() override {
    std::error_code ignored;
    fs::permissions(folder_, fs::perms::all, ignored);
    fs::remove_all(folder_, ignored);
  }

  [[nodiscard]] RunStore writer() const { return RunStore(path_, Mode::ReadWrite); }
  [[nodiscard]] RunStore reader() const { return RunStore(path_, Mode::ReadOnly); }
  [[nodiscard]] std::string openError(Mode mode) const {
    return errorOf([&] { RunStore(path_, mode); });
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(RunStoreTest, ARunComesBackAsItWas) {
  RunRecord run = runOf({1'100, 1'300});
  run.state = RunState::Failed;
  run.failure = "rank 1: it's \"lost\" – done";
  run.id = writer().add(run);
  EXPECT_EQ(run.id, RunId(1));
  EXPECT_EQ(test::wholeRun(reader(), RunId(1)), run);
}

TEST_F(RunStoreTest, ALossThatIsNoNumberComesBackAsNone) {
  RunRecord run = runOf({1, 2, 3});
  run.steps[0].loss = std::numeric_limits<double>::quiet_NaN();
  run.steps[1].loss = std::numeric_limits<double>::infinity();
  writer().add(run);
  const RunRecord read = test::wholeRun(reader());
  EXPECT_TRUE(std::isnan(read.steps[0].loss));
  EXPECT_TRUE(std::isinf(read.steps[1].loss));
  EXPECT_EQ(read.steps[2].loss, run.steps[2].loss);
}

TEST_F(RunStoreTest, TheListShowsRunsOldestFirstWithMedians) {
  RunStore store = writer();
  EXPECT_TRUE(store.list().empty());
  store.add(runOf({900, 100, 300}));       // of 100 and 300 after the warm-up the shorter
  store.add(runOf({400, 100, 200, 700}));  // the middle one of 100, 200 and 700
  RunRecord failed = runOf({});
  failed.failure = "rank 0: no memory";
  store.add(failed);
  const RunSummary first{RunId(1), failed.startedAt, "small", "1f1b", "", Transport::Gloo, 2, 3, 3, 1'000, 100};
  RunSummary second = first, third = first;
  second.id = RunId(2), second.steps = 4, second.medianMeasuredStep = 200;
  third.id = RunId(3), third.steps = 0, third.medianMeasuredStep = 0, third.failure = failed.failure, third.state = RunState::Failed;
  EXPECT_EQ(store.list(), (std::vector{first, second, third}));
}

TEST_F(RunStoreTest, TheListNamesTheClusterThatTimesAreOf) {
  RunStore store = writer();
  const std::string edited = toJson(loadCluster("h100-nvlink"));
  for (const std::string& cluster : {std::string(), std::string("h100-nvlink"), edited}) {
    RunRecord run = runOf({1});
    run.plan.profile.cluster = cluster;
    store.add(run);
    EXPECT_EQ(store.list().back().cluster, cluster);
  }
}

TEST_F(RunStoreTest, WithoutIdTheNewestRunIsLoaded) {
  RunStore store = writer();
  store.add(runOf({1}));
  store.add(runOf({2, 2}));
  EXPECT_EQ(store.load({}).id, RunId(2));
}

TEST_F(RunStoreTest, AnUnknownRunIsAnErrorNamingThoseThatAre) {
  RunStore store = writer();
  EXPECT_THAT(errorOf([&] { (void)store.load({}); }), HasSubstr("holds no runs yet"));
  for (int i = 0; i < 4; ++i) store.add(runOf({1}));
  EXPECT_THAT(errorOf([&] { (void)store.load(RunId(9)); }), AllOf(HasSubstr("no run 9"), HasSubstr("1 to 4")));
  SQLite::Database(path_, SQLite::OPEN_READWRITE).exec("DELETE FROM run WHERE id = 2");
  EXPECT_THAT(errorOf([&] { (void)store.load(RunId(2)); }), HasSubstr("1, 3, 4"));
}

TEST_F(RunStoreTest, ThreadsThatCreateAndAddAtOnceLoseNothing) {
  constexpr int kWriters = 4;
  std::vector<std::future<void>> writers;
  writers.reserve(kWriters);
  for (int w = 0; w < kWriters; ++w) {
    writers.push_back(std::async(std::launch::async, [&] {
      RunStore store(path_, Mode::ReadWrite, std::chrono::seconds(20));
      for (int i = 0; i < 10; ++i) store.add(runOf({1}));
    }));
  }
  for (auto& writer : writers) writer.get();
  EXPECT_EQ(reader().list().size(), 40U);
}

TEST_F(RunStoreTest, TwoProcessesAddAtOnceAndLoseNothing) {
  const pid_t child = ::fork();
  const auto addTen = [&] {
    RunStore store(path_, Mode::ReadWrite, std::chrono::seconds(20));
    for (int i = 0; i < 10; ++i) store.add(runOf({1}));
  };
  if (child == 0) ::_exit(errorOf(addTen).empty() ? 0 : 1);
  addTen();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(reader().list().size(), 20U);
}

TEST_F(RunStoreTest, ReadersWorkWhileAnotherWrites) {
  writer().add(runOf({1}));
  SQLite::Database other(path_, SQLite::OPEN_READWRITE);
  const SQLite::Transaction writing(other, SQLite::TransactionBehavior::IMMEDIATE);
  other.exec("DELETE FROM run");
  EXPECT_EQ(reader().list().size(), 1U);
}

TEST_F(RunStoreTest, ALockedStoreIsAnErrorAfterTheWait) {
  RunStore store(path_, Mode::ReadWrite, std::chrono::milliseconds(20));
  store.add(runOf({1}));
  {
    SQLite::Database other(path_, SQLite::OPEN_READWRITE);
    const SQLite::Transaction writing(other, SQLite::TransactionBehavior::IMMEDIATE);
    EXPECT_THAT(errorOf([&] { store.add(runOf({1})); }), AllOf(HasSubstr("locked by another program for 20 ms"), HasSubstr("try again")));
  }
  EXPECT_EQ(store.add(runOf({1})), RunId(2));
}

TEST_F(RunStoreTest, AMissingFileIsAnErrorForAReader) {
  EXPECT_THAT(openError(Mode::ReadOnly), AllOf(HasSubstr("no run store " + path_), HasSubstr("pipewright run --store")));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(RunStoreTest, AMissingFolderIsNamed) {
  path_ = (folder_ / "no" / "runs.db").string();
  EXPECT_THAT(openError(Mode::ReadWrite), AllOf(HasSubstr("folder"), HasSubstr("does not exist")));
}

TEST_F(RunStoreTest, AnotherProgramsFileIsRefusedAndUntouched) {
  SQLite::Database(path_, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec("CREATE TABLE song (title TEXT)");
  const std::string before = bytesOf(path_);
  for (const Mode mode : {Mode::ReadOnly, Mode::ReadWrite}) EXPECT_THAT(openError(mode), HasSubstr("not a Pipewright run store"));
  EXPECT_EQ(bytesOf(path_), before);
}

TEST_F(RunStoreTest, AFileThatIsNoDatabaseIsRefusedAndUntouched) {
  for (const std::string& text : {std::string("hello"), std::string(5'000, 'x')}) {
    std::ofstream(path_) << text;
    for (const Mode mode : {Mode::ReadOnly, Mode::ReadWrite}) EXPECT_THAT(openError(mode), HasSubstr("not a Pipewright run store"));
    EXPECT_EQ(bytesOf(path_), text);
  }
}

TEST_F(RunStoreTest, AnUnfinishedRunKeepsTheStepsThatWereAppended) {
  const RunRecord whole = runOf({7, 5, 3});
  RunRecord begun = whole;
  begun.steps.clear();
  begun.state = RunState::Unfinished;
  RunStore store = writer();
  const RunId id = store.add(begun);
  store.append(id, std::span(whole.steps).first(1));
  store.append(id, std::span(whole.steps).subspan(1));
  RunRecord read = test::wholeRun(reader(), id);
  EXPECT_EQ(read.steps, whole.steps);
  EXPECT_EQ(read.state, RunState::Unfinished);
  EXPECT_EQ(read.failure, kUnfinishedRun);
  EXPECT_EQ(reader().list().front().state, RunState::Unfinished);
  EXPECT_EQ(reader().list().front().steps, 3);
  store.end(id, "");
  read = reader().load(id);
  EXPECT_EQ(read.state, RunState::Completed);
  EXPECT_EQ(read.failure, "");
  store.end(id, "too late");
  EXPECT_EQ(reader().load(id).state, RunState::Completed) << "a run ends once";
}

TEST_F(RunStoreTest, ARunThatFailsKeepsItsStepsAndSaysWhy) {
  RunRecord begun = runOf({7});
  begun.state = RunState::Unfinished;
  RunStore store = writer();
  const RunId id = store.add(begun);
  store.end(id, "rank 1: no memory");
  const RunRecord read = test::wholeRun(reader(), id);
  EXPECT_EQ(read.state, RunState::Failed);
  EXPECT_EQ(read.failure, "rank 1: no memory");
  EXPECT_EQ(read.steps, begun.steps);
}

TEST_F(RunStoreTest, ARunIsReadWithoutItsSteps) {
  const RunId id = writer().add(runOf({1, 2}));
  SQLite::Database(path_, SQLite::OPEN_READWRITE).exec("UPDATE step SET measured = x'00'");
  EXPECT_TRUE(reader().load(id).steps.empty());
  EXPECT_EQ(reader().stepCount(id), 2);
  EXPECT_EQ(reader().stepCount(RunId(9)), 0);
}

TEST_F(RunStoreTest, StepsAreReadByAWindow) {
  const RunRecord run = runOf({7, 5, 3, 9});
  const RunId id = writer().add(run);
  const RunStore store = reader();
  EXPECT_EQ(store.loadSteps(id, 1, 2), std::vector(run.steps.begin() + 1, run.steps.begin() + 3));
  EXPECT_EQ(store.loadSteps(id, 3, 10), std::vector(run.steps.begin() + 3, run.steps.end()));
  EXPECT_TRUE(store.loadSteps(id, 4, 1).empty());
}

TEST_F(RunStoreTest, TheNumbersOfManyStepsAreThinnedEvenly) {
  RunRecord run = runOf({1, 1, 1, 1, 1, 1, 1});
  for (int s = 0; s < 7; ++s) run.steps[static_cast<std::size_t>(s)].step = 10 + s;
  const RunId id = writer().add(run);
  const RunStore store = reader();
  EXPECT_EQ(store.stepNumbers(id, 7), (std::vector{10, 11, 12, 13, 14, 15, 16}));
  EXPECT_EQ(store.stepNumbers(id, 6), (std::vector{10, 12, 14, 16}));
  EXPECT_EQ(store.stepNumbers(id, 2), (std::vector{10, 14}));
  EXPECT_EQ(store.stepNumbers(id, 1), std::vector{10});
  EXPECT_TRUE(store.stepNumbers(RunId(9), 5).empty());
}

TEST_F(RunStoreTest, OneStepIsReadByItsNumberOrAsTheMedian) {
  RunRecord run = runOf({400, 100, 200, 700});  // the middle one of 100, 200 and 700
  for (int s = 0; s < 4; ++s) run.steps[static_cast<std::size_t>(s)].step = 5 + s;
  run.id = writer().add(run);
  const RunStore store = reader();
  EXPECT_EQ(store.loadStep(run, {}), run.steps[2]);
  EXPECT_EQ(store.loadStep(run, 8), run.steps[3]);
  EXPECT_EQ(errorOf([&] { (void)store.loadStep(run, 9); }), "run 1 of " + path_ + " has no step 9; it has 4 steps");
  RunRecord one = runOf({300});
  one.id = writer().add(one);
  EXPECT_EQ(store.loadStep(one, {}), one.steps[0]);
}

TEST_F(RunStoreTest, ARunWithoutStepsHasNoMedianAndSaysWhy) {
  RunRecord run = runOf({});
  run.id = writer().add(run);
  EXPECT_EQ(errorOf([&] { (void)reader().loadStep(run, {}); }), "run 1 has no measured step; choose another run with --run");
  run.state = RunState::Failed;
  EXPECT_THAT(errorOf([&] { (void)reader().loadStep(run, {}); }), HasSubstr("has no measured step, as it failed;"));
  run.state = RunState::Unfinished;
  EXPECT_THAT(errorOf([&] { (void)reader().loadStep(run, {}); }), HasSubstr("has no measured step yet;"));
}

TEST(MedianPosition, IsTheMiddleOfThoseAfterTheFirst) {
  EXPECT_EQ(medianPosition(std::vector<Ns>{5}), 0U);
  EXPECT_EQ(medianPosition(std::vector<Ns>{5, 9}), 1U);
  EXPECT_EQ(medianPosition(std::vector<Ns>{900, 100, 300}), 1U) << "of two in the middle the shorter";
  EXPECT_EQ(medianPosition(std::vector<Ns>{1, 7, 7, 7}), 2U) << "of equal ones the earlier";
}

TEST_F(RunStoreTest, StepsOfARunThatIsGoneAreRefused) {
  RunStore store = writer();
  static_cast<void>(store.add(runOf({1})));
  const std::vector<StepRecord> steps = runOf({1}).steps;
  EXPECT_THAT(errorOf([&] { store.append(RunId(9), steps); }), HasSubstr("holds no run 9"));
}

TEST_F(RunStoreTest, HowARunWasComputedIsColumns) {
  RunRecord run = runOf({1});
  run.transport = Transport::Nccl;
  run.facts.precision = DType::BFloat16;
  run.facts.tf32 = run.facts.synthetic = true;
  run.facts.optimizer = OptimizerSpec::Kind::RmsProp;
  run.facts.backward = Backward::Dynamic;
  run.facts.costs = CostSource::Estimated;
  run.steps[0].gradientNorm = 0.5;
  run.id = writer().add(run);
  EXPECT_EQ(test::wholeRun(reader()), run);
  const RunSummary summary = reader().list().front();
  EXPECT_EQ(std::tuple(summary.transport, summary.facts), std::tuple(run.transport, run.facts));
  std::vector<std::string> texts;
  texts.reserve(kRunColumns.size());
  for (const RunColumn& column : kRunColumns) texts.push_back(textOf(column, summary.facts));
  EXPECT_THAT(texts, testing::ElementsAre("bf16", "yes", "yes", "rmsprop", "dynamic", "estimated"));
  for (const RunColumn& column : kRunColumns) EXPECT_EQ(textOf(column, RunFacts{}), "") << column.name;
  EXPECT_EQ(howComputed(summary), "nccl, bf16, tf32, synthetic, dynamic backward");
  EXPECT_EQ(howComputed(runOf({})), "gloo");
}

TEST_F(RunStoreTest, AReadOnlyFileIsRefusedForWritingButRead) {
  writer().add(runOf({1}));
  ::chmod(path_.c_str(), 0444);
  const AsNobody nobody;
  EXPECT_THAT(openError(Mode::ReadWrite), HasSubstr("is read-only; make it writable"));
  EXPECT_EQ(reader().list().size(), 1U);
}

TEST_F(RunStoreTest, AReadOnlyFolderIsRefusedForWritingButRead) {
  writer().add(runOf({1}));
  ::chmod(path_.c_str(), 0666);
  fs::permissions(folder_, fs::perms(0555));
  const AsNobody nobody;
  EXPECT_THAT(openError(Mode::ReadWrite), AllOf(HasSubstr("read-only"), HasSubstr(folder_.string())));
  EXPECT_EQ(reader().stepCount(reader().load({}).id), 1);
  path_ = (folder_ / "new.db").string();
  EXPECT_THAT(openError(Mode::ReadWrite), HasSubstr("folder that is read-only"));
}

TEST_F(RunStoreTest, AReadOnlyStoreTakesNoRuns) {
  writer().add(runOf({1}));
  RunStore store = reader();
  EXPECT_NE(errorOf([&] { store.add(runOf({1})); }), "");
  EXPECT_EQ(store.list().size(), 1U);
}

/// Bounds the size of files this process may write, as a full disk does, while it lives.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(RunStoreTest, AFullDiskIsAnErrorAndLosesNoRun) {
  RunStore store = writer();
  store.add(runOf({5}));
  RunRecord large = runOf({1});
  large.steps[0].measured.spans.resize(100'000, large.steps[0].measured.spans[1]);  // 4.4 MB
  {
    const FullDisk full(1 << 20);
    EXPECT_THAT(errorOf([&] { store.add(large); }), AllOf(HasSubstr("cannot write"), HasSubstr("free space"), HasSubstr("are kept")));
    EXPECT_EQ(store.list().size(), 1U);
  }
  EXPECT_EQ(store.add(large), RunId(2));
  EXPECT_EQ(test::wholeRun(reader(), RunId(1)).steps, runOf({5}).steps);
  EXPECT_EQ(test::wholeRun(reader(), RunId(2)).steps, large.steps);
}

TEST_F(RunStoreTest, WithoutSharedMemoryTheRollbackJournalServes) {
  sqlite3_vfs* usual = sqlite3_vfs_find(nullptr);
  sqlite3_vfs* networkHome = sqlite3_vfs_find("unix-dotfile");  // as on NFS: file locks, no shared memory
  ASSERT_NE(networkHome, nullptr);
  sqlite3_vfs_register(networkHome, 1);
  const std::string error = errorOf([&] {
    writer().add(runOf({1}));
    EXPECT_EQ(reader().list().size(), 1U);
  });
  sqlite3_vfs_register(usual, 1);
  EXPECT_EQ(error, "");
  EXPECT_EQ(SQLite::Database(path_).execAndGet("PRAGMA journal_mode").getString(), "delete");
}

TEST_F(RunStoreTest, TheWriteAheadLogIsUsedWhereItCanBe) {
  writer().add(runOf({1}));
  EXPECT_EQ(SQLite::Database(path_).execAndGet("PRAGMA journal_mode").getString(), "wal");
}

TEST_F(RunStoreTest, ADamagedTraceIsNamedByRunAndStep) {
  writer().add(runOf({1, 2}));
  SQLite::Database(path_, SQLite::OPEN_READWRITE).exec("UPDATE step SET measured = x'50575452ff' WHERE position = 1");
  EXPECT_THAT(errorOf([&] { (void)test::wholeRun(reader()); }), AllOf(HasSubstr("step 1 of run 1 in " + path_), HasSubstr("damaged")));
  EXPECT_EQ(reader().list().size(), 1U);
}

TEST_F(RunStoreTest, ADamagedFileIsAnErrorNotACrash) {
  writer().add(runOf({1}));
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(4096);
  file << std::string(static_cast<std::size_t>(fs::file_size(path_)) - 4096, '\x5a');
  file.close();
  EXPECT_NE(errorOf([&] { (void)test::wholeRun(reader()); }), "");
}

}  // namespace
}  // namespace pw
