#pragma once

#include <cstddef>
#include <vector>

#include "simulator/runtime/runtime.h"

namespace pw {

/// The row of one rank while it is written: actions, and what is posted together and waited for. For use in this room.
class PostedRow {
 public:
  void compute(const Action& action) {
    row.push_back(action);
    joined.push_back(false);
  }
  /// Posts these together; those with `isWaited` are waited for right after. Returns the position of the first.
  struct Post {
    Action action;
    bool isWaited = false;
  };
  std::size_t post(const std::vector<Post>& posts) {
    const std::size_t first = row.size();
    for (const Post& post : posts) {
      row.push_back(post.action);
      joined.push_back(row.size() - first < posts.size());
    }
    for (std::size_t i = 0; i < posts.size(); ++i) {
      if (posts[i].isWaited) wait(first + i);
    }
    return first;
  }
  /// Waits, from here on, for the message that was posted there.
  void wait(std::size_t message) { waits.push_back({row.size(), message}); }

  std::vector<Action> row;
  std::vector<bool> joined;
  std::vector<Posting::Wait> waits;
};

/// Adds the row as that of the next rank.
void append(RuntimeRows& result, PostedRow&& row);

/// Adds the reductions of gradients that the schedule has (`withReductions`), if it has any and the rows have none.
void keepReductions(RuntimeRows& result, const Schedule& of);

}  // namespace pw
