#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
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
  /// Creates the file where there is none. `text`: the study's JSON. `inputs`: what tells whether the files that it names are the same, a
  /// line for each; empty: not known, as in files of the first version. Throws UsageError where the file is of another study, or of other
  /// inputs.
  StudyStore(const std::string& path, const std::string& text, const std::string& inputs);
  /// Opens an existing file.
  explicit StudyStore(const std::string& path);
  ~StudyStore();
  StudyStore(const StudyStore&) = delete;
  StudyStore& operator=(const StudyStore&) = delete;
  StudyStore(StudyStore&&) noexcept;
  StudyStore& operator=(StudyStore&&) noexcept;

  [[nodiscard]] const Study& study() const { return study_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::string& inputs() const { return inputs_; }
  /// Which points are stored, by their number.
  [[nodiscard]] std::vector<bool> done() const;
  [[nodiscard]] StudyCounts counts() const;
  /// In one transaction.
  void add(const std::vector<StudyRow>& rows);
  /// Throws UsageError where that is not a part of the same study with the same inputs.
  void requireSame(const StudyStore& part) const;
  /// All points of another part (`requireSame`).
  void merge(const StudyStore& part);

  /// Calls `visit` with every row, by number.
  void forEach(const std::function<void(const StudyRow&)>& visit) const;
  /// Of each model, in the order of their names, the plans that fit with the most samples per second, best first.
  [[nodiscard]] std::vector<StudyRow> best(int most) const;
  /// Likewise the best of each number of ranks (of all replicas), fewest ranks first.
  [[nodiscard]] std::vector<StudyRow> bestOfRanks() const;
  /// Why points are impossible, with how many, the most frequent first.
  [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> problems(int most) const;

 private:
  struct Database;
  std::unique_ptr<Database> database_;
  std::string text_, inputs_;
  Study study_;
};

/// A row's figures by their names in file and CSV: the point's, then its result's.
using StudyValue = std::variant<std::int64_t, double, std::string>;
struct StudyField {
  std::string_view name;
  bool ofPoint = false;
  StudyValue value;
};
[[nodiscard]] std::vector<StudyField> fieldsOf(const StudyRow& row);

/// A row of a table for spreadsheets, and its header; both with a line's end.
[[nodiscard]] std::string studyCsvHeader();
[[nodiscard]] std::string studyCsvLine(const StudyRow& row);

}  // namespace pw
