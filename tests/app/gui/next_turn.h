#pragma once

#include <QTest>
#include <QTimer>

namespace pw::gui {

/// Returns when everything has been done that was put off until the next turn of the event loop.
inline void waitForNextTurn() {
  bool came = false;
  QTimer::singleShot(0, [&came] { came = true; });
  static_cast<void>(QTest::qWaitFor([&came] { return came; }));
}

}  // namespace pw::gui
