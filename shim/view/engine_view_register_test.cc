// Tests how views are registered: formats, the daemon's answers, the geometry.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "shim/view/engine_view_fixture.h"

namespace fineserve::shim {
namespace {

using testing::HasSubstr;
using Fault = FakeDaemon::Fault;

TEST_F(EngineViewTest, RegistrationTellsWhatTheViewWillBe) {
  StartDaemon({.slab_count = kSlabs, .floor_slabs = 2, .cap_slabs = 4});
  fs_kv_format format = Format(FS_KV_GUARDED);
  format.floor_blocks = 40;
  format.cap_blocks = 100;
  format.groups[1] = {6, 16, 1024};
  format.states = 3;
  format.filling_tokens = 2048;
  format.answering_tokens = 2;
  ASSERT_EQ(Register(format), FS_OK) << KvErrorText();
  EXPECT_EQ(geometry_.slab_count, kSlabs);
  EXPECT_EQ(geometry_.blocks, (kSlabs + 1) * kSlabBlocks);
  EXPECT_EQ(geometry_.plane_bytes, kShare);
  EXPECT_EQ(geometry_.floor_slabs, 2u);
  EXPECT_EQ(geometry_.cap_slabs, 4u);
  const abi::ViewRequest asked = daemon_->views().request;
  EXPECT_EQ(asked.mode, abi::ViewMode::kGuarded);
  EXPECT_EQ(asked.planes, 2u);
  EXPECT_EQ(asked.page_bytes, kPage);
  EXPECT_EQ(asked.floor_blocks, 40u);
  EXPECT_EQ(asked.cap_blocks, 100u);
  const abi::KvShape shape = {{{}, {6, 16, 1024}}, 3, 2048, 2, 0};
  EXPECT_EQ(memcmp(&asked.shape, &shape, sizeof(shape)), 0);
  uint64_t first = 0, end = 0;
  EXPECT_EQ(view_.SlabBlocks(2, &first, &end), FS_OK);
  EXPECT_EQ(first, 2 * kSlabBlocks);
  EXPECT_EQ(end, 3 * kSlabBlocks);
  EXPECT_EQ(view_.SlabBlocks(kSlabs + 1, &first, &end), FS_INVALID);
}

TEST_F(EngineViewTest, PoolIsKnownBeforeAFormatIsChosen) {
  StartDaemon({.slab_count = kSlabs});
  fs_kv_pool pool = {};
  ASSERT_EQ(view_.ReadPool(driver_, &pool), FS_OK) << KvErrorText();
  EXPECT_EQ(pool.slab_count, kSlabs);
  EXPECT_EQ(pool.slab_bytes, 2 * kShare);  // of two planes
  EXPECT_EQ(pool.granule_bytes, kShare);
  ASSERT_EQ(Register(Format()), FS_OK) << "asking registers nothing";
}

TEST_F(EngineViewTest, WithoutADaemonThereIsNoPool) {
  fs_kv_pool pool = {};
  EXPECT_EQ(view_.ReadPool(driver_, &pool), FS_NO_DAEMON);
}

TEST_F(EngineViewTest, FewerBlocksHaveRoomForFewerSlabs) {
  StartDaemon({.slab_count = kSlabs});
  fs_kv_format format = Format();
  format.blocks = 4 * kSlabBlocks - 1;  // the fourth index is one block short
  ASSERT_EQ(Register(format), FS_OK);
  EXPECT_EQ(geometry_.slab_count, 2u);
  EXPECT_EQ(geometry_.blocks, format.blocks);
}

TEST_F(EngineViewTest, PagesThatDivideNothingLoseNoSlab) {
  StartDaemon({.slab_count = kSlabs});
  fs_kv_format format = Format();
  format.page_bytes = 33'792;
  ASSERT_EQ(Register(format), FS_OK);
  EXPECT_EQ(geometry_.slab_count, kSlabs);
  EXPECT_EQ(geometry_.blocks, (kSlabs + 1) * kShare / 33'792);
}

struct BadFormat {
  const char* name;
  const char* complaint;
  void (*spoil)(fs_kv_format*);
};
class BadFormats : public EngineViewTest,
                   public testing::WithParamInterface<BadFormat> {};

TEST_P(BadFormats, AreNamedAndLeaveNoView) {
  StartDaemon({.slab_count = kSlabs, .floor_slabs = 2});
  fs_kv_format format = Format();
  GetParam().spoil(&format);
  EXPECT_EQ(Register(format), FS_INVALID);
  EXPECT_THAT(KvErrorText(), HasSubstr(GetParam().complaint));
  EXPECT_FALSE(view_.in_use());
  EXPECT_EQ(Register(), FS_OK) << KvErrorText();
}

INSTANTIATE_TEST_SUITE_P(
    Formats, BadFormats,
    testing::Values(
        BadFormat{"OtherSize", "struct_bytes",
                  [](fs_kv_format* f) { f->struct_bytes = 8; }},
        BadFormat{"Mode", "mode", [](fs_kv_format* f) { f->mode = 4; }},
        BadFormat{"NoPlanes", "planes", [](fs_kv_format* f) { f->planes = 0; }},
        BadFormat{"Planes", "planes",
                  [](fs_kv_format* f) { f->planes = 10'000; }},
        BadFormat{"Allocations", "does not divide",
                  [](fs_kv_format* f) { f->planes_per_allocation = 3; }},
        BadFormat{"NoPage", "page_bytes",
                  [](fs_kv_format* f) { f->page_bytes = 0; }},
        BadFormat{"TooManyBlocks", "too many",
                  [](fs_kv_format* f) { f->blocks = uint64_t{1} << 60; }},
        BadFormat{"GroupOfNoTokens", "block_tokens",
                  [](fs_kv_format* f) { f->groups[2].count = 1; }},
        BadFormat{"States", "states",
                  [](fs_kv_format* f) { f->states = 1 << 20; }},
        BadFormat{"Reserved", "reserved",
                  [](fs_kv_format* f) { f->reserved = 1; }},
        BadFormat{"BelowItsFloor", "the floor of 2 slabs takes 96",
                  [](fs_kv_format* f) { f->blocks = 80; }},
        BadFormat{"PlanesThatDoNotAbut", "multiple of 32",
                  [](fs_kv_format* f) {
                    f->planes_per_allocation = 2;
                    f->blocks = 7 * 32 + 1;
                  }}),
    [](const auto& info) { return info.param.name; });

size_t OpenDescriptors() {
  const auto folder = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(folder), end(folder)));
}

// The daemon's answer brings the view scoreboard's descriptor.
TEST_F(EngineViewTest, ViewThatDoesNotFitLeavesNoDescriptor) {
  StartDaemon({.slab_count = kSlabs, .floor_slabs = 2});
  fs_kv_format format = Format();
  format.blocks = 2 * kSlabBlocks;
  ASSERT_EQ(Register(format), FS_INVALID) << "connects";
  const size_t before = OpenDescriptors();
  ASSERT_EQ(Register(format), FS_INVALID);
  // The daemon, a thread of this process, closes the former one when it has
  // sent this one.
  EXPECT_TRUE(FakeDaemon::Becomes([&] { return OpenDescriptors() == before; }));
}

TEST_F(EngineViewTest, RefusalOfTheDaemonIsPassedOn) {
  StartDaemon({.fault = Fault::kRefuseView, .slab_count = kSlabs});
  EXPECT_EQ(Register(), FS_REFUSED);
  EXPECT_THAT(KvErrorText(), HasSubstr("hold no such block"));
}

TEST_F(EngineViewTest, DaemonThatMisreportsItsPoolIsNotJoinedForAView) {
  for (const Fault fault : {Fault::kWrongView, Fault::kShrinkable}) {
    StartDaemon({.fault = fault, .slab_count = kSlabs});
    EXPECT_EQ(Register(), FS_NO_DAEMON);
    EXPECT_THAT(KvErrorText(), HasSubstr("an unusable view"));
    EXPECT_FALSE(view_.in_use());
    daemon_.reset();
  }
}

TEST_F(EngineViewTest, IdsBeyond32BitsAreTheFormatsFault) {
  StartDaemon({.slab_count = 3'000});
  fs_kv_format format = Format();
  format.page_bytes = 1;
  EXPECT_EQ(Register(format), FS_INVALID);
  EXPECT_THAT(KvErrorText(), HasSubstr("32 bits"));
  EXPECT_EQ(Register(), FS_OK) << KvErrorText();
}

TEST_F(EngineViewTest, ShortHostMemoryIsNoFaultOfTheFormat) {
  StartDaemon({.slab_count = 1'500});
  fs_kv_format format = Format();
  format.page_bytes = 1;  // 3,000 MiB of block ids, of which each takes a bit
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  rlimit lower = before;
  lower.rlim_cur = pages * static_cast<uint64_t>(getpagesize()) + 256 * kMiB;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &lower), 0);
  const int result = Register(format);
  setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(result, FS_NO_MEMORY) << KvErrorText();
  EXPECT_FALSE(view_.in_use());
  EXPECT_EQ(Register(), FS_OK) << KvErrorText();
}

TEST_F(EngineViewTest, WithoutADaemonThereIsNoView) {
  EXPECT_EQ(Register(), FS_NO_DAEMON);
  EXPECT_FALSE(view_.in_use());
}

}  // namespace
}  // namespace fineserve::shim
