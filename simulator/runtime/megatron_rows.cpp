#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/lower.h"
#include "simulator/runtime/posted_rows.h"
#include "simulator/runtime/runtime.h"

namespace pw {
namespace {

using Post = std::optional<PostedRow::Post>;

std::vector<PostedRow::Post> present(const std::vector<Post>& posts) {
  std::vector<PostedRow::Post> real;
  for (const Post& post : posts) {
    if (post) real.push_back(*post);
  }
  return real;
}

/// forward_backward_pipelining_without_interleaving, of one rank.
PostedRow plainRow(int rank, int ranks, int microbatches) {
  PostedRow row;
  const auto action = [&](ActionKind kind, int m) { return Action{Stage(rank), kind, Microbatch(m)}; };
  const auto message = [&](ActionKind kind, int m) -> Post {
    const bool atEnd = kind == ActionKind::SendForward || kind == ActionKind::RecvBackward ? rank + 1 == ranks : rank == 0;
    return atEnd ? Post() : Post(PostedRow::Post{action(kind, m), true});
  };
  const auto post = [&](const std::vector<Post>& posts) { row.post(present(posts)); };
  const int warmup = std::min(ranks - rank - 1, microbatches), rest = microbatches - warmup;
  for (int i = 0; i < warmup; ++i) {
    post({message(ActionKind::RecvForward, i)});
    row.compute(action(ActionKind::Forward, i));
    post({message(ActionKind::SendForward, i)});
  }
  if (rest > 0) post({message(ActionKind::RecvForward, warmup)});
  for (int i = 0; i < rest; ++i) {
    row.compute(action(ActionKind::Forward, warmup + i));
    post({message(ActionKind::SendForward, warmup + i), message(ActionKind::RecvBackward, i)});
    row.compute(action(ActionKind::Backward, i));
    post({message(ActionKind::SendBackward, i), i + 1 < rest ? message(ActionKind::RecvForward, warmup + i + 1) : Post()});
  }
  for (int i = rest; i < microbatches; ++i) {
    post({message(ActionKind::RecvBackward, i)});
    row.compute(action(ActionKind::Backward, i));
    post({message(ActionKind::SendBackward, i)});
  }
  return row;
}

/// forward_backward_pipelining_with_interleaving, of one rank.
class InterleavedRow {
 public:
  /// `forwards`, `backwards`: the rank's actions of each kind in order.
  InterleavedRow(int rank, const Shape& shape, const std::vector<std::vector<Action>>& forwards,
                 const std::vector<std::vector<Action>>& backwards, int warmup)
      : rank_(rank),
        shape_(shape),
        forwards_(forwards),
        backwards_(backwards),
        warmup_(warmup),
        count_(static_cast<int>(forwards[0].size())) {}

  /// Without overlap_p2p_comm: after each action of warm-up and cool-down, and each pair of actions between them, all messages that it
  /// makes or the next needs, in one group that is waited for.
  PostedRow runBlocking() {
    const bool all = warmup_ == count_, last = rank_ + 1 == shape_.ranks;
    const auto firstGradient = [&] {
      return last ? Post() : Post(PostedRow::Post{received(backwardOf(0), ActionKind::RecvBackward), true});
    };
    if (rank_ > 0) row_.post({{received(forwardOf(0), ActionKind::RecvForward), true}});
    for (int k = 0; k < warmup_; ++k) {
      row_.compute(forwardOf(k));
      const bool ends = k + 1 == warmup_ && !all;
      postTogether({}, k + 1 < count_ ? nextInput(k, false, true) : Post(), sentOf(forwardOf(k)), ends ? firstGradient() : Post());
    }
    for (int k = 0; k < count_ - warmup_; ++k) {
      const int forward = warmup_ + k;
      row_.compute(forwardOf(forward));
      row_.compute(backwardOf(k));
      postTogether(sentOf(backwardOf(k)), forward + 1 < count_ ? nextInput(forward, false, true) : Post(), sentOf(forwardOf(forward)),
                   k + 1 < count_ ? nextInput(k, true, true) : Post());
    }
    if (all) postTogether({}, {}, {}, firstGradient());
    for (int k = count_ - warmup_; k < count_; ++k) {
      row_.compute(backwardOf(k));
      postTogether(sentOf(backwardOf(k)), {}, {}, k + 1 < count_ ? nextInput(k, true, true) : Post());
    }
    return std::move(row_);
  }

