#pragma once
// A message of any size that nobody posted a receive for: what remote calls are made of.
#include <string>
#include <vector>
#include "backends/messages/communicator.h"
namespace pw {
/// A text that the receiver parses, and memory (of tensors) that is moved without a copy where the transport can.
struct ChannelMessage {
  std::string head;
  std::vector<HeldBuffer> parts;
};
}  // namespace pw
