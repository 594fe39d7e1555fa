#include "schedules/csv.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::array kAllKinds{
    ActionKind::Forward,     ActionKind::Backward,    ActionKind::BackwardInput, ActionKind::BackwardWeight,
    ActionKind::SendForward, ActionKind::RecvForward, ActionKind::SendBackward,  ActionKind::RecvBackward,
    ActionKind::ReduceGrad,  ActionKind::Unshard,     ActionKind::Reshard,
};

/// One cell of the text, for error messages.
struct Cell {
  std::string_view source;
  std::size_t row = 0;
  std::size_t column = 0;
  std::string_view text;
};

/// Untrusted text in a form that is safe to print: at most 40 characters, bytes outside printable ASCII as \xNN.
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
  throw CsvError(fmt::format("{}: row {} (rank {}), cell {}: \"{}\" {}", cell.source, cell.row + 1, cell.row, cell.column + 1,
                             shown(cell.text), reason),
                 cell.row, cell.column);
}

bool isDigit(char c) { return c >= '0' && c <= '9'; }

/// Removes the leading digits from `text` and returns their value; nothing when there are none. Values above `most` saturate at most + 1.
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

/// Reads one action; `text` is the cell or, in an overlapped pair, its part.
Action readAction(const Cell& cell, std::string_view text) {
  constexpr std::string_view kForm = "is not an action; write stage, kind and microbatch, like 0F3 or 1B0";
  std::string_view rest = text;
  const auto stage = cutNumber(rest, kMaxStages);
  if (!stage) refuse(cell, kForm);
  const std::string_view word = rest.substr(0, rest.find_first_of("0123456789"));
  rest.remove_prefix(word.size());
  const auto kind = std::ranges::find(kAllKinds, word, letters);
  if (kind == kAllKinds.end()) refuse(cell, kForm);
  const auto microbatch = cutNumber(rest, kMaxMicrobatches);
  if (!rest.empty()) refuse(cell, kForm);
  if (*stage >= kMaxStages) refuse(cell, fmt::format("has a stage number greater than {}", kMaxStages - 1));
  if (microbatch.value_or(0) >= kMaxMicrobatches) {
    refuse(cell, fmt::format("has a microbatch number greater than {}", kMaxMicrobatches - 1));
  }
  if (*kind == ActionKind::ReduceGrad || *kind == ActionKind::Unshard || *kind == ActionKind::Reshard) {
    if (microbatch) refuse(cell, "has a microbatch number, but applies to the whole stage; remove the number");
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

constexpr std::string_view kOverlap = "OVERLAP_F_B";

/// Reads `(0F5;7B2)OVERLAP_F_B` into its two actions.
std::array<Action, 2> readPair(const Cell& cell) {
  constexpr std::string_view kForm = "is not an overlapped pair; write a forward and a backward, like (0F5;7B2)OVERLAP_F_B";
  const std::size_t middle = cell.text.find(';');
  const std::size_t end = cell.text.find(')');
  if (middle == std::string_view::npos || end == std::string_view::npos || end < middle) refuse(cell, kForm);
  if (withoutBlanks(cell.text.substr(end + 1)) != kOverlap) refuse(cell, kForm);
  Action forward = readAction(cell, withoutBlanks(cell.text.substr(1, middle - 1)));
  const Action backward = readAction(cell, withoutBlanks(cell.text.substr(middle + 1, end - middle - 1)));
  if (forward.kind != ActionKind::Forward || backward.kind != ActionKind::Backward) refuse(cell, kForm);
  forward.overlapsNext = true;
  return {forward, backward};
}

/// Where a stage is computed, as far as the text has been read: on one rank, or on two that share the microbatches.
struct Home {
  Rank rank{-1};
  Microbatch least, most;
  std::size_t column = 0;  ///< of the first cell in which this rank computes the stage

  void add(Rank here, Microbatch microbatch, std::size_t at) {
    if (rank == Rank{-1}) *this = {here, microbatch, microbatch, at};
    least = std::min(least, microbatch);
    most = std::max(most, microbatch);
  }
};

struct Reader {
  std::string_view source;
  std::size_t cells = 0;  ///< at least as many as there are actions
  Schedule schedule = {};
  std::vector<std::array<Home, 2>> homes = {};             ///< by stage
  std::vector<std::pair<Stage, Microbatch>> weights = {};  ///< of every W

  void learn(const Action& action, const Cell& cell);
  void readRow(std::string_view line);
  void placeStages();
  [[noreturn]] void refuseSecondRank(std::size_t stage) const;
  void toTorchLetters();
};

void Reader::refuseSecondRank(std::size_t stage) const {
  auto [one, other] = homes[stage];
  if (one.rank > other.rank) std::swap(one, other);
  const auto row = other.rank.index();
  throw CsvError(
      fmt::format("{}: row {} (rank {}), cell {}: computes stage {} on rank {}, but rank {} computes it too; a stage has one rank, "
                  "or two mirrored ones of which one takes the first microbatches",
                  source, row + 1, row, other.column + 1, stage, row, one.rank.value),
      row, other.column);
}

void Reader::learn(const Action& action, const Cell& cell) {
  schedule.microbatches = std::max(schedule.microbatches, action.microbatch.value + 1);
  if (action.stage.index() >= cells) {  // also prevents one huge number from allocating a table
    refuse(cell, fmt::format("names stage {}, but {} cells cannot fill the stages below it; stages are numbered from 0 without gaps",
                             action.stage.value, cells));
  }
  if (action.stage.index() >= homes.size()) homes.resize(action.stage.index() + 1);
  if (!isCompute(action.kind)) return;
  if (action.kind == ActionKind::BackwardWeight) weights.emplace_back(action.stage, action.microbatch);
  auto& [one, other] = homes[action.stage.index()];
  const Rank here{cell.row};
  if (one.rank == Rank{-1} || one.rank == here) return one.add(here, action.microbatch, cell.column);
  if (other.rank == Rank{-1} || other.rank == here) return other.add(here, action.microbatch, cell.column);
  refuse(cell, fmt::format("computes stage {} on rank {}, but ranks {} and {} compute it too; a stage has one rank, or two mirrored ones",
                           action.stage.value, here.value, one.rank.value, other.rank.value));
}

void Reader::readRow(std::string_view line) {
  Cell cell{source, schedule.rows.size(), 0, {}};
  auto& row = schedule.rows.emplace_back();
  if (withoutBlanks(line).empty()) return;
  for (bool more = true; more; ++cell.column) {
    const std::size_t comma = line.find(',');
    cell.text = withoutBlanks(line.substr(0, comma));
    more = comma != std::string_view::npos;
    if (more) line.remove_prefix(comma + 1);
    if (cell.text.empty() || cell.text == "\"\"") {
      row.push_back(kIdle);
    } else if (cell.text.starts_with('(')) {
      for (const Action& action : readPair(cell)) {
        row.push_back(action);
        learn(action, cell);
      }
    } else {
      row.push_back(readAction(cell, cell.text));
      learn(row.back(), cell);
    }
  }
}

/// Turns the homes into a placement.
void Reader::placeStages() {
  Placement& placement = schedule.placement;
  bool bidirectional = false;
  for (std::size_t s = 0; s < homes.size(); ++s) {
    if (homes[s][0].rank == Rank{-1}) {
      const auto next = std::find_if(homes.begin() + static_cast<std::ptrdiff_t>(s), homes.end(),
                                     [](const auto& home) { return home[0].rank != Rank{-1}; });  // the last one has a cell
      throw CsvError(
          fmt::format("{}: stage {} of {} has no compute action; stages are numbered from 0 without gaps", source, s, homes.size()),
          next == homes.end() ? 0 : (*next)[0].rank.index(), next == homes.end() ? 0 : (*next)[0].column);
    }
    bidirectional = bidirectional || homes[s][1].rank != Rank{-1};
  }
  placement.firstMirrored = Microbatch{0};
  if (bidirectional) placement.firstMirrored = Microbatch{schedule.microbatches};
  for (auto& [one, other] : homes) {
    if (other.rank != Rank{-1} && other.least < one.least) std::swap(one, other);
    placement.rankOfStage.push_back(one.rank);
    if (other.rank != Rank{-1}) placement.firstMirrored = std::min(placement.firstMirrored, other.least);
  }
  if (!bidirectional) return;
  placement.mirrorOfStage.assign(placement.rankOfStage.rbegin(), placement.rankOfStage.rend());
  for (std::size_t s = 0; s < homes.size(); ++s) {
    const auto& [one, other] = homes[s];
    const bool alone = other.rank == Rank{-1};
    if (alone && placement.mirrorOfStage[s] == one.rank) continue;  // the middle of an odd number of ranks
    if (!alone && other.rank == placement.mirrorOfStage[s] && one.most < placement.firstMirrored) continue;
    const auto twice = std::ranges::find_if(homes, [](const auto& home) { return home[1].rank != Rank{-1}; });
    refuseSecondRank(alone ? static_cast<std::size_t>(twice - homes.begin()) : s);
  }
}

/// In the zero-bubble papers' notation a B is only the part for the inputs if there is a W of the same stage and microbatch. In an
/// overlapped pair B is always the full backward, and `check` reports the W.
void Reader::toTorchLetters() {
  std::ranges::sort(weights);
  for (auto& row : schedule.rows) {
    bool inPair = false;
    for (Action& action : row) {
      const bool second = std::exchange(inPair, action.overlapsNext);
      if (action.kind != ActionKind::Backward || second) continue;
      if (std::ranges::binary_search(weights, std::pair{action.stage, action.microbatch})) action.kind = ActionKind::BackwardInput;
    }
  }
}

std::string cellText(const Action& action, Letters letters) {
  if (letters == Letters::Torch || action.kind != ActionKind::BackwardInput) return toString(action);
  return toString({action.stage, ActionKind::Backward, action.microbatch});
}

}  // namespace

std::string toCsv(const Schedule& schedule, Letters letters) {
  std::string text;
  for (const auto& row : schedule.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      if (row[i].overlapsNext && i + 1 < row.size()) {
        text += fmt::format("({};{}){}", cellText(row[i], letters), cellText(row[i + 1], letters), kOverlap);
        ++i;
      } else {
        text += cellText(row[i], letters);
      }
    }
    if (row.size() == 1 && row.front().kind == ActionKind::Idle) text += "\"\"";
    text += "\r\n";
  }
  return text;
}

