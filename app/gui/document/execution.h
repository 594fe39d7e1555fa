#pragma once

#include <QString>

#include "app/gui/document/document.h"

namespace pw::gui {

/// Whether a run of the plan computes nothing, as its model is a layer table: its stages only take as long as the table says.
[[nodiscard]] bool rehearses(const Document& document);
/// Why the plan cannot be run: a sentence; empty where it can.
[[nodiscard]] QString obstacleToRun(const Document& document);
/// Why the model cannot be measured on this machine: a sentence; empty where it can.
[[nodiscard]] QString obstacleToProfile(const Document& document);

}  // namespace pw::gui
