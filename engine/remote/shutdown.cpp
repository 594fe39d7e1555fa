#include "engine/remote/shutdown.h"

#include <fmt/format.h>

#include "backends/host/packed.h"
#include "engine/remote/call_threads.h"
#include "engine/remote/pending_calls.h"
#include "schedules/error.h"

namespace pw {
namespace {

enum class What : std::uint8_t { Ask, Answer, End };
constexpr JobRank kLeader(0);

}  // namespace

void Shutdown::wait(std::chrono::milliseconds deadline) {
  using namespace std::chrono_literals;
  const auto until = std::chrono::steady_clock::now() + deadline;
  {
    const std::lock_guard lock(mutex_);
    here_ = true;
  }
  becameIdle();
  std::unique_lock lock(mutex_);
  if (parts_.self == kLeader) {
    lead(lock, until);
  } else if (!changed_.wait_until(lock, until + std::min<std::chrono::milliseconds>(deadline / 4, 2s),
                                  [&] { return ended_.has_value(); })) {
    ended_ = fmt::format("{} did not end the job within {}.", parts_.names[0], secondsText(deadline));
  }
  if (!ended_->empty()) throw Error(*ended_);
}

void Shutdown::lead(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point until) {
  while (!ended_) {
    ++round_;
    last_ = std::exchange(counts_, {});
    const std::uint32_t round = round_;
    lock.unlock();
    for (std::size_t i = 0; i < parts_.names.size(); ++i) {
      Packer ask;
      ask.add(static_cast<std::uint8_t>(What::Ask));
      ask.add(round);
      parts_.send(JobRank(i), ask.finish());
    }
    lock.lock();
    const bool answered = changed_.wait_until(lock, until, [&] { return ended_ || counts_.size() == parts_.names.size(); });
    if (!answered) {
      std::string missing;
      for (std::size_t i = 0; i < parts_.names.size(); ++i) {
        if (!counts_.contains(JobRank(i))) missing += (missing.empty() ? "" : ", ") + parts_.names[i];
      }
      ended_ = missing + " did not come to the end of the job in time, or still has calls in flight.";
    } else if (!ended_ && counts_ == last_ && allReceived()) {
      ended_ = "";
    } else if (!ended_ && counts_ == last_ && std::chrono::steady_clock::now() > until) {
      ended_ = "Calls between the workers were lost on their way.";
    } else if (!ended_ && counts_ == last_) {
      changed_.wait_for(lock, std::chrono::milliseconds(1));  // a call is on its way between two workers
    }
  }
  const std::string problem = *ended_;
  lock.unlock();
  finish(problem);
  lock.lock();
}

bool Shutdown::allReceived() const {
  for (const auto& [from, sender] : counts_) {
    for (const auto& [to, receiver] : counts_) {
      if (sender.sent.at(to.index()) != receiver.received.at(from.index())) return false;
    }
  }
  return true;
}

void Shutdown::finish(const std::string& problem) {
  for (std::size_t i = 1; i < parts_.names.size(); ++i) {
    Packer end;
    end.add(static_cast<std::uint8_t>(What::End));
    end.add(problem);
    parts_.send(JobRank(i), end.finish());
  }
}

void Shutdown::handle(JobRank from, std::string_view body) {
  Unpacker in(body);
  const auto what = static_cast<What>(in.within<std::uint8_t>(0, static_cast<std::uint8_t>(What::End)));
  std::unique_lock lock(mutex_);
  switch (what) {
    case What::Ask:
      requested_ = in.next<std::uint32_t>();
      lock.unlock();
      becameIdle();
      break;
    case What::Answer: {
      const auto round = in.next<std::uint32_t>();
      CallCounts counts;
      for (auto* numbers : {&counts.sent, &counts.received}) {
        for (std::size_t i = 0; i < parts_.names.size(); ++i) numbers->push_back(in.next<std::uint64_t>());
      }
      if (in.isComplete() && round == round_) counts_[from] = std::move(counts);
      changed_.notify_all();
      break;
    }
    case What::End:
      if (!ended_) ended_ = in.next<std::string>();
      changed_.notify_all();
      break;
  }
  if (!in.isComplete()) throw Error("a message of the job's end is damaged");
}

void Shutdown::becameIdle() {
  std::unique_lock lock(mutex_);
  if (!here_ || !requested_ || !parts_.isIdle()) return;
  Packer answer;
  answer.add(static_cast<std::uint8_t>(What::Answer));
  answer.add(*requested_);
  const CallCounts counts = parts_.counts();
  for (const auto* numbers : {&counts.sent, &counts.received}) {
    for (const std::uint64_t number : *numbers) answer.add(number);
  }
  requested_.reset();
  lock.unlock();
  parts_.send(kLeader, answer.finish());
}

void Shutdown::close() {
  const std::lock_guard lock(mutex_);
  if (!ended_) ended_ = "This worker left before the end of the job.";
  changed_.notify_all();
}

bool Shutdown::hasEnded() const {
  const std::lock_guard lock(mutex_);
  return ended_.has_value();
}

void Shutdown::lost(JobRank worker, const std::string& why) {
  // Others learn from worker 0, as somebody who has ended well before this one heard of it is no loss.
  if (parts_.self != kLeader && worker != kLeader) return;
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  ended_ = lostSentence(parts_.names[worker.index()], "the end of the job", why);
  changed_.notify_all();
}

}  // namespace pw
