#include "shim/weights/resident_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/contract/abi/process_start.h"
#include "kernels/driver/descriptor.h"
#include "shim/testdata/fake_driver.h"

namespace fineserve::shim {
namespace {

using driver::CUDA_ERROR_OPERATING_SYSTEM;
using driver::CUDA_ERROR_OUT_OF_MEMORY;
using driver::CUDA_ERROR_UNKNOWN;
using driver::CUDA_SUCCESS;
using driver::CUresult;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr int kRestMs = 60'000;

// Copies to a file the memory that an exported descriptor of the fake driver
// names.
class FileCopier final : public ResidentMemory::Copier {
 public:
  bool Hand(uint32_t number, uint64_t bytes, int memory) override {
    driver::CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(pread(memory, &handle, sizeof(handle), 0), 8);
    std::string& contents = TheFakeDriver().contents[handle];
    contents.resize(bytes);
    offsets[number] = end;
    EXPECT_EQ(
        pwrite(file.get(), contents.data(), bytes, static_cast<off_t>(end)),
        static_cast<ssize_t>(bytes));
    end += bytes;
    return fails_after-- != 0;
  }
  bool Finish() override {
    if (at_finish) at_finish();
    return !fails_at_the_end;
  }
  bool Locate(uint32_t number, uint32_t* at, uint64_t* offset) override {
    *at = 1;
    *offset = offsets[number];
    return number != lost;
  }

  const driver::Descriptor file{memfd_create("copies", MFD_CLOEXEC)};
  std::map<uint32_t, uint64_t> offsets;
  uint64_t end = 0;
  int fails_after = -1;
  bool fails_at_the_end = false;
  uint32_t lost = 0;
  std::function<void()> at_finish;
};

// Fills, at the end, the memory that an exported descriptor of the fake driver
// names.
class FileFiller final : public ResidentMemory::Carrier {
 public:
  explicit FileFiller(FileCopier* copier) : copier_(copier) {}
  bool Hand(uint32_t number, uint64_t bytes, int memory) override {
    driver::CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(pread(memory, &handle, sizeof(handle), 0), 8);
    handed_.push_back({number, bytes, handle});
    return fails_after-- != 0;
  }
  bool Finish() override {
    for (const auto& [number, bytes, handle] : handed_) {
      std::string& contents = TheFakeDriver().contents[handle];
      contents.resize(bytes);
      EXPECT_EQ(pread(copier_->file.get(), contents.data(), bytes,
                      static_cast<off_t>(copier_->offsets[number])),
                static_cast<ssize_t>(bytes));
    }
    handed_.clear();
    return !fails_at_the_end;
  }
  int fails_after = -1;
  bool fails_at_the_end = false;

 private:
  struct Handed {
    uint32_t number;
    uint64_t bytes;
    driver::CUmemGenericAllocationHandle handle;
  };
  FileCopier* const copier_;
  std::vector<Handed> handed_;
};

// Two allocations of 4 and 6 MiB with different contents.
class ResidentMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(memory_->Allocate(driver_, 3 * kMiB + 1, &a_));
    ASSERT_TRUE(memory_->Allocate(driver_, 6 * kMiB, &b_));
    Write(a_, 'a');
    Write(b_, 'b');
  }
  void Write(const Redirection& range, char letter) {
    const std::string bytes(range.reserved_bytes, letter);
    ASSERT_EQ(
        driver_.entry.cuMemcpyHtoD_v2(range.base, bytes.data(), bytes.size()),
        CUDA_SUCCESS);
  }
  // Returns the range's byte value if all bytes are the same.
  char Read(const Redirection& range) {
    std::string bytes(range.reserved_bytes, '?');
    if (driver_.entry.cuMemcpyDtoH_v2(bytes.data(), range.base, bytes.size()) !=
        CUDA_SUCCESS) {
      return '-';
    }
    return bytes == std::string(bytes.size(), bytes[0]) ? bytes[0] : '!';
  }
  CUresult Evict() { return memory_->Evict(driver_, &copier_); }
  CUresult Activate() {
    const int files[] = {-1, copier_.file.get()};
    return memory_->Activate(driver_, {files, 2, filler_},
                             [this](const Redirection&) {
                               ++opened_;
                               return CUDA_SUCCESS;
                             });
  }

  Driver driver_ = NewFakeDriver();
  FakeDriverState& fake_ = TheFakeDriver();
  std::unique_ptr<ResidentMemory> memory_ = std::make_unique<ResidentMemory>();
  FileCopier copier_;
  ResidentMemory::Carrier* filler_ = nullptr;
  Redirection a_, b_;
  int opened_ = 0;
};

