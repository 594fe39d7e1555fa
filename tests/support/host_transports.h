#pragma once

#include <vector>

#include "backends/messages/transport.h"

namespace pw::test {

/// The transports that connect processes without GPUs: those that tests of all transports can use here.
inline std::vector<Transport> hostTransports() {
  std::vector<Transport> all;
  for (const Transport transport : valuesOf<Transport>()) {
    if (!factsOf(transport).onGpu) all.push_back(transport);
  }
  return all;
}

}  // namespace pw::test
