#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <string>

#include "backends/messages/rendezvous.h"
#include "backends/messages/transport.h"
#include "schedules/error.h"

// Internal to the LibTorch module: what connections by Gloo share.

namespace pw {

/// The first line of c10d's text without the place in a library's source before it.
[[nodiscard]] std::string shortened(const std::string& text);

/// Whether Gloo's exception says that a connection is gone.
[[nodiscard]] bool saysLost(const std::string& text);

/// Connects all ranks (full mesh); they exchange addresses at `store` under `NAME/…`. Throws Error as connectGloo.
[[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroupGloo> newGlooGroup(const std::string& name, const Rendezvous& rendezvous,
                                                                      const KeyValueStore& store);

/// Does it, with c10d's exceptions in our words: that the ranks did not meet.
template <class Work>
auto inOurWords(const Rendezvous& rendezvous, Work work) {
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    const std::string text = shortened(e.what());
    const bool late = text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
    throw Error(unmetSentence(rendezvous.size, rendezvous.masterAddress, rendezvous.masterPort, rendezvous.deadline, late ? "" : text));
  }
}

}  // namespace pw
