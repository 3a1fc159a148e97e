#include "tools/fsctl/run/daemon_start.h"

#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

TEST(GpuToServeTest, IsTheNamedOneElseTheFirstThatThisProcessSees) {
  EXPECT_EQ(GpuToServe("GPU-12", nullptr, "/x/emucuda"), "GPU-12");
  EXPECT_EQ(GpuToServe("", nullptr, "/x/emucuda"), "0");
  EXPECT_EQ(GpuToServe("", "/usr/lib:/x/emucuda2", "/x/emucuda"), "0");
}

TEST(GpuToServeTest, IsEmulatedIfTheLoaderFindsTheEmulatedDriver) {
  EXPECT_EQ(GpuToServe("", "/usr/lib:/x/emucuda", "/x/emucuda"), "emulated");
  EXPECT_EQ(GpuToServe("GPU-12", "/x/emucuda", "/x/emucuda"), "GPU-12");
}

}  // namespace
}  // namespace fineserve::fsctl
