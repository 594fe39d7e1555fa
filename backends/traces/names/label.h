#pragma once

// Internal to the import of traces: the meaning of an event's name.

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "simulator/timeline/chrome.h"
#include "simulator/trace/trace.h"

namespace pw {

/// What the name of an event says about the pipeline.
struct PipelineLabel {
  enum class Meaning : std::uint8_t {
    None,       ///< nothing
    Action,     ///< an action of `kind`, and where there is a `partner`, that backward in the same slot
    StageFree,  ///< an action of a schedule with one stage on each rank, which the label does not name
    Optimizer,  ///< the optimizer's step
    Step,       ///< a step of the profiler; it has a `number`
    Unused,     ///< of torch's schedules, but without meaning here: UNSHARD, RESHARD
    Ordered,  ///< an action whose microbatch, and perhaps stage, is known by its place in the rank's order; perhaps a second one, `second`
    Receive,  ///< how long a message that was posted was waited for, of whatever kind (`gloo:recv`)
    Sent,     ///< from when a message was posted, of whatever kind (`c10d::send`)
    Chunks,   ///< the schedule gives several stages to a rank (Megatron's interleaving)
  };
  Meaning meaning = Meaning::None;
  SpanKind kind = SpanKind::Forward;
  Stage stage = Stage(-1);                 ///< −1: not said, as in a span
  Microbatch microbatch = Microbatch(-1);  ///< likewise
  std::int32_t number = -1;                ///< of Step
  std::optional<std::pair<Stage, Microbatch>> partner = std::nullopt;
  std::optional<SpanKind> second = std::nullopt;  ///< of Ordered: what was batched with it, as a receive with a send
};

/// Reads `PP:2F0`, `PP:1RECV_B2`, `PP:0REDUCE_GRAD`, `PP:(0F5;7B2)OVERLAP_F_B` (torch's runtime), `Forward 3`, `Backward 3` (its GPipe),
/// `Optimizer.step#SGD.step`, `ProfilerStep#7`; and of newer versions, `PP::fwd_send (stage 0)`, `PP::bwd_send_fwd_recv (stage 1)`
/// (messages of a stage, by order). Numbers beyond kMaxStages and kMaxMicrobatches make it None. Cost: linear.
[[nodiscard]] PipelineLabel torchLabel(std::string_view name);

/// Reads what other trainers call the functions of a step, whatever module they are in: Megatron's `forward_step`, `backward_step`,
/// `recv_forward`, `send_forward_recv_backward`, …, its timers' `forward-compute`, `forward-send-backward-recv`, …, and DeepSpeed's
/// `_exec_forward_pass`, …; all by order. What torch names is read too. Cost: linear.
[[nodiscard]] PipelineLabel functionLabel(std::string_view name);

/// Reads what `toChromeJson` names a span: `2F0`, `0SEND_F3`, `1WAIT_B2`, `OPTIMIZER`, `(0F5;7B2)`.
[[nodiscard]] PipelineLabel ownLabel(std::string_view name);

/// Adds what an event with this label shows, over the time and on the track of `span`: its action or message, what was batched with it, and
/// the backward of its slot. Kind, stage and microbatch are the label's.
void addLabelled(const PipelineLabel& label, Span span, std::vector<Span>& spans);

}  // namespace pw
