// The start page: what it offers to open, and that a click opens it.
#include "app/gui/window/start_page.h"

#include <gtest/gtest.h>

#include <QAbstractButton>
#include <QApplication>
#include <QCommandLinkButton>
#include <QFileInfo>
#include <QLabel>
#include <QSignalSpy>
#include <QTest>

namespace pw::gui {
namespace {

class StartPageTest : public testing::Test {
 protected:
  void SetUp() override {
    qputenv("PIPEWRIGHT_RESOURCES", PW_SOURCE_DIR "/resources");
    page = std::make_unique<StartPage>();
    page->resize(1200, 900);
    page->show();
    ASSERT_TRUE(QTest::qWaitForWindowExposed(page.get()));
  }
  QAbstractButton* named(const QString& accessibleName) {
    for (auto* button : page->findChildren<QAbstractButton*>()) {
      if (button->accessibleName() == accessibleName) return button;
    }
    return nullptr;
  }
  [[nodiscard]] bool says(const QString& text) const {
    const auto labels = page->findChildren<QLabel*>();
    return std::any_of(labels.begin(), labels.end(), [&](const QLabel* label) { return label->text() == text; });
  }

  std::unique_ptr<StartPage> page;
};

TEST_F(StartPageTest, EverySampleIsAFileThatIsThereAndAClickOpensIt) {
  ASSERT_FALSE(samples().isEmpty());
  for (const Sample& sample : samples()) {
    EXPECT_TRUE(QFileInfo::exists(sample.path)) << sample.path.toStdString();
    QAbstractButton* const button = named("Open sample " + sample.title);
    ASSERT_NE(button, nullptr) << sample.title.toStdString();
    QSignalSpy chosen(page.get(), &StartPage::chosen);
    QTest::mouseClick(button, Qt::LeftButton);
    ASSERT_EQ(chosen.count(), 1);
    EXPECT_EQ(chosen.front().front().toStringList(), QStringList{sample.path});
  }
}

TEST_F(StartPageTest, WhatASampleIsIsSaidInOneLineInASmallWindow) {
  page->resize(1010, 600);
  QApplication::processEvents();
  int seen = 0;
  for (const auto* button : page->findChildren<QCommandLinkButton*>()) {
    QFont font = button->font();  // as Qt draws a description
    font.setPointSizeF(9.0);
    constexpr int kMargins = 30;
    EXPECT_LE(QFontMetrics(font).horizontalAdvance(button->description()), button->width() - kMargins) << button->text().toStdString();
    ++seen;
  }
  EXPECT_EQ(seen, samples().size());
}

TEST_F(StartPageTest, AnInstallationWithoutSamplesOffersNone) {
  qputenv("PIPEWRIGHT_RESOURCES", PW_SOURCE_DIR "/tests");
  EXPECT_TRUE(samples().isEmpty());
  qputenv("PIPEWRIGHT_RESOURCES", PW_SOURCE_DIR "/resources");
}

TEST_F(StartPageTest, TheSpaceBarOnTheOpenButtonAsksForAFile) {
  QSignalSpy requested(page.get(), &StartPage::openRequested);
  for (auto* button : page->findChildren<QAbstractButton*>()) {
    if (button->text() == "&Open a file…") QTest::keyClick(button, Qt::Key_Space);
  }
  EXPECT_EQ(requested.count(), 1);
}

TEST_F(StartPageTest, RecentFilesAreListedByNameAndReplacedAsAWhole) {
  const QString none = "Files you open are listed here.";
  EXPECT_TRUE(says(none));
  page->setRecent({"/far/away/plan.json", "/near/model.pt2"});
  EXPECT_FALSE(says(none));
  QAbstractButton* const recent = named("Open /far/away/plan.json");
  ASSERT_NE(recent, nullptr);
  EXPECT_EQ(recent->text(), "plan.json");
  EXPECT_EQ(recent->toolTip(), "/far/away/plan.json");
  QSignalSpy chosen(page.get(), &StartPage::chosen);
  QTest::mouseClick(recent, Qt::LeftButton);
  ASSERT_EQ(chosen.count(), 1);
  EXPECT_EQ(chosen.front().front().toStringList(), QStringList{"/far/away/plan.json"});
  page->setRecent({"/near/model.pt2"});
  EXPECT_EQ(named("Open /far/away/plan.json"), nullptr);
  EXPECT_NE(named("Open /near/model.pt2"), nullptr);
  page->setRecent({});
  EXPECT_TRUE(says(none));
}

}  // namespace
}  // namespace pw::gui
