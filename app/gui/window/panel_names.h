#pragma once

#include <cstdint>
#include <string_view>

#include "schedules/named_values.h"

namespace pw::gui {

/// What the window can bring to the front: the start page, and its docks, whose object names are these.
enum class Panel : std::uint8_t { Start, Model, Plan, Candidates, Runs, Analysis, Explain, Schedule, Statistics, Notes };
constexpr std::string_view nameOf(Panel panel) {
  switch (panel) {
    case Panel::Start: return "start";
    case Panel::Model: return "model";
    case Panel::Plan: return "plan";
    case Panel::Candidates: return "candidates";
    case Panel::Runs: return "runs";
    case Panel::Analysis: return "analysis";
    case Panel::Explain: return "explain";
    case Panel::Schedule: return "schedule";
    case Panel::Statistics: return "statistics";
    case Panel::Notes: return "notes";
  }
  return {};
}

}  // namespace pw::gui
