#include "backends/store/study_store.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backends/host/paths.h"
#include "backends/store/store_errors.h"
#include "backends/store/store_kind.h"
#include "schedules/error.h"
#include "simulator/search/search.h"

namespace pw {
namespace {

constexpr std::chrono::milliseconds kLockWait{30'000};
constexpr int kStudyVersion = 3;  ///< of the tables; versions 1 and 2 lack columns, see `migrate`
using Value = StudyValue;

/// A column of the table `point`, of the CSV too. `read`: of a result's; a point follows from its number.
struct Column {
  std::string_view name, type;
  Value (*valueOf)(const StudyRow& row);
  void (*read)(StudyResult& result, const SQLite::Column& column) = nullptr;
};

constexpr std::string_view kInteger = "INTEGER", kReal = "REAL", kText = "TEXT";

constexpr std::array kColumns{
    Column{"number", "INTEGER PRIMARY KEY", [](const StudyRow& row) -> Value { return row.point.number; },
           [](StudyResult& result, const SQLite::Column& column) { result.point = column.getInt64(); }},
    Column{"model", kText, [](const StudyRow& row) -> Value { return row.point.model; }},
    Column{"cluster", kText, [](const StudyRow& row) -> Value { return row.point.cluster; }},
    Column{"precision", kText, [](const StudyRow& row) -> Value { return std::string(precisionName(row.point.precision)); }},
    Column{"attention", kText, [](const StudyRow& row) -> Value { return std::string(nameOf(row.point.attention)); }},
    Column{"schedule", kText, [](const StudyRow& row) -> Value { return row.point.schedule; }},
    Column{"ranks", kInteger, [](const StudyRow& row) -> Value { return row.point.ranks; }},
    Column{"replicas", kInteger, [](const StudyRow& row) -> Value { return row.point.replicas; }},
    Column{"chunks", kInteger, [](const StudyRow& row) -> Value { return row.point.chunks; }},
    Column{"microbatches", kInteger, [](const StudyRow& row) -> Value { return row.point.microbatches; }},
    Column{"microbatch", kInteger, [](const StudyRow& row) -> Value { return row.point.microbatchSize; }},
    Column{"batch", kInteger, [](const StudyRow& row) -> Value { return row.point.batch; }},
    Column{"balance", kText, [](const StudyRow& row) -> Value { return std::string(nameOf(row.point.balance)); }},
    Column{"recompute", kText,
           [](const StudyRow& row) -> Value { return fmt::format("{}", fmt::join(wordsOf(row.point.recompute), ",")); }},
    Column{"optimizer", kText, [](const StudyRow& row) -> Value { return std::string(nameOf(row.point.optimizer.kind)); }},
    Column{"zero1", kInteger, [](const StudyRow& row) -> Value { return row.point.zero1 ? 1 : 0; }},
    Column{"memory_limit", kInteger, [](const StudyRow& row) -> Value { return row.point.memoryLimit.value; }},
    Column{"problem", kText, [](const StudyRow& row) -> Value { return row.result.problem; },
           [](StudyResult& result, const SQLite::Column& column) { result.problem = column.getString(); }},
    Column{"stages", kInteger, [](const StudyRow& row) -> Value { return row.result.stages; },
           [](StudyResult& result, const SQLite::Column& column) { result.stages = column.getInt(); }},
    Column{"samples", kInteger, [](const StudyRow& row) -> Value { return row.result.samples; },
           [](StudyResult& result, const SQLite::Column& column) { result.samples = column.getInt64(); }},
    Column{"step_ns", kInteger, [](const StudyRow& row) -> Value { return row.result.step.value; },
           [](StudyResult& result, const SQLite::Column& column) { result.step = Ns(column.getInt64()); }},
    Column{"makespan_ns", kInteger, [](const StudyRow& row) -> Value { return row.result.makespan.value; },
           [](StudyResult& result, const SQLite::Column& column) { result.makespan = Ns(column.getInt64()); }},
    Column{"bubble_fraction", kReal, [](const StudyRow& row) -> Value { return row.result.bubbleFraction; },
           [](StudyResult& result, const SQLite::Column& column) { result.bubbleFraction = column.getDouble(); }},
    Column{"peak_bytes", kInteger, [](const StudyRow& row) -> Value { return row.result.peak.value; },
           [](StudyResult& result, const SQLite::Column& column) { result.peak = Bytes(column.getInt64()); }},
    Column{"excess_bytes", kInteger, [](const StudyRow& row) -> Value { return row.result.excess.value; },
           [](StudyResult& result, const SQLite::Column& column) { result.excess = Bytes(column.getInt64()); }},
    Column{"samples_per_second", kReal, [](const StudyRow& row) -> Value { return row.result.samplesPerSecond; },
           [](StudyResult& result, const SQLite::Column& column) { result.samplesPerSecond = column.getDouble(); }},
    Column{"flop_utilisation", kReal, [](const StudyRow& row) -> Value { return row.result.flopUtilisation; },
           [](StudyResult& result, const SQLite::Column& column) { result.flopUtilisation = column.getDouble(); }},
    Column{"splits", kText, [](const StudyRow& row) -> Value { return row.result.splits; },
           [](StudyResult& result, const SQLite::Column& column) { result.splits = column.getString(); }},
    Column{"lower_bound_ns", kInteger, [](const StudyRow& row) -> Value { return row.result.lowerBound.value; },
           [](StudyResult& result, const SQLite::Column& column) { result.lowerBound = Ns(column.getInt64()); }},
    Column{"found_by", kText, [](const StudyRow& row) -> Value { return row.result.foundBy; },
           [](StudyResult& result, const SQLite::Column& column) { result.foundBy = column.getString(); }},
};

std::string schema() {
  std::string columns;
  for (const Column& column : kColumns) columns += fmt::format("{}{} {} NOT NULL", columns.empty() ? "" : ", ", column.name, column.type);
  return fmt::format("CREATE TABLE study (version INTEGER NOT NULL, text TEXT NOT NULL, inputs TEXT NOT NULL); CREATE TABLE point ({});",
                     columns);
}

std::string insertion() {
  std::string values;
  for (std::size_t i = 0; i < kColumns.size(); ++i) values += i == 0 ? "?" : ",?";
  return fmt::format("INSERT OR IGNORE INTO point VALUES ({})", values);
}

/// The columns of results.
std::string selection(const std::string& rest) {
  std::string columns;
  for (const Column& column : kColumns) {
    if (column.read != nullptr) columns += fmt::format("{}{}", columns.empty() ? "" : ", ", column.name);
  }
  return fmt::format("SELECT {} FROM point {}", columns, rest);
}

/// For a `selection`: of each group of plans that fit, so many with the most samples per second.
std::string bestOf(std::string_view group, int most) {
  return fmt::format(
      "JOIN (SELECT number AS ranked, row_number() OVER (PARTITION BY {} ORDER BY samples_per_second DESC, peak_bytes, number) AS place "
      "FROM point WHERE problem = '' AND excess_bytes = 0) ON number = ranked AND place <= {} ",
      group, most);
}

/// What the first line that is not in both names: `c.json`.
std::string firstDifference(const std::string& a, const std::string& b) {
  std::istringstream lines(a);
  for (std::string line; std::getline(lines, line);) {
    if (b.find(line + '\n') == std::string::npos) return line.substr(0, line.rfind(' '));
  }
  return "its files";
}

/// A row of a `selection`.
StudyResult resultIn(SQLite::Statement& row) {
  StudyResult result;
  int at = 0;
  for (const Column& column : kColumns) {
    if (column.read != nullptr) column.read(result, row.getColumn(at++));
  }
  return result;
}

void bindRow(SQLite::Statement& insert, const StudyRow& row) {
  int at = 0;
  for (const Column& column : kColumns) std::visit([&](const auto& value) { insert.bind(++at, value); }, column.valueOf(row));
}

/// As a cell of a CSV: text in quotes where a spreadsheet would not take it as one cell.
struct Cell {
  std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
  std::string operator()(double number) const { return fmt::format("{:.9g}", number); }
  std::string operator()(const std::string& text) const {
    if (text.find_first_of(",\"\n") == std::string::npos) return text;
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + "\"";
  }
};

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
      rethrow(problem, path, kLockWait, "study");
    }
  }

