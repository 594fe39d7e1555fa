#pragma once

#include <fstream>
#include <string>

#include "engine/step_log.h"

namespace pw {

/// A CSV file with one line for each step, written as it ends: what people plot. Throws Error when it cannot be written.
class LossLog {
 public:
  /// A resumed training appends to its file.
  LossLog(const std::string& path, bool resumed);
  void add(int step, const StepLog& log, double learningRate);

 private:
  void check() const;

  std::string path_;
  std::ofstream file_;
};

}  // namespace pw
