#include "engine/batch_agreement.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "backends/messages/message_memory.h"
#include "backends/messages/tags.h"
#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::uint32_t kWordTag = kAgreementTags.first, kVerdictTag = kWordTag + 1;

/// What a rank tells rank 0, and rank 0 all others. Of one size, so that a message tells no other's size.
struct Word {
  enum : std::int32_t { Agrees, Unusable, Apart };
  std::uint64_t batch = 0, optimizer = 0;
  std::int32_t hasBatch = 0, verdict = Agrees;
  std::array<char, 32> call{};        ///< ended by 0, as is the sentence
  std::array<char, 1000> sentence{};  ///< why not
};

template <std::size_t Size>
void putText(std::array<char, Size>& into, const std::string& text) {
  std::memcpy(into.data(), text.data(), std::min(text.size(), Size - 1));
}

void refuse(Word& word, const std::string& sentence) {
  word.verdict = Word::Unusable;
  putText(word.sentence, sentence);
}

Buffer bufferOfWord(Word& word) { return {reinterpret_cast<std::byte*>(&word), sizeof word}; }

/// Rank 0's verdict on all words.
Word verdictOn(const std::string& call, const std::vector<Word>& words) {
  Word verdict;
  for (std::size_t rank = 1; rank < words.size(); ++rank) {
    if (words[rank].call == words.front().call) continue;
    refuse(verdict,
           fmt::format("rank {} has come to {} and rank 0 to {}; let all ranks make the same calls, or see why one has ended", rank,
                       std::string_view(words[rank].call.data(), ::strnlen(words[rank].call.data(), words[rank].call.size())), call));
    verdict.verdict = Word::Apart;
    return verdict;
  }
  std::optional<std::size_t> first;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    const Word& word = words[rank];
    if (word.verdict != Word::Agrees) return word;
    if (word.optimizer != words.front().optimizer) {
      refuse(verdict, fmt::format("Rank {} has another learning rate or other settings of the optimizer than rank 0 in {}; let all "
                                  "ranks run the same schedule.",
                                  rank, call));
      return verdict;
    }
    if (word.hasBatch == 0) continue;
    if (first && word.batch != words[*first].batch) {
      refuse(verdict, fmt::format("Rank {} has another batch than rank {} in {}; give every rank the whole batch: seed the order of the "
                                  "samples alike on all, and do not deal them out.",
                                  rank, *first, call));
      return verdict;
    }
    if (!first) first = rank;
  }
  return verdict;
}

}  // namespace

void agreeOnCall(const std::string& call, const std::function<StepInput()>& look, Communicator& communicator) {
  const MessageMemory<Word> posted(communicator), said(communicator);
  Word &own = *posted, &verdict = *said;
  putText(own.call, call);
  try {
    const StepInput input = look ? look() : StepInput();
    own.batch = input.batch.value_or(0);
    own.hasBatch = input.batch ? 1 : 0;
    own.optimizer = input.optimizer;
  } catch (const UsageError& problem) {  // all ranks throw it
    if (communicator.size() == 1) throw;
    refuse(own, problem.what());
  }
  if (communicator.size() == 1) return;
  if (communicator.rank() == JobRank(0)) {
    const MessageMemory<std::vector<Word>> heard(communicator, std::vector<Word>(static_cast<std::size_t>(communicator.size())));
    std::vector<Word>& words = *heard;
    words.front() = own;
    std::vector<Communicator::Request> requests;
    for (int r = 1; r < communicator.size(); ++r)
      requests.push_back(communicator.receive(JobRank(r), kWordTag, bufferOfWord(words[static_cast<std::size_t>(r)])));
    for (const auto request : requests) communicator.wait(request);
    verdict = verdictOn(call, words);
    requests.clear();
    for (int r = 1; r < communicator.size(); ++r) requests.push_back(communicator.send(JobRank(r), kVerdictTag, bufferOfWord(verdict)));
    for (const auto request : requests) communicator.wait(request);
  } else {
    const auto sent = communicator.send(JobRank(0), kWordTag, bufferOfWord(own));
    communicator.wait(communicator.receive(JobRank(0), kVerdictTag, bufferOfWord(verdict)));
    communicator.wait(sent);
  }
  if (verdict.verdict == Word::Agrees) return;
  communicator.barrier();  // the tags are used again
  if (verdict.verdict == Word::Apart) throw Error(verdict.sentence.data());
  throw UsageError(verdict.sentence.data());
}

}  // namespace pw
