#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "simulator/report/metrics.h"

namespace pw {

/// What a run's report says of a step.
struct StepFigures {
  int step = 0;
  double loss = 0;
  std::optional<double> gradientNorm;
  Ns duration = 0;  ///< of the whole trace
  Metrics metrics;  ///< all ranks; the windows are not kept

  bool operator==(const StepFigures&) const = default;
};

/// Figures of any number of steps in a nameless temporary file: a run of a million steps takes no more memory than one of a thousand.
/// Some 40 bytes per step, and as many per rank. Every operation throws Error when the file cannot be made, written or read.
class StepFigureFile {
 public:
  StepFigureFile() = default;  ///< makes no file until the first `add`

  /// Every step has the ranks of the first. One that cannot be written is not there; those before it stay.
  void add(const StepFigures& figures);
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] StepFigures at(std::int64_t position);
  void forEach(const std::function<void(const StepFigures&)>& see);  ///< in the order they were added
  /// The step that stands for the run: as `medianPosition` (backends/store/run_store.h) chooses it. There must be one.
  [[nodiscard]] StepFigures median();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  [[nodiscard]] StepFigures readNext();
  void seek(std::int64_t position);
  void forEachDuration(const std::function<void(std::int64_t, Ns)>& see);

  std::unique_ptr<std::FILE, Close> file_;
  std::size_t ranks_ = 0;
  std::int64_t size_ = 0;
};

}  // namespace pw
