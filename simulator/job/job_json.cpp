#include "simulator/job/job_json.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/job/held_out.h"
#include "simulator/job/replay_job.h"
#include "simulator/text/json_part.h"
#include "simulator/text/median.h"

namespace pw {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::string_view kFormat = "pipewright job";
constexpr std::int64_t kMostCopies = 65'536, kMostSlots = 16'000'000, kMostOperations = 4096;

std::string compact(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json stepJson(const JobStep& step) {
  Json json;
  json["name"] = step.name;
  json["step_ns"] = step.step;
  json["makespan_ns"] = step.makespan;
  if (step.before != kUnknownTime) json["before_ns"] = step.before;
  json["actions_ns"] = step.actions;
  json["waits_ns"] = step.waits;
  json["messages_ns"] = step.messages;
  json["operations_ns"] = step.operations;
  json["operation_waits_ns"] = step.operationWaits;
  return json;
}

/// By stage, rank and kind: medians over microbatches and copies of what is usual, and the largest spread.
std::vector<Json> typicalJson(const Job& job) {
  const JobShape shape(job);
  const TypicalTimes typical = typicalTimes(shape, job);
  struct Group {
    std::vector<Ns> usual, waits, messages;
    Ns spread = 0;
  };
  std::map<std::tuple<Stage, Rank, ActionKind>, Group> groups;
  for (std::size_t i = 0; i < typical.times.actions.size(); ++i) {
    const std::size_t s = i % shape.slotsOfCopy();
    const JobShape::Slot& slot = shape.copySlots[s];
    Group& group = groups[{slot.action.stage, slot.rank, slot.action.kind}];
    group.usual.push_back(typical.times.actions[i]);
    group.spread = std::max(group.spread, typical.spread[s]);
    group.waits.push_back(typical.times.waits[i]);
    group.messages.push_back(typical.times.messages[i]);
  }
  std::vector<Json> lines;
  for (auto& [of, group] : groups) {
    const auto& [stage, rank, kind] = of;
    lines.push_back(Json{{"stage", stage.value},
                         {"rank", rank.value},
                         {"kind", letters(kind)},
                         {"median_ns", *medianOf(group.usual)},
                         {"least_ns", std::ranges::min(group.usual)},
                         {"most_ns", std::ranges::max(group.usual)},
                         {"spread_ns", group.spread},
                         {"wait_ns", *medianOf(group.waits)},
                         {"message_ns", *medianOf(group.messages)}});
  }
  return lines;
}

std::vector<std::string> rowsOf(const Schedule& schedule) {
  std::vector<std::string> rows;
  const std::string csv = toCsv(schedule);
  for (std::size_t at = 0; at < csv.size();) {
    const std::size_t end = std::min(csv.find("\r\n", at), csv.size());
    rows.push_back(csv.substr(at, end - at));
    at = end + 2;
  }
  return rows;
}

/// Members that not every job has, as lines of its document.
std::string optionalLines(const Job& job) {
  std::string lines;
  Json memory = Json::array();
  for (const MeasuredMemory& rank : job.memory) memory.push_back({{"base_bytes", rank.base}, {"peak_bytes", rank.peak}});
  if (!memory.empty()) lines += fmt::format("  \"memory\": {},\n", compact(memory));
  if (job.uncertainty)
    lines +=
        fmt::format("  \"uncertainty\": {},\n", compact(Json{{"deviation", job.uncertainty->deviation}, {"runs", job.uncertainty->runs}}));
  return lines;
}

template <class Lines>
std::string listOf(const Lines& lines) {
  std::string text = "[";
  for (const auto& line : lines) text += (text.size() > 1 ? ",\n    " : "\n    ") + compact(line);
  return text + (text.size() > 1 ? "\n  ]" : "]");
}

// ---- Reading -----------------------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(const Json& parsed, const JsonDocument& document) : json_(parsed, document), document_(document) {}
  Job read();

 private:
  void readSchedule();
  void readOperations();
  void readMemory();
  [[nodiscard]] std::vector<Ns> times(const JsonPart& list, std::size_t count, bool mayBeUnknown) const;
  [[nodiscard]] JobStep step(const JsonPart& json, const JobShape& shape) const;

  const JsonPart json_;
  const JsonDocument& document_;
  Job job_;
  Ns longest_ = 0;  ///< of one time
};

TimesOf timesNamed(const JsonPart& json) {
  const auto name = json.as<std::string>();
  for (const TimesOf times : {TimesOf::Measured, TimesOf::Rehearsed, TimesOf::Predicted}) {
    if (name == nameOf(times)) return times;
  }
  json.fail("is none of measured, rehearsed, predicted");
}

Uncertainty uncertaintyIn(const JsonPart& json) {
  constexpr int kMostJobs = 1 << 30;
  const auto deviation = json["deviation"].as<double>();
  if (!(deviation >= 0 && deviation <= kMostDeviation)) json["deviation"].fail(fmt::format("is not from 0 to {}", kMostDeviation));
  return {deviation, json["runs"].within<int>(1, kMostJobs), true};
}

void Reader::readSchedule() {
  std::string csv;
  const JsonPart rows = json_["rows"];
  if (rows.size() < 1 || rows.size() > static_cast<std::size_t>(kMaxRanks)) rows.fail(fmt::format("has {} rows", rows.size()));
  for (std::size_t r = 0; r < rows.size(); ++r) csv += rows[r].as<std::string>() + "\n";
  job_.schedule = parseCsv(csv, json_["schedule"].as<std::string>(), document_.source + ": rows");
  if (job_.schedule.rows.size() != rows.size()) rows.fail("has a row that is not one line");
  for (const auto& row : job_.schedule.rows) {
    for (const Action& action : row) {
      if (!isCompute(action.kind) || action.overlapsNext) rows.fail("holds something other than F, B, I and W, one after the other");
    }
  }
  for (const Problem& problem : check(job_.schedule)) {
    if (problem.stops == Stops::Always) rows.fail(fmt::format("cannot run: rank {}: {}", problem.rank.value, problem.message));
  }
}

void Reader::readOperations() {
  const JsonPart list = json_["operations"];
  if (list.size() > static_cast<std::size_t>(kMostOperations)) list.fail("is too long");
  for (std::size_t o = 0; o < list.size(); ++o) {
    const JsonPart one = list[o];
    JobOperation operation{one["name"].as<std::string>(), OperationGroup::Alone, {}, false};
    const auto group = valueNamed<OperationGroup>(one["group"].as<std::string>());
    if (!group) one["group"].fail("is none of " + namesOf<OperationGroup>(", "));
    operation.group = *group;
    operation.blocks = one["blocks"].as<bool>();
    if (one.has("holds_message")) operation.holdsMessage = one["holds_message"].as<bool>();
    const JsonPart after = one["after"];
    if (after.size() != job_.schedule.rows.size()) after.fail(fmt::format("has {} numbers, not one for each rank", after.size()));
    for (std::size_t r = 0; r < after.size(); ++r)
      operation.after.push_back(after[r].within<std::int32_t>(-1, static_cast<std::int64_t>(job_.schedule.rows[r].size())));
    if (operation.blocks && !(one.has("holds_row") && one["holds_row"].as<bool>())) {
      for (std::int32_t& of : operation.after) of = std::min(of, 0);
    }
    job_.operations.push_back(std::move(operation));
  }
}

void Reader::readMemory() {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
  const JsonPart list = json_["memory"];
  if (list.size() != job_.schedule.rows.size()) list.fail(fmt::format("has {} entries, not one for each rank", list.size()));
  for (std::size_t r = 0; r < list.size(); ++r) {
    const auto base = list[r]["base_bytes"].within<Bytes>(0, kMostBytes);
    job_.memory.push_back({base, list[r]["peak_bytes"].within<Bytes>(base.value, kMostBytes)});
  }
}

std::vector<Ns> Reader::times(const JsonPart& list, std::size_t count, bool mayBeUnknown) const {
  if (list.size() != count) list.fail(fmt::format("has {} numbers, not {}", list.size(), count));
  std::vector<Ns> values;
  values.reserve(count);
  for (const Json& element : list.json()) {
    const auto value = integerIn<std::int64_t>(element);
    if (!value || *value < (mayBeUnknown ? kUnknownTime : 0) || *value > longest_)
      list.fail(fmt::format("holds something other than times from {} to {} ns", mayBeUnknown ? kUnknownTime.value : 0, longest_.value));
    values.emplace_back(*value);
  }
  return values;
}

JobStep Reader::step(const JsonPart& json, const JobShape& shape) const {
  JobStep step;
  step.name = json["name"].as<std::string>();
  step.step = json["step_ns"].within<Ns>(0, kMostSum);
  step.makespan = json["makespan_ns"].within<Ns>(0, kMostSum);
  if (json.has("before_ns")) step.before = json["before_ns"].within<Ns>(0, kMostSum);
  step.actions = times(json["actions_ns"], shape.allSlots(), false);
  step.waits = times(json["waits_ns"], shape.allSlots(), true);
  step.messages = times(json["messages_ns"], shape.allSlots(), true);
  step.operations = times(json["operations_ns"], shape.workers * shape.operations, true);
  step.operationWaits = times(json["operation_waits_ns"], shape.workers * shape.operations, true);
  return step;
}

Job Reader::read() {
  if (!json_.has("format") || json_["format"].as<std::string>() != kFormat) document_.fail("its `format` is not `pipewright job`");
  if (const auto version = json_["version"].as<std::int64_t>(); version != kVersion)
    document_.fail(fmt::format("it has version {}, this program reads {}", version, kVersion));
  job_.name = json_["name"].as<std::string>();
  job_.replicas = json_["replicas"].within<int>(1, kMostCopies);
  job_.tensor = json_["tensor"].within<int>(1, kMostCopies);
  job_.timedMessages = json_["timed_messages"].as<bool>();
  job_.notes = json_["notes"].listOf<std::string>();
  if (json_.has("times")) job_.times = timesNamed(json_["times"]);
  readSchedule();
  readOperations();
  if (json_.has("memory")) readMemory();
  if (json_.has("uncertainty")) job_.uncertainty = uncertaintyIn(json_["uncertainty"]);
  std::int64_t actions = 0;
  for (const auto& row : job_.schedule.rows) actions += static_cast<std::int64_t>(row.size());
  const std::int64_t copies = std::int64_t{job_.replicas} * job_.tensor, ranks = static_cast<std::int64_t>(job_.schedule.rows.size());
  const std::int64_t each = actions + ranks * (1 + static_cast<std::int64_t>(job_.operations.size()));
  if (copies > kMostCopies || copies * each > kMostSlots) document_.fail("it has more workers and actions than this program takes");
  const JobShape shape(job_);
  longest_ = longestTime(shape);
  const JsonPart steps = json_["steps"];
  if (steps.size() < 1) steps.fail("is empty");
  for (std::size_t k = 0; k < steps.size(); ++k) job_.steps.push_back(step(steps[k], shape));
  return std::move(job_);
}

}  // namespace

