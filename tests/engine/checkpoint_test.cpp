#include "engine/checkpoint.h"
#include "backends/messages/in_memory_communicator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <thread>

#include "backends/checkpoints/tensor_file.h"
#include "schedules/error.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

/// A rank's share of the state: pieces and the memory they point to.
struct Share {
  std::vector<StatePiece> pieces;
  std::vector<std::shared_ptr<std::vector<float>>> memory;

  /// Elements [first, first + count) of a float tensor in which element i is `base + i`.
  Share& add(const std::string& name, const std::vector<std::int64_t>& shape, std::int64_t first, std::size_t count, float base) {
    auto& numbers = *memory.emplace_back(std::make_shared<std::vector<float>>(count));
    std::iota(numbers.begin(), numbers.end(), base + static_cast<float>(first));
    pieces.push_back({name, DType::Float32, shape, first, {reinterpret_cast<std::byte*>(numbers.data()), count * sizeof(float)}});
    return *this;
  }
};

class SaveCheckpoint : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  /// The sentence each rank's call ended with; empty where it returned.
  std::vector<std::string> save(const std::string& path, const std::vector<Share>& ranks,
                                const std::map<std::string, std::string>& aliases = {}) {
    auto communicators = inMemoryCommunicators(static_cast<int>(ranks.size()), std::chrono::seconds(20));
    std::vector<std::string> sentences(ranks.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      threads.emplace_back([&, r] {
        try {
          saveCheckpoint(path, {{"step", 3}}, ranks[r].pieces, aliases, *communicators[r]);
        } catch (const Error& error) {
          sentences[r] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return sentences;
  }

  static std::vector<float> read(const TensorFile& file, const std::string& name, std::size_t count) {
    std::vector<float> numbers(count);
    std::memcpy(numbers.data(), file.find(name).value().data, count * sizeof(float));
    return numbers;
  }

  static std::vector<float> counted(std::size_t count, float base) {
    std::vector<float> numbers(count);
    std::iota(numbers.begin(), numbers.end(), base);
    return numbers;
  }

  fs::path folder_ = fs::path(testing::TempDir()) /
                     ("pw_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + std::to_string(::getpid()));
  std::string path_ = (folder_ / "a.pt").string();
};

TEST_F(SaveCheckpoint, GathersWholeTensorsOfAllRanks) {
  std::vector<Share> ranks(3);
  ranks[0].add("a", {2, 3}, 0, 6, 10);
  ranks[1].add("b", {4}, 0, 4, 20);
  ranks[2].add("c", {}, 0, 1, 30).add("none", {0, 2}, 0, 0, 0);
  EXPECT_EQ(save(path_, ranks, {{"tied", "b"}}), (std::vector<std::string>(3)));
  const TensorFile file(path_);
  EXPECT_EQ(file.names(), (std::vector<std::string>{"a", "b", "c", "none", "tied"}));
  EXPECT_EQ(file.numbers(), (std::map<std::string, double>{{"step", 3}}));
  EXPECT_EQ(read(file, "a", 6), counted(6, 10));
  EXPECT_EQ(file.find("a")->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(read(file, "b", 4), counted(4, 20));
  EXPECT_EQ(read(file, "c", 1), counted(1, 30));
  EXPECT_EQ(file.find("tied")->data, file.find("b")->data);
}

TEST_F(SaveCheckpoint, PutsShardsOfSeveralRanksTogether) {
  std::vector<Share> ranks(3);  // in no order, cut in the middle of rows
  ranks[0].add("exp_avg/w", {5, 2}, 7, 3, 0).add("w", {5, 2}, 0, 10, 100);
  ranks[1].add("exp_avg/w", {5, 2}, 0, 3, 0);
  ranks[2].add("exp_avg/w", {5, 2}, 3, 4, 0);
  EXPECT_EQ(save(path_, ranks), (std::vector<std::string>(3)));
  const TensorFile file(path_);
  EXPECT_EQ(read(file, "exp_avg/w", 10), counted(10, 0));
  EXPECT_EQ(read(file, "w", 10), counted(10, 100));
}

TEST_F(SaveCheckpoint, TakesTheLowestRanksOfEqualPieces) {
  std::vector<Share> ranks(4);
  ranks[1].add("w", {6}, 0, 3, 10);  // replicas would hold equal numbers; these tell whose piece was taken
  ranks[2].add("w", {6}, 0, 3, 50).add("w", {6}, 3, 3, 50);
  ranks[3].add("w", {6}, 3, 3, 90);
  EXPECT_EQ(save(path_, ranks), (std::vector<std::string>(4)));
  EXPECT_EQ(read(TensorFile(path_), "w", 6), (std::vector<float>{10, 11, 12, 53, 54, 55}));
}

TEST_F(SaveCheckpoint, CanBeCalledAgainWithTheSameCommunicator) {
  auto communicators = inMemoryCommunicators(2, std::chrono::seconds(20));
  std::vector<Share> ranks(2);
  ranks[0].add("a", {2}, 0, 2, 1);
  ranks[1].add("b", {2}, 0, 2, 5);
  std::thread other([&] {
    for (int i = 0; i < 3; ++i) saveCheckpoint(path_, {}, ranks[1].pieces, {}, *communicators[1]);
  });
  for (int i = 0; i < 3; ++i) saveCheckpoint(path_, {}, ranks[0].pieces, {}, *communicators[0]);
  other.join();
  EXPECT_EQ(read(TensorFile(path_), "b", 2), counted(2, 5));
}

TEST_F(SaveCheckpoint, EveryRankHearsThatTheFolderIsMissing) {
  std::vector<Share> ranks(3);
  ranks[0].add("a", {2}, 0, 2, 0);
  ranks[1].add("b", {2}, 0, 2, 0);
  const std::string path = (folder_ / "none" / "a.pt").string();
  EXPECT_EQ(save(path, ranks),
            std::vector<std::string>(3, path + " cannot be written: No such file or directory; check the folder and its permissions."));
}

TEST_F(SaveCheckpoint, EveryRankHearsOfAFailureInTheMiddleAndTheOldFileStays) {
  std::ofstream(path_) << "old";
  std::vector<Share> ranks(3);
  ranks[0].add("a", {2}, 0, 2, 0);
  ranks[1].add("b", {2}, 0, 2, 0);
  ranks[1].pieces[0].dtype = DType::ComplexFloat;
  ranks[1].pieces[0].shape = {1};
  ranks[2].add("c", {2}, 0, 2, 0);
  ranks[2].pieces[0].dtype = DType::ComplexHalf;  // no storage class: found when it is written, after a and b were
  EXPECT_EQ(save(path_, ranks), std::vector<std::string>(3, "Tensor c is of type complex32, which torch.save has no storage for."));
  std::ifstream stream(path_);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(SaveCheckpoint, RefusesGapsAndUnequalShapes) {
  std::vector<Share> gap(2);
  gap[0].add("w", {6}, 0, 2, 0);
  gap[1].add("w", {6}, 3, 3, 0);
  EXPECT_EQ(save(path_, gap), std::vector<std::string>(2, "The checkpoint would lack w from element 2 of 6: no rank holds it."));
  std::vector<Share> unequal(2);
  unequal[0].add("w", {6}, 0, 6, 0);
  unequal[1].add("w", {2, 3}, 0, 6, 0);
  EXPECT_EQ(save(path_, unequal),
            std::vector<std::string>(2, "Rank 1 holds w with a different type or shape from an earlier rank; plan the model again."));
  EXPECT_EQ(save(path_, {Share(), Share()}, {{"tied", "w"}}),
            std::vector<std::string>(2, "The checkpoint lacks w, which tied shares its values with; plan the model again."));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(SaveCheckpoint, EveryRankCanHaveAllOfIt) {
  std::vector<Share> ranks(3);
  ranks[0].add("a", {2, 3}, 0, 4, 10).add("same", {2}, 0, 2, 5);
  ranks[1].add("b", {4}, 0, 4, 20).add("a", {2, 3}, 4, 2, 10);
  ranks[2].add("none", {0, 2}, 0, 0, 0).add("same", {2}, 0, 2, 5);
  auto communicators = inMemoryCommunicators(3, std::chrono::seconds(20));
  std::vector<std::vector<StateTensorCopy>> all(3);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      static_cast<void>(wholeState(ranks[r].pieces, *communicators[r]));
      all[r] = wholeState(ranks[r].pieces, *communicators[r]);  // again with the same communicator
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::map<std::string, std::vector<float>> expected{
      {"a", counted(6, 10)}, {"same", counted(2, 5)}, {"b", counted(4, 20)}, {"none", {}}};
  for (const std::vector<StateTensorCopy>& tensors : all) {
    std::map<std::string, std::vector<float>> found;
    for (const StateTensorCopy& tensor : tensors) {
      const auto* numbers = reinterpret_cast<const float*>(tensor.memory.buffer.data);
      found[tensor.name] = {numbers, numbers + tensor.memory.buffer.bytes / sizeof(float)};
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(tensors.front().shape, (std::vector<std::int64_t>{2, 3}));
  }
}

}  // namespace
}  // namespace pw
