#pragma once

#include <optional>
#include <vector>

#include "backends/store/run_store.h"
#include "simulator/history/calibrate.h"

namespace pw {

/// A profile brought to what runs of a store measured.
struct CalibratedProfile {
  Profile profile;  ///< that of the runs' plans with the calibration in it
  CalibrationReport report;
  std::vector<RunId> ids;  ///< of the runs it was fitted to, oldest first
};

/// Calibrates the profile of a run's plan (without id: of the newest run that can be used) by all runs that were planned from the same
/// profile and computed in the same way on the same machine. Used are completed runs of at least two steps that followed their schedule and
/// computed; of each, at most 32 steps after the first. Throws UsageError where there is none. Cost: reads those steps; see `calibrate`.
[[nodiscard]] CalibratedProfile calibratedBy(const RunStore& store, std::optional<RunId> id);

}  // namespace pw
