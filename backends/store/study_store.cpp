#include "backends/store/study_store.h"

#include <optional>
#include <utility>

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backends/store/store_errors.h"
#include "schedules/error.h"
#include "simulator/search/search.h"

namespace pw {
namespace {

constexpr int kLockWaitMs = 30'000;
constexpr int kApplicationId = 0x70775374;  ///< of SQLite's header: a study of Pipewright
constexpr const char* kSchema = R"(
CREATE TABLE study (version INTEGER NOT NULL, text TEXT NOT NULL);
CREATE TABLE point (
  number INTEGER PRIMARY KEY,
  model TEXT NOT NULL, cluster TEXT NOT NULL, precision TEXT NOT NULL, attention TEXT NOT NULL, schedule TEXT NOT NULL,
  ranks INTEGER NOT NULL, replicas INTEGER NOT NULL, chunks INTEGER NOT NULL, microbatches INTEGER NOT NULL,
  microbatch INTEGER NOT NULL, batch INTEGER NOT NULL, balance TEXT NOT NULL, recompute TEXT NOT NULL,
  optimizer TEXT NOT NULL, zero1 INTEGER NOT NULL, memory_limit INTEGER NOT NULL,
  problem TEXT NOT NULL, stages INTEGER NOT NULL, samples INTEGER NOT NULL, step_ns INTEGER NOT NULL, makespan_ns INTEGER NOT NULL,
  bubble_fraction REAL NOT NULL, peak_bytes INTEGER NOT NULL, excess_bytes INTEGER NOT NULL, samples_per_second REAL NOT NULL,
  flop_utilisation REAL NOT NULL, splits TEXT NOT NULL);
)";
constexpr const char* kInsert = "INSERT OR IGNORE INTO point VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
constexpr const char* kResults =
    "SELECT number, problem, stages, samples, step_ns, makespan_ns, bubble_fraction, peak_bytes, excess_bytes, samples_per_second, "
    "flop_utilisation, splits FROM point ";

StudyResult resultIn(SQLite::Statement& row) {
  StudyResult r;
  int column = 0;
  const auto next = [&] { return row.getColumn(column++); };
  r.point = next().getInt64();
  r.problem = next().getString();
  r.stages = next().getInt();
  r.samples = next().getInt64();
  r.step = next().getInt64();
  r.makespan = next().getInt64();
  r.bubbleFraction = next().getDouble();
  r.peak = next().getInt64();
  r.excess = next().getInt64();
  r.samplesPerSecond = next().getDouble();
  r.flopUtilisation = next().getDouble();
  r.splits = next().getString();
  return r;
}

void bindRow(SQLite::Statement& insert, const StudyRow& row) {
  const auto& [p, r] = row;
  int at = 0;
  const auto text = [&](const std::string& value) { insert.bind(++at, value); };
  const auto number = [&](std::int64_t value) { insert.bind(++at, value); };
  const auto real = [&](double value) { insert.bind(++at, value); };
  number(p.number);
  text(p.model);
  text(p.cluster);
  text(p.precision);
  text(std::string(attentionName(p.attention)));
  text(p.schedule);
  for (const int value : {p.ranks, p.replicas, p.chunks, p.microbatches}) number(value);
  number(p.microbatchSize);
  number(p.batch);
  text(std::string(name(p.balance)));
  text(fmt::format("{}", fmt::join(wordsOf(p.recompute), ",")));
  text(std::string(nameOf(p.optimizer.kind)));
  number(p.zero1 ? 1 : 0);
  number(p.memoryLimit);
  text(r.problem);
  number(r.stages);
  for (const std::int64_t value : {r.samples, r.step, r.makespan}) number(value);
  real(r.bubbleFraction);
  for (const Bytes value : {r.peak, r.excess}) number(value);
  real(r.samplesPerSecond);
  real(r.flopUtilisation);
  text(r.splits);
}

/// In quotes where a spreadsheet would not take it as one cell.
std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

/// The open file. Every use of SQLite goes through `guarded`, which words what it throws.
struct StudyStore::Database {
  std::string path;
  std::optional<SQLite::Database> db;

