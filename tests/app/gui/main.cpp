#include <gtest/gtest.h>

#include <QApplication>
#include <QStandardPaths>

/// All GUI tests run in one application on the offscreen platform unless another is chosen, with settings of their own.
int main(int argc, char** argv) {
  if (!qEnvironmentVariableIsSet("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  QStandardPaths::setTestModeEnabled(true);
  testing::InitGoogleTest(&argc, argv);
  QApplication app(argc, argv);
  QApplication::setOrganizationName("Pipewright");
  QApplication::setApplicationName("Pipewright test");
  return RUN_ALL_TESTS();
}
