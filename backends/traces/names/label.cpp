#include "backends/traces/names/label.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "schedules/placement.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

using Meaning = PipelineLabel::Meaning;

/// What an event's letters say; nothing for unknown ones.
struct Letters {
  SpanKind kind = SpanKind::Forward;
  bool used = true;
};
using Alphabet = std::optional<Letters> (*)(std::string_view letters);

std::optional<Letters> ownLetters(std::string_view letters) {
  const auto kind = valueNamed<SpanKind>(letters);
  return kind ? std::optional(Letters{*kind}) : std::nullopt;
}

/// Torch's runtime names actions as we name spans, and what we call a wait after the action that waits.
std::optional<Letters> torchLetters(std::string_view letters) {
  if (letters == "RECV_F") return Letters{SpanKind::WaitForward};
  if (letters == "RECV_B") return Letters{SpanKind::WaitBackward};
  if (letters == "UNSHARD" || letters == "RESHARD") return Letters{SpanKind::Load, false};
  const auto own = ownLetters(letters);
  return own && own->kind <= SpanKind::ReduceGrad && own->kind != SpanKind::WaitForward && own->kind != SpanKind::WaitBackward
             ? own
             : std::nullopt;
}

/// Actions, messages and waits for them say which stage and microbatch they are of.
bool needsStageAndMicrobatch(SpanKind kind) {
  return isCompute(kind) || kind == SpanKind::SendForward || kind == SpanKind::SendBackward || kind == SpanKind::WaitForward ||
         kind == SpanKind::WaitBackward;
}

/// Takes a number below `limit` from the front.
std::optional<std::int32_t> takeNumber(std::string_view& text, std::int32_t limit) {
  std::int32_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || number < -1 || number >= limit) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

PipelineLabel actionOf(std::string_view text, Alphabet alphabet) {
  PipelineLabel label;
  if (!text.empty() && (text.front() == '-' || (text.front() >= '0' && text.front() <= '9'))) {
    const auto stage = takeNumber(text, kMaxStages);
    if (!stage) return {};
    label.stage = Stage(*stage);
  }
  const std::size_t size = std::min(text.find_first_of("0123456789"), text.size());
  const std::string_view kind = text.substr(0, size);
  text.remove_prefix(size);
  if (!text.empty()) {
    const auto microbatch = takeNumber(text, kMaxMicrobatches);
    if (!microbatch || !text.empty()) return {};
    label.microbatch = Microbatch(*microbatch);
  }
  const auto known = alphabet(kind);
  if (!known) return {};
  label.kind = known->kind;
  label.meaning = known->used ? Meaning::Action : Meaning::Unused;
  const bool whole = label.stage.value >= 0 && label.microbatch.value >= 0;
  return needsStageAndMicrobatch(label.kind) && !whole ? PipelineLabel{} : label;
}

/// `0F5;7B2`
PipelineLabel pairOf(std::string_view text, Alphabet alphabet) {
  const std::size_t middle = text.find(';');
  if (middle == std::string_view::npos) return actionOf(text, alphabet);
  PipelineLabel label = actionOf(text.substr(0, middle), alphabet);
  PipelineLabel partner = actionOf(text.substr(middle + 1), alphabet);
  if (label.kind == SpanKind::Backward) std::swap(label, partner);
  if (label.meaning != Meaning::Action || partner.meaning != Meaning::Action || label.kind != SpanKind::Forward ||
      partner.kind != SpanKind::Backward)
    return {};
  label.partner = {partner.stage, partner.microbatch};
  return label;
}

PipelineLabel numbered(std::string_view text, Meaning meaning, SpanKind kind) {
  const auto number = takeNumber(text, meaning == Meaning::Step ? 1 << 30 : kMaxMicrobatches);
  if (!number || *number < 0 || !text.empty()) return {};
  PipelineLabel label;
  label.meaning = meaning;
  label.kind = kind;
  if (meaning == Meaning::Step)
    label.number = *number;
  else
    label.microbatch = Microbatch(*number);
  return label;
}

bool take(std::string_view& text, std::string_view start) {
  if (!text.starts_with(start)) return false;
  text.remove_prefix(start.size());
  return true;
}

PipelineLabel ordered(SpanKind kind, std::optional<SpanKind> second = std::nullopt) {
  PipelineLabel label;
  label.meaning = Meaning::Ordered;
  label.kind = kind;
  label.second = second;
  return label;
}

/// `fwd_send`, `bwd_recv`, or two of them in a batch.
PipelineLabel transferOf(std::string_view text) {
  const auto one = [&]() -> std::optional<SpanKind> {
    const bool forward = text.starts_with("fwd_");
    if (!forward && !text.starts_with("bwd_")) return std::nullopt;
    text.remove_prefix(4);
    if (take(text, "send")) return forward ? SpanKind::SendForward : SpanKind::SendBackward;
    if (take(text, "recv")) return forward ? SpanKind::WaitForward : SpanKind::WaitBackward;
    return std::nullopt;
  };
  const auto first = one();
  if (!first) return {};
  if (text.empty()) return ordered(*first);
  const auto second = take(text, "_") ? one() : std::nullopt;
  return second && text.empty() ? ordered(*first, second) : PipelineLabel{};
}

