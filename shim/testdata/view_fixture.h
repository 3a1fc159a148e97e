#ifndef SHIM_TESTDATA_VIEW_FIXTURE_H_
#define SHIM_TESTDATA_VIEW_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <memory>

#include "shim/link/daemon_link.h"
#include "shim/testdata/fake_daemon.h"
#include "shim/testdata/fake_driver.h"

namespace fineserve::shim {

// A link to a fake daemon of pool granules, and a fake driver.
class ViewFixture : public testing::Test {
 protected:
  void SetUp() override {
    setenv("FINESERVE_RUNTIME_DIR", folder_.path().c_str(), 1);
    link_.set_timeouts(kPatient);
    testing::internal::CaptureStderr();
  }
  void TearDown() override {
    testing::internal::GetCapturedStderr();
    link_.AbandonInChild();
    scoreboard_.AbandonInChild();
    unsetenv("FINESERVE_RUNTIME_DIR");
  }

  void StartDaemon(const FakeDaemon::Options& options) {
    daemon_ = std::make_unique<FakeDaemon>(folder_.path(), kFakeGpu, options);
  }
  void Join() {
    uint8_t gpu[16] = {1, 2, 3};
    ASSERT_EQ(link_.Join(gpu, true), abi::LinkState::kConnected);
  }

  // The handle that is mapped at an address; 0 if there is none.
  driver::CUmemGenericAllocationHandle HandleAt(driver::CUdeviceptr at) const {
    const auto after = fake_.mappings.upper_bound(at);
    if (after == fake_.mappings.begin()) return 0;
    const auto& [base, mapping] = *std::prev(after);
    return at < base + mapping.bytes ? mapping.handle : 0;
  }
  bool IsScratch(driver::CUdeviceptr at) const {
    return IsDrivers(HandleAt(at));
  }
  size_t PoolMappings() const {
    size_t count = 0;
    for (const auto& [at, m] : fake_.mappings) count += m.handle >= kPoolHandle;
    return count;
  }

  TemporaryFolder folder_;
  std::unique_ptr<FakeDaemon> daemon_;
  Driver driver_ = NewFakeDriver();
  FakeDriverState& fake_ = TheFakeDriver();
  ScoreboardWriter scoreboard_;
  DeclaredSizes declared_;
  RuleMatcher rules_;
  DaemonLink link_{&scoreboard_, &declared_, &rules_};
};

}  // namespace fineserve::shim

#endif  // SHIM_TESTDATA_VIEW_FIXTURE_H_
