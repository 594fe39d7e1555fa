#include "backends/traces/events/transfers.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "backends/traces/events/spans.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

/// The wait at the front of the span; nothing where no receive ended within it. `byEnd`: by (track, end).
std::optional<Span> waitOf(const Span& span, const std::vector<PostedTransfer>& byEnd) {
  const Track track = trackOf(span);
  const auto before = [](const PostedTransfer& of, const std::tuple<Track, Ns>& at) { return std::tie(of.track, of.end) < at; };
  const auto first = std::lower_bound(byEnd.begin(), byEnd.end(), std::tuple(track, span.start + 1), before);
  const auto last = std::lower_bound(first, byEnd.end(), std::tuple(track, span.end + 1), before);
  if (first == last) return std::nullopt;
  Span wait = span;
  wait.kind = span.kind == SpanKind::Forward ? SpanKind::WaitForward : SpanKind::WaitBackward;
  wait.end = std::prev(last)->end;  // an action of several inputs waits for all of them
  return wait;
}

/// The send at the end of the span; nothing where none was posted within it. `byStart`: by (track, start).
std::optional<Span> sendOf(const Span& span, const std::vector<PostedTransfer>& byStart) {
  const auto before = [](const PostedTransfer& of, const std::tuple<Track, Ns>& at) { return std::tie(of.track, of.start) < at; };
  const auto first = std::lower_bound(byStart.begin(), byStart.end(), std::tuple(trackOf(span), span.start + 1), before);
  if (first == byStart.end() || first->track != trackOf(span) || first->start >= span.end) return std::nullopt;
  Span send = span;
  send.kind = span.kind == SpanKind::Forward ? SpanKind::SendForward : SpanKind::SendBackward;
  send.peer = Rank(-1);
  send.start = first->start;
  return send;
}

bool exchanges(const Span& span) {
  return span.kind == SpanKind::Forward || span.kind == SpanKind::Backward || span.kind == SpanKind::BackwardInput;
}

}  // namespace

void cutTransfers(FileEvents& file) {
  std::vector<PostedTransfer>&byEnd = file.receives, &byStart = file.sends;
  std::ranges::sort(byEnd, {}, [](const PostedTransfer& of) { return std::tuple(of.track, of.end); });
  std::ranges::sort(byStart, {}, [](const PostedTransfer& of) { return std::tuple(of.track, of.start); });
  std::vector<Span> waits, sends;
  for (std::size_t i = 0; i < file.spans.size() && !(byEnd.empty() && byStart.empty()); ++i) {
    Span& span = file.spans[i];
    if (!exchanges(span) || inSlot(file.spans, i)) continue;
    if (const auto wait = waitOf(span, byEnd)) {
      span.start = wait->end;
      waits.push_back(*wait);
    }
    if (const auto send = sendOf(span, byStart)) {
      span.end = send->start;
      sends.push_back(*send);
    }
  }
  if (!waits.empty()) {
    file.exactStarts = true;
    std::erase_if(file.spans, [](const Span& span) { return isWait(span.kind); });
  }
  file.spans.insert(file.spans.end(), waits.begin(), waits.end());
  file.spans.insert(file.spans.end(), sends.begin(), sends.end());
  file.receives.clear();
  file.sends.clear();
}

}  // namespace pw
