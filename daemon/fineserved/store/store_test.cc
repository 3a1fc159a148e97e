// The store on an emulated device: engines are played by memory of this
// process.
#include "daemon/fineserved/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/fineserved/backing/backing_fixture.h"
#include "daemon/fineserved/backing/find_device.h"
#include "daemon/fineserved/store/store_file.h"

namespace fineserve::store {
namespace {

using driver::CUDA_SUCCESS;
using driver::Granule;
using driver::Mapping;
using driver::Reservation;
using ::testing::HasSubstr;

constexpr uint64_t kMemoryBytes = 2 << 20;
constexpr HolderId kChat{1}, kCode{2};

[[maybe_unused]] const auto* const kMachine =
    ::testing::AddGlobalTestEnvironment(new backing::EmulatedMachine);

class StoreTest : public ::testing::Test {
 protected:
  // An allocation of 2 MiB that is filled with one letter.
  struct Allocation {
    Granule granule;
    Reservation range;
    Mapping mapping;
  };

  StoreTest() { MakeStore(); }
  void MakeStore() {
    store_ = std::make_unique<Store>(driver_, device_.ordinal);
  }
  Allocation Make(char letter) {
    Granule granule = *Granule::Create(driver_, device_.ordinal, kMemoryBytes);
    Reservation range = *Reservation::Create(driver_, kMemoryBytes);
    Mapping mapping = *Mapping::Create(driver_, range.address(), granule);
    EXPECT_TRUE(driver::AllowReadWrite(driver_, device_.ordinal,
                                       range.address(), kMemoryBytes)
                    .ok());
    Allocation made = {std::move(granule), std::move(range),
                       std::move(mapping)};
    Fill(made, letter);
    return made;
  }
  void Fill(const Allocation& allocation, char letter) {
    EXPECT_EQ(driver_.call().cuMemsetD8_v2(allocation.range.address(),
                                           static_cast<unsigned char>(letter),
                                           kMemoryBytes),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_.call().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  // Returns the letter that fills the allocation, '!' if its bytes differ.
  char Read(const Allocation& allocation) {
    std::string bytes(kMemoryBytes, '?');
    EXPECT_EQ(driver_.call().cuMemcpyDtoH_v2(
                  bytes.data(), allocation.range.address(), kMemoryBytes),
              CUDA_SUCCESS);
    return bytes == std::string(kMemoryBytes, bytes[0]) ? bytes[0] : '!';
  }
  static std::vector<Handed> HandOver(
      const std::vector<const Allocation*>& all) {
    std::vector<Handed> handed;
    for (const Allocation* one : all) {
      handed.push_back({static_cast<uint32_t>(handed.size()), kMemoryBytes,
                        *one->granule.Export()});
    }
    return handed;
  }
  absl::StatusOr<Kept> Leave(HolderId holder,
                             const std::vector<const Allocation*>& all) {
    absl::StatusOr<Kept> kept = store_->Keep(holder, HandOver(all));
    if (kept.ok()) store_->Commit(holder);
    return kept;
  }
  absl::Status Restore(HolderId holder, std::vector<Handed> memory) {
    const auto total = static_cast<uint32_t>(memory.size());
    store_->Fill(holder, 7, std::move(memory));
    return store_->FinishFill(holder, 7, total);
  }
  // Returns the letters of the copies in order, '!' for a copy that does not
  // consist of one letter.
  static std::string Letters(const Kept& kept) {
    std::string list(1 << 16, '\0');
    EXPECT_GT(pread(kept.inventory.get(), list.data(), list.size(), 0), 0);
    abi::InventoryHeader header;
    memcpy(&header, list.data(), sizeof(header));
    std::string letters;
    for (uint32_t i = 0; i < header.count; ++i) {
      abi::InventoryEntry entry;
      memcpy(&entry, list.data() + sizeof(header) + i * sizeof(entry),
             sizeof(entry));
      EXPECT_EQ(entry.number, i);
      std::string bytes(kMemoryBytes, '?');
      EXPECT_EQ(pread(kept.files[entry.file].get(), bytes.data(), kMemoryBytes,
                      static_cast<off_t>(entry.offset)),
                static_cast<ssize_t>(kMemoryBytes));
      letters += bytes == std::string(kMemoryBytes, bytes[0]) ? bytes[0] : '!';
    }
    return letters;
  }
  static uint64_t BytesOf(const driver::Descriptor& file) {
    struct stat st = {};
    fstat(file.get(), &st);
    return static_cast<uint64_t>(st.st_blocks) * 512;
  }

  const backing::DeviceChoice choice_ = {"emulated", FINESERVE_EMULATED_FOLDER};
  const driver::Driver driver_ = *driver::Driver::Load(choice_.DriverLibrary());
  const backing::Device device_ = *backing::FindDevice(driver_, choice_);
  const driver::Context context_ =
      *driver::Context::Retain(driver_, device_.ordinal);
  std::unique_ptr<Store> store_;
};

TEST_F(StoreTest, ComparesEachAllocationWithTheNext) {
  const Allocation a = Make('a'), same = Make('a'), b = Make('b');
  EXPECT_TRUE(store_->Compare(HandOver({&a, &same, &b, &b})).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(
      store_->Compare(HandOver({&a, &same, &b, &a}))));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Compare(HandOver({&a}))));
}

TEST(HostBytesTest, AllThatMayBeTakenHoldsWhatIsSpare) {
  const uint64_t all = AllHostBytes();
  EXPECT_GT(all, uint64_t{1} << 28);
  EXPECT_GE(all, SpareHostBytes());
  EXPECT_LT(all, static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                     static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

TEST_F(StoreTest, FillsNewMemoryWithWhatLeft) {
  const Allocation a = Make('a'), b = Make('b'), same = Make('a');
  ASSERT_TRUE(Leave(kChat, {&a, &b, &same}).ok());
  const Allocation other = Make('o');
  ASSERT_TRUE(Leave(kCode, {&other}).ok());
  const Allocation x = Make('x'), y = Make('y'), z = Make('z');
  ASSERT_TRUE(Restore(kChat, HandOver({&x, &y})).ok());
  EXPECT_EQ(Read(x), 'a');
  EXPECT_EQ(Read(y), 'b');
  EXPECT_EQ(Read(z), 'z');
  store_->Return(kChat);
  ASSERT_TRUE(Restore(kCode, HandOver({&z})).ok());
  EXPECT_EQ(Read(z), 'o');
}

TEST_F(StoreTest, RefusesToFillWhatItDoesNotHave) {
  const Allocation a = Make('a'), b = Make('b');
  EXPECT_TRUE(absl::IsNotFound(Restore(kChat, HandOver({&a}))));
  ASSERT_TRUE(Leave(kChat, {&a}).ok());
  EXPECT_TRUE(absl::IsNotFound(Restore(kChat, HandOver({&a, &b}))));
  std::vector<Handed> smaller = HandOver({&a});
  smaller[0].bytes = kMemoryBytes / 2;
  EXPECT_TRUE(absl::IsNotFound(Restore(kChat, std::move(smaller))));
}

// Memory does not count as filled if another connection or an abandoned attempt
// handed it over.
TEST_F(StoreTest, MemoryThatWasLetGoIsNotTakenForFilled) {
  const Allocation a = Make('a'), b = Make('b'), c = Make('c');
  ASSERT_TRUE(Leave(kChat, {&a, &b}).ok());
  EXPECT_TRUE(absl::IsAborted(store_->FinishFill(kChat, 7, 2)));
  store_->Fill(kChat, 7, HandOver({&a}));
  store_->DropFill(kChat, 6);
  store_->DropFill(kChat, 7);
  EXPECT_TRUE(absl::IsAborted(store_->FinishFill(kChat, 7, 1)));
  store_->Fill(kChat, 7, HandOver({&a}));
  store_->Fill(kChat, 8, HandOver({&b}));
  EXPECT_TRUE(absl::IsAborted(store_->FinishFill(kChat, 7, 1)));
  EXPECT_TRUE(absl::IsAborted(store_->FinishFill(kChat, 8, 2)));
  store_->Fill(kChat, 9, HandOver({&a, &c}));
  store_->Fill(kChat, 9, {});
  EXPECT_TRUE(store_->FinishFill(kChat, 9, 2).ok());
  EXPECT_EQ(Read(c), 'b');
}

// The copies of a process on the GPU may go at any time, because others may
// need the room.
TEST_F(StoreTest, ProcessThatIsOnTheGpuIsNotFilled) {
  const Allocation a = Make('a');
  ASSERT_TRUE(Leave(kChat, {&a}).ok());
  store_->Return(kChat);
  EXPECT_TRUE(absl::IsNotFound(Restore(kChat, HandOver({&a}))));
}

// If the change went unnoticed, the engine would compute with the changed copy.
TEST_F(StoreTest, CopyThatHasChangedIsNoticedWhenItComesBack) {
  const Allocation a = Make('a'), b = Make('b');
  absl::StatusOr<Kept> kept = Leave(kChat, {&a, &b});
  ASSERT_TRUE(kept.ok());
  ASSERT_EQ(pwrite(kept->files[0].get(), "!", 1, kMemoryBytes - 1), 1);
  EXPECT_TRUE(absl::IsDataLoss(Restore(kChat, HandOver({&a, &b}))));
}

TEST_F(StoreTest, OnlyWhatHasChangedIsCopiedAgain) {
  const Allocation a = Make('a'), b = Make('b'), same = Make('a');
  absl::StatusOr<Kept> kept = Leave(kChat, {&a, &b, &same});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->copied_bytes, 2 * kMemoryBytes) << "two are equal";
  EXPECT_EQ(Letters(*kept), "aba");
  store_->Return(kChat);
  Fill(b, 'c');
  kept = Leave(kChat, {&a, &b, &same});
  EXPECT_EQ(kept->copied_bytes, kMemoryBytes);
  EXPECT_EQ(Letters(*kept), "aca");
  EXPECT_EQ(BytesOf(kept->files[0]), 2 * kMemoryBytes)
      << "the former b is freed";
  EXPECT_EQ(Leave(kCode, {&b, &a})->copied_bytes, 0u);
  store_->Forget(kChat);
  EXPECT_EQ(BytesOf(kept->files[0]), 2 * kMemoryBytes);
  store_->Forget(kCode);
  EXPECT_EQ(BytesOf(kept->files[0]), 0u);
}

TEST_F(StoreTest, LimitIsKeptAndARefusalNamesTheFigures) {
  store_->SetLimit(3 * kMemoryBytes);
  const Allocation a = Make('a'), b = Make('b'), c = Make('c'), d = Make('d');
  ASSERT_TRUE(Leave(kChat, {&a, &b}).ok());
  const absl::StatusOr<Kept> refused = Leave(kCode, {&c, &d});
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("room for 6 MiB, holds 4 MiB that are needed, and 4 "
                        "MiB more"));
  EXPECT_EQ(store_->figures().held_bytes, 2 * kMemoryBytes);
  store_->Return(kChat);  // spare now
  ASSERT_TRUE(Leave(kCode, {&c, &d}).ok());
  EXPECT_EQ(store_->figures().held_bytes, 3 * kMemoryBytes);
}

// The owner of the copy has given up waiting, and writes to its memory.
TEST_F(StoreTest, CopyOfWhoDidNotLeaveIsFreed) {
  const Allocation a = Make('a');
  const absl::StatusOr<Kept> kept = store_->Keep(kChat, HandOver({&a}));
  store_->Cancel(kChat);
  EXPECT_EQ(BytesOf(kept->files[0]), 0u);
  EXPECT_EQ(Leave(kCode, {&a})->copied_bytes, kMemoryBytes);
}

TEST_F(StoreTest, MemoryThatCannotBeImportedChangesNothing) {
  const Allocation a = Make('a');
  std::vector<Handed> handed = HandOver({&a});
  handed.push_back({1, kMemoryBytes, driver::Descriptor(memfd_create("x", 0))});
  EXPECT_FALSE(store_->Keep(kChat, std::move(handed)).ok());
  EXPECT_EQ(store_->figures().held_bytes, 0u);
  EXPECT_EQ(Letters(*Leave(kChat, {&a})), "a");
}

class AdoptionTest : public StoreTest {
 protected:
  // Returns the number of descriptors and mappings of `file` in this process.
  static size_t HoldersOf(const driver::Descriptor& file) {
    struct stat st = {};
    fstat(file.get(), &st);
    size_t holders = 0;
    for (const char* const folder : {"/proc/self/fd", "/proc/self/map_files"}) {
      for (const auto& link : std::filesystem::directory_iterator(folder)) {
        struct stat one = {};
        holders += stat(link.path().c_str(), &one) == 0 &&
                   one.st_ino == st.st_ino && one.st_dev == st.st_dev;
      }
    }
    return holders;
  }
  // Lets the holder come to another daemon with what it got from the first
  // daemon.
  absl::Status ComeWith(HolderId holder, const Kept& kept, bool is_out) {
    return ComeTo(store_.get(), holder, kept, is_out);
  }
  static absl::Status ComeTo(Store* store, HolderId holder, const Kept& kept,
                             bool is_out) {
    std::vector<driver::Descriptor> files;
    for (const driver::Descriptor& file : kept.files) {
      files.emplace_back(dup(file.get()));
    }
    return store->Adopt(holder, is_out,
                        driver::Descriptor(dup(kept.inventory.get())),
                        std::move(files));
  }
};

TEST_F(AdoptionTest, NextDaemonHasTheCopiesOfTheOneBefore) {
  const Allocation a = Make('a'), b = Make('b');
  const absl::StatusOr<Kept> first = Leave(kChat, {&a, &b});
  const absl::StatusOr<Kept> second = Leave(kCode, {&b});
  MakeStore();
  ASSERT_TRUE(ComeWith(kChat, *first, /*is_out=*/false).ok());
  ASSERT_TRUE(ComeWith(kCode, *second, /*is_out=*/true).ok());
  EXPECT_EQ(store_->figures().held_bytes, 2 * kMemoryBytes);
  EXPECT_EQ(store_->figures().spare_bytes, kMemoryBytes);
  const absl::StatusOr<Kept> again = Leave(kChat, {&a, &b});
  EXPECT_EQ(again->copied_bytes, 0u);
  EXPECT_EQ(Letters(*again), "ab");
}

// A replica that shares the copy may have been stopped.
TEST_F(AdoptionTest, CopyIsThereForAProcessThatComesLate) {
  const Allocation a = Make('a'), b = Make('b');
  const absl::StatusOr<Kept> first = Leave(kChat, {&a});
  const absl::StatusOr<Kept> second = Leave(kCode, {&a});
  EXPECT_EQ(second->copied_bytes, 0u);
  MakeStore();
  ASSERT_TRUE(ComeWith(kChat, *first, /*is_out=*/true).ok());
  store_->Return(kChat);
  ASSERT_TRUE(Leave(kChat, {&b}).ok());
  ASSERT_TRUE(ComeWith(kCode, *second, /*is_out=*/true).ok());
  EXPECT_EQ(Letters(*second), "a");
  EXPECT_EQ(store_->figures().held_bytes, 2 * kMemoryBytes);
}

TEST_F(AdoptionTest, MemoryInTheFileOfTheOneBeforeCountsAndIsFreed) {
  const Allocation a = Make('a'), b = Make('b'), c = Make('c');
  const absl::StatusOr<Kept> first = Leave(kChat, {&a});
  const absl::StatusOr<Kept> second = Leave(kCode, {&b});
  MakeStore();
  store_->SetLimit(2 * kMemoryBytes);
  ASSERT_TRUE(ComeWith(kChat, *first, /*is_out=*/true).ok());
  ASSERT_TRUE(ComeWith(kCode, *second, /*is_out=*/true).ok());
  EXPECT_FALSE(Leave(HolderId{3}, {&c}).ok());
  store_->Return(kChat);  // spare
  EXPECT_TRUE(Leave(HolderId{3}, {&c}).ok());
  EXPECT_EQ(Letters(*second), "b");
  EXPECT_EQ(BytesOf(second->files[0]), kMemoryBytes);
}

// A stopped process has not come yet. The memory that it locks stays, and
// counts.
TEST_F(AdoptionTest, MemoryOfWhoHasNotComeYetCountsUntilItEnds) {
  const Allocation a = Make('a'), b = Make('b'), c = Make('c');
  const absl::StatusOr<Kept> first = Leave(kChat, {&a});
  absl::StatusOr<Kept> second = Leave(kCode, {&b});
  MakeStore();
  store_->SetLimit(2 * kMemoryBytes);
  ASSERT_TRUE(ComeWith(kChat, *first, /*is_out=*/true).ok());
  EXPECT_FALSE(Leave(HolderId{3}, {&c}).ok());
  EXPECT_EQ(Letters(*second), "b");
  second->files.clear();
  EXPECT_TRUE(Leave(HolderId{3}, {&c}).ok());
  EXPECT_EQ(Letters(*first), "a");
}

TEST_F(AdoptionTest, FileOfTheOneBeforeEndsWithThoseThatHoldIt) {
  const Allocation a = Make('a');
  const absl::StatusOr<Kept> kept = Leave(kChat, {&a});
  MakeStore();
  const size_t before = HoldersOf(kept->files[0]);
  ASSERT_TRUE(ComeWith(kChat, *kept, /*is_out=*/true).ok());
  EXPECT_GT(HoldersOf(kept->files[0]), before);
  store_->Forget(kChat);
  EXPECT_EQ(HoldersOf(kept->files[0]), before);
}

TEST_F(AdoptionTest, SpareCopyThatWasFreedIsNotTakenOver) {
  const Allocation a = Make('a'), b = Make('b');
  const absl::StatusOr<Kept> kept = Leave(kChat, {&a});
  store_->Return(kChat);
  store_->SetLimit(kMemoryBytes);
  ASSERT_TRUE(Leave(kCode, {&b}).ok()) << "in the first one's place";
  MakeStore();
  ASSERT_TRUE(ComeWith(kChat, *kept, /*is_out=*/false).ok());
  EXPECT_EQ(store_->figures().held_bytes, 0u);
}

TEST_F(AdoptionTest, CopyThatWasWrittenToIsNotOfferedToOthers) {
  const Allocation a = Make('a');
  const absl::StatusOr<Kept> kept = Leave(kChat, {&a});
  ASSERT_EQ(pwrite(kept->files[0].get(), "x", 1, 1'500'000), 1);
  MakeStore();
  ASSERT_TRUE(ComeWith(kChat, *kept, /*is_out=*/true).ok());
  const absl::StatusOr<Kept> own = Leave(kCode, {&a});
  EXPECT_EQ(own->copied_bytes, kMemoryBytes);
  EXPECT_EQ(Letters(*own), "a");
  EXPECT_EQ(Leave(HolderId{3}, {&a})->copied_bytes, 0u) << "the second copy";
}

TEST_F(AdoptionTest, ListThatIsNoneOrNamesOtherBytesIsRefused) {
  const Allocation a = Make('a');
  absl::StatusOr<Kept> kept = Leave(kChat, {&a});
  MakeStore();
  std::vector<driver::Descriptor> none;
  EXPECT_FALSE(store_
                   ->Adopt(kChat, true,
                           driver::Descriptor(memfd_create("x", 0)),
                           std::move(none))
                   .ok());
  kept->files[0].Reset(memfd_create("x", MFD_ALLOW_SEALING));
  EXPECT_FALSE(ComeWith(kChat, *kept, true).ok());
  EXPECT_EQ(store_->figures().copies, 0u);
}

// Two daemons of one machine, each with its store.
class SharedStoreTest : public AdoptionTest {
 protected:
  SharedStoreTest() { Connect(); }
  void Connect() {
    other_ = std::make_unique<Store>(driver_, device_.ordinal);
    store_->SetOthers([this] { return OfferOf(other_.get()); });
    other_->SetOthers([this] { return OfferOf(store_.get()); });
  }
  // As the socket hands it over.
  static std::vector<OtherDaemon> OfferOf(Store* store) {
    std::vector<OtherDaemon> offers;
    if (store == nullptr) return offers;
    const std::shared_ptr<const Offer> made = store->offer();
    if (made == nullptr) return offers;
    Offer& offer = offers.emplace_back().offer;
    offer.inventory.Reset(dup(made->inventory.get()));
    for (const driver::Descriptor& file : made->files) {
      offer.files.emplace_back(dup(file.get()));
    }
    return offers;
  }
  absl::StatusOr<Kept> LeaveOther(HolderId holder,
                                  const std::vector<const Allocation*>& all) {
    absl::StatusOr<Kept> kept = other_->Keep(holder, HandOver(all));
    if (kept.ok()) other_->Commit(holder);
    return kept;
  }

