#include "simulator/trace/span_kind.h"

namespace pw {

std::optional<SpanKind> spanKind(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward: return SpanKind::Forward;
    case ActionKind::Backward: return SpanKind::Backward;
    case ActionKind::BackwardInput: return SpanKind::BackwardInput;
    case ActionKind::BackwardWeight: return SpanKind::BackwardWeight;
    case ActionKind::SendForward:
    case ActionKind::RecvForward: return SpanKind::WaitForward;
    case ActionKind::SendBackward:
    case ActionKind::RecvBackward: return SpanKind::WaitBackward;
    case ActionKind::ReduceGrad: return SpanKind::ReduceGrad;
    case ActionKind::Unshard:
    case ActionKind::Reshard:
    case ActionKind::Idle: break;
  }
  return std::nullopt;
}

}  // namespace pw
