#pragma once

#include <limits>
#include <optional>

#include "backends/store/run_store.h"

namespace pw::test {

/// A run with all its steps; without id the newest.
inline RunRecord wholeRun(const RunStore& store, std::optional<RunId> id = {}) {
  RunRecord run = store.load(id);
  run.steps = store.loadSteps(run.id, 0, std::numeric_limits<int>::max());
  return run;
}
inline RunRecord wholeRun(const std::string& path, std::optional<RunId> id = {}) {
  return wholeRun(RunStore(path, RunStore::Mode::ReadOnly), id);
}

}  // namespace pw::test
