#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backends/messages/communicator.h"
#include "backends/messages/device.h"
#include "tests/support/collectives.h"
#include "tests/support/communicator_contract.h"

namespace pw::test {

/// A message of a random exchange, or, with a group, a collective.
struct Planned {
  int from = 0, to = 0, round = 0;
  std::uint32_t tag = 0;
  std::size_t bytes = 0;
  bool onDevice = true;
  std::vector<JobRank> group{};
  Collective what = Collective::AllReduce;
  DType dtype = DType::Float32;

  [[nodiscard]] bool isOf(JobRank rank) const {
    return group.empty() ? from == rank.value || to == rank.value : std::ranges::find(group, rank) != group.end();
  }
  [[nodiscard]] std::size_t elements() const { return bytes / widthOf(dtype); }
};

inline Planned randomCollective(int ranks, std::mt19937_64& random) {
  Planned planned;
  while (planned.group.size() < 2) {
    planned.group.clear();
    for (int r = 0; r < ranks; ++r) {
      if (random() % 2 == 0) planned.group.emplace_back(r);
    }
  }
  planned.what = std::array{Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather}[random() % 3];
  planned.dtype = kSummed[random() % std::size(kSummed)];
  planned.bytes = (random() % 2 == 0 ? random() % 6 : random() % 700) * widthOf(planned.dtype);
  return planned;
}

inline std::vector<Planned> randomPlan(int ranks, int messages, int collectives, std::mt19937_64& random) {
  std::vector<Planned> plan;
  for (int m = 0; m < messages; ++m) {
    Planned message;
    message.from = static_cast<int>(random() % static_cast<std::uint64_t>(ranks));
    message.to = (message.from + 1 + static_cast<int>(random() % static_cast<std::uint64_t>(ranks - 1))) % ranks;
    message.bytes = random() % 8 == 0 ? 0 : 1 + random() % 3000;
    message.onDevice = random() % 4 != 0;
    plan.push_back(message);
  }
  for (int c = 0; c < collectives; ++c) plan.push_back(randomCollective(ranks, random));
  for (Planned& planned : plan) {
    planned.round = static_cast<int>(random() % 4);
    planned.tag = static_cast<std::uint32_t>(&planned - plan.data());
  }
  return plan;
}

/// One rank's part of a plan. The operations of a round are posted in a random order, except that collectives keep theirs; then some of all
/// that is pending is waited for, which cannot block any rank forever: the rank in the earliest round needs only what others have requested
/// or can request. `Job` has `device()`, `computed(bytes)` and `expect(memory, first byte, bytes, what)`.
template <class Job>
class RandomRank {
 public:
  RandomRank(Job& job, Communicator& me, const std::vector<Planned>& plan, std::uint64_t seed)
      : job_(job), me_(me), plan_(plan), random_(seed) {}

  void step(int salt) {
    for (int round = 0; round < 4; ++round) {
      for (const Planned* planned : ofRound(round)) begin(*planned, salt);
      while (!open_.empty() && random_() % 3 != 0) endSome(salt);
    }
    while (!open_.empty()) endSome(salt);
    job_.device().finish(kLongWait, {});
    std::vector<std::pair<Ns, Ns>> times;
    for (const auto request : timed_) {
      ASSERT_TRUE(me_.timesOf(request).has_value());
      times.push_back(*me_.timesOf(request));
      EXPECT_LT(times.back().first, times.back().second);
    }
    me_.barrier();
    for (std::size_t i = 0; i < timed_.size(); ++i) EXPECT_EQ(me_.timesOf(timed_[i]), times[i]);
    for (const auto request : std::exchange(timedBefore_, std::exchange(timed_, {}))) EXPECT_EQ(me_.timesOf(request), std::nullopt);
    held_.clear();
  }

 private:
  struct Open {
    const Planned* planned = nullptr;
    Communicator::Request request = 0;
    HeldBuffer memory{};
    bool sending = false;
    [[nodiscard]] bool isCollective() const { return !planned->group.empty(); }
  };