  using Texts = std::pair<std::string, std::string>;  ///< the study's JSON, its inputs
  /// Of the study in the file, which is made of these where it is new. Nothing: it must be there.
  Texts open(const std::optional<Texts>& made) {
    return guarded([&]() -> Texts {
      if (!made && !pathExists(path)) throw UsageError(fmt::format("There is no study {}; name a file that `search --study` wrote.", path));
      db.emplace(path, made ? SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE : SQLite::OPEN_READWRITE, static_cast<int>(kLockWait.count()));
      if (made) {
        SQLite::Transaction transaction(*db, SQLite::TransactionBehavior::IMMEDIATE);
        if (db->execAndGet("SELECT count(*) FROM sqlite_master").getInt() == 0) {
          db->exec(schema());
          db->exec(fmt::format("PRAGMA application_id = {}", kStudyApplication));
          SQLite::Statement insert(*db, fmt::format("INSERT INTO study VALUES ({}, ?, ?)", kStudyVersion));
          insert.bind(1, made->first);
          insert.bind(2, made->second);
          insert.exec();
        }
        transaction.commit();
      }
      if (db->execAndGet("PRAGMA application_id").getInt() != kStudyApplication)
        throw UsageError(fmt::format("{} is not a study; name a file that `search --study` wrote, or a new one.", path));
      migrate();
      SQLite::Statement read(*db, "SELECT text, inputs FROM study");
      read.executeStep();
      return {read.getColumn(0).getString(), read.getColumn(1).getString()};
    });
  }