  /// With overlap_p2p_comm.

  PostedRow run() {
    const bool all = warmup_ == count_;
    if (rank_ > 0) row_.post({{received(forwardOf(0), ActionKind::RecvForward), true}});
    for (int k = 0; k < warmup_; ++k) {
      row_.compute(forwardOf(k));
      postForward(k, k + 1 < count_, true);
      if (k + 1 == warmup_ && !all && rank_ + 1 < shape_.ranks) row_.post({{received(backwardOf(0), ActionKind::RecvBackward), false}});
    }
    for (int k = 0; k < count_ - warmup_; ++k) {
      row_.compute(forwardOf(warmup_ + k));
      postForward(warmup_ + k, k + 1 < count_ - warmup_, false);
      row_.compute(backwardOf(k));
      postBackward(k, k + 1 < count_, false);
    }
    if (all && rank_ + 1 < shape_.ranks) row_.post({{received(backwardOf(0), ActionKind::RecvBackward), true}});
    for (int k = count_ - warmup_; k < count_; ++k) {
      row_.compute(backwardOf(k));
      postBackward(k, k + 1 < count_, true);
    }
    return std::move(row_);
  }

 private:
  [[nodiscard]] const Action& forwardOf(int k) const { return forwards_[static_cast<std::size_t>(rank_)][static_cast<std::size_t>(k)]; }
  [[nodiscard]] const Action& backwardOf(int k) const { return backwards_[static_cast<std::size_t>(rank_)][static_cast<std::size_t>(k)]; }
  /// In the order of _batched_p2p_ops.
  void postTogether(const Post& sendPrevious, const Post& receivePrevious, const Post& sendNext, const Post& receiveNext) {
    row_.post(present({sendPrevious, receivePrevious, sendNext, receiveNext}));
  }
  /// The message that the action makes; nothing where it is the pipeline's last of its direction.
  [[nodiscard]] Post sentOf(const Action& done) const {
    const bool forward = done.kind == ActionKind::Forward;
    if (done.stage.value == (forward ? shape_.stages - 1 : 0)) return std::nullopt;
    return PostedRow::Post{{done.stage, forward ? ActionKind::SendForward : ActionKind::SendBackward, done.microbatch}, true};
  }
  static Action received(const Action& use, ActionKind kind) { return {use.stage, kind, use.microbatch}; }

  /// What `recv_tensor_from_previous_stage` says: of most ranks the next action's input; of the rank that leads (the first of forwards, the
  /// last of backwards) what the one that ends made R − 1 iterations ago, for its own next stage.
  [[nodiscard]] Post nextInput(int k, bool back, bool isWaited) const {
    const ActionKind kind = back ? ActionKind::RecvBackward : ActionKind::RecvForward;
    const int lead = back ? shape_.ranks - 1 : 0, ranks = shape_.ranks;
    if (rank_ != lead) return PostedRow::Post{received(back ? backwardOf(k + 1) : forwardOf(k + 1), kind), isWaited};
    if (k < ranks - 1) return std::nullopt;
    const auto& made =
        (back ? backwards_ : forwards_)[static_cast<std::size_t>(ranks - 1 - lead)][static_cast<std::size_t>(k - (ranks - 1))];
    const int next = made.stage.value + (back ? -1 : 1);
    if (next < 0 || next >= shape_.stages) return std::nullopt;
    return PostedRow::Post{{Stage(next), kind, made.microbatch}, isWaited};
  }

  /// The output of forward k, and the input of a later one. Sends are waited for at once: their buffers are freed.
  void postForward(int k, bool receives, bool isWaited) {
    const Action& done = forwardOf(k);
    const Post send = done.stage.value + 1 == shape_.stages
                          ? Post()
                          : Post(PostedRow::Post{{done.stage, ActionKind::SendForward, done.microbatch}, true});
    post(send, receives ? nextInput(k, false, isWaited) : std::nullopt);
  }
  void postBackward(int k, bool receives, bool isWaited) {
    const Action& done = backwardOf(k);
    const Post send =
        done.stage.value == 0 ? Post() : Post(PostedRow::Post{{done.stage, ActionKind::SendBackward, done.microbatch}, isWaited});
    post(send, receives ? nextInput(k, true, isWaited) : std::nullopt);
  }
  /// Even ranks send first, odd ones receive first.
  void post(const Post& send, const Post& receive) {
    row_.post(present(rank_ % 2 == 0 ? std::vector<Post>{send, receive} : std::vector<Post>{receive, send}));
  }

