#pragma once

#include <stdexcept>
#include <string>

namespace pw {

/// The world is wrong: a file, a model, a peer, a device. `what()` is one sentence for the user that names the thing,
/// the place and the cure. A question with a negative answer is a value, never an Error.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& sentence) : std::runtime_error(sentence) {}
};

/// The user's call is wrong: unknown name, value out of range, unusable input file. Exit status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace pw
