#pragma once

#include <stdexcept>
#include <string>

namespace pw {

/// Something outside the program is wrong: a file, a model, a peer, a device. `what()` is one sentence for the user that says what is
/// wrong, where, and how to fix it. A negative answer to a question is a value, never an Error.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& sentence) : std::runtime_error(sentence) {}
};

/// The user's input is wrong: an unknown name, a value out of range, an unusable input file. Exit status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace pw
