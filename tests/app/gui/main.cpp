#include <gtest/gtest.h>

#include <QApplication>
#include <QSettings>
#include <QTemporaryDir>

/// All GUI tests run in one application on the offscreen platform unless another is chosen. Its settings and what it keeps for a crash are
/// its own: suites run at the same time, and a window asks about what another process left behind.
int main(int argc, char** argv) {
  if (!qEnvironmentVariableIsSet("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  const QTemporaryDir home;
  for (const char* folder : {"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}) qputenv(folder, home.path().toLocal8Bit());
  QSettings::setPath(QSettings::NativeFormat, QSettings::UserScope, home.path());
  testing::InitGoogleTest(&argc, argv);
  QApplication app(argc, argv);
  QApplication::setOrganizationName("Pipewright");
  QApplication::setApplicationName("Pipewright test");
  return RUN_ALL_TESTS();
}
