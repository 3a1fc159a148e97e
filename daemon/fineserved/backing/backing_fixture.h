#ifndef DAEMON_FINESERVED_BACKING_BACKING_FIXTURE_H_
#define DAEMON_FINESERVED_BACKING_BACKING_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "daemon/pool/geometry/pool_geometry.h"

namespace fineserve::backing {

// The pool of this folder's tests: 8 slabs of two granules.
inline constexpr slab::PoolGeometry kGeometry = {4096, 2, 8};

// An emulated machine of 64 MiB for a test program. Add it as a global
// environment, because the driver reads the machine's location only once.
class EmulatedMachine : public ::testing::Environment {
 public:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    setenv("EMUCUDA_DIR", folder_.c_str(), 1);
    setenv("EMUCUDA_MEMORY", "64MiB", 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

 private:
  std::string folder_ = "/dev/shm/fineserve-device-XXXXXX";
};

}  // namespace fineserve::backing

#endif  // DAEMON_FINESERVED_BACKING_BACKING_FIXTURE_H_