std::string toJson(const Job& job) {
  std::vector<Json> operations, steps;
  for (const JobOperation& o : job.operations) {
    operations.push_back(Json{{"name", o.name}, {"group", nameOf(o.group)}, {"after", o.after}, {"blocks", o.blocks}});
    if (o.blocks && std::ranges::any_of(o.after, [](std::int32_t after) { return after > 0; })) operations.back()["holds_row"] = true;
    if (o.holdsMessage) operations.back()["holds_message"] = true;
  }
  for (const JobStep& step : job.steps) steps.push_back(stepJson(step));
  return fmt::format(
      "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"name\": {},\n  \"schedule\": {},\n  \"replicas\": {},\n  \"tensor\": {},\n"
      "  \"timed_messages\": {},\n  \"times\": \"{}\",\n  \"notes\": {},\n{}  \"rows\": {},\n  \"operations\": {},\n  \"typical\": {},\n  "
      "\"steps\": {}\n}}\n",
      kFormat, kVersion, compact(Json(job.name)), compact(Json(job.schedule.name)), job.replicas, job.tensor, job.timedMessages,
      nameOf(job.times), listOf(std::vector<Json>(job.notes.begin(), job.notes.end())), optionalLines(job),
      [&] {
        const std::vector<std::string> rows = rowsOf(job.schedule);
        return listOf(std::vector<Json>(rows.begin(), rows.end()));
      }(),
      listOf(operations), listOf(typicalJson(job)), listOf(steps));
}

Job parseJob(std::string_view text, const std::string& source) {
  const JsonDocument document{source, "job", "import the trace again with `pipewright import TRACE --out job.json`"};
  const Json parsed = document.parse(text);
  return Reader(parsed, document).read();
}

}  // namespace pw
