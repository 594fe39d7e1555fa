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

bool isMessage(ActionKind kind) { return isSend(kind) || isReceive(kind); }

PostedRow runtimeRow(const std::vector<Action>& row, PendingReceives receives) {
  PostedRow posted;
  for (const Action& action : row) {
    if (isMessage(action.kind))
      posted.post({{action, isReceive(action.kind) && receives == PendingReceives::Block}});
    else
      posted.compute(action);
  }
  return posted;
}

/// One rank of `ScheduleGPipe` and `Schedule1F1B`: what stage s of S does with M microbatches.
class SingleStage {
 public:
  SingleStage(int stage, int stages, int microbatches) : stage_(stage), stages_(stages), count_(microbatches) {}

  PostedRow gpipe() {
    for (int m = 0; m < count_; ++m) {
      post({receive(false, m)});
      forward(m);
      post({send(false, m)});
    }
    for (int m = 0; m < count_; ++m) {
      post({receive(true, m)});
      backward(m);
      post({send(true, m)});
    }
    return std::move(row_);
  }

  PostedRow oneForwardOneBackward() {
    const int warmup = std::min(count_, stages_ - stage_);
    int forwards = 0, backwards = 0;
    std::optional<std::size_t> sent;
    for (; forwards < warmup; ++forwards) {
      post({receive(false, forwards)});
      forward(forwards);
      if (sent) row_.wait(*sent);
      sent = forwards + 1 < warmup ? post({send(false, forwards)}) : std::nullopt;
    }
    while (true) {
      post({waited(send(false, forwards - 1)), receive(true, backwards)});
      backward(backwards++);
      if (forwards == count_) break;
      post({waited(send(true, backwards - 1)), receive(false, forwards)});
      forward(forwards++);
    }
    sent = post({send(true, backwards - 1)});
    for (; backwards < count_; ++backwards) {
      post({receive(true, backwards)});
      backward(backwards);
      if (sent) row_.wait(*sent);
      sent = post({send(true, backwards)});
    }
    return std::move(row_);
  }

 private:
  using Post = std::optional<PostedRow::Post>;

  [[nodiscard]] Action action(ActionKind kind, int m) const { return {Stage(stage_), kind, Microbatch(m)}; }
  void forward(int m) { row_.compute(action(ActionKind::Forward, m)); }
  void backward(int m) { row_.compute(action(ActionKind::Backward, m)); }
  /// Nothing at the ends of the pipeline.
  [[nodiscard]] Post send(bool back, int m) const {
    if (back ? stage_ == 0 : stage_ + 1 == stages_) return std::nullopt;
    return PostedRow::Post{action(back ? ActionKind::SendBackward : ActionKind::SendForward, m), false};
  }
  [[nodiscard]] Post receive(bool back, int m) const {
    if (back ? stage_ + 1 == stages_ : stage_ == 0) return std::nullopt;
    return PostedRow::Post{action(back ? ActionKind::RecvBackward : ActionKind::RecvForward, m), true};
  }
  static Post waited(Post post) {
    if (post) post->isWaited = true;
    return post;
  }
  std::optional<std::size_t> post(const std::vector<Post>& posts) {
    std::vector<PostedRow::Post> real;
    for (const Post& post : posts) {
      if (post) real.push_back(*post);
    }
    return real.empty() ? std::nullopt : std::optional(row_.post(real));
  }

  int stage_, stages_, count_;
  PostedRow row_;
};

}  // namespace

RuntimeRows torchRows(const Schedule& schedule, PendingReceives receives, bool single) {
  if (schedule.lockstep) throw UsageError(fmt::format("torch has no schedule that runs in cycles like {}; choose another", schedule.name));
  if (schedule.placement.bidirectional())
    throw UsageError(fmt::format("torch has no stages with two replicas, as {} has them; choose another schedule", schedule.name));
  RuntimeRows result;
  result.rows = schedule;
  result.posting.streams = Posting::Streams::All;
  result.posting.grouped = true;
  if (!single) {
    const Schedule rows = isLowered(schedule) ? schedule : lower(schedule, Lowering::Torch);
    result.rows.rows.clear();
    for (const std::vector<Action>& row : rows.rows) append(result, runtimeRow(row, receives));
    result.how = receives == PendingReceives::Block
                     ? "as torch's _PipelineScheduleRuntime posts messages; a pending receive stops its rank"
                     : "as torch's _PipelineScheduleRuntime posts messages; a pending receive stops nothing but what needs it";
    return result;
  }
  const Shape shape = shapeOf(schedule);
  const Schedule plain = computeOnly(lower(schedule));
  result.rows.rows.clear();
  const bool gpipe =
      std::ranges::all_of(plain.rows,
                          [](const std::vector<Action>& row) {
                            return std::ranges::is_partitioned(row, [](const Action& a) { return a.kind == ActionKind::Forward; });
                          }) &&
      shape.microbatches > 1;
  for (int stage = 0; stage < shape.stages; ++stage) {
    SingleStage of(stage, shape.stages, shape.microbatches);
    append(result, gpipe ? of.gpipe() : of.oneForwardOneBackward());
  }
  if (shape.stages != shape.ranks || computeOnly(result.rows).rows != plain.rows)
    throw UsageError(fmt::format("{} is neither torch's GPipe nor its 1F1B, one stage on each rank", schedule.name));
  keepReductions(result, schedule);
  result.how = gpipe ? "as torch's ScheduleGPipe posts messages: each receive is waited for at once"
                     : "as torch's Schedule1F1B posts messages: a send together with the next receive, and waits for both";
  return result;
}

std::vector<BlockedBy> blockedReceives(const Schedule& rows, const Program& program, const Times& times) {
  std::vector<BlockedBy> blocked;
  for (std::size_t rank = 0; rank < rows.rows.size(); ++rank) {
    const std::vector<Action>& row = rows.rows[rank];
    Ns end = 0;
    const auto steps = program.stepsOf(static_cast<std::int32_t>(rank));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto step = static_cast<std::size_t>(steps[i]);
      const Ns start = times.start[step], before = end;
      end = start + program.duration[step];
      const Action& action = row[static_cast<std::size_t>(program.origin[step].index)];
      if (start <= before || !isReceive(action.kind)) continue;
      for (std::size_t k = i + 1; k < steps.size(); ++k) {
        const Action& next = row[static_cast<std::size_t>(program.origin[static_cast<std::size_t>(steps[k])].index)];
        if (!isCompute(next.kind)) continue;
        const bool needs = next.stage == action.stage && next.microbatch == action.microbatch &&
                           (action.kind == ActionKind::RecvForward) == (next.kind == ActionKind::Forward);
        if (!needs) blocked.push_back({Rank(rank), action, next, before, start});
        break;
      }
    }
  }
  return blocked;
}

}  // namespace pw
