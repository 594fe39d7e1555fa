#include "backends/traces/label.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include "schedules/placement.h"

namespace pw {
namespace {

using Meaning = PipelineLabel::Meaning;

struct Letters {
  std::string_view text;
  SpanKind kind = SpanKind::Forward;
  bool used = true;
};

constexpr std::array<Letters, 11> kTorchLetters{{
    {"F", SpanKind::Forward},
    {"B", SpanKind::Backward},
    {"I", SpanKind::BackwardInput},
    {"W", SpanKind::BackwardWeight},
    {"SEND_F", SpanKind::SendForward},
    {"SEND_B", SpanKind::SendBackward},
    {"RECV_F", SpanKind::WaitForward},
    {"RECV_B", SpanKind::WaitBackward},
    {"REDUCE_GRAD", SpanKind::ReduceGrad},
    {"UNSHARD", SpanKind::Load, false},
    {"RESHARD", SpanKind::Load, false},
}};

constexpr std::array<Letters, 12> kOwnLetters{{
    {"F", SpanKind::Forward},
    {"B", SpanKind::Backward},
    {"I", SpanKind::BackwardInput},
    {"W", SpanKind::BackwardWeight},
    {"SEND_F", SpanKind::SendForward},
    {"SEND_B", SpanKind::SendBackward},
    {"WAIT_F", SpanKind::WaitForward},
    {"WAIT_B", SpanKind::WaitBackward},
    {"REDUCE_GRAD", SpanKind::ReduceGrad},
    {"OPTIMIZER", SpanKind::Optimizer},
    {"LOAD", SpanKind::Load},
    {"STORE", SpanKind::Store},
}};

/// Takes a number below `limit` from the front.
std::optional<std::int32_t> takeNumber(std::string_view& text, std::int32_t limit) {
  std::int32_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || number < -1 || number >= limit) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

template <std::size_t Count>
PipelineLabel actionOf(std::string_view text, const std::array<Letters, Count>& letters) {
  PipelineLabel label;
  if (!text.empty() && (text.front() == '-' || (text.front() >= '0' && text.front() <= '9'))) {
    const auto stage = takeNumber(text, kMaxStages);
    if (!stage) return {};
    label.stage = *stage;
  }
  const std::size_t size = std::min(text.find_first_of("0123456789"), text.size());
  const std::string_view kind = text.substr(0, size);
  text.remove_prefix(size);
  if (!text.empty()) {
    const auto microbatch = takeNumber(text, kMaxMicrobatches);
    if (!microbatch || !text.empty()) return {};
    label.microbatch = *microbatch;
  }
  for (const Letters& known : letters) {
    if (known.text != kind) continue;
    label.kind = known.kind;
    label.meaning = known.used ? Meaning::Action : Meaning::Unused;
    const bool whole = label.stage >= 0 && label.microbatch >= 0;
    const bool needsBoth = static_cast<std::size_t>(&known - letters.data()) < 8;  // actions and messages, or waits for them
    return needsBoth && !whole ? PipelineLabel{} : label;
  }
  return {};
}

/// `0F5;7B2`
template <std::size_t Count>
PipelineLabel pairOf(std::string_view text, const std::array<Letters, Count>& letters) {
  const std::size_t middle = text.find(';');
  if (middle == std::string_view::npos) return actionOf(text, letters);
  PipelineLabel label = actionOf(text.substr(0, middle), letters);
  PipelineLabel partner = actionOf(text.substr(middle + 1), letters);
  if (label.kind == SpanKind::Backward) std::swap(label, partner);
  if (label.meaning != Meaning::Action || partner.meaning != Meaning::Action || label.kind != SpanKind::Forward ||
      partner.kind != SpanKind::Backward)
    return {};
  label.hasPartner = true;
  label.partnerStage = partner.stage;
  label.partnerMicrobatch = partner.microbatch;
  return label;
}

PipelineLabel numbered(std::string_view text, Meaning meaning, SpanKind kind) {
  const auto number = takeNumber(text, meaning == Meaning::Step ? 1 << 30 : kMaxMicrobatches);
  if (!number || *number < 0 || !text.empty()) return {};
  return {.meaning = meaning,
          .kind = kind,
          .stage = -1,
          .microbatch = *number,
          .hasPartner = false,
          .partnerStage = -1,
          .partnerMicrobatch = -1};
}

}  // namespace

PipelineLabel torchLabel(std::string_view name) {
  const auto takes = [&](std::string_view start) {
    if (!name.starts_with(start)) return false;
    name.remove_prefix(start.size());
    return true;
  };
  if (takes("PP:")) {
    if (!name.starts_with('(')) return actionOf(name, kTorchLetters);
    constexpr std::string_view kEnd = ")OVERLAP_F_B";
    return name.ends_with(kEnd) ? pairOf(name.substr(1, name.size() - 1 - kEnd.size()), kTorchLetters) : PipelineLabel{};
  }
  if (takes("Forward ")) return numbered(name, Meaning::StageFree, SpanKind::Forward);
  if (takes("Backward ")) return numbered(name, Meaning::StageFree, SpanKind::Backward);
  if (takes("ProfilerStep#")) return numbered(name, Meaning::Step, SpanKind::Forward);
  PipelineLabel label;
  if (takes("Optimizer.step#")) {
    label.meaning = Meaning::Optimizer;
    label.kind = SpanKind::Optimizer;
  }
  return label;
}

PipelineLabel ownLabel(std::string_view name) {
  if (name.size() > 2 && name.front() == '(' && name.back() == ')') return pairOf(name.substr(1, name.size() - 2), kOwnLetters);
  return actionOf(name, kOwnLetters);
}

}  // namespace pw
