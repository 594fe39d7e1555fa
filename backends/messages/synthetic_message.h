#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backends/messages/communicator.h"
#include "schedules/ids.h"

namespace pw {

/// Identifies a message of a synthetic stage.
struct MessageLabel {
  enum class Kind : std::uint8_t { Value, Gradient };

  Kind kind = Kind::Value;
  std::size_t transfer = 0;  ///< index into `Partition::transfers`
  Microbatch microbatch;
  int step = 0;

  /// `the value of transfer 2, microbatch 0, step 5`
  [[nodiscard]] std::string text() const;
};

/// Writes the label into the first 64 bytes of a message; of 192 and more also into those in the middle and at the end, of 128 and more at
/// the end. Each also contains the length and its position; a shorter message has as much of it as fits, starting with a checksum over all
/// of it.
void writeLabel(const MessageLabel& label, Buffer message);

/// Throws Error naming the label, and what was found instead, when the message does not contain what `writeLabel` writes.
void requireLabel(const MessageLabel& label, Buffer message);

}  // namespace pw
