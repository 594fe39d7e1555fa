#include "engine/batch_agreement.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backends/messages/in_memory_communicator.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Looks = std::vector<std::function<StepInput()>>;

std::function<StepInput()> has(std::optional<std::uint64_t> batch, std::uint64_t optimizer = 1) {
  return [=] { return StepInput{batch, optimizer}; };
}
std::function<StepInput()> refuses(const std::string& sentence) {
  return [=]() -> StepInput { throw UsageError(sentence); };
}

/// What each rank's calls ended with, one call for each row; empty where it returned.
std::vector<std::vector<std::string>> agreed(const std::vector<Looks>& steps) {
  const std::size_t ranks = steps.front().size();
  auto communicators = inMemoryCommunicators(static_cast<int>(ranks), std::chrono::seconds(20));
  std::vector<std::vector<std::string>> sentences(ranks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      for (std::size_t step = 0; step < steps.size(); ++step) {
        std::string sentence;
        try {
          agreeOnCall("step " + std::to_string(step), steps[step][r], *communicators[r]);
          communicators[r]->barrier();  // as a step does
        } catch (const UsageError& error) {
          sentence = error.what();
        }
        sentences[r].push_back(sentence);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sentences;
}

TEST(BatchAgreement, EqualBatchesAreAgreedOnAndRanksWithoutOneDoNotCount) {
  for (const auto& rank : agreed({{has(7), has({}), has(7)}, {has({}), has(8), has(8)}, {has({}), has({}), has({})}}))
    EXPECT_EQ(rank, std::vector<std::string>(3));
}

TEST(BatchAgreement, AllRanksRefuseABatchThatOneRefusesAndCanTryAnother) {
  for (const auto& rank : agreed({{has(7), refuses("It is too small."), has(7)}, {has(7), has(7), has(7)}}))
    EXPECT_EQ(rank, (std::vector<std::string>{"It is too small.", ""}));
}

TEST(BatchAgreement, BatchesThatDifferAreNamedByRankAndStep) {
  for (const auto& rank : agreed({{has({}), has(7), has(8)}, {has(7), has({}), has(8)}})) {
    EXPECT_TRUE(rank[0].starts_with("Rank 2 has another batch than rank 1 in step 0;")) << rank[0];
    EXPECT_TRUE(rank[1].starts_with("Rank 2 has another batch than rank 0 in step 1;")) << rank[1];
  }
}

TEST(BatchAgreement, LearningRatesThatDifferAreNamed) {
  for (const auto& rank : agreed({{has(7, 1), has(7, 2)}}))
    EXPECT_TRUE(rank[0].starts_with("Rank 1 has another learning rate or other settings of the optimizer than rank 0 in step 0;"))
        << rank[0];
}

TEST(BatchAgreement, RanksThatMakeDifferentCallsAreNamed) {
  auto communicators = inMemoryCommunicators(3, std::chrono::seconds(20));
  std::vector<std::string> sentences(3);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      try {
        agreeOnCall(r == 1 ? "the end" : "step 3", has(7), *communicators[r]);
      } catch (const UsageError& error) {
        sentences[r] = std::string("another batch helps: ") + error.what();
      } catch (const Error& error) {
        sentences[r] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& sentence : sentences)
    EXPECT_EQ(sentence, "rank 1 has come to the end and rank 0 to step 3; let all ranks make the same calls, or see why one has ended");
}

TEST(BatchAgreement, ALongSentenceIsCutAndOneRankAloneThrowsItsOwn) {
  const std::string sentence(5000, 'x');
  const auto ranks = agreed({{has(7), refuses(sentence)}});
  EXPECT_EQ(ranks[0], ranks[1]);
  EXPECT_TRUE(ranks[0][0].size() > 500 && sentence.starts_with(ranks[0][0]));
  EXPECT_EQ(agreed({{refuses(sentence)}})[0][0], sentence);
}

}  // namespace
}  // namespace pw
