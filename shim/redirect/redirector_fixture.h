#ifndef SHIM_REDIRECT_REDIRECTOR_FIXTURE_H_
#define SHIM_REDIRECT_REDIRECTOR_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <memory>

#include "daemon/contract/abi/byte_size.h"
#include "shim/redirect/redirector.h"
#include "shim/testdata/fake_daemon.h"
#include "shim/testdata/fake_driver.h"
#include "shim/testdata/scoreboard_copy.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {

using abi::kMiB;

inline constexpr size_t kSlabBytes = 4 * kMiB;  // the fake daemon's default

// A redirector on a fake driver and, after StartDaemon, a fake daemon.
class RedirectorFixture : public testing::Test {
 protected:
  void SetUp() override {
    setenv("FINESERVE_RUNTIME_DIR", folder_.path().c_str(), 1);
    redirector_.link().set_timeouts(kPatient);
    testing::internal::CaptureStderr();
  }
  void TearDown() override {
    testing::internal::GetCapturedStderr();
    redirector_.link().AbandonInChild();
    redirector_.scoreboard().AbandonInChild();
    unsetenv("FINESERVE_RUNTIME_DIR");
  }

  void StartDaemon(const FakeDaemon::Options& options = {}) {
    daemon_ = std::make_unique<FakeDaemon>(folder_.path(), kFakeGpu, options);
  }
  ScoreboardCopy Scoreboard() const {
    return CopyScoreboard(MapScoreboardOf(getpid()));
  }
  abi::DecisionRecord LastDecision() const {
    return Scoreboard().decisions.back();
  }

  TemporaryFolder folder_;
  std::unique_ptr<FakeDaemon> daemon_;
  Driver driver_ = NewFakeDriver();
  std::unique_ptr<RangeTable> ranges_ = std::make_unique<RangeTable>();
  std::unique_ptr<RangeTable> mappings_ = std::make_unique<RangeTable>();
  Redirector redirector_{ranges_.get(), mappings_.get()};
  FakeDriverState& fake_ = TheFakeDriver();
};

class RedirectorTest : public RedirectorFixture {
 protected:
  driver::CUresult AllocateKv(size_t bytes, driver::CUdeviceptr* out) {
    return Allocate(bytes, true, out, MemoryKind::kPlain);
  }
  driver::CUresult AllocateOther(size_t bytes, driver::CUdeviceptr* out) {
    return Allocate(bytes, false, out, MemoryKind::kPlain);
  }
  driver::CUresult Allocate(size_t bytes, bool in_scope,
                            driver::CUdeviceptr* out, MemoryKind kind,
                            driver::CUmemoryPool pool = nullptr) {
    const auto original = [&](const driver::EntryPoints& entry) {
      return entry.cuMemAlloc_v2(out, bytes);
    };
    AllocationCall call{abi::Hook::kMemAllocAsync, bytes, nullptr,
                        Original(original), kind};
    call.in_scope = in_scope;
    call.pool = pool;
    return redirector_.Allocate(driver_, call, out);
  }
  driver::CUresult FreeAsync(driver::CUdeviceptr address) {
    const auto original = [&](const driver::EntryPoints& entry) {
      return entry.cuMemFree_v2(address);
    };
    return redirector_.releaser().FreeInStreamOrder(
        driver_, abi::Hook::kMemFreeAsync, address, nullptr,
        Original(original));
  }
};

// A process with a view, of a pool of 6 slabs.
class RedirectorViewTest : public RedirectorFixture {
 protected:
  void SetUp() override {
    RedirectorFixture::SetUp();
    StartDaemon({.slab_count = 6});
  }

  // A view of two tensors.
  void Register() {
    fs_kv_format format = {};
    format.struct_bytes = sizeof(format);
    format.mode = FS_KV_VIEW;
    format.planes = 2;
    format.planes_per_allocation = 1;
    format.page_bytes = 64 << 10;
    ASSERT_EQ(redirector_.view().Register(driver_, format, &geometry_), FS_OK)
        << KvErrorText();
  }
  size_t TensorBytes() const { return geometry_.blocks * (64 << 10); }
  driver::CUresult Allocate(size_t bytes, bool in_scope,
                            driver::CUdeviceptr* out,
                            const driver::CUmemAllocationProp* prop = nullptr) {
    const auto original = [&](const driver::EntryPoints& entry) {
      return entry.cuMemAlloc_v2(out, bytes);
    };
    AllocationCall call{abi::Hook::kMemAlloc, bytes, nullptr,
                        Original(original)};
    call.in_scope = in_scope;
    call.prop = prop;
    return redirector_.Allocate(driver_, call, out);
  }

  fs_kv_geometry geometry_ = {};
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_REDIRECTOR_FIXTURE_H_