TEST_F(ResidentMemoryTest, ContentsAndAddressesAreEqualAfterEveryReturn) {
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(Evict(), CUDA_SUCCESS);
    EXPECT_EQ(fake_.mapped_bytes, 0u);
    EXPECT_EQ(Read(a_), '-');
    EXPECT_EQ(memory_->sum().out_bytes, 10 * kMiB);
    fake_.contents.clear();
    ASSERT_EQ(Activate(), CUDA_SUCCESS);
    EXPECT_EQ(Read(a_), 'a');
    EXPECT_EQ(Read(b_), 'b');
    EXPECT_EQ(memory_->sum().here_bytes, 10 * kMiB);
    EXPECT_EQ(memory_->sum().out, 0u);
  }
  EXPECT_EQ(opened_, 6);
  EXPECT_TRUE(fake_.created.empty()) << "the mapping alone keeps memory";
}

TEST_F(ResidentMemoryTest, AnotherFillsTheMemoryAndMayFailAtAnyStep) {
  FileFiller filler(&copier_);
  filler_ = &filler;
  ASSERT_EQ(Evict(), CUDA_SUCCESS);
  fake_.contents.clear();
  const auto expect_all_out = [&] {
    EXPECT_EQ(memory_->sum().here, 0u);
    EXPECT_EQ(fake_.mapped_bytes, 0u);
    EXPECT_EQ(fake_.handles, 0) << "a handle is held";
  };
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess",
                           "cuMemRetain", "cuMemExport"}) {
    for (const int after : {0, 1}) {
      SCOPED_TRACE(std::string(call) + " " + std::to_string(after));
      fake_.fail = call;
      fake_.fail_after = after;
      EXPECT_EQ(Activate(), CUDA_ERROR_UNKNOWN);
      expect_all_out();
    }
  }
  fake_.fail.clear();
  for (const int after : {0, 1}) {
    filler.fails_after = after;
    EXPECT_EQ(Activate(), CUDA_ERROR_OPERATING_SYSTEM);
    expect_all_out();
  }
  filler.fails_after = -1;
  filler.fails_at_the_end = true;
  EXPECT_EQ(Activate(), CUDA_ERROR_OPERATING_SYSTEM);
  expect_all_out();
  filler.fails_at_the_end = false;
  ASSERT_EQ(Activate(), CUDA_SUCCESS);
  EXPECT_EQ(Read(a_), 'a');
  EXPECT_EQ(Read(b_), 'b');
}

// The daemon would miss the memory that a failing try takes.
TEST_F(ResidentMemoryTest, TryThatCanOnlyFailTakesNothing) {
  ASSERT_EQ(Evict(), CUDA_SUCCESS);
  const uint64_t all = fake_.free_bytes;
  fake_.free_bytes = 10 * kMiB - 1;
  fake_.fail = "cuMemCreate";  // and would be reported
  EXPECT_EQ(Activate(), CUDA_ERROR_OUT_OF_MEMORY);
  fake_.fail.clear();
  fake_.free_bytes = all;
  ASSERT_EQ(Activate(), CUDA_SUCCESS);
}

TEST_F(ResidentMemoryTest, EvictionThatFailsUnmapsNothing) {
  const auto expect_all_here = [&] {
    EXPECT_EQ(memory_->sum().out, 0u);
    EXPECT_EQ(Read(a_), 'a');
    EXPECT_EQ(Read(b_), 'b');
    EXPECT_EQ(fake_.handles, 0) << "a handle is held";
  };
  for (const char* call : {"cuMemRetain", "cuMemExport"}) {
    SCOPED_TRACE(call);
    fake_.fail = call;
    fake_.fail_after = 1;
    EXPECT_EQ(Evict(), CUDA_ERROR_UNKNOWN);
    expect_all_here();
  }
  fake_.fail.clear();
  copier_.fails_after = 1;
  EXPECT_EQ(Evict(), CUDA_ERROR_OPERATING_SYSTEM);
  expect_all_here();
  copier_.fails_after = -1;
  copier_.fails_at_the_end = true;
  EXPECT_EQ(Evict(), CUDA_ERROR_OPERATING_SYSTEM);
  expect_all_here();
  copier_.fails_at_the_end = false;
  copier_.lost = 2;
  EXPECT_EQ(Evict(), CUDA_ERROR_OPERATING_SYSTEM);
  expect_all_here();
}

