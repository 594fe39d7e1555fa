#pragma once

#include <functional>
#include <optional>
#include <string>

#include "app/cli/text/output.h"
#include "engine/processes/process.h"

namespace pw::cli {

/// While the order of the schedule `auto` is searched: shows how far it is, and ends it at Ctrl-C with the best so far. Does nothing where
/// none is searched.
class OrderWatch {
 public:
  explicit OrderWatch(ProgressStyle style);

  /// For the options of what searches; valid as long as this. The first call takes Ctrl-C over.
  [[nodiscard]] std::function<bool(double)> shouldContinue();
  /// The search is over: Ctrl-C ends the program again.
  void end();
  /// Of a command that has printed what was found: the given one, or kNo, with a sentence, where Ctrl-C came.
  [[nodiscard]] int status(int status) const;

 private:
  std::function<void(int, int, const std::string&)> show_;
  std::optional<Interrupts> interrupts_;
  bool interrupted_ = false;
};

}  // namespace pw::cli