  template <class Work>
  auto guarded(Work work) {
    try {
      return work();
    } catch (const SQLite::Exception& problem) {
      rethrow(problem, path, kLockWaitMs, "study");
    }
  }

  /// The study's text.
  std::string open(bool creates, const std::string& text) {
    return guarded([&] {
      if (!creates && !fileExists(path))
        throw UsageError(fmt::format("There is no study {}; name a file that `search --study` wrote.", path));
      db.emplace(path, creates ? SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE : SQLite::OPEN_READWRITE, kLockWaitMs);
      if (creates) {
        SQLite::Transaction transaction(*db, SQLite::TransactionBehavior::IMMEDIATE);
        if (db->execAndGet("SELECT count(*) FROM sqlite_master").getInt() == 0) {
          db->exec(kSchema);
          db->exec(fmt::format("PRAGMA application_id = {}", kApplicationId));
          SQLite::Statement insert(*db, "INSERT INTO study VALUES (1, ?)");
          insert.bind(1, text);
          insert.exec();
        }
        transaction.commit();
      }
      if (db->execAndGet("PRAGMA application_id").getInt() != kApplicationId)
        throw UsageError(fmt::format("{} is not a study; name a file that `search --study` wrote, or a new one.", path));
      SQLite::Statement read(*db, "SELECT version, text FROM study");
      if (!read.executeStep() || read.getColumn(0).getInt() > 1)
        throw UsageError(fmt::format("The study {} is newer than this Pipewright reads; update it.", path));
      return read.getColumn(1).getString();
    });
  }

  /// A row of the study. Throws Error where the file has a point that the study does not.
  [[nodiscard]] StudyRow rowOf(const Study& study, StudyResult result) const {
    if (result.point < 0 || result.point >= pointsOf(study))
      throw Error(fmt::format("the study {} is damaged: it has no point {}; restore it from a copy", path, result.point));
    return {pointOf(study, result.point), std::move(result)};
  }