Schedule parseCsv(std::string_view text, std::string_view name, std::string_view source, Letters letters) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // spreadsheets write it at the start of UTF-8
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const auto separates = [](char c) { return c == ',' || c == ';' || c == '\n'; };
  Reader reader{.source = source, .cells = 1 + static_cast<std::size_t>(std::ranges::count_if(text, separates))};
  reader.schedule.name = name;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (reader.schedule.rows.size() == static_cast<std::size_t>(kMaxRanks)) {
      throw UsageError(fmt::format("{}: row {} is beyond the supported number of ranks, {}", source, kMaxRanks + 1, kMaxRanks));
    }
    reader.readRow(line);
  }
  if (reader.homes.empty()) {
    throw UsageError(fmt::format("{}: contains no action; a schedule has one row of cells like 0F0 per rank", source));
  }
  reader.placeStages();
  if (letters == Letters::ZeroBubble) reader.toTorchLetters();
  return std::move(reader.schedule);
}

bool beginsAsCsv(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of("\xef\xbb\xbf\", \t\r\n"), text.size()));
  const std::string_view cell = withoutBlanks(text.substr(0, text.find_first_of(";,\r\n")));
  try {
    static_cast<void>(readAction({.source = {}, .row = 0, .column = 0, .text = cell}, cell.starts_with('(') ? cell.substr(1) : cell));
    return true;
  } catch (const CsvError&) {
    return false;
  }
}

}  // namespace pw
