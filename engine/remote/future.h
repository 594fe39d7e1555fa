#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/remote/value.h"
#include "schedules/error.h"

namespace pw {

/// What a function on another worker threw. `what()` is its text with type and worker.
class RemoteError : public Error {
 public:
  RemoteError(std::string type, std::string text, std::string worker)
      : Error(text + " (" + type + " on " + worker + ")"), type_(std::move(type)), text_(std::move(text)), worker_(std::move(worker)) {}
  [[nodiscard]] const std::string& type() const { return type_; }      ///< as the callee's language writes it: `pw::UsageError`
  [[nodiscard]] const std::string& text() const { return text_; }      ///< its own text
  [[nodiscard]] const std::string& worker() const { return worker_; }  ///< where it was thrown

 private:
  std::string type_, text_, worker_;
};

/// What was thrown, as it goes to another worker.
struct RemoteProblem {
  std::string type, text, worker;

  /// Of something that was thrown on a worker; what came from further away stays as it is.
  [[nodiscard]] static RemoteProblem of(const std::exception_ptr& thrown, const std::string& here);
  [[nodiscard]] RemoteError error() const { return {type, text, worker}; }
};

/// The result of a call that may still be on its way. Copies share it; any thread.
class RemoteFuture {
 public:
  RemoteFuture() : state_(std::make_shared<State>()) {}

  /// Blocks until the result is there, which the call's deadline bounds. Throws what ended the call: RemoteError of the callee, or Error
  /// naming the worker that did not answer or was lost.
  [[nodiscard]] RemoteValue wait() const;
  [[nodiscard]] bool isDone() const;
  /// Blocks for so long at most; whether the result is there.
  [[nodiscard]] bool waitFor(std::chrono::milliseconds time) const;
  /// Calls this when the result is there, at once if it is; on the thread that brings it, so it must return quickly and not throw.
  void whenDone(std::function<void(const RemoteFuture&)> done) const;

  /// The first result counts; false for a later one.
  bool set(RemoteValue value) const { return finish(std::move(value), nullptr); }
  bool fail(std::exception_ptr problem) const { return finish({}, std::move(problem)); }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    RemoteValue value;
    std::exception_ptr problem;
    std::vector<std::function<void(const RemoteFuture&)>> listeners;
  };
  bool finish(RemoteValue value, std::exception_ptr problem) const;

  std::shared_ptr<State> state_;
};

}  // namespace pw