  int rank_;
  const Shape& shape_;
  const std::vector<std::vector<Action>>&forwards_, &backwards_;
  int warmup_, count_;
  PostedRow row_;
};

[[noreturn]] void refuse(const Schedule& schedule) {
  throw UsageError(
      fmt::format("Megatron runs 1F1B and interleaved 1F1B, and {} is neither; export --to megatron says what is nearest", schedule.name));
}

RuntimeRows interleaved(const Schedule& schedule, const Schedule& plain, MegatronMessages messages) {
  const Shape shape = shapeOf(schedule);
  const bool overlaps = messages == MegatronMessages::Overlap;
  if (!overlaps && shape.ranks == 2)
    throw UsageError(
        "Megatron refuses --no-overlap-p2p-communication for interleaved stages on two ranks, which would exchange several messages at "
        "once; omit it, or use more ranks");
  RuntimeRows result;
  result.rows = schedule;
  result.rows.rows.clear();
  result.posting.streams = !overlaps ? Posting::Streams::All : shape.ranks == 2 ? Posting::Streams::Direction : Posting::Streams::Pair;
  result.posting.grouped = !overlaps;
  std::vector<std::vector<Action>> forwards(plain.rows.size()), backwards(plain.rows.size());
  for (std::size_t r = 0; r < plain.rows.size(); ++r) {
    for (const Action& action : plain.rows[r]) {
      if (action.kind != ActionKind::Forward && action.kind != ActionKind::Backward) refuse(schedule);
      (action.kind == ActionKind::Forward ? forwards : backwards)[r].push_back(action);
    }
  }
  const int group = [&] {
    int size = 0;
    for (const Action& action : forwards[0]) {
      if (action.stage != forwards[0].front().stage) break;
      ++size;
    }
    return size;
  }();
  const int chunks = shape.stages / shape.ranks;
  for (std::size_t r = 0; r < plain.rows.size(); ++r) {
    const int total = static_cast<int>(forwards[r].size());
    const int formula = std::min(total, 2 * (shape.ranks - static_cast<int>(r) - 1) + (chunks - 1) * group);
    if (forwards[r].size() != forwards[0].size() || backwards[r].size() != forwards[0].size()) refuse(schedule);
    InterleavedRow row(static_cast<int>(r), shape, forwards, backwards, formula);
    append(result, overlaps ? row.run() : row.runBlocking());
  }
  result.how = overlaps
                   ? "as Megatron-LM posts messages of interleaved stages by default, while it computes"
                   : "as Megatron-LM posts messages with --no-overlap-p2p-communication: sends and receives in groups, and waits for all";
  return result;
}

}  // namespace

RuntimeRows megatronRows(const Schedule& schedule, MegatronMessages messages) {
  const Shape shape = shapeOf(schedule);
  if (schedule.lockstep || kindOf(schedule.placement, shape) != PlacementKind::Loop || !trains(schedule)) refuse(schedule);
  const Schedule plain = computeOnly(lower(schedule));
  RuntimeRows result;
  if (shape.stages == shape.ranks) {
    result.rows = schedule;
    result.rows.rows.clear();
    result.posting.streams = Posting::Streams::All;
    result.posting.grouped = true;
    for (int rank = 0; rank < shape.ranks; ++rank) append(result, plainRow(rank, shape.ranks, shape.microbatches));
    result.how = "as Megatron-LM posts messages: sends and receives in groups, and waits for both";
  } else {
    if (shape.ranks < 2) refuse(schedule);
    result = interleaved(schedule, plain, messages);
  }
  if (computeOnly(result.rows).rows != plain.rows) refuse(schedule);
  keepReductions(result, schedule);
  return result;
}

}  // namespace pw
