#pragma once

#include <vector>

#include "schedules/ids.h"

namespace pw::test {

/// All ways to begin stages 1, 2, … in a chain of `layers` nodes, stage 1 not before node `from`. C(layers − from, stages − 1) of them.
inline std::vector<std::vector<NodeId>> allBegins(int layers, int stages, int from = 1) {
  if (stages == 1) return {{}};
  std::vector<std::vector<NodeId>> all;
  for (int first = from; first < layers; ++first) {
    for (std::vector<NodeId> rest : allBegins(layers, stages - 1, first + 1)) {
      rest.insert(rest.begin(), NodeId(first));
      all.push_back(rest);
    }
  }
  return all;
}

}  // namespace pw::test