  std::vector<StudyRow> select(const Study& study, const std::string& rest) {
    return guarded([&] {
      std::vector<StudyRow> rows;
      SQLite::Statement query(*db, kResults + rest);
      while (query.executeStep()) rows.push_back(rowOf(study, resultIn(query)));
      return rows;
    });
  }
};

StudyStore::StudyStore(const std::string& path, const std::string& text) : database_(std::make_unique<Database>()) {
  database_->path = path;
  text_ = database_->open(true, text);
  study_ = parseStudy(text_, path);
  if (parseStudy(text, path) != study_)
    throw UsageError(fmt::format("{} has the results of another study; give another --out, or delete it.", path));
}

StudyStore::StudyStore(const std::string& path) : database_(std::make_unique<Database>()) {
  database_->path = path;
  text_ = database_->open(false, "");
  study_ = parseStudy(text_, path);
}

StudyStore::~StudyStore() = default;
StudyStore::StudyStore(StudyStore&&) noexcept = default;
StudyStore& StudyStore::operator=(StudyStore&&) noexcept = default;

std::vector<bool> StudyStore::done() const {
  std::vector<bool> done(static_cast<std::size_t>(pointsOf(study_)), false);
  database_->guarded([&] {
    SQLite::Statement query(*database_->db, "SELECT number FROM point");
    while (query.executeStep()) {
      const std::int64_t number = query.getColumn(0).getInt64();
      if (number >= 0 && number < static_cast<std::int64_t>(done.size())) done[static_cast<std::size_t>(number)] = true;
    }
  });
  return done;
}

StudyCounts StudyStore::counts() const {
  return database_->guarded([&] {
    SQLite::Statement query(*database_->db,
                            "SELECT count(*), coalesce(sum(problem = '' AND excess_bytes = 0), 0), coalesce(sum(excess_bytes > 0), 0), "
                            "coalesce(sum(problem <> ''), 0) FROM point");
    query.executeStep();
    return StudyCounts{query.getColumn(0).getInt64(), query.getColumn(1).getInt64(), query.getColumn(2).getInt64(),
                       query.getColumn(3).getInt64()};
  });
}

void StudyStore::add(const std::vector<StudyRow>& rows) {
  database_->guarded([&] {
    SQLite::Transaction transaction(*database_->db, SQLite::TransactionBehavior::IMMEDIATE);
    SQLite::Statement insert(*database_->db, kInsert);
    for (const StudyRow& row : rows) {
      bindRow(insert, row);
      insert.exec();
      insert.reset();
    }
    transaction.commit();
  });
}

void StudyStore::merge(const StudyStore& part) {
  if (part.study_ != study_)
    throw UsageError(fmt::format("{} and {} are of different studies; merge parts of one.", database_->path, part.database_->path));
  constexpr std::size_t kAtOnce = 10'000;
  std::vector<StudyRow> rows;
  part.forEach([&](const StudyRow& row) {
    rows.push_back(row);
    if (rows.size() < kAtOnce) return;
    add(rows);
    rows.clear();
  });
  add(rows);
}

void StudyStore::forEach(const std::function<void(const StudyRow&)>& visit) const {
  database_->guarded([&] {
    SQLite::Statement query(*database_->db, std::string(kResults) + "ORDER BY number");
    while (query.executeStep()) visit(database_->rowOf(study_, resultIn(query)));
  });
}

std::vector<StudyRow> StudyStore::best(int most) const {
  return database_->select(study_, fmt::format("WHERE problem = '' AND excess_bytes = 0 "
                                               "ORDER BY samples_per_second DESC, peak_bytes, number LIMIT {}",
                                               most));
}

std::vector<StudyRow> StudyStore::bestOfRanks() const {
  return database_->select(study_,
                           "WHERE number IN (SELECT number FROM (SELECT number, row_number() OVER (PARTITION BY ranks * replicas "
                           "ORDER BY samples_per_second DESC, peak_bytes, number) AS place FROM point WHERE problem = '' AND "
                           "excess_bytes = 0) WHERE place = 1) ORDER BY ranks * replicas");
}

bool isStudy(const std::string& path) {
  try {
    SQLite::Database db(path, SQLite::OPEN_READONLY, kLockWaitMs);
    return db.execAndGet("PRAGMA application_id").getInt() == kApplicationId;
  } catch (const SQLite::Exception&) {
    return false;
  }
}

std::string studyCsvHeader() {
  return "number,model,cluster,precision,attention,schedule,ranks,replicas,chunks,microbatches,microbatch,batch,balance,recompute,"
         "optimizer,"
         "zero1,memory_limit,problem,stages,samples,step_ns,makespan_ns,bubble_fraction,peak_bytes,excess_bytes,samples_per_second,"
         "flop_utilisation,splits\n";
}

std::string studyCsvLine(const StudyRow& row) {
  const auto& [p, r] = row;
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:.6g},{},{},{:.9g},{:.6g},{}\n", p.number,
                     cell(p.model), cell(p.cluster), p.precision, attentionName(p.attention), p.schedule, p.ranks, p.replicas, p.chunks,
                     p.microbatches, p.microbatchSize, p.batch, name(p.balance),
                     cell(fmt::format("{}", fmt::join(wordsOf(p.recompute), ","))), nameOf(p.optimizer.kind), p.zero1 ? 1 : 0,
                     p.memoryLimit, cell(r.problem), r.stages, r.samples, r.step, r.makespan, r.bubbleFraction, r.peak, r.excess,
                     r.samplesPerSecond, r.flopUtilisation, cell(r.splits));
}

}  // namespace pw