/// `fwd_send (stage 3)`
PipelineLabel transferOfStage(std::string_view text) {
  constexpr std::string_view kMiddle = " (stage ";
  const std::size_t middle = text.find(kMiddle);
  if (middle == std::string_view::npos) return {};
  PipelineLabel label = transferOf(text.substr(0, middle));
  text.remove_prefix(middle + kMiddle.size());
  const auto stage = takeNumber(text, kMaxStages);
  if (!stage || *stage < 0 || text != ")") return {};
  label.stage = Stage(*stage);
  return label;
}

struct Function {
  std::string_view name;
  SpanKind kind;
  std::optional<SpanKind> second = std::nullopt;
};

constexpr std::array kFunctions{
    Function{"forward_step", SpanKind::Forward},
    Function{"backward_step", SpanKind::Backward},
    Function{"recv_forward", SpanKind::WaitForward},
    Function{"recv_backward", SpanKind::WaitBackward},
    Function{"send_forward", SpanKind::SendForward},
    Function{"send_backward", SpanKind::SendBackward},
    Function{"send_forward_recv_backward", SpanKind::SendForward, SpanKind::WaitBackward},
    Function{"send_backward_recv_forward", SpanKind::SendBackward, SpanKind::WaitForward},
    Function{"send_forward_recv_forward", SpanKind::SendForward, SpanKind::WaitForward},
    Function{"send_backward_recv_backward", SpanKind::SendBackward, SpanKind::WaitBackward},
    Function{"forward_compute", SpanKind::Forward},
    Function{"backward_compute", SpanKind::Backward},
    Function{"forward_recv", SpanKind::WaitForward},
    Function{"backward_recv", SpanKind::WaitBackward},
    Function{"forward_send", SpanKind::SendForward},
    Function{"backward_send", SpanKind::SendBackward},
    Function{"forward_send_backward_recv", SpanKind::SendForward, SpanKind::WaitBackward},
    Function{"backward_send_forward_recv", SpanKind::SendBackward, SpanKind::WaitForward},
    Function{"forward_send_forward_recv", SpanKind::SendForward, SpanKind::WaitForward},
    Function{"backward_send_backward_recv", SpanKind::SendBackward, SpanKind::WaitBackward},
    Function{"_exec_forward_pass", SpanKind::Forward},
    Function{"_exec_backward_pass", SpanKind::Backward},
    Function{"_exec_recv_activations", SpanKind::WaitForward},
    Function{"_exec_recv_grads", SpanKind::WaitBackward},
    Function{"_exec_send_activations", SpanKind::SendForward},
    Function{"_exec_send_grads", SpanKind::SendBackward},
};

}  // namespace

PipelineLabel torchLabel(std::string_view name) {
  const auto takes = [&](std::string_view start) { return take(name, start); };
  if (takes("PP:")) {
    if (takes(":")) return transferOfStage(name);
    if (!name.starts_with('(')) return actionOf(name, torchLetters);
    constexpr std::string_view kEnd = ")OVERLAP_F_B";
    return name.ends_with(kEnd) ? pairOf(name.substr(1, name.size() - 1 - kEnd.size()), torchLetters) : PipelineLabel{};
  }
  if (takes("Forward ")) return numbered(name, Meaning::StageFree, SpanKind::Forward);
  if (takes("Backward ")) return numbered(name, Meaning::StageFree, SpanKind::Backward);
  if (takes("ProfilerStep#")) return numbered(name, Meaning::Step, SpanKind::Forward);
  PipelineLabel label;
  if (name == "gloo:recv") label.meaning = Meaning::Receive;
  if (name == "c10d::send") label.meaning = Meaning::Sent;  // `gloo:send` begins when the message may have arrived
  if (takes("Optimizer.step#")) {
    label.meaning = Meaning::Optimizer;
    label.kind = SpanKind::Optimizer;
  }
  return label;
}

PipelineLabel functionLabel(std::string_view name) {
  if (const PipelineLabel label = torchLabel(name); label.meaning != Meaning::None) return label;
  PipelineLabel label;
  const std::size_t last = name.find_last_of(".:/");
  const std::string_view function = name.substr(last == std::string_view::npos ? 0 : last + 1);
  const auto same = [&](std::string_view known) {  // a timer has hyphens where a function has underscores
    return std::ranges::equal(function, known, [](char a, char b) { return a == b || (a == '-' && b == '_'); });
  };
  if (same("optimizer") || same("optimizer_step") || same("_exec_optimizer_step")) {
    label.meaning = Meaning::Optimizer;
    label.kind = SpanKind::Optimizer;
  }
  if (name.find("forward_backward_pipelining_with_interleaving") != std::string_view::npos) label.meaning = Meaning::Chunks;
  const auto* const found = std::ranges::find_if(kFunctions, [&](const Function& f) { return same(f.name); });
  return found == kFunctions.end() ? label : ordered(found->kind, found->second);
}

PipelineLabel ownLabel(std::string_view name) {
  if (name.size() > 2 && name.front() == '(' && name.back() == ')') return pairOf(name.substr(1, name.size() - 2), ownLetters);
  return actionOf(name, ownLetters);
}

void addLabelled(const PipelineLabel& label, Span span, std::vector<Span>& spans) {
  span.kind = label.kind;
  span.stage = label.stage;
  span.microbatch = label.microbatch;
  spans.push_back(span);
  if (label.second) {
    span.kind = *label.second;
    spans.push_back(span);
  }
  if (!label.partner) return;
  span.kind = SpanKind::Backward;
  std::tie(span.stage, span.microbatch) = *label.partner;
  spans.push_back(span);
}

}  // namespace pw
