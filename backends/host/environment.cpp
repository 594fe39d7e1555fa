#include "backends/host/environment.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <string_view>
#include <vector>

namespace pw {
namespace {

/// Makes a new list of variables and publishes it by one store. The old list and all entries stay as they are for readers of the moment.
class Environment {
 public:
  void setDefaults(std::span<const EnvironmentVariable> variables) {
    const std::scoped_lock lock(mutex_);
    std::vector<char*> list = current();
    for (const auto& [name, value] : variables) {
      if (find(list, name) == list.end()) list.push_back(entryOf(name, value));
    }
    publish(std::move(list));
  }

  void set(const std::string& name, const std::string& value) {
    const std::scoped_lock lock(mutex_);
    std::vector<char*> list = current();
    std::erase_if(list, [&](const char* entry) { return isOf(entry, name); });
    list.push_back(entryOf(name, value));
    publish(std::move(list));
  }

 private:
  static std::vector<char*> current() {
    std::vector<char*> list;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) list.push_back(*entry);
    return list;
  }

  static bool isOf(std::string_view entry, std::string_view name) {
    return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
  }

  static std::vector<char*>::const_iterator find(const std::vector<char*>& list, const std::string& name) {
    return std::ranges::find_if(list, [&](const char* entry) { return isOf(entry, name); });
  }

  char* entryOf(const std::string& name, const std::string& value) { return entries_.emplace_back(name + '=' + value).data(); }

  void publish(std::vector<char*> list) {
    list.push_back(nullptr);
    std::vector<char*>& published = lists_.emplace_back(std::move(list));
    std::atomic_ref<char**>(environ).store(published.data(), std::memory_order_release);
  }

  std::mutex mutex_;
  std::deque<std::string> entries_;
  std::deque<std::vector<char*>> lists_;
};

Environment& environment() {
  static auto* const all = new Environment;  // never destroyed: threads may read variables while the process ends
  return *all;
}

}  // namespace

void setDefaultVariables(std::span<const EnvironmentVariable> variables) { environment().setDefaults(variables); }

void setVariable(const std::string& name, const std::string& value) { environment().set(name, value); }

}  // namespace pw
