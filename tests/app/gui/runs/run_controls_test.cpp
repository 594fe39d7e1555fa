#include "app/gui/runs/run_controls.h"

#include <gtest/gtest.h>

#include <QComboBox>
#include <QStandardItemModel>

namespace pw::gui {
namespace {

TEST(RunControlsTest, OfferGpusWhereThereAreSome) {
  RunControls controls;
  EXPECT_EQ(controls.computing(), Computing());
  controls.follow({.onGpu = true, .precision = DType::Float16});
  EXPECT_EQ(controls.computing(), (Computing{.onGpu = false, .precision = DType::Float16})) << "no GPU was found yet";
  EXPECT_EQ(controls.transport(), Transport::Ucx);
  controls.setTransports({{Transport::Nccl, true, "1 GPU"}});
  EXPECT_EQ(controls.computing(), (Computing{.onGpu = true, .precision = DType::Float16}));
  EXPECT_EQ(controls.transport(), Transport::Nccl);
  controls.follow({});
  EXPECT_EQ(controls.computing(), Computing());
  EXPECT_EQ(controls.transport(), Transport::Ucx);
}

TEST(RunControlsTest, SayWhyATransportCannotBeUsedHere) {
  RunControls controls;
  controls.setTransports({{Transport::Ucx, true, "the default"}, {Transport::Nccl, false, "no NVIDIA driver is loaded"}});
  auto* const transports = controls.findChild<QComboBox*>("transport");
  ASSERT_NE(transports, nullptr);
  const QModelIndex nccl = transports->model()->index(transports->findText("nccl"), 0);
  EXPECT_FALSE(nccl.flags().testFlag(Qt::ItemIsEnabled));
  EXPECT_EQ(nccl.data(Qt::ToolTipRole), "no NVIDIA driver is loaded");
  const QModelIndex ucx = transports->model()->index(transports->findText("ucx"), 0);
  EXPECT_TRUE(ucx.flags().testFlag(Qt::ItemIsEnabled));
  EXPECT_EQ(ucx.data(Qt::ToolTipRole), "the default");
}

}  // namespace
}  // namespace pw::gui