  /// To our version. The first one knew nothing of the inputs where the column is missing, the second no bounds of orders; nothing is lost.
  void migrate() {
    const auto versionIn = [&] {
      SQLite::Statement read(*db, "SELECT version FROM study");
      if (!read.executeStep())
        throw UsageError(fmt::format("The study {} is damaged: it is empty; delete it, or restore it from a copy.", path));
      return read.getColumn(0).getInt();
    };
    if (const int version = versionIn(); version > kStudyVersion)
      throw UsageError(
          fmt::format("The study {} has format {}, newer than this program reads ({}); update Pipewright.", path, version, kStudyVersion));
    if (versionIn() == kStudyVersion) return;
    SQLite::Transaction transaction(*db, SQLite::TransactionBehavior::IMMEDIATE);
    if (versionIn() == kStudyVersion) return;  // another process was faster
    const auto add = [&](const char* table, const char* column, const char* type) {
      const auto known = fmt::format("SELECT count(*) FROM pragma_table_info('{}') WHERE name = '{}'", table, column);
      if (db->execAndGet(known).getInt() == 0) db->exec(fmt::format("ALTER TABLE {} ADD COLUMN {} {} NOT NULL", table, column, type));
    };
    add("study", "inputs", "TEXT DEFAULT ''");
    add("point", "lower_bound_ns", "INTEGER DEFAULT 0");
    add("point", "found_by", "TEXT DEFAULT ''");
    db->exec(fmt::format("UPDATE study SET version = {}", kStudyVersion));
    transaction.commit();
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
      SQLite::Statement query(*db, selection(rest));
      while (query.executeStep()) rows.push_back(rowOf(study, resultIn(query)));
      return rows;
    });
  }
};

StudyStore::StudyStore(const std::string& path, const std::string& text, const std::string& inputs)
    : database_(std::make_unique<Database>()) {
  database_->path = path;
  std::tie(text_, inputs_) = database_->open(std::pair(text, inputs));
  study_ = parseStudy(text_, path);
  if (parseStudy(text, path) != study_)
    throw UsageError(fmt::format("{} has the results of another study; give another --out, or delete it.", path));
  if (!inputs_.empty() && inputs != inputs_) {
    throw UsageError(
        fmt::format("{} has results of other contents of {}; give another --out, or delete it.", path, firstDifference(inputs, inputs_)));
  }
}

StudyStore::StudyStore(const std::string& path) : database_(std::make_unique<Database>()) {
  database_->path = path;
  std::tie(text_, inputs_) = database_->open(std::nullopt);
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
    SQLite::Statement insert(*database_->db, insertion());
    for (const StudyRow& row : rows) {
      bindRow(insert, row);
      insert.exec();
      insert.reset();
    }
    transaction.commit();
  });
}

void StudyStore::requireSame(const StudyStore& part) const {
  if (part.study_ != study_)
    throw UsageError(fmt::format("{} and {} are of different studies; merge parts of one.", database_->path, part.database_->path));
  if (!part.inputs_.empty() && !inputs_.empty() && part.inputs_ != inputs_) {
    throw UsageError(fmt::format("{} and {} are of different contents of {}; predict one of them again.", database_->path,
                                 part.database_->path, firstDifference(inputs_, part.inputs_)));
  }
}

void StudyStore::merge(const StudyStore& part) {
  requireSame(part);
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
    SQLite::Statement query(*database_->db, selection("ORDER BY number"));
    while (query.executeStep()) visit(database_->rowOf(study_, resultIn(query)));
  });
}

std::vector<StudyRow> StudyStore::best(int most) const {
  return database_->select(study_, bestOf("model", most) + "ORDER BY model, place");
}

std::vector<StudyRow> StudyStore::bestOfRanks() const {
  return database_->select(study_, bestOf("model, ranks * replicas", 1) + "ORDER BY model, ranks * replicas");
}

std::vector<std::pair<std::string, std::int64_t>> StudyStore::problems(int most) const {
  return database_->guarded([&] {
    std::vector<std::pair<std::string, std::int64_t>> problems;
    SQLite::Statement query(*database_->db,
                            fmt::format("SELECT problem, count(*) AS times FROM point WHERE problem <> '' GROUP BY problem ORDER BY times "
                                        "DESC, problem LIMIT {}",
                                        most));
    while (query.executeStep()) problems.emplace_back(query.getColumn(0).getString(), query.getColumn(1).getInt64());
    return problems;
  });
}

std::vector<StudyField> fieldsOf(const StudyRow& row) {
  std::vector<StudyField> fields;
  bool ofPoint = true;
  for (const Column& column : kColumns) {
    ofPoint = ofPoint && column.name != "problem";  // the first of the result
    fields.push_back({column.name, ofPoint, column.valueOf(row)});
  }
  return fields;
}

std::string studyCsvHeader() {
  std::string header;
  for (const Column& column : kColumns) header.append(header.empty() ? "" : ",").append(column.name);
  return header + '\n';
}

std::string studyCsvLine(const StudyRow& row) {
  std::string line;
  for (const Column& column : kColumns) line.append(&column == kColumns.data() ? "" : ",").append(std::visit(Cell{}, column.valueOf(row)));
  return line + '\n';
}

}  // namespace pw
