// Tests parameters of which a process drops its copy and reads another
// process's, on a fake driver where each call fails once.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "daemon/contract/abi/process_start.h"
#include "kernels/driver/descriptor.h"
#include "shim/testdata/fake_driver.h"
#include "shim/weights/resident_memory.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_ERROR_UNKNOWN;
using driver::CUDA_SUCCESS;
using driver::CUresult;
using Part = ResidentMemory::Part;
using Swapped = ResidentMemory::Swapped;

constexpr uint64_t kFrozenMiB = uint64_t{1} << 20;

class Taker final : public ResidentMemory::Carrier {
 public:
  bool Hand(uint32_t, uint64_t, int) override {
    ++handed;
    return accepts;
  }
  bool Finish() override { return true; }
  int handed = 0;
  bool accepts = true;
};

// Two frozen allocations of 4 and 6 MiB, and one that is not frozen. The other
// process's allocations have the same contents.
class FrozenMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(memory_->Allocate(driver_, 3 * kFrozenMiB + 1, &a_));
    ASSERT_TRUE(memory_->Allocate(driver_, 6 * kFrozenMiB, &b_));
    ASSERT_TRUE(memory_->Allocate(driver_, 2 * kFrozenMiB, &other_));
    Write(a_, 'a');
    Write(b_, 'b');
    ASSERT_TRUE(Freeze({PartOf(a_), PartOf(b_)}));
  }
  static Part PartOf(const Redirection& range) {
    return {range.base, range.asked_bytes};
  }
  bool Freeze(const std::vector<Part>& parts) {
    return memory_->Freeze(parts.data(), parts.size());
  }
  void Write(const Redirection& range, char letter) {
    const std::string bytes(range.reserved_bytes, letter);
    ASSERT_EQ(
        driver_.entry.cuMemcpyHtoD_v2(range.base, bytes.data(), bytes.size()),
        CUDA_SUCCESS);
  }
  char Read(const Redirection& range) {
    std::string bytes(range.reserved_bytes, '?');
    return driver_.entry.cuMemcpyDtoH_v2(bytes.data(), range.base,
                                         bytes.size()) == CUDA_SUCCESS
               ? bytes[1]
               : '-';
  }
  // Returns memory of another process, by its number from 1 on.
  static driver::Descriptor Memory(uint32_t number, char letter,
                                   uint64_t bytes) {
    TheFakeDriver().contents[kPoolHandle + number - 1] =
        std::string(bytes, letter);
    driver::Descriptor fd(memfd_create("peer", MFD_CLOEXEC));
    EXPECT_EQ(pwrite(fd.get(), &number, sizeof(number), 0), 4);
    return fd;
  }
  // Null, or why not.
  const char* PairAll() {
    const auto a = Memory(7, 'a', a_.reserved_bytes);
    const auto b = Memory(8, 'b', b_.reserved_bytes);
    uint64_t bytes = 0;
    const uint32_t first = memory_->Take(0, &bytes);
    EXPECT_EQ(bytes, 4 * kFrozenMiB);
    const char* why = memory_->Pair(driver_, first, a.get(), &taker_);
    if (why != nullptr) return why;
    const uint32_t second = memory_->Take(first, &bytes);
    EXPECT_EQ(memory_->Take(second, &bytes), 0u);
    return memory_->Pair(driver_, second, b.get(), &taker_);
  }
  bool DropOne(uint32_t number, char letter, uint64_t bytes) {
    const auto peers = Memory(6 + number, letter, bytes);
    return memory_->Pair(driver_, number, peers.get(), &taker_) == nullptr &&
           Swap() == Swapped::kDone;
  }
  // Returns the bytes of each allocation that another process gets; 0 if it
  // gets none.
  std::vector<uint64_t> Lend() {
    auto request = abi::MakeMessage<abi::ReadRequest>(1);
    request.count = 2;
    request.wanted[0] = 1;
    request.wanted[1] = 2;
    auto answer = abi::MakeMessage<abi::ReadAnswer>(1);
    int memory[abi::kLentPerAnswer];
    const uint32_t lent =
        memory_->LendParameters(driver_, self_, request, &answer, memory);
    for (uint32_t i = 0; i < lent; ++i) close(memory[i]);
    lent_ = answer.result;
    std::vector<uint64_t> bytes(answer.bytes, answer.bytes + answer.count);
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0u) + lent, bytes.size());
    return bytes;
  }
  Swapped Swap() {
    if (memory_->HoldFormer(driver_) != CUDA_SUCCESS) return Swapped::kUndone;
    fake_.log.clear();
    const Swapped swapped =
        memory_->Swap(driver_, [](const Redirection&) { return CUDA_SUCCESS; });
    swap_log_ = fake_.log;
    if (swapped == Swapped::kDone) memory_->LetGo(driver_);
    return swapped;
  }
  // True if all calls succeed; otherwise nothing has changed.
  bool Drop() {
    const bool done = memory_->BeginDrop(driver_) == nullptr &&
                      PairAll() == nullptr && Swap() == Swapped::kDone;
    if (!done) memory_->LetGo(driver_);
    return done;
  }
  bool Restore() {
    const bool done = memory_->PrepareRestore(driver_) == CUDA_SUCCESS &&
                      Swap() == Swapped::kDone;
    if (!done) memory_->LetGo(driver_);
    return done;
  }
  void ExpectContents() {
    EXPECT_EQ(Read(a_), 'a');
    EXPECT_EQ(Read(b_), 'b');
    EXPECT_EQ(fake_.handles, 0) << "a handle is held";
    EXPECT_EQ(fake_.mapped_bytes, 12 * kFrozenMiB);
  }
  auto AccessOf(const Redirection& range) {
    return fake_.mappings[range.base].access;
  }

  Driver driver_ = NewFakeDriver();
  FakeDriverState& fake_ = TheFakeDriver();
  std::unique_ptr<ResidentMemory> memory_ = std::make_unique<ResidentMemory>();
  const ResidentMemory::Borrower self_ = {getpid(),
                                          abi::ProcessImage(getpid())};
  abi::ReadResult lent_ = abi::ReadResult::kLent;  // the last one
  Taker taker_;
  std::vector<std::string> swap_log_;  // the driver's calls in the last Swap
  Redirection a_, b_, other_;
};

