#pragma once

#include <QString>

namespace pw::gui {

inline constexpr int kLongMs = 120'000;  ///< no wait of a test is longer
inline constexpr const char* kGpt = PW_SOURCE_DIR "/resources/models/gpt_small.pt2";
inline const QString kPrimus = QStringLiteral(PW_SOURCE_DIR "/tests/data/primus/pp8");
inline const QString kReplicas = QStringLiteral(PW_SOURCE_DIR "/tests/data/straggler_analysis/timeline-ST.json.gz");

}  // namespace pw::gui