  std::unique_ptr<Store> other_;
};

TEST_F(SharedStoreTest, EqualContentsAreCopiedAndCountedOnce) {
  const Allocation a = Make('a'), b = Make('b'), c = Make('c');
  other_->SetLimit(kMemoryBytes);
  ASSERT_TRUE(Leave(kChat, {&a, &b}).ok());
  const absl::StatusOr<Kept> twin = LeaveOther(kCode, {&b, &a, &c});
  ASSERT_TRUE(twin.ok()) << twin.status();
  EXPECT_EQ(twin->copied_bytes, kMemoryBytes) << "c";
  EXPECT_EQ(Letters(*twin), "bac");
  EXPECT_EQ(store_->figures().held_bytes, 2 * kMemoryBytes);
  const metrics::StoreFigures figures = other_->figures();
  EXPECT_EQ(figures.held_bytes, kMemoryBytes);
  EXPECT_EQ(figures.others_bytes, 2 * kMemoryBytes);
  EXPECT_EQ(figures.found_bytes, 2 * kMemoryBytes);
  EXPECT_EQ(figures.unshared_bytes, 3 * kMemoryBytes);
  const Allocation x = Make('x'), y = Make('y'), z = Make('z');
  other_->Fill(kCode, 7, HandOver({&x, &y, &z}));
  ASSERT_TRUE(other_->FinishFill(kCode, 7, 3).ok());
  EXPECT_EQ(Read(x), 'b');
  EXPECT_EQ(Read(y), 'a');
  EXPECT_EQ(Read(z), 'c');
  other_->Return(kCode);
  EXPECT_EQ(other_->figures().others_bytes, 0u);
  EXPECT_EQ(LeaveOther(kCode, {&x, &y, &z})->copied_bytes, 0u);
}

TEST_F(SharedStoreTest, TwoThatLeaveAtTheSameTimeShareACopyTheNextTime) {
  const Allocation a = Make('a');
  const absl::StatusOr<Kept> first = store_->Keep(kChat, HandOver({&a}));
  const absl::StatusOr<Kept> twin = LeaveOther(kCode, {&a});
  store_->Commit(kChat);
  EXPECT_EQ(BytesOf(first->files[0]) + BytesOf(twin->files[0]),
            2 * kMemoryBytes);
  for (int round = 0; round < 2; ++round) {
    store_->Return(kChat);
    EXPECT_EQ(Leave(kChat, {&a})->copied_bytes, 0u);
    other_->Return(kCode);
    EXPECT_EQ(LeaveOther(kCode, {&a})->copied_bytes, 0u);
  }
  EXPECT_EQ(BytesOf(first->files[0]) + BytesOf(twin->files[0]), kMemoryBytes);
}

// The process may have continued, and written to its memory.
TEST_F(SharedStoreTest, CopyOfWhoHasNotLeftIsNotOffered) {
  const Allocation a = Make('a'), b = Make('b');
  ASSERT_TRUE(store_->Keep(kChat, HandOver({&a})).ok());
  ASSERT_TRUE(Leave(HolderId{3}, {&b}).ok());
  EXPECT_EQ(LeaveOther(kCode, {&a, &b})->copied_bytes, kMemoryBytes) << "a";
}

TEST_F(SharedStoreTest, CopyThatAnotherDaemonsEngineNeedsOutlivesItsMakers) {
  const Allocation a = Make('a'), b = Make('b');
  const absl::StatusOr<Kept> first = Leave(kChat, {&a});
  const absl::StatusOr<Kept> twin = LeaveOther(kCode, {&a});
  ASSERT_EQ(twin->copied_bytes, 0u);
  store_->SetLimit(kMemoryBytes);
  store_->Return(kChat);
  EXPECT_TRUE(absl::IsResourceExhausted(Leave(kChat, {&b}).status()))
      << "it is spare here, and needed there";
  EXPECT_EQ(Letters(*twin), "a");
  store_->Forget(kChat);
  EXPECT_EQ(Letters(*twin), "a");
  EXPECT_FALSE(Leave(kChat, {&b}).ok()) << "its memory counts";
  other_->Forget(kCode);
  EXPECT_EQ(BytesOf(twin->files[0]), 0u);
  EXPECT_TRUE(Leave(kChat, {&b}).ok());
}

// A daemon loses its descriptors when it dies; an engine keeps what it holds.
TEST_F(SharedStoreTest, CopyThatIsOutOutlivesEitherDaemon) {
  const Allocation a = Make('a'), b = Make('b');
  const absl::StatusOr<Kept> first = Leave(kChat, {&a});
  absl::StatusOr<Kept> twin = LeaveOther(kCode, {&a});
  other_.reset();
  store_->Forget(kChat);
  EXPECT_EQ(Letters(*twin), "a");
  Connect();
  ASSERT_TRUE(ComeTo(other_.get(), kCode, *twin, /*is_out=*/true).ok());
  MakeStore();
  other_->Return(kCode);
  EXPECT_EQ(other_->figures().spare_bytes, kMemoryBytes)
      << "the file has no other owner now";
  EXPECT_EQ(LeaveOther(kCode, {&a})->copied_bytes, 0u);
}

// The users' daemon died, and the users ended before the next daemon started.
TEST_F(SharedStoreTest, CopyWhoseUsersAreAllDeadMakesRoom) {
  const Allocation a = Make('a'), b = Make('b');
  store_->SetLimit(kMemoryBytes);
  ASSERT_TRUE(Leave(kChat, {&a}).ok());
  absl::StatusOr<Kept> twin = LeaveOther(kCode, {&a});
  store_->Forget(kChat);
  other_.reset();
  EXPECT_FALSE(Leave(kChat, {&b}).ok());
  twin->files.clear();
  EXPECT_TRUE(Leave(kChat, {&b}).ok());
}

TEST_F(SharedStoreTest, CopyThatWasWrittenToIsNotBelieved) {
  const Allocation a = Make('a');
  const absl::StatusOr<Kept> first = Leave(kChat, {&a});
  const std::string spoilt(kMemoryBytes, '!');
  ASSERT_EQ(pwrite(first->files[0].get(), spoilt.data(), spoilt.size(), 0),
            static_cast<ssize_t>(spoilt.size()));
  const absl::StatusOr<Kept> twin = LeaveOther(kCode, {&a});
  EXPECT_EQ(twin->copied_bytes, kMemoryBytes);
  EXPECT_EQ(Letters(*twin), "a");
}

// The offer was read before.
TEST_F(SharedStoreTest, CopyThatWasFreedSinceItWasOfferedIsCopied) {
  const Allocation a = Make('a');
  ASSERT_TRUE(Leave(kChat, {&a}).ok());
  other_->SetOthers([this] {
    std::vector<OtherDaemon> offers = OfferOf(store_.get());
    store_->Forget(kChat);
    return offers;
  });
  const absl::StatusOr<Kept> twin = LeaveOther(kCode, {&a});
  EXPECT_EQ(twin->copied_bytes, kMemoryBytes);
  EXPECT_EQ(Letters(*twin), "a");
}

}  // namespace
}  // namespace fineserve::store
