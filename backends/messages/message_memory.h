#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "backends/messages/communicator.h"

namespace pw {

/// A value whose memory several messages at once are sent from or received into. Where an exception passes, for one whose wait failed, the
/// communicator keeps it: its transport's thread may still access it for the others (Gloo), until the connections are closed.
template <class Value>
class MessageMemory {
 public:
  explicit MessageMemory(Communicator& communicator, Value value = {})
      : communicator_(communicator), value_(std::make_shared<Value>(std::move(value))), exceptions_(std::uncaught_exceptions()) {}
  ~MessageMemory() {
    if (std::uncaught_exceptions() > exceptions_) communicator_.keep({{}, value_});
  }
  MessageMemory(const MessageMemory&) = delete;
  MessageMemory& operator=(const MessageMemory&) = delete;

  [[nodiscard]] Value& operator*() const { return *value_; }
  [[nodiscard]] Value* operator->() const { return value_.get(); }

 private:
  Communicator& communicator_;
  std::shared_ptr<Value> value_;
  int exceptions_;
};

}  // namespace pw
