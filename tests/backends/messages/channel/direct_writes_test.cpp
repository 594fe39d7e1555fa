#include "backends/messages/channel/direct_writes.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstring>
#include <string>
#include <vector>

#include "backends/messages/channel/block_memory.h"
#include "backends/messages/channel/shared_memory.h"
#include "backends/messages/channel/wire.h"

namespace pw {
namespace {

constexpr std::size_t kUnit = SharedMemory::kUnit, kSpace = 32 * kUnit;

TEST(SharedMemory, GivesPiecesThatDoNotOverlapAndTakesThemBack) {
  const auto memory = SharedMemory::make(kSpace);
  ASSERT_NE(memory, nullptr);
  std::byte* const one = memory->take(kUnit);
  std::byte* const two = memory->take(3 * kUnit);
  std::byte* const three = memory->take(kUnit);
  ASSERT_TRUE(one != nullptr && two != nullptr && three != nullptr);
  EXPECT_EQ(memory->offsetOf(two), *memory->offsetOf(one) + kUnit);
  EXPECT_EQ(memory->offsetOf(three), *memory->offsetOf(two) + 3 * kUnit);
  std::byte elsewhere{};
  EXPECT_EQ(memory->offsetOf(&elsewhere), std::nullopt);
  std::memset(two, 7, 3 * kUnit);
  memory->put(one, kUnit);
  memory->put(three, kUnit);
  memory->put(two, 3 * kUnit);  // between two that are free
  std::byte* const all = memory->take(memory->name().bytes / 2);
  EXPECT_EQ(all, one) << "the free pieces are one again";
  EXPECT_EQ(all[2 * kUnit], std::byte{0}) << "its memory was given back";
  EXPECT_EQ(memory->take(memory->name().bytes), nullptr);
}

TEST(SharedMemory, IsWrittenToByAnotherProcess) {
  const auto memory = SharedMemory::make(kSpace);
  ASSERT_NE(memory, nullptr);
  std::byte* const piece = memory->take(kUnit);
  const SharedMemoryName name = memory->name();
  const std::uint64_t offset = *memory->offsetOf(piece);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto view = SharedMemoryView::open(name);
    if (view != nullptr) std::memset(view->at(offset, kUnit), 5, kUnit);
    ::_exit(view == nullptr ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0) << "it cannot be opened";
  for (std::size_t i = 0; i < kUnit; ++i) ASSERT_EQ(piece[i], std::byte{5}) << i;
}

TEST(SharedMemory, StaysWhenAForkedProcessDropsIt) {
  const auto memory = SharedMemory::make(kSpace);
  ASSERT_NE(memory, nullptr);
  std::byte* const piece = memory->take(kUnit);
  piece[0] = std::byte{9};
  const pid_t child = ::fork();
  if (child == 0) {
    memory->put(piece, kUnit);
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(piece[0], std::byte{9});
}

TEST(SharedMemory, IsNotOpenedByANameThatIsWrong) {
  const auto memory = SharedMemory::make(kSpace);
  ASSERT_NE(memory, nullptr);
  const SharedMemoryName right = memory->name();
  EXPECT_NE(SharedMemoryView::open(right), nullptr);
  const auto refuses = [&](auto change) {
    SharedMemoryName wrong = right;
    change(wrong);
    EXPECT_EQ(SharedMemoryView::open(wrong), nullptr);
  };
  refuses([](SharedMemoryName& n) { n = {}; });
  refuses([](SharedMemoryName& n) { ++n.host; });
  refuses([](SharedMemoryName& n) { n.process = 0; });
  refuses([](SharedMemoryName& n) { n.process = -1; });
  refuses([](SharedMemoryName& n) { n.descriptor = 0; });
  refuses([](SharedMemoryName& n) { n.descriptor = 1 << 30; });
  refuses([](SharedMemoryName& n) { n.bytes /= 2; });
  refuses([](SharedMemoryName& n) { n.bytes = ~std::uint64_t{0}; });
  const auto view = SharedMemoryView::open(right);
  EXPECT_EQ(view->at(right.bytes, 1), nullptr);
  EXPECT_EQ(view->at(~std::uint64_t{0}, 2), nullptr);
  EXPECT_EQ(view->at(1, right.bytes), nullptr);
  EXPECT_NE(view->at(0, right.bytes), nullptr);
}

TEST(BlockMemory, IsSharedWhereThereIsRoom) {
  const auto shared = SharedMemory::make(kSpace);
  ASSERT_NE(shared, nullptr);
  std::byte* const rest = shared->take(shared->name().bytes - 2 * kUnit);
  const BlockMemory memory(2 * kUnit, shared);
  HeldBuffer one = memory.take(kUnit + 1), two = memory.take(kUnit), small = memory.take(100);
  EXPECT_TRUE(shared->offsetOf(one.buffer.data).has_value()) << "of two units";
  EXPECT_FALSE(shared->offsetOf(two.buffer.data).has_value()) << "there is no room for another";
  EXPECT_FALSE(shared->offsetOf(small.buffer.data).has_value());
  const std::byte* const place = one.buffer.data;
  one = {};
  EXPECT_EQ(memory.kept(), 2 * kUnit);
  EXPECT_EQ(memory.take(2 * kUnit).buffer.data, place) << "it was kept";
  two = {};
  EXPECT_EQ(memory.kept(), kUnit) << "instead of the larger one, which went back";
  EXPECT_EQ(shared->take(2 * kUnit), place);
  shared->put(rest, shared->name().bytes - 2 * kUnit);
}

/// A rank that writes directly; its messages wait until the test delivers them.
struct Writer {
  Writer(int rank, const std::string& token) : self(rank), direct(JobRank(rank), 2, token, events(), post(), send()) {}

  LinkEvents events() {
    LinkEvents made;
    made.place = [this](const BlockHead&, std::size_t bytes) { return accepts ? memory.take(bytes) : HeldBuffer{}; };
    made.placed = [this](const BlockHead& head, HeldBuffer data) { placed.emplace_back(head, std::move(data)); };
    made.lost = [this](JobRank rank, const std::string&) { lost.push_back(rank.value); };
    made.shared = shared;
    return made;
  }
  DirectWrites::Post post() {
    return [this](JobRank, const DirectMessage& message) { said.push_back(message); };
  }
  DirectWrites::Send send() {
    return [this](JobRank, const BlockHead& head, HeldBuffer data) { sent.emplace_back(head, std::move(data)); };
  }

  int self;
  std::shared_ptr<SharedMemory> shared = SharedMemory::make(kSpace);
  BlockMemory memory{64 << 20, shared};
  bool accepts = true;
  std::vector<DirectMessage> said;
  std::vector<std::pair<BlockHead, HeldBuffer>> placed, sent;
  std::vector<int> lost;
  DirectWrites direct;
};

class DirectWritesTest : public testing::Test {
 protected:
  DirectWritesTest() {
    one_.direct.meet(JobRank(1), other_.direct.name());
    other_.direct.meet(JobRank(0), one_.direct.name());
  }
  static HeldBuffer block(std::size_t bytes) {
    const auto data = std::make_shared<std::vector<std::byte>>(bytes);
    for (std::size_t i = 0; i < bytes; ++i) (*data)[i] = static_cast<std::byte>(i * 7 % 251);
    return {{data->data(), bytes}, data};
  }
  static BlockHead head(std::uint64_t number) {
    return {.key = blockKey("secret", JobRank(0), JobRank(1)), .from = 0, .kind = BlockKind::Part, .number = number, .part = 2};
  }
  /// Delivers all messages until nothing is left to do.
  void run() {
    for (bool moved = true; moved;) {
      moved = one_.direct.write() | other_.direct.write();
      for (Writer* from : {&one_, &other_}) {
        for (const DirectMessage& message : std::exchange(from->said, {})) {
          (from == &one_ ? other_ : one_).direct.handle(message);
          moved = true;
        }
      }
    }
  }

  Writer one_{0, "secret"}, other_{1, "secret"};
};

TEST_F(DirectWritesTest, ABlockIsWrittenWhereItsReceiverWantsIt) {
  EXPECT_FALSE(one_.direct.takes(JobRank(1), kUnit - 1));
  ASSERT_TRUE(one_.direct.takes(JobRank(1), kUnit));
  const std::size_t sizes[] = {kUnit, (33 << 20) + 5};  // the second in several pieces
  for (std::size_t i = 0; i < 2; ++i) one_.direct.start(JobRank(1), head(i + 1), block(sizes[i]));
  run();
  ASSERT_EQ(other_.placed.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& [placedHead, data] = other_.placed[i];
    EXPECT_EQ(placedHead.number, i + 1);
    ASSERT_EQ(data.buffer.bytes, sizes[i]);
    EXPECT_EQ(std::memcmp(data.buffer.data, block(sizes[i]).buffer.data, sizes[i]), 0);
    EXPECT_TRUE(other_.shared->offsetOf(data.buffer.data).has_value());
  }
  EXPECT_FALSE(one_.direct.isWriting());
}

TEST_F(DirectWritesTest, ABlockIsSentWhereThereIsNoRoomForIt) {
  ASSERT_NE(other_.shared->take(other_.shared->name().bytes), nullptr);
  one_.direct.start(JobRank(1), head(1), block(kUnit));
  run();
  ASSERT_EQ(one_.sent.size(), 1U);
  EXPECT_EQ(one_.sent[0].second.buffer.bytes, kUnit);
  EXPECT_EQ(other_.direct.announced(one_.sent[0].first, kUnit + 1), std::nullopt);
  const auto place = other_.direct.announced(one_.sent[0].first, kUnit);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->buffer.bytes, kUnit);
  EXPECT_FALSE(other_.direct.announced(one_.sent[0].first, kUnit).has_value()) << "it is there";
}

TEST_F(DirectWritesTest, WhoRefusesABlockIsLost) {
  other_.accepts = false;
  one_.direct.start(JobRank(1), head(1), block(kUnit));
  run();
  EXPECT_EQ(one_.lost, std::vector<int>{1});
  EXPECT_TRUE(other_.placed.empty());
}

TEST_F(DirectWritesTest, WhatStrangersSayHasNoEffect) {
  one_.direct.start(JobRank(1), head(1), block(kUnit));
  ASSERT_EQ(one_.said.size(), 1U);
  DirectMessage forged = one_.said.front();
  forged.key ^= 1;
  other_.direct.handle(forged);
  forged = one_.said.front();
  for (const std::uint32_t from : {1U, 2U, ~0U}) {
    forged.from = from;
    other_.direct.handle(forged);
  }
  forged = one_.said.front();
  forged.head.from = 1;
  other_.direct.handle(forged);
  forged = one_.said.front();
  forged.what = static_cast<DirectMessage::What>(99);
  other_.direct.handle(forged);
  forged.what = DirectMessage::What::Written;  // of a block that was not announced
  other_.direct.handle(forged);
  EXPECT_TRUE(other_.said.empty() && other_.placed.empty());
  run();
  EXPECT_EQ(other_.placed.size(), 1U);
}

TEST_F(DirectWritesTest, APlaceOutsideOfTheMemoryIsNotWrittenTo) {
  one_.direct.start(JobRank(1), head(1), block(kUnit));
  other_.direct.handle(one_.said.at(0));
  DirectMessage answer = other_.said.at(0);
  answer.offset = other_.shared->name().bytes - kUnit + 1;
  one_.direct.handle(answer);
  EXPECT_EQ(one_.lost, std::vector<int>{1});
  EXPECT_FALSE(one_.direct.write());
}

TEST_F(DirectWritesTest, MemoryThatALostRankMayWriteToIsNotUsedAgain) {
  one_.direct.start(JobRank(1), head(1), block(kUnit));
  other_.direct.handle(one_.said.at(0));
  const DirectMessage answer = other_.said.at(0);
  one_.said.clear();
  other_.said.clear();
  other_.direct.drop(JobRank(0));
  EXPECT_EQ(other_.memory.kept(), 0U);
  EXPECT_NE(other_.shared->offsetOf(other_.memory.take(kUnit).buffer.data), answer.offset);
  one_.direct.handle(answer);  // it does not know, and writes
  run();
  EXPECT_TRUE(other_.placed.empty()) << "nothing comes any more";
  one_.direct.start(JobRank(1), head(2), block(kUnit));
  one_.direct.drop(JobRank(1));
  one_.direct.handle(answer);
  EXPECT_FALSE(one_.direct.write()) << "what was to be written is gone";
}

}  // namespace
}  // namespace pw
