#include "backends/traces/label.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
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
  const auto known = alphabet(kind);
  if (!known) return {};
  label.kind = known->kind;
  label.meaning = known->used ? Meaning::Action : Meaning::Unused;
  const bool whole = label.stage >= 0 && label.microbatch >= 0;
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
    if (!name.starts_with('(')) return actionOf(name, torchLetters);
    constexpr std::string_view kEnd = ")OVERLAP_F_B";
    return name.ends_with(kEnd) ? pairOf(name.substr(1, name.size() - 1 - kEnd.size()), torchLetters) : PipelineLabel{};
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
  if (name.size() > 2 && name.front() == '(' && name.back() == ')') return pairOf(name.substr(1, name.size() - 2), ownLetters);
  return actionOf(name, ownLetters);
}

}  // namespace pw
