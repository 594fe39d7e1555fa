#include "backends/traces/readers/tables.h"

#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "backends/host/paths.h"
#include "schedules/error.h"

namespace pw {
namespace {

constexpr int kWorkStep = 100'000;           ///< SQLite's instructions between two looks at the budget
constexpr std::uint64_t kWorkPerByte = 200;  ///< a row of a plain table takes a few instructions for each of its bytes
constexpr std::uint64_t kLeastWork = 200'000'000;
constexpr int kLongestText = 1 << 20;
constexpr std::uint64_t kRowsBetweenReports = 16'384;

}  // namespace

void TableFile::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

TableFile::TableFile(const std::string& path, std::function<bool(std::uint64_t)> advance) : path_(path), advance_(std::move(advance)) {
  std::error_code problem;
  size_ = std::filesystem::file_size(path, problem);
  if (problem) throw UsageError(fmt::format("{} cannot be read: {}; check the path and its permissions", path, problem.message()));
  sqlite3* db = nullptr;
  const int status =
      sqlite3_open_v2(immutableUri(absolutePath(path)).c_str(), &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  db_.reset(db);
  if (status != SQLITE_OK) refuse();
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, kLongestText);
  sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_exec(db, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0;", nullptr, nullptr, nullptr);
  sqlite3_progress_handler(db, kWorkStep, &TableFile::onWork, this);
}

TableFile::~TableFile() = default;

int TableFile::onWork(void* file) {
  auto& self = *static_cast<TableFile*>(file);
  self.work_ += kWorkStep;
  self.exhausted_ = self.work_ > kLeastWork + kWorkPerByte * self.size_;
  return self.exhausted_ ? 1 : 0;
}

void TableFile::refuse() const {
  if (exhausted_)
    throw UsageError(
        fmt::format("{} takes far longer to read than its size explains; export it again with nsys export --type sqlite", path_));
  const int code = db_ ? sqlite3_errcode(db_.get()) : SQLITE_NOMEM;
  const char* what = "it cannot be read to its end";
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_FORMAT) what = "it is damaged";
  if (code == SQLITE_ERROR || code == SQLITE_AUTH) what = "its tables have other columns than those of an export";
  if (code == SQLITE_TOOBIG) what = "it holds a value of more than 1 MiB";
  if (code == SQLITE_NOMEM) what = "there is not enough memory";
  throw UsageError(
      fmt::format("{} is not a usable export of Nsight Systems: {}; export it again with nsys export --type sqlite", path_, what));
}

bool TableFile::hasTable(const std::string& table) const {
  Rows rows(*this, fmt::format("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = '{}'", table));
  return rows.next() && rows.integer(0).value_or(0) > 0;
}

bool TableFile::hasColumn(const std::string& table, const std::string& column) const {
  Rows rows(*this, fmt::format("SELECT count(*) FROM pragma_table_info('{}') WHERE name = '{}'", table, column));
  return rows.next() && rows.integer(0).value_or(0) > 0;
}

std::uint64_t TableFile::rowsOf(const std::string& table) const {
  Rows rows(*this, fmt::format("SELECT max(rowid) FROM {}", table));
  return rows.next() ? static_cast<std::uint64_t>(std::max<std::int64_t>(1, rows.integer(0).value_or(1))) : 1;
}

void TableFile::setPart(double from, double to, std::uint64_t rows) {
  from_ = from;
  to_ = to;
  rows_ = std::max<std::uint64_t>(1, rows);
  row_ = 0;
}

bool TableFile::countRow() const {
  if (++row_ % kRowsBetweenReports != 0 || !advance_) return true;
  const double share = from_ + (to_ - from_) * std::min(1.0, static_cast<double>(row_) / static_cast<double>(rows_));
  stopped_ = stopped_ || !advance_(static_cast<std::uint64_t>(share * static_cast<double>(size_)));
  return !stopped_;
}

TableFile::Rows::Rows(const TableFile& file, const std::string& query) : file_(file) {
  if (sqlite3_prepare_v2(file.db_.get(), query.c_str(), static_cast<int>(query.size()), &statement_, nullptr) != SQLITE_OK) file.refuse();
}

TableFile::Rows::~Rows() { sqlite3_finalize(statement_); }

bool TableFile::Rows::next() {
  if (file_.stopped_) return false;
  const int status = sqlite3_step(statement_);
  if (status == SQLITE_ROW) return file_.countRow();
  if (status != SQLITE_DONE) file_.refuse();
  return false;
}

std::optional<std::int64_t> TableFile::Rows::integer(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER) return std::nullopt;
  return sqlite3_column_int64(statement_, column);
}

std::string_view TableFile::Rows::text(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) return {};
  const auto* const bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return bytes == nullptr ? std::string_view()
                          : std::string_view(bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
}

}  // namespace pw
