#ifndef SHIM_VIEW_ENGINE_VIEW_FIXTURE_H_
#define SHIM_VIEW_ENGINE_VIEW_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/contract/abi/byte_size.h"
#include "shim/testdata/view_fixture.h"
#include "shim/view/engine_view.h"
#include "shim/view/kv_error.h"

namespace fineserve::shim {

using abi::kMiB;

inline constexpr uint64_t kPage = 64 << 10;
inline constexpr uint32_t kSlabs = 6;
// A slab: two granules of 2 MiB, one for each of two planes.
inline constexpr uint64_t kShare = 2 * kMiB;
inline constexpr uint32_t kSlabBlocks = kShare / kPage;

inline fs_kv_format Format(uint32_t mode = FS_KV_VIEW) {
  fs_kv_format f = {};
  f.struct_bytes = sizeof(f);
  f.mode = mode;
  f.planes = 2;
  f.planes_per_allocation = 1;
  f.page_bytes = kPage;
  f.block_tokens = 16;
  return f;
}

class EngineViewTest : public ViewFixture {
 protected:
  int Register(const fs_kv_format& format = Format()) {
    geometry_.struct_bytes = sizeof(geometry_);
    return view_.Register(driver_, format, &geometry_);
  }
  void AddTensors(uint32_t count = 2) {
    for (uint32_t i = 0; i < count; ++i) {
      Redirection tensor;
      ASSERT_EQ(
          view_.AddTensor(driver_, geometry_.blocks * kPage, &tensor).outcome,
          MapOutcome::kMapped);
      tensors_.push_back(tensor);
    }
  }
  // Starts a daemon of kSlabs slabs and serves with it.
  void Serve(uint32_t mode = FS_KV_VIEW, FakeDaemon::Options options = {}) {
    options.slab_count = kSlabs;
    StartDaemon(options);
    ASSERT_EQ(Register(Format(mode)), FS_OK) << KvErrorText();
    AddTensors();
    scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
    ASSERT_EQ(view_.Activate(driver_), FS_OK) << KvErrorText();
  }
  // Begins a step and ends it at once.
  void Step() { ASSERT_EQ(view_.EndStep(view_.BeginStep(driver_)), FS_OK); }
  std::vector<uint32_t> Allocate(uint32_t count) {
    std::vector<uint32_t> ids(count);
    EXPECT_EQ(view_.Allocate(count, ids.data()), FS_OK) << KvErrorText();
    return ids;
  }
  int Free(const std::vector<uint32_t>& ids) {
    return view_.Free(static_cast<uint32_t>(ids.size()), ids.data());
  }
  fs_kv_stats Stats() {
    fs_kv_stats stats = {};
    EXPECT_EQ(view_.ReadStats(&stats), FS_OK);
    return stats;
  }
  std::vector<std::pair<uint32_t, uint32_t>> Poll(uint32_t capacity = 16) {
    fs_kv_change changes[16];
    const int count = view_.Poll(driver_, changes, capacity);
    EXPECT_GE(count, 0) << KvErrorText();
    std::vector<std::pair<uint32_t, uint32_t>> all;
    for (int i = 0; i < count; ++i) {
      all.emplace_back(changes[i].view_index, changes[i].kind);
    }
    return all;
  }
  bool HasSlab(uint32_t v) const {
    return HandleAt(tensors_[0].base + v * kShare) ==
               kPoolHandle + (v - 1) * 2 &&
           HandleAt(tensors_[1].base + v * kShare) ==
               kPoolHandle + (v - 1) * 2 + 1;
  }
  std::vector<std::pair<uint32_t, uint32_t>> Returned(size_t count) {
    daemon_->Eventually(
        [&](const auto& log) { return log.returned.size() >= count; });
    return daemon_->views().returned;
  }
  uint32_t LastWanted() {
    const uint32_t expected = Stats().wanted_slabs;
    daemon_->Eventually([&](const auto& log) {
      return !log.wanted.empty() && log.wanted.back() == expected;
    });
    const auto wanted = daemon_->views().wanted;
    return wanted.empty() ? UINT32_MAX : wanted.back();
  }
  void KillDaemon() {
    daemon_.reset();
    link_.Look();
  }

  EngineView view_{&link_, &scoreboard_};
  fs_kv_geometry geometry_ = {};
  std::vector<Redirection> tensors_;
};

}  // namespace fineserve::shim

#endif  // SHIM_VIEW_ENGINE_VIEW_FIXTURE_H_
