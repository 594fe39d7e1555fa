#include "engine/planning/inputs/schedule_source.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "backends/host/files.h"
#include "backends/resources/file_kind.h"
#include "engine/planning/inputs/limits.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/order/find.h"
#include "simulator/text/counted.h"

namespace pw {
namespace {

Schedule withoutIdle(Schedule schedule) {
  for (auto& row : schedule.rows) std::erase(row, kIdle);
  return schedule;
}

Schedule readShaped(const std::string& path, const ShapeOptions& options) {
  Schedule schedule = readSchedule(path, Letters::Torch);
  const Shape shape = shapeOf(schedule);
  const auto agree = [&](std::string_view what, std::int64_t given, std::int64_t there) {
    if (given != 0 && given != there) throw UsageError(fmt::format("{} has {} {}, not {}; leave out the option", path, there, what, given));
  };
  agree("ranks", options.ranks, shape.ranks);
  agree("stages", std::int64_t{options.chunks} * shape.ranks, shape.stages);
  agree("microbatches", options.microbatches, shape.microbatches);
  if (options.group > 0 || options.strict)
    throw UsageError(path + " is not a schedule of torch's or Megatron's; omit --strict and --group");
  return schedule;
}

}  // namespace

Schedule generateFrom(const std::string& name, const ShapeOptions& options) {
  if (name.ends_with(".csv")) return readShaped(name, options);
  if (madeSchedule(name) != nullptr) {
    throw UsageError(fmt::format(
        "the schedule {} is made for given costs: plan and simulate take it, and schedule {} --costs F.json writes it", name, name));
  }
  const Generator& family = familyOf(name);
  requireWhole("--ranks", options.ranks, 0, kMaxRanks);
  requireWhole("--chunks", options.chunks, 0, kMaxStages);
  requireWhole("--microbatches", options.microbatches, 0, kMaxMicrobatches);
  requireWhole("--group", options.group, 0, kMaxMicrobatches);
  if (options.ranks == 0 || options.microbatches == 0) {
    throw UsageError(
        fmt::format("schedule {} needs the number of ranks and microbatches; give {}", name,
                    options.ranks == 0 ? options.microbatches == 0 ? "--ranks and --microbatches" : "--ranks" : "--microbatches"));
  }
  const int chunks = options.chunks == 0 ? family.chunks : options.chunks;
  const std::int64_t stages = std::int64_t{options.ranks} * chunks;
  const Shape shape{options.ranks, static_cast<int>(std::min<std::int64_t>(stages, std::numeric_limits<int>::max())), options.microbatches};
  if (options.strict) {
    if (family.torchName.empty()) throw UsageError(fmt::format("torch has no schedule {}; omit --strict torch", name));
    const auto refusal = family.torchRefusal == nullptr ? std::nullopt : family.torchRefusal(shape);
    if (!family.refusal(shape) && refusal) throw UsageError(refusalSentence(name, *refusal));
  }
  if (options.group > 0) {
    if (family.name != "interleaved-1f1b")
      throw UsageError(fmt::format("schedule {} has no groups; omit --group, or use interleaved-1f1b", name));
    Schedule schedule = interleavedWithGroups(shape, options.group);
    if (options.strict && withoutIdle(schedule).rows != withoutIdle(generate(name, shape)).rows) {
      throw UsageError(fmt::format("groups of {} are not those of torch; omit --group or --strict torch", options.group));
    }
    return schedule;
  }
  return generate(name, shape);
}

Schedule readSchedule(const std::string& path, Letters letters) {
  return parseCsv(readAs(FileKind::Schedule, path), std::filesystem::path(path).stem().string(), path, letters);
}

std::string shapeLine(const Schedule& schedule) {
  const Shape shape = shapeOf(schedule);
  return fmt::format("{}: {}, {}, {}", schedule.name, counted(shape.ranks, "rank"), counted(shape.stages, "stage"),
                     counted(shape.microbatches, "microbatch"));
}

}  // namespace pw
