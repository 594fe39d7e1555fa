#pragma once

#include <gtest/gtest.h>

#include <QTemporaryDir>
#include <QTest>

#include "app/gui/candidates/panel.h"
#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"
#include "app/gui/model/margin.h"
#include "app/gui/model/parts/split_handle.h"
#include "app/gui/runs/panel.h"
#include "app/gui/timeline/widget.h"
#include "app/gui/window/main_window.h"
#include "tests/app/gui/constants.h"

namespace pw::gui {

/// A shown window with its files in a folder of its own.
class WindowFixture : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(folder_.isValid());
    applyTheme(false);
    window_ = std::make_unique<MainWindow>(false);
    window_->document().setStorePath(folder_.filePath("runs.db"));
    window_->resize(1400, 900);
    window_->show();
    ASSERT_TRUE(QTest::qWaitForWindowExposed(window_.get()));
  }

  [[nodiscard]] static QString sample(const char* name) { return QStringLiteral(PW_SOURCE_DIR "/resources/models/") + QLatin1String(name); }
  [[nodiscard]] bool settle() {
    return QTest::qWaitFor([this] { return window_->isIdle() && !window_->runs().isBusy() && !window_->candidates().isSearching(); },
                           kLongMs);
  }
  void open(const QString& path) {
    window_->open({path});
    ASSERT_TRUE(settle());
  }
  Document& document() { return window_->document(); }

  QTemporaryDir folder_;
  std::unique_ptr<MainWindow> window_;
};

}  // namespace pw::gui