TEST_F(ResidentMemoryTest, ActivationThatFailsLeavesAllOutAndCanBeRepeated) {
  ASSERT_EQ(Evict(), CUDA_SUCCESS);
  struct Fault {
    const char* call;
    int after;
  };
  for (const Fault& f :
       {Fault{"cuMemCreate", 0}, Fault{"cuMemCreate", 1}, Fault{"cuMemMap", 1},
        Fault{"cuMemSetAccess", 1}, Fault{"cuMemcpyHtoD", 1},
        Fault{"cuCtxSynchronize", 1}, Fault{"cuCtxPushCurrent", 1}}) {
    SCOPED_TRACE(f.call);
    fake_.fail = f.call;
    fake_.fail_after = f.after;
    EXPECT_EQ(Activate(), CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(fake_.mapped_bytes, 0u);
    EXPECT_EQ(memory_->sum().out, 2u);
    EXPECT_TRUE(fake_.created.empty());
  }
  fake_.fail.clear();
  EXPECT_EQ(Activate(), CUDA_SUCCESS);
  EXPECT_EQ(Read(a_), 'a');
  EXPECT_EQ(Read(b_), 'b');
}

TEST_F(ResidentMemoryTest, ActivationWithoutRoomSaysSo) {
  ASSERT_EQ(Evict(), CUDA_SUCCESS);
  fake_.free_bytes = 5 * kMiB;
  EXPECT_EQ(Activate(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake_.mapped_bytes, 0u);
}

TEST_F(ResidentMemoryTest, ExportedMemoryStays) {
  EXPECT_TRUE(memory_->Pin(a_.base));
  ASSERT_EQ(Evict(), CUDA_SUCCESS);
  EXPECT_EQ(Read(a_), 'a');
  EXPECT_EQ(memory_->sum().pinned_bytes, 4 * kMiB);
  EXPECT_EQ(memory_->sum().out_bytes, 6 * kMiB);
  EXPECT_FALSE(memory_->Pin(b_.base)) << "it is out";
  ASSERT_EQ(Activate(), CUDA_SUCCESS);
  EXPECT_EQ(Read(b_), 'b');
}

TEST_F(ResidentMemoryTest, AllMayHaveToStay) {
  memory_->PinAll();
  ASSERT_EQ(Evict(), CUDA_SUCCESS);
  EXPECT_EQ(Read(a_), 'a');
  EXPECT_EQ(Read(b_), 'b');
  EXPECT_EQ(memory_->sum().pinned_bytes, 10 * kMiB);
  EXPECT_EQ(memory_->sum().out_bytes, 0u);
}

TEST_F(ResidentMemoryTest, FreedWhileOutDoesNotComeBack) {
  ASSERT_EQ(Evict(), CUDA_SUCCESS);
  EXPECT_EQ(memory_->Free(driver_, a_, /*waits=*/true), CUDA_SUCCESS);
  ASSERT_EQ(Activate(), CUDA_SUCCESS);
  EXPECT_EQ(Read(a_), '-');
  EXPECT_EQ(Read(b_), 'b');
  EXPECT_EQ(memory_->Free(driver_, b_, /*waits=*/true), CUDA_SUCCESS);
  EXPECT_EQ(fake_.mapped_bytes, 0u);
  EXPECT_EQ(fake_.reserved_bytes, 0u);
}

// The program keeps running, so it may allocate while its memory is away.
TEST_F(ResidentMemoryTest, AllocatedWhileOutIsHereAndUntouchedByActivation) {
  ASSERT_EQ(Evict(), CUDA_SUCCESS);
  Redirection c;
  ASSERT_TRUE(memory_->Allocate(driver_, 2 * kMiB, &c));
  Write(c, 'c');
  ASSERT_EQ(Activate(), CUDA_SUCCESS);
  EXPECT_EQ(Read(a_), 'a');
  EXPECT_EQ(Read(c), 'c');
}

TEST_F(ResidentMemoryTest, MemoryThatCannotBeUnmappedIsStillHere) {
  fake_.fail = "cuMemUnmap";
  EXPECT_EQ(Evict(), CUDA_SUCCESS);
  EXPECT_EQ(memory_->sum().out, 1u);
  EXPECT_EQ(Read(a_), 'a');
  ASSERT_EQ(Activate(), CUDA_SUCCESS);
  EXPECT_EQ(Read(b_), 'b');
}

TEST_F(ResidentMemoryTest, RestWaitsForEachContextOnceAndSaysWhatFails) {
  char why[100] = "";
  EXPECT_TRUE(memory_->Rest(driver_, nullptr, 0, kRestMs, why, sizeof(why)));
  memory_->EndRest();
  fake_.fail = "cuCtxSynchronize";
  EXPECT_FALSE(memory_->Rest(driver_, nullptr, 0, kRestMs, why, sizeof(why)));
  memory_->EndRest();
  EXPECT_STREQ(why, "cuCtxSynchronize failed with CUDA error 999");
}

// The end of a context that is hooked frees its memory. The end of a green
// context does not, and other contexts may use the memory.
TEST_F(ResidentMemoryTest, MemoryOfAContextThatHasEndedStays) {
  const auto green = reinterpret_cast<driver::CUcontext>(&a_);
  fake_.destroyed.insert(green);
  char why[100] = "";
  EXPECT_TRUE(memory_->Rest(driver_, &green, 1, kRestMs, why, sizeof(why)))
      << "it was open in another process's";
  memory_->EndRest();
  fake_.destroyed.clear();
  fake_.pushed.push_back(green);
  Redirection c;
  ASSERT_TRUE(memory_->Allocate(driver_, 6 * kMiB, &c));
  fake_.pushed.clear();
  fake_.destroyed.insert(green);
  EXPECT_FALSE(memory_->Rest(driver_, nullptr, 0, kRestMs, why, sizeof(why)));
  memory_->EndRest();
  EXPECT_THAT(why, ::testing::HasSubstr("has ended: a green one?"));
}

TEST_F(ResidentMemoryTest, AllocationThatFailsHoldsNothing) {
  const uint64_t reserved = fake_.reserved_bytes;
  Redirection c;
  for (const char* call :
       {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    fake_.fail = call;
    fake_.fail_after = 0;
    EXPECT_FALSE(memory_->Allocate(driver_, 8 * kMiB, &c)) << call;
  }
  EXPECT_EQ(fake_.reserved_bytes, reserved);
  EXPECT_EQ(fake_.mapped_bytes, 10 * kMiB);
  EXPECT_TRUE(fake_.created.empty());
}

// Tests with two processes: the test's own and its child.
class LentMemoryTest : public ResidentMemoryTest {
 protected:
  using Borrower = ResidentMemory::Borrower;

  void SetUp() override {
    ResidentMemoryTest::SetUp();
    ASSERT_TRUE(memory_->Share(a_.base, &handle_));
    child_ = fork();
    if (child_ == 0) {
      for (;;) pause();
    }
  }
  void TearDown() override { EndChild(); }
  void EndChild() {
    if (child_ == 0) return;
    kill(child_, SIGKILL);
    // The child remains a zombie, which has no memory mapped.
    siginfo_t ended;
    waitid(P_PID, static_cast<id_t>(child_), &ended, WEXITED | WNOWAIT);
  }
  static Borrower Running(pid_t pid) { return {pid, abi::ProcessImage(pid)}; }
  // Returns kOpen only if `to` gets a descriptor of a_'s memory.
  abi::OpenResult Lend(const Borrower& to) {
    ResidentMemory::Lent lent;
    const auto result = memory_->Lend(driver_, handle_, to, &lent);
    const driver::Descriptor owned(lent.memory);
    EXPECT_EQ(owned.valid(), result == abi::OpenResult::kOpen);
    EXPECT_EQ(lent.bytes, owned.valid() ? a_.reserved_bytes : 0);
    departures_ = lent.departures;
    return result;
  }
  uint64_t EvictedBytes() {
    EXPECT_EQ(Evict(), CUDA_SUCCESS);
    const uint64_t out = memory_->sum().out_bytes;
    EXPECT_EQ(Activate(), CUDA_SUCCESS);
    return out;
  }

  abi::IpcHandle handle_ = {};
  uint32_t departures_ = 0;  // when it was lent last
  pid_t child_ = 0;
};

TEST_F(LentMemoryTest, StaysUntilEachBorrowerHasGivenItBack) {
  EXPECT_EQ(EvictedBytes(), 10 * kMiB) << "no process has opened it";
  const Borrower self = Running(getpid()), child = Running(child_);
  for (const Borrower& borrower : {self, child, child}) {
    ASSERT_EQ(Lend(borrower), abi::OpenResult::kOpen);
  }
  EXPECT_EQ(memory_->sum().lent_bytes, 4 * kMiB);
  EXPECT_EQ(memory_->sum().pinned_bytes, 4 * kMiB);
  EXPECT_EQ(EvictedBytes(), 6 * kMiB);
  memory_->TakeBack(handle_, self);
  EXPECT_EQ(EvictedBytes(), 6 * kMiB);
  memory_->TakeBack(handle_, child);
  memory_->TakeBack(handle_, child);
  EXPECT_EQ(EvictedBytes(), 10 * kMiB);
  EXPECT_EQ(memory_->sum().lent_bytes, 0u);
}

TEST_F(LentMemoryTest, LeavesWhileEachBorrowerRests) {
  const Borrower self = Running(getpid()), child = Running(child_);
  EXPECT_FALSE(memory_->NoteRest(handle_, self)) << "it has it not";
  ASSERT_EQ(Lend(self), abi::OpenResult::kOpen);
  ASSERT_EQ(Lend(child), abi::OpenResult::kOpen);
  EXPECT_TRUE(memory_->NoteRest(handle_, self));
  EXPECT_TRUE(memory_->NoteRest(handle_, self));
  EXPECT_EQ(EvictedBytes(), 6 * kMiB) << "the other one may write it";
  EXPECT_TRUE(memory_->NoteRest(handle_, child));
  EXPECT_EQ(memory_->sum().lent_bytes, 0u);
  EXPECT_EQ(EvictedBytes(), 10 * kMiB);
  EXPECT_EQ(departures_, 0u);
  ASSERT_EQ(Lend(child), abi::OpenResult::kOpen);
  EXPECT_EQ(departures_, 1u) << "it is other memory";
  EXPECT_EQ(EvictedBytes(), 6 * kMiB) << "it is in use again";
  memory_->TakeBack(handle_, child);
  EXPECT_EQ(EvictedBytes(), 10 * kMiB) << "the other one rests still";
  memory_->TakeBack(handle_, self);
  EXPECT_EQ(EvictedBytes(), 10 * kMiB);
}

// A borrower that asks while a copy is made must neither be held up, nor get
// memory that is about to leave.
TEST_F(LentMemoryTest, IsAwayWhileItIsMoved) {
  const Borrower self = Running(getpid());
  ASSERT_EQ(Lend(self), abi::OpenResult::kOpen);
  ASSERT_TRUE(memory_->NoteRest(handle_, self));
  copier_.at_finish = [&] {
    EXPECT_EQ(Lend(self), abi::OpenResult::kAway);
    EXPECT_FALSE(memory_->NoteRest(handle_, self));
  };
  EXPECT_EQ(EvictedBytes(), 10 * kMiB);
}

TEST_F(LentMemoryTest, IsTakenBackFromAProcessThatHasEnded) {
  ASSERT_EQ(Lend(Running(child_)), abi::OpenResult::kOpen);
  EXPECT_TRUE(memory_->TakeBackFromEnded());
  EXPECT_EQ(EvictedBytes(), 6 * kMiB);
  EndChild();
  EXPECT_FALSE(memory_->TakeBackFromEnded());
  EXPECT_EQ(EvictedBytes(), 10 * kMiB);
  // The process now runs another program, as after exec.
  Borrower former = Running(getpid());
  former.image ^= uint64_t{1} << 40;
  ASSERT_EQ(Lend(former), abi::OpenResult::kOpen);
  EXPECT_FALSE(memory_->TakeBackFromEnded());
}

TEST_F(LentMemoryTest, IsLentOnlyWhileItIsThereAndByItsOwnHandle) {
  const Borrower self = Running(getpid());
  ASSERT_EQ(Evict(), CUDA_SUCCESS);
  EXPECT_EQ(Lend(self), abi::OpenResult::kAway);
  ASSERT_EQ(Activate(), CUDA_SUCCESS);
  const abi::IpcHandle right = handle_;
  ++handle_.check[15];
  EXPECT_EQ(Lend(self), abi::OpenResult::kUnknown);
  handle_ = right;
  ++handle_.number;  // b_'s, which was not shared
  EXPECT_EQ(Lend(self), abi::OpenResult::kUnknown);
  handle_ = right;
  ASSERT_EQ(Lend(self), abi::OpenResult::kOpen);
  ASSERT_EQ(memory_->Free(driver_, a_, true), CUDA_SUCCESS);
  EXPECT_EQ(Lend(self), abi::OpenResult::kUnknown);
  EXPECT_FALSE(memory_->TakeBackFromEnded()) << "the loan ended with it";
  EXPECT_EQ(memory_->sum().lent_bytes, 0u);
}

}  // namespace
}  // namespace fineserve::shim
