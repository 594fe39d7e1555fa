// Every cell of torch's pipelining schedules on all small shapes, and which shapes torch takes (torch_reference.py runs torch's own code).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"

namespace pw {
namespace {

constexpr int kRanks = 8, kChunks = 4, kMicrobatches = 32;  // as in the script

/// The script's output, line by line as it comes.
class Reference {
 public:
  explicit Reference(const std::string& arguments)
      : pipe_(popen((PW_PYTHON " -W ignore " PW_SOURCE_DIR "/tests/schedules/torch_reference.py " + arguments).c_str(), "r")) {}
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  ~Reference() {
    if (pipe_ != nullptr) (void)close();
  }

  std::string line() {
    std::string text;
    int c = std::fgetc(pipe_);
    if (c == EOF) ADD_FAILURE() << "the script ended early; if it misses torch, run ./dev setup";
    for (; c != EOF && c != '\n'; c = std::fgetc(pipe_)) text += static_cast<char>(c);
    return text;
  }
  int close() { return pclose(std::exchange(pipe_, nullptr)); }

 private:
  std::FILE* pipe_;
};

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = text.find(separator); end != std::string::npos; end = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

/// RESHARDs with only messages between them in ascending order of stages: torch takes them from a set, in the order of its table.
std::vector<std::string> withOrderedReshards(std::vector<std::string> cells) {
  const auto isReshard = [](const std::string& cell) { return cell.ends_with("RESHARD"); };
  const auto isMessage = [](const std::string& cell) {
    return cell.find("SEND_") != std::string::npos || cell.find("RECV_") != std::string::npos;
  };
  std::vector<std::size_t> run;
  for (std::size_t i = 0; i <= cells.size(); ++i) {
    if (i < cells.size() && isMessage(cells[i])) continue;
    if (i < cells.size() && isReshard(cells[i])) {
      run.push_back(i);
      continue;
    }
    std::vector<std::string> sorted;
    for (const std::size_t at : run) sorted.push_back(cells[at]);
    std::ranges::sort(sorted, {}, [](const std::string& cell) { return std::stoi(cell); });
    for (std::size_t k = 0; k < run.size(); ++k) cells[run[k]] = sorted[k];
    run.clear();
  }
  return cells;
}

/// The first difference of two rows; empty when there is none.
std::string difference(const std::vector<std::string>& ours, const std::vector<std::string>& theirs) {
  const auto [a, b] = std::ranges::mismatch(ours, theirs);
  if (a == ours.end() && b == theirs.end()) return {};
  return "cell " + std::to_string(a - ours.begin()) + " is \"" + (a == ours.end() ? "(nothing)" : *a) + "\", torch has \"" +
         (b == theirs.end() ? "(nothing)" : *b) + "\"";
}

/// Compares a schedule with the next rows of the script.
std::string firstDifference(const Schedule& ours, Reference& theirs) {
  std::vector<std::string> rows = split(toCsv(ours), "\r\n");
  rows.pop_back();  // after the last line's end
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const std::string found = difference(split(rows[rank], ","), withOrderedReshards(split(theirs.line(), ",")));
    if (!found.empty()) return "rank " + std::to_string(rank) + ": " + found;
  }
  return {};
}

bool accepts(const Generator& family, const Shape& shape) {
  return !family.refusal(shape) && !(family.torchRefusal != nullptr && family.torchRefusal(shape));
}

bool hasOneStagePerRank(const Generator& family) {
  return family.name == "forward-only" || family.name == "gpipe" || family.name == "1f1b";
}

/// The script prints this family next.
void expectSame(const Generator& family, Reference& reference) {
  for (int ranks = 1; ranks <= kRanks; ++ranks) {
    for (int chunks = 1; chunks <= (hasOneStagePerRank(family) ? 1 : kChunks); ++chunks) {
      for (int microbatches = 1; microbatches <= kMicrobatches; ++microbatches) {
        const Shape shape{ranks, ranks * chunks, microbatches};
        std::ostringstream header;
        header << (accepts(family, shape) ? "= " : "! ") << family.name << " " << ranks << " " << chunks << " " << microbatches;
        ASSERT_EQ(reference.line(), header.str()) << "(torch takes = or refuses ! the shape)";
        if (!accepts(family, shape)) continue;
        const Schedule ours = family.generate(shape);
        ASSERT_EQ(shapeOf(ours), shape);
        ASSERT_EQ(kindOf(ours.placement, shape), shape.ranks == 1 ? PlacementKind::Loop : family.placement);
        ASSERT_EQ(firstDifference(ours, reference), "") << header.str() << ", compute-only";
        ASSERT_EQ(firstDifference(lower(ours, Lowering::Torch), reference), "") << header.str() << ", with messages";
        ASSERT_EQ(firstDifference(lower(ours, Lowering::TorchRuntime), reference), "") << header.str() << ", as the runtime prepares it";
      }
    }
  }
}

/// One call of the script for all: importing torch takes longer than most families.
TEST(Torch, HasTheSameCellsOnEveryShapeItTakesAndRefusesTheSameShapes) {
  ASSERT_TRUE(std::filesystem::exists(PW_PYTHON)) << "run ./dev setup";
  std::string names;
  for (const Generator& family : generators()) {
    if (!family.torchName.empty()) names += std::string(family.name) + " ";
  }
  Reference reference(names);
  for (const Generator& family : generators()) {
    if (family.torchName.empty()) continue;
    ASSERT_NO_FATAL_FAILURE(expectSame(family, reference));
  }
  EXPECT_EQ(reference.line(), "end");
  EXPECT_EQ(reference.close(), 0);
}

/// A schedule out of shape in a way that torch's passes still read: pairs of a forward and the backward after it become slots, and
/// cells change places, sometimes until it deadlocks.
Schedule shuffled(Schedule schedule, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (auto& row : schedule.rows) {
    for (std::size_t swaps = below(4); swaps > 0; --swaps) {
      const std::size_t at = below(row.size()), other = std::min(row.size() - 1, at + below(5));
      std::swap(row[at], row[other]);
    }
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      const bool pair = row[i].kind == ActionKind::Forward && row[i + 1].kind == ActionKind::Backward && row[i].stage != row[i + 1].stage;
      row[i].overlapsNext = pair && below(3) == 0;
    }
  }
  return schedule;
}

