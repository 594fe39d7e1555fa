#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simulator/search/study.h"

namespace pw {

/// A point and what is predicted of it.
struct StudyRow {
  StudyPoint point;
  StudyResult result;

  bool operator==(const StudyRow&) const = default;
};

/// How far a study is.
struct StudyCounts {
  std::int64_t done = 0, fitting = 0, tooLarge = 0, impossible = 0;

  bool operator==(const StudyCounts&) const = default;
};

/// The results of a study in an SQLite file: a row for each point in the table `point`, with its values, so that other tools can query
/// and plot it. A row is there whole or not at all, whenever a process is killed; a point that is added again is left as it is. Several
/// processes may use one file. All functions throw UsageError where the file is not a study, else Error where SQLite fails.
class StudyStore {
 public:
  /// Creates the file where there is none. `text`: the study's JSON. Throws UsageError where the file is of another study.
  StudyStore(const std::string& path, const std::string& text);
  /// Opens an existing file.
  explicit StudyStore(const std::string& path);
  ~StudyStore();
  StudyStore(StudyStore&&) noexcept;
  StudyStore& operator=(StudyStore&&) noexcept;

  [[nodiscard]] const Study& study() const { return study_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  /// Which points are stored, by their number.
  [[nodiscard]] std::vector<bool> done() const;
  [[nodiscard]] StudyCounts counts() const;
  /// In one transaction.
  void add(const std::vector<StudyRow>& rows);
  /// All points of another part of the same study. Throws UsageError where it is another study.
  void merge(const StudyStore& part);

  /// Calls `visit` with every row, by number.
  void forEach(const std::function<void(const StudyRow&)>& visit) const;
  /// The plans that fit with the most samples per second, best first.
  [[nodiscard]] std::vector<StudyRow> best(int most) const;
  /// Likewise the best of each number of ranks (of all replicas), fewest ranks first.
  [[nodiscard]] std::vector<StudyRow> bestOfRanks() const;

 private:
  struct Database;
  std::unique_ptr<Database> database_;
  std::string text_;
  Study study_;
};

/// Whether the file is one. False for what cannot be read.
[[nodiscard]] bool isStudy(const std::string& path);

/// A row of a table for spreadsheets, and its header; both with a line's end.
[[nodiscard]] std::string studyCsvHeader();
[[nodiscard]] std::string studyCsvLine(const StudyRow& row);

}  // namespace pw
