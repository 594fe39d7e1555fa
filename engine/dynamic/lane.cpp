#include "engine/dynamic/lane.h"

#include <atomic>
#include <exception>
#include <future>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::chrono::milliseconds kGlance{50};  ///< between two looks at whether the job still lives

}  // namespace

void Lane::post(Task task) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  tasks_.push_back(std::move(task));
  changed_.notify_one();
}

void Lane::call(const Task& task, std::chrono::milliseconds deadline) {
  auto done = std::make_shared<std::promise<void>>();  // of the task alone: who drops it breaks the promise
  std::future<void> result = done->get_future();
  auto isTaken = std::make_shared<std::atomic<bool>>(false);  // by the lane, which then runs it, or by the caller, who gave up
  post([&task, isTaken, done = std::move(done)] {
    if (isTaken->exchange(true)) return;
    try {
      task();
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());  // it is the caller's
    }
  });
  if (result.wait_for(deadline) == std::future_status::timeout && !isTaken->exchange(true))
    throw Error(
        fmt::format("this rank was busy with other work for {} s, so that a piece of a backward pass could not begin; raise --timeout",
                    std::chrono::duration_cast<std::chrono::seconds>(deadline).count()));
  try {
    result.get();  // of a task that has begun: its own waits have deadlines
  } catch (const std::future_error&) {
    throw Error("This rank has ended, and with it what it still had to compute.");
  }
}

void Lane::work(const std::function<bool()>& isDone, std::chrono::milliseconds deadline, const std::function<void()>& meanwhile) {
  while (!isDone()) {
    const auto until = std::chrono::steady_clock::now() + deadline;
    Task task;
    while (!task) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kGlance, [&] { return !tasks_.empty(); });
        if (!tasks_.empty()) {
          task = std::move(tasks_.front());
          tasks_.pop_front();
          continue;
        }
      }
      meanwhile();
      if (std::chrono::steady_clock::now() > until)
        throw Error(
            fmt::format("no call and no gradient came for {} s", std::chrono::duration_cast<std::chrono::seconds>(deadline).count()));
    }
    task();
  }
}

void Lane::close() {
  std::deque<Task> dropped;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(tasks_);
}

}  // namespace pw
