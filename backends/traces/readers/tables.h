#pragma once

// Internal to the import of traces: tables of a SQLite file that may be anybody's, read once from end to end.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace pw {

/// A SQLite file, read-only, with nothing created beside it. Statements have a budget of work that grows with the file's size, so that a
/// file whose schema computes cannot hold up its reader. Every failure is a UsageError in one sentence.
class TableFile {
 public:
  /// `advance` gets how much of the file's tables has been read [bytes of the file] and says whether to continue.
  TableFile(const std::string& path, std::function<bool(std::uint64_t)> advance);
  ~TableFile();
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;

  [[nodiscard]] bool hasTable(const std::string& table) const;  ///< a plain table: neither view nor virtual
  [[nodiscard]] bool hasColumn(const std::string& table, const std::string& column) const;

  /// One row after another of a query. Valid as long as the file.
  class Rows {
   public:
    Rows(const TableFile& file, const std::string& query);
    ~Rows();
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;
    [[nodiscard]] bool next();
    [[nodiscard]] std::optional<std::int64_t> integer(int column) const;  ///< nothing for NULL, texts and fractions
    [[nodiscard]] std::string_view text(int column) const;                ///< empty for what is no text; until `next`
   private:
    const TableFile& file_;
    sqlite3_stmt* statement_ = nullptr;
  };

  /// The share of the file that the next rows are: from and to, of 1.
  void setPart(double from, double to, std::uint64_t rows);
  [[nodiscard]] bool stopped() const { return stopped_; }              ///< `advance` said so: no rows come any more
  [[nodiscard]] std::uint64_t rowsOf(const std::string& table) const;  ///< about how many

 private:
  friend class Rows;
  struct Close {
    void operator()(sqlite3* db) const;
  };
  [[noreturn]] void refuse() const;
  static int onWork(void* file);
  bool countRow() const;

  std::string path_;
  std::uint64_t size_ = 0;
  std::function<bool(std::uint64_t)> advance_;
  std::unique_ptr<sqlite3, Close> db_;
  mutable std::uint64_t work_ = 0, row_ = 0;
  double from_ = 0, to_ = 0;
  std::uint64_t rows_ = 1;
  mutable bool stopped_ = false, exhausted_ = false;
};

}  // namespace pw
