#pragma once

#include "engine/planning/subject.h"

namespace pw {

/// A schedule with the costs of the options' layer table, cut where their splits say or balanced by time. Throws UsageError where the file
/// is no layer table, or has too few layers for the schedule's stages. Cost: as `price`.
[[nodiscard]] Subject layerSubject(Schedule schedule, const SubjectOptions& options);

}  // namespace pw
