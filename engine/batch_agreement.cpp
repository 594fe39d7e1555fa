#include "engine/batch_agreement.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::uint32_t kWordTag = 0x7D000001, kVerdictTag = 0x7D000002;

/// What a rank tells rank 0, and rank 0 all others. Of one size, so that a message tells no other's size.
struct Word {
  std::uint64_t batch = 0, optimizer = 0;
  std::int32_t hasBatch = 0, refuses = 0;
  std::array<char, 1000> sentence{};  ///< why not, ended by 0
};

void refuse(Word& word, const std::string& sentence) {
  word.refuses = 1;
  const std::size_t length = std::min(sentence.size(), word.sentence.size() - 1);
  std::memcpy(word.sentence.data(), sentence.data(), length);
}

Buffer bufferOf(Word& word) { return {reinterpret_cast<std::byte*>(&word), sizeof word}; }

/// Rank 0's verdict on all words.
Word verdictOn(int step, const std::vector<Word>& words) {
  Word verdict;
  std::optional<std::size_t> first;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    const Word& word = words[rank];
    if (word.refuses != 0) return word;
    if (word.optimizer != words.front().optimizer) {
      refuse(verdict, fmt::format("Rank {} has another learning rate or other settings of the optimizer than rank 0 in step {}; let all "
                                  "ranks run the same schedule.",
                                  rank, step));
      return verdict;
    }
    if (word.hasBatch == 0) continue;
    if (first && word.batch != words[*first].batch) {
      refuse(verdict,
             fmt::format("Rank {} has another batch than rank {} in step {}; give every rank the whole batch: seed the order of the "
                         "samples alike on all, and do not deal them out.",
                         rank, *first, step));
      return verdict;
    }
    if (!first) first = rank;
  }
  return verdict;
}

}  // namespace

void agreeOnStep(int step, const std::function<StepInput()>& look, Communicator& communicator) {
  Word own;
  try {
    const StepInput input = look();
    own.batch = input.batch.value_or(0);
    own.hasBatch = input.batch ? 1 : 0;
    own.optimizer = input.optimizer;
  } catch (const UsageError& problem) {  // all ranks throw it
    if (communicator.size() == 1) throw;
    refuse(own, problem.what());
  }
  if (communicator.size() == 1) return;
  Word verdict;
  if (communicator.rank() == JobRank(0)) {
    std::vector<Word> words(static_cast<std::size_t>(communicator.size()));
    words.front() = own;
    std::vector<Communicator::Request> requests;
    for (int r = 1; r < communicator.size(); ++r)
      requests.push_back(communicator.receive(JobRank(r), kWordTag, bufferOf(words[static_cast<std::size_t>(r)])));
    for (const auto request : requests) communicator.wait(request);
    verdict = verdictOn(step, words);
    requests.clear();
    for (int r = 1; r < communicator.size(); ++r) requests.push_back(communicator.send(JobRank(r), kVerdictTag, bufferOf(verdict)));
    for (const auto request : requests) communicator.wait(request);
  } else {
    const auto sent = communicator.send(JobRank(0), kWordTag, bufferOf(own));
    communicator.wait(communicator.receive(JobRank(0), kVerdictTag, bufferOf(verdict)));
    communicator.wait(sent);
  }
  if (verdict.refuses == 0) return;  // the step's own barrier follows
  communicator.barrier();            // the tags are used again
  throw UsageError(verdict.sentence.data());
}

}  // namespace pw
