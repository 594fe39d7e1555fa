#include "schedules/csv.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::array kAllKinds{
    ActionKind::Forward,     ActionKind::Backward,    ActionKind::BackwardInput, ActionKind::BackwardWeight,
    ActionKind::SendForward, ActionKind::RecvForward, ActionKind::SendBackward,  ActionKind::RecvBackward,
    ActionKind::ReduceGrad,  ActionKind::Unshard,     ActionKind::Reshard,
};

/// One cell of the text, for errors.
struct Cell {
  std::string_view source;
  std::size_t row = 0;
  std::size_t column = 0;
  std::string_view text;
};

/// Foreign text fit for a terminal: at most 40 characters, bytes outside printable ASCII as \xNN.
std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(byte));
    }
  }
  if (text.size() > kLongest) out += "...";
  return out;
}

[[noreturn]] void refuse(const Cell& cell, std::string_view reason) {
  throw UsageError(fmt::format("{}: row {} (rank {}), cell {}: \"{}\" {}", cell.source, cell.row + 1, cell.row,
                               cell.column + 1, shown(cell.text), reason));
}

bool isDigit(char c) { return c >= '0' && c <= '9'; }

/// Cuts the leading digits off `text`; nothing when there are none. Numbers beyond `most` stop at most + 1.
std::optional<int> cutNumber(std::string_view& text, int most) {
  std::size_t length = 0;
  int value = 0;
  for (; length < text.size() && isDigit(text[length]); ++length) {
    value = std::min(value * 10 + (text[length] - '0'), most + 1);
  }
  if (length == 0) return std::nullopt;
  text.remove_prefix(length);
  return value;
}

Action readAction(const Cell& cell) {
  constexpr std::string_view kForm = "is not an action; write stage, kind and microbatch, like 0F3 or 1SEND_B0";
  std::string_view rest = cell.text;
  if (rest.starts_with('(')) refuse(cell, "overlaps actions, which is not supported; write them as cells of their own");
  const auto stage = cutNumber(rest, kMaxStages);
  if (!stage) refuse(cell, kForm);
  const std::string_view word = rest.substr(0, rest.find_first_of("0123456789"));
  rest.remove_prefix(word.size());
  const auto kind = std::ranges::find(kAllKinds, word, letters);
  if (kind == kAllKinds.end()) refuse(cell, kForm);
  const auto microbatch = cutNumber(rest, kMaxMicrobatches);
  if (!rest.empty()) refuse(cell, kForm);
  if (*stage >= kMaxStages) refuse(cell, fmt::format("has a stage number beyond {}", kMaxStages - 1));
  if (microbatch.value_or(0) >= kMaxMicrobatches) {
    refuse(cell, fmt::format("has a microbatch number beyond {}", kMaxMicrobatches - 1));
  }
  if (*kind == ActionKind::ReduceGrad || *kind == ActionKind::Unshard || *kind == ActionKind::Reshard) {
    if (microbatch) refuse(cell, "has a microbatch number, but belongs to the whole stage; leave the number out");
    return {Stage{*stage}, *kind, Microbatch{-1}};
  }
  if (!microbatch) refuse(cell, "lacks its microbatch number");
  return {Stage{*stage}, *kind, Microbatch{*microbatch}};
}

std::string_view withoutBlanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

/// Takes an action into the schedule's placement and microbatch count. Unknown ranks are −1 meanwhile.
void learn(Schedule& schedule, const Action& action, const Cell& cell) {
  schedule.microbatches = std::max(schedule.microbatches, action.microbatch.value + 1);
  auto& placement = schedule.rankOfStage;
  if (action.stage.index() >= placement.size()) placement.resize(action.stage.index() + 1, Rank{-1});
  if (!isCompute(action.kind)) return;
  Rank& rank = placement[action.stage.index()];
  const Rank here{cell.row};
  if (rank == Rank{-1}) rank = here;
  if (rank != here) {
    refuse(cell, fmt::format("computes stage {} on rank {}, but rank {} computes it too; a stage has one rank",
                             action.stage.value, here.value, rank.value));
  }
}

void readRow(Schedule& schedule, std::string_view line, std::string_view source) {
  Cell cell{source, schedule.rows.size(), 0, {}};
  auto& row = schedule.rows.emplace_back();
  for (bool more = true; more; ++cell.column) {
    const std::size_t comma = line.find(',');
    cell.text = withoutBlanks(line.substr(0, comma));
    more = comma != std::string_view::npos;
    if (more) line.remove_prefix(comma + 1);
    if (cell.text.empty()) continue;
    row.push_back(readAction(cell));
    learn(schedule, row.back(), cell);
  }
}

}  // namespace

std::string toCsv(const Schedule& schedule) {
  std::string text;
  for (const auto& row : schedule.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      text += toString(row[i]);
    }
    text += "\r\n";
  }
  return text;
}

Schedule parseCsv(std::string_view text, std::string_view name, std::string_view source) {
  Schedule schedule;
  schedule.name = name;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (schedule.rows.size() == static_cast<std::size_t>(kMaxRanks)) {
      throw UsageError(fmt::format("{}: row {} is one rank too many; at most {} are supported", source, kMaxRanks + 1,
                                   kMaxRanks));
    }
    readRow(schedule, line, source);
  }
  if (schedule.rankOfStage.empty()) {
    throw UsageError(fmt::format("{}: holds no action; a schedule has one row of cells like 0F0 per rank", source));
  }
  const auto gap = std::ranges::find(schedule.rankOfStage, Rank{-1});
  if (gap != schedule.rankOfStage.end()) {
    throw UsageError(fmt::format("{}: stage {} of {} has no compute action; stages are numbered from 0 without gaps",
                                 source, gap - schedule.rankOfStage.begin(), schedule.rankOfStage.size()));
  }
  return schedule;
}

}  // namespace pw