  std::vector<const Planned*> ofRound(int round) {
    std::vector<const Planned*> mine, collectives;
    for (const Planned& planned : plan_) {
      if (planned.round == round && planned.isOf(me_.rank())) mine.push_back(&planned);
    }
    std::ranges::copy_if(mine, std::back_inserter(collectives), [](const Planned* planned) { return !planned->group.empty(); });
    std::ranges::shuffle(mine, random_);
    auto next = collectives.begin();
    for (const Planned*& planned : mine) {
      if (!planned->group.empty()) planned = *next++;
    }
    return mine;
  }

  void begin(const Planned& planned, int salt) {
    Open open{.planned = &planned, .sending = planned.from == me_.rank().value};
    const int pattern = salt + static_cast<int>(planned.tag);
    if (open.isCollective()) {
      open.memory = job_.computed(encoded(planned.dtype, givenBy(me_.rank(), planned.elements(), pattern)));
      const auto request = me_.startCollective(planned.what, planned.group, planned.dtype, open.memory.buffer);
      ASSERT_TRUE(request.has_value());
      open.request = *request;
    } else {
      if (!planned.onDevice) {
        open.memory = hostDevice().allocate(planned.bytes);
        if (open.sending) std::ranges::copy(patternOf(planned.bytes, pattern), open.memory.buffer.data);
      } else {
        open.memory = open.sending ? job_.computed(patternOf(planned.bytes, pattern)) : job_.device().allocate(planned.bytes);
      }
      const JobRank peer(open.sending ? planned.to : planned.from);
      open.request = open.sending ? me_.send(peer, planned.tag, open.memory.buffer) : me_.receive(peer, planned.tag, open.memory.buffer);
    }
    EXPECT_NE(me_.stateOf(open.request), MessageState::Unknown);
    open_.push_back(open);
    if (random_() % 4 == 0) me_.progress();
  }

  void endSome(int salt) {
    std::size_t at = random_() % open_.size();
    if (random_() % 2 == 0) {
      std::ranges::shuffle(open_, random_);
      std::vector<Communicator::Request> requests;
      for (const Open& open : std::span(open_).first(1 + at)) requests.push_back(open.request);
      at = me_.waitAny(requests);
      EXPECT_EQ(me_.isDone(requests[at]), true);
      if (!open_[at].isCollective() && open_[at].sending) {
        EXPECT_EQ(me_.stateOf(requests[at]), MessageState::Done);
      }
    }
    const Open open = std::exchange(open_[at], open_.back());
    open_.pop_back();
    me_.wait(open.request);
    const Buffer buffer = open.memory.buffer;
    if (open.isCollective() || (open.planned->onDevice && buffer.bytes > 0)) timed_.push_back(open.request);
    open.isCollective() ? lookAtCollective(open, salt) : lookAtMessage(open, salt);
  }

  void lookAtCollective(const Open& open, int salt) {
    const Planned& planned = *open.planned;
    const auto place = static_cast<std::size_t>(std::ranges::find(planned.group, me_.rank()) - planned.group.begin());
    const Combined right = combinedAt(place, planned.what, planned.group, planned.elements(), salt + static_cast<int>(planned.tag));
    const std::string what = "collective " + std::to_string(planned.tag) + " at rank " + std::to_string(me_.rank().value);
    job_.expect(open.memory, right.first * widthOf(planned.dtype), encoded(planned.dtype, right.values), what);
    held_.push_back(open.memory);
  }

  void lookAtMessage(const Open& open, int salt) {
    const Buffer buffer = open.memory.buffer;
    if (open.sending) {
      std::fill_n(buffer.data, buffer.bytes, std::byte{0xAA});  // it is free
      return;
    }
    const std::vector<std::byte> right = patternOf(buffer.bytes, salt + static_cast<int>(open.planned->tag));
    const std::string what = "message " + std::to_string(open.planned->tag) + " from rank " + std::to_string(open.planned->from);
    if (open.planned->onDevice) {
      job_.expect(open.memory, 0, right, what);
      held_.push_back(open.memory);
    } else {
      EXPECT_TRUE(std::ranges::equal(std::span(buffer.data, buffer.bytes), right)) << what;
    }
  }

  Job& job_;
  Communicator& me_;
  const std::vector<Planned>& plan_;
  std::mt19937_64 random_;
  std::vector<Open> open_;
  std::vector<Communicator::Request> timed_, timedBefore_;
  std::vector<HeldBuffer> held_;
};

}  // namespace pw::test
