#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backends/messages/rendezvous.h"
#include "schedules/error.h"

namespace pw {

/// A store for ranks that are threads of this process; the returned closures share it.
inline KeyValueStore sharedStore(std::chrono::milliseconds deadline) {
  struct Values {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::string> byKey;
  };
  const auto values = std::make_shared<Values>();
  KeyValueStore store;
  store.set = [values](const std::string& key, const std::string& value) {
    const std::lock_guard lock(values->mutex);
    values->byKey[key] = value;
    values->changed.notify_all();
  };
  store.get = [values, deadline](const std::string& key) {
    std::unique_lock lock(values->mutex);
    if (!values->changed.wait_for(lock, deadline, [&] { return values->byKey.contains(key); })) throw Error("nobody set " + key);
    return values->byKey[key];
  };
  return store;
}

}  // namespace pw