/// All families that have one replica of each stage, whole and shuffled.
std::vector<Schedule> schedulesToLower() {
  std::mt19937 random(20260);
  std::vector<Schedule> all;
  for (const Generator& family : generators()) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      for (int chunks = 1; chunks <= 6; ++chunks) {
        for (int microbatches = 1; microbatches <= 10; ++microbatches) {
          const Shape shape{ranks, ranks * chunks, microbatches};
          if (family.refusal(shape)) continue;
          Schedule whole = family.generate(shape);
          if (whole.placement.bidirectional()) continue;
          for (auto& row : whole.rows) std::erase(row, kIdle);
          all.push_back(whole);
          all.push_back(shuffled(microbatches % 2 == 0 ? whole : mergeBackward(whole), random));
        }
      }
    }
  }
  return all;
}

TEST(TorchLowering, OfEveryFamilyAndOfShuffledRowsIsTorchsAndFailsWhereTorchFindsThemMalformed) {
  ASSERT_TRUE(std::filesystem::exists(PW_PYTHON)) << "run ./dev setup";
  const std::vector<Schedule> schedules = schedulesToLower();
  const std::string path = testing::TempDir() + "torch_lowering_" + std::to_string(getpid()) + ".csv";
  const auto sizes = [](const Schedule& s) { return std::to_string(s.rows.size()) + " " + std::to_string(s.microbatches); };
  std::ofstream file(path);
  for (const Schedule& schedule : schedules) file << "= " << sizes(schedule) << "\n" << toCsv(schedule);
  file.close();
  Reference reference("--lower " + path);
  int malformed = 0;
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    SCOPED_TRACE(schedules[i].name + " R M " + sizes(schedules[i]) + ", number " + std::to_string(i) + ":\n" + toCsv(schedules[i]));
    if (reference.line().starts_with("!")) {
      ++malformed;
      ASSERT_THROW((void)lower(schedules[i], Lowering::Torch), UsageError);
      ASSERT_THROW((void)lower(schedules[i], Lowering::TorchRuntime), UsageError);
      continue;
    }
    ASSERT_EQ(firstDifference(lower(schedules[i], Lowering::Torch), reference), "") << "with messages";
    ASSERT_EQ(firstDifference(lower(schedules[i], Lowering::TorchRuntime), reference), "") << "as the runtime prepares it";
  }
  EXPECT_EQ(reference.line(), "end");
  EXPECT_EQ(reference.close(), 0);
  EXPECT_GT(malformed, 0);
  std::filesystem::remove(path);
}

TEST(TorchLowering, OfTwoReplicasSendsToTheReplicaOfTheMicrobatchAndReducesBoth) {
  for (const char* name : {"dualpipe", "chimera"}) {
    for (const int ranks : {2, 4, 6}) {
      const Schedule whole = generate(name, {ranks, ranks, 2 * ranks});
      EXPECT_EQ(computeOnly(lower(whole, Lowering::Torch)), whole);
      const Schedule prepared = lower(whole, Lowering::TorchRuntime);
      EXPECT_EQ(computeOnly(prepared), whole);
      for (const Problem& problem : check(prepared)) EXPECT_NE(problem.stops, Stops::Always) << name << ": " << problem.message;
      for (const auto& row : prepared.rows) {
        EXPECT_EQ(std::ranges::count(row, ActionKind::ReduceGrad, &Action::kind), 2) << name << " on " << ranks << " ranks";
      }
    }
  }
}

TEST(TorchLowering, RefusesADeadlockWithTheWaitingActionAndTheCure) {
  const Schedule crossed = parseCsv("0F0,0B1,0F1,0B0\n1F0,1F1,1B0,1B1\n", "crossed", "crossed.csv");
  try {
    (void)lower(crossed, Lowering::Torch);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "schedule crossed cannot be lowered: rank 0 waits at 0B1 for something that never happens; `pipewright check` says why");
  }
}

}  // namespace
}  // namespace pw
