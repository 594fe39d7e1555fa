#include "engine/remote/future.h"

#include <cxxabi.h>

#include <cstdlib>
#include <typeinfo>

#include "engine/remote/call_threads.h"

namespace pw {
namespace {

std::string typeOf(const std::exception& problem) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(typeid(problem).name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : typeid(problem).name();
}

}  // namespace

RemoteProblem RemoteProblem::of(const std::exception_ptr& thrown, const std::string& here) {
  try {
    std::rethrow_exception(thrown);
  } catch (const RemoteError& error) {
    return {error.type(), error.text(), error.worker()};
  } catch (const std::exception& error) {
    return {typeOf(error), error.what(), here};
  } catch (...) {
    return {"unknown", "A value that is not a std::exception was thrown.", here};
  }
}

RemoteValue RemoteFuture::wait() const {
  if (!isDone()) {
    const CallThreads::Blocked blocked;
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->done; });
  }
  if (state_->problem != nullptr) std::rethrow_exception(state_->problem);
  return state_->value;
}

bool RemoteFuture::isDone() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

bool RemoteFuture::waitFor(std::chrono::milliseconds time) const {
  const CallThreads::Blocked blocked;
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, time, [&] { return state_->done; });
}

void RemoteFuture::whenDone(std::function<void(const RemoteFuture&)> done) const {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->done) {
      state_->listeners.push_back(std::move(done));
      return;
    }
  }
  done(*this);
}

bool RemoteFuture::finish(RemoteValue value, std::exception_ptr problem) const {
  std::vector<std::function<void(const RemoteFuture&)>> listeners;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->done) return false;
    state_->value = std::move(value);
    state_->problem = std::move(problem);
    state_->done = true;
    listeners.swap(state_->listeners);
    state_->changed.notify_all();
  }
  for (const auto& listener : listeners) listener(*this);
  return true;
}

}  // namespace pw
