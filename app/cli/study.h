#pragma once

#include <string>

#include "engine/planning/inputs/progress_style.h"

namespace CLI {
class App;
}

namespace pw::cli {

/// The options of `search --study`.
struct StudyOptions {
  std::string file, out, csv, shard;
  int threads = 0, top = 10;
  ProgressStyle progressStyle = ProgressStyle::Automatic;
  bool json = false;
};

/// Predicts a study's points and prints what was found; the exit status.
[[nodiscard]] int searchStudy(const StudyOptions& options);

}  // namespace pw::cli