TEST_F(FrozenMemoryTest, DropReadsTheOthersAndRestoreMakesItsOwn) {
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(Drop());
    EXPECT_EQ(fake_.mappings[a_.base].handle, kPoolHandle + 6);
    EXPECT_EQ(AccessOf(a_), driver::CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_EQ(memory_->sum().dropped_bytes, 10 * kFrozenMiB);
    EXPECT_EQ(memory_->sum().here_bytes, 2 * kFrozenMiB);
    ExpectContents();
    ASSERT_TRUE(Restore());
    EXPECT_TRUE(IsDrivers(fake_.mappings[a_.base].handle));
    EXPECT_EQ(AccessOf(a_), driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_EQ(memory_->sum().dropped_bytes, 0u);
    ExpectContents();
    EXPECT_TRUE(fake_.created.empty()) << "the mapping alone keeps memory";
  }
  EXPECT_EQ(taker_.handed, 12);
}

// The program waits for these calls. The former memory is released to the
// driver later.
TEST_F(FrozenMemoryTest, SwapMakesFourCallsForAnAllocation) {
  const auto calls = [&] {
    std::vector<std::string> found;
    for (const std::string& call : swap_log_) {
      if (call.rfind("cuCtx", 0) != 0) found.push_back(call);
    }
    return found;
  };
  std::vector<std::string> expected;
  for (int allocation = 0; allocation < 2; ++allocation) {
    for (const char* call :
         {"cuMemUnmap", "cuMemMap", "cuMemRelease", "cuMemSetAccess"}) {
      expected.push_back(call);
    }
  }
  ASSERT_TRUE(Drop());
  EXPECT_EQ(calls(), expected);
  ASSERT_TRUE(Restore());
  EXPECT_EQ(calls(), expected);
}

// The program may free memory while it does not wait for the swap.
TEST_F(FrozenMemoryTest, WhatIsFreedAfterASwapIsLetGoOfOnce) {
  ASSERT_EQ(memory_->BeginDrop(driver_), nullptr);
  ASSERT_EQ(PairAll(), nullptr);
  ASSERT_EQ(memory_->HoldFormer(driver_), CUDA_SUCCESS);
  ASSERT_EQ(
      memory_->Swap(driver_, [](const Redirection&) { return CUDA_SUCCESS; }),
      Swapped::kDone);
  ASSERT_EQ(memory_->Free(driver_, a_, false), CUDA_SUCCESS);
  memory_->LetGo(driver_);
  EXPECT_EQ(fake_.handles, 0);
  EXPECT_EQ(memory_->sum().dropped_bytes, 6 * kFrozenMiB);
}

TEST_F(FrozenMemoryTest, DropThatFailsAtAnyCallChangesNothing) {
  for (const char* call : {"cuMemImport", "cuMemRetain", "cuMemExport",
                           "cuMemUnmap", "cuMemMap", "cuMemSetAccess"}) {
    for (const int after : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::string(call) + " " + std::to_string(after));
      fake_.fail = call;
      fake_.fail_after = after;
      const bool done = Drop();
      fake_.fail.clear();
      ExpectContents();
      if (done) {
        ASSERT_TRUE(Restore());
        continue;
      }
      EXPECT_EQ(memory_->sum().dropped, 0u);
      EXPECT_EQ(AccessOf(a_), driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
  }
  taker_.accepts = false;
  EXPECT_FALSE(Drop());
  ExpectContents();
}

TEST_F(FrozenMemoryTest, RestoreThatFailsAtAnyCallReadsOn) {
  ASSERT_TRUE(Drop());
  for (const char* call :
       {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
        "cuStreamCreate", "cuMemcpyDtoD", "cuMemUnmap", "cuMemRetain"}) {
    for (const int after : {0, 1, 2, 3}) {
      // Scratch that cannot be unmapped stays mapped.
      if (std::string(call) == "cuMemUnmap" && after < 2) continue;
      SCOPED_TRACE(std::string(call) + " " + std::to_string(after));
      fake_.fail = call;
      fake_.fail_after = after;
      const bool done = Restore();
      fake_.fail.clear();
      ExpectContents();
      if (done) {
        ASSERT_TRUE(Drop());
        continue;
      }
      EXPECT_EQ(memory_->sum().dropped, 2u);
      EXPECT_EQ(AccessOf(b_), driver::CU_MEM_ACCESS_FLAGS_PROT_READ);
      EXPECT_TRUE(fake_.created.empty());
      EXPECT_EQ(fake_.reserved_bytes, 12 * kFrozenMiB);
    }
  }
  ASSERT_TRUE(Restore());
  ExpectContents();
}

TEST_F(FrozenMemoryTest, NothingIsCopiedWhereThereIsNoRoomForAll) {
  ASSERT_TRUE(Drop());
  fake_.fail = "cuMemCreate";
  fake_.fail_after = 1;
  fake_.log.clear();
  EXPECT_NE(memory_->PrepareRestore(driver_), CUDA_SUCCESS);
  for (const std::string& call : fake_.log) EXPECT_NE(call, "cuMemcpyDtoD");
  fake_.fail.clear();
  memory_->LetGo(driver_);
  ExpectContents();
}

// Only a swap that cannot be undone ends the process.
TEST_F(FrozenMemoryTest, SwapThatCannotBeUndoneSaysSo) {
  ASSERT_EQ(memory_->BeginDrop(driver_), nullptr);
  ASSERT_EQ(PairAll(), nullptr);
  struct {
    driver::CUresult (*map)(driver::CUdeviceptr, size_t, size_t,
                            driver::CUmemGenericAllocationHandle,
                            unsigned long long) =
        [](driver::CUdeviceptr, size_t, size_t,
           driver::CUmemGenericAllocationHandle,
           unsigned long long) { return CUDA_ERROR_UNKNOWN; };
  } broken;
  driver_.entry.cuMemMap = broken.map;
  EXPECT_EQ(Swap(), Swapped::kLost);
}

TEST_F(FrozenMemoryTest, AllocationCountsIfThePartsCoverAllOfIt) {
  const auto frozen_bytes = [&] { return memory_->sum().frozen_bytes; };
  EXPECT_EQ(frozen_bytes(), 10 * kFrozenMiB);
  Part half = PartOf(b_);
  half.bytes -= 1;
  ASSERT_TRUE(Freeze({PartOf(a_), half}));
  EXPECT_EQ(frozen_bytes(), 4 * kFrozenMiB);
  half.bytes = 3 * kFrozenMiB;  // twice the same, as of tied weights
  ASSERT_TRUE(Freeze({half, half}));
  EXPECT_EQ(frozen_bytes(), 0u);
  ASSERT_TRUE(Freeze({{b_.base + 2 * kFrozenMiB, 4 * kFrozenMiB}, half}));
  EXPECT_EQ(frozen_bytes(), 6 * kFrozenMiB);
  ASSERT_TRUE(Freeze({}));
  EXPECT_NE(memory_->BeginDrop(driver_), nullptr);
}

TEST_F(FrozenMemoryTest, LendsNothingThatItDropsAndDropsNothingThatItLends) {
  using Bytes = std::vector<uint64_t>;
  const Bytes both = {4 * kFrozenMiB, 6 * kFrozenMiB};
  uint64_t bytes = 0;
  EXPECT_EQ(Lend(), both);
  EXPECT_EQ(memory_->sum().lent_bytes, 10 * kFrozenMiB);
  ASSERT_EQ(memory_->BeginDrop(driver_), nullptr);
  EXPECT_EQ(memory_->Take(0, &bytes), 0u);
  memory_->LetGo(driver_);
  EXPECT_FALSE(Freeze({}));
  EXPECT_FALSE(memory_->IsApart());
  memory_->EndReading(self_);
  EXPECT_TRUE(memory_->IsApart());
  ASSERT_EQ(memory_->BeginDrop(driver_), nullptr);
  EXPECT_EQ(memory_->Take(0, &bytes), 1u);
  EXPECT_FALSE(memory_->IsApart());
  EXPECT_EQ(Lend(), (Bytes{0, 6 * kFrozenMiB}));
  EXPECT_FALSE(memory_->Pin(a_.base));
  EXPECT_TRUE(memory_->Pin(other_.base));
  memory_->Untake(1);
  EXPECT_EQ(Lend(), both);
  memory_->EndReading(self_);
  memory_->LetGo(driver_);
  memory_->SetThawing(true);
  Lend();
  EXPECT_EQ(lent_, abi::ReadResult::kUnnamed);
  memory_->SetThawing(false);
  EXPECT_EQ(Lend(), both);
}

TEST_F(FrozenMemoryTest, DropsSomeThenMoreAndLendsTheRestUntilThen) {
  using Bytes = std::vector<uint64_t>;
  uint64_t bytes = 0;
  ASSERT_EQ(memory_->BeginDrop(driver_), nullptr);
  ASSERT_EQ(memory_->Take(0, &bytes), 1u);
  ASSERT_TRUE(DropOne(1, 'a', a_.reserved_bytes));
  ExpectContents();
  EXPECT_EQ(AccessOf(a_), driver::CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(AccessOf(b_), driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(memory_->sum().dropped_bytes, 4 * kFrozenMiB);
  EXPECT_EQ(Lend(), (Bytes{0, 6 * kFrozenMiB}));
  EXPECT_FALSE(memory_->IsApart());
  ASSERT_EQ(memory_->BeginDrop(driver_), nullptr);
  EXPECT_EQ(memory_->Take(0, &bytes), 0u) << "the other is lent";
  memory_->LetGo(driver_);
  memory_->EndReading(self_);
  ASSERT_EQ(memory_->BeginDrop(driver_), nullptr);
  ASSERT_EQ(memory_->Take(0, &bytes), 2u);
  ASSERT_TRUE(DropOne(2, 'b', b_.reserved_bytes));
  ExpectContents();
  EXPECT_EQ(memory_->sum().dropped_bytes, 10 * kFrozenMiB);
  // A process that has to restore drops nothing.
  memory_->SetThawing(true);
  memory_->SetThawing(false);
  EXPECT_NE(memory_->BeginDrop(driver_), nullptr);
  ASSERT_TRUE(Restore());
  ExpectContents();
  EXPECT_TRUE(memory_->IsApart());
}

TEST_F(FrozenMemoryTest, NeedsPeerAccessToAnotherGpu) {
  const auto why = [&] {
    EXPECT_EQ(memory_->BeginDrop(driver_), nullptr);
    const char* const said = PairAll();
    memory_->LetGo(driver_);
    EXPECT_EQ(fake_.handles, 0);
    return std::string(said == nullptr ? "" : said);
  };
  fake_.reaches_peers = false;
  EXPECT_NE(why().find("no peer access"), std::string::npos);
  fake_.imported_device = 0;
  EXPECT_NE(why().find("not on another GPU"), std::string::npos);
}

}  // namespace
}  // namespace fineserve::shim
