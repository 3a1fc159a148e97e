#include "tools/lab/device/machine/physical_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <thread>
#include <vector>

#include "tools/lab/device/machine/test_machine.h"

namespace fineserve::emucuda {
namespace {

constexpr uint64_t kUnit = kGranularity;
constexpr uint64_t kTotal = 32 * kUnit;

using Ref = std::shared_ptr<Allocation>;

class PhysicalMemoryTest : public ::testing::Test {
 protected:
  static Ref Allocate(PhysicalMemory& memory, uint64_t bytes) {
    Ref allocation;
    EXPECT_EQ(memory.Allocate(bytes, &allocation), CUDA_SUCCESS);
    return allocation;
  }
  static Descriptor Export(const Ref& allocation) {
    Descriptor fd;
    EXPECT_EQ(allocation->memory().Export(*allocation, &fd), CUDA_SUCCESS);
    return fd;
  }
  static void Write(const Ref& allocation, char byte) {
    EXPECT_EQ(pwrite(allocation->fd(), &byte, 1,
                     static_cast<off_t>(allocation->offset())),
              1);
  }
  static char Read(const Ref& allocation) {
    char byte = 0;
    EXPECT_EQ(pread(allocation->fd(), &byte, 1,
                    static_cast<off_t>(allocation->offset())),
              1);
    return byte;
  }

  TestMachine machine_;
};

TEST_F(PhysicalMemoryTest, LaterOpenerTakesTheFilesSize) {
  EXPECT_EQ(machine_.Open(kTotal)->TotalBytes(), kTotal);
  EXPECT_EQ(machine_.Open(2 * kTotal)->TotalBytes(), kTotal);
}

// Without persistence mode, an exported descriptor keeps memory alive only
// while some process has the device open.
TEST_F(PhysicalMemoryTest, ExportedMemoryDiesWithTheLastOpenerOrPersists) {
  for (const bool is_persistent : {false, true}) {
    const auto open = [&] { return machine_.Open(kTotal, is_persistent); };
    auto memory = open();
    Descriptor kept = Export(Allocate(*memory, kUnit));
    auto other = open();
    memory.reset();
    memory = open();
    other.reset();
    Ref imported;
    EXPECT_EQ(memory->Import(kept.get(), &imported), CUDA_SUCCESS);
    imported.reset();
    memory.reset();
    memory = open();
    EXPECT_EQ(memory->Import(kept.get(), &imported),
              is_persistent ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    imported.reset();
    EXPECT_EQ(memory->TotalBytes(), kTotal);
    EXPECT_EQ(memory->UsedBytes(), is_persistent ? kUnit : 0);
    kept.Reset();
  }
}

TEST_F(PhysicalMemoryTest, NeighbourSurvivesARelease) {
  const auto memory = machine_.Open(kTotal);
  const auto other = machine_.Open(kTotal);
  Ref first = Allocate(*memory, kUnit);
  Ref second = Allocate(*memory, kUnit);  // its lock merges with the first's
  Ref third = Allocate(*memory, kUnit);
  second.reset();
  EXPECT_EQ(other->UsedBytes(), 2 * kUnit);
  EXPECT_EQ(Allocate(*other, kUnit)->offset(), kUnit);
}

TEST_F(PhysicalMemoryTest, ReusedMemoryReadsZero) {
  const auto memory = machine_.Open(kTotal);
  Ref first = Allocate(*memory, kUnit);
  Write(first, 'x');
  const uint64_t offset = first->offset();
  first.reset();
  first = Allocate(*memory, kUnit);
  EXPECT_EQ(first->offset(), offset);
  EXPECT_EQ(Read(first), 0);
}

TEST_F(PhysicalMemoryTest, PagesOfAClosedOwnerAreNotInherited) {
  auto dead = machine_.Open(kTotal);
  const auto memory = machine_.Open(kTotal);
  Write(Allocate(*dead, kUnit), 'x');
  dead.reset();  // as the kernel does for a killed process: no release
  EXPECT_EQ(Read(Allocate(*memory, kUnit)), 0);
}

TEST_F(PhysicalMemoryTest, DescriptorAloneKeepsTheGranule) {
  const auto memory = machine_.Open(kTotal);
  const auto other = machine_.Open(kTotal);
  Ref first = Allocate(*memory, 3 * kUnit);
  Write(first, 'x');
  const Descriptor fd = Export(first);
  first.reset();
  EXPECT_EQ(other->UsedBytes(), 3 * kUnit);
  Ref imported;
  ASSERT_EQ(other->Import(fd.get(), &imported), CUDA_SUCCESS);
  EXPECT_EQ(imported->bytes(), 3 * kUnit);
  EXPECT_EQ(Read(imported), 'x');
}

TEST_F(PhysicalMemoryTest, OwnImportIsCountedNotDoubled) {
  const auto memory = machine_.Open(kTotal);
  Ref first = Allocate(*memory, kUnit), again;
  {
    const Descriptor fd = Export(first);
    ASSERT_EQ(memory->Import(fd.get(), &again), CUDA_SUCCESS);
  }
  EXPECT_EQ(memory->UsedBytes(), kUnit);
  first.reset();
  EXPECT_EQ(memory->UsedBytes(), kUnit);
  again.reset();
  EXPECT_EQ(memory->UsedBytes(), 0u);
}

TEST_F(PhysicalMemoryTest, ForgedDescriptorsAreRefused) {
  const auto memory = machine_.Open(kTotal);
  const Ref first = Allocate(*memory, 2 * kUnit);
  const Descriptor plain = machine_.Folder().OpenFile(0, "memory");
  const Descriptor control = machine_.Folder().OpenFile(0, "control");
  Ref imported;
  EXPECT_EQ(memory->Import(control.get(), &imported), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory->Import(-1, &imported), CUDA_ERROR_INVALID_VALUE);
  const off_t bad[] = {1, static_cast<off_t>(kUnit),
                       static_cast<off_t>(5 * kUnit),
                       static_cast<off_t>(kTotal)};
  for (const off_t offset : bad) {
    ASSERT_EQ(lseek(plain.get(), offset, SEEK_SET), offset);
    EXPECT_EQ(memory->Import(plain.get(), &imported), CUDA_ERROR_INVALID_VALUE)
        << offset;
  }
}

TEST_F(PhysicalMemoryTest, StaleDirectoryEntryIsNoGranule) {
  const auto memory = machine_.Open(kTotal);
  Allocate(*memory, kUnit).reset();
  const Descriptor plain = machine_.Folder().OpenFile(0, "memory");
  Ref imported;
  EXPECT_EQ(memory->Import(plain.get(), &imported), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PhysicalMemoryTest, FullDeviceIsOutOfMemory) {
  const auto memory = machine_.Open(kTotal);
  const Ref all = Allocate(*memory, kTotal);
  Ref more;
  EXPECT_EQ(memory->Allocate(kUnit, &more), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(PhysicalMemoryTest, FreeMemoryInPiecesIsGivenAsOne) {
  const auto memory = machine_.Open(kTotal);
  std::vector<Ref> all;
  for (uint64_t used = 0; used < kTotal; used += kUnit) {
    all.push_back(Allocate(*memory, kUnit));
  }
  all[1].reset();
  all[3].reset();
  const Ref both = Allocate(*memory, 2 * kUnit);
  Ref more;
  EXPECT_EQ(memory->Allocate(kUnit, &more), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(memory->UsedBytes(), kTotal);
  Descriptor exported;
  ASSERT_EQ(memory->Export(*both, &exported), CUDA_SUCCESS);
  const auto other = machine_.Open(kTotal);
  Ref imported;
  EXPECT_EQ(other->Import(exported.get(), &imported), CUDA_SUCCESS);
  EXPECT_EQ(imported->bytes(), 2 * kUnit);
  all[5].reset();
  EXPECT_EQ(memory->UsedBytes(), kTotal - kUnit);
}

// Returns a context's hold on memory, which lasts as long as the test keeps it.
std::shared_ptr<const void> NewContext(PhysicalMemory& memory,
                                       uint64_t bytes = 0) {
  std::shared_ptr<const void> upkeep;
  EXPECT_EQ(memory.OpenContext(bytes, &upkeep), CUDA_SUCCESS);
  return upkeep;
}

TEST_F(PhysicalMemoryTest, ClientsAreThoseWithAContext) {
  auto client = machine_.Open(kTotal);
  const auto onlooker = machine_.Open(kTotal);
  const Ref memory = Allocate(*client, kUnit);
  EXPECT_TRUE(onlooker->Clients().empty()) << "memory makes no client";
  auto first = NewContext(*client);
  auto second = NewContext(*client);
  ASSERT_EQ(onlooker->Clients().size(), 1u);
  EXPECT_EQ(onlooker->Clients()[0].pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(onlooker->Clients()[0].bytes, kUnit);
  first.reset();
  EXPECT_EQ(onlooker->Clients().size(), 1u);
  second.reset();
  EXPECT_TRUE(onlooker->Clients().empty());
  const auto again = NewContext(*client);
  EXPECT_EQ(onlooker->Clients().size(), 1u);
}

TEST_F(PhysicalMemoryTest, ClientThatDiesWithItsContextLeavesTheList) {
  auto client = machine_.Open(kTotal);
  const auto onlooker = machine_.Open(kTotal);
  // Nothing runs the context's end, as in a process that is killed.
  static const auto* const never_ended = new auto(NewContext(*client));
  EXPECT_NE(*never_ended, nullptr);
  EXPECT_EQ(onlooker->Clients().size(), 1u);
  client.reset();
  EXPECT_TRUE(onlooker->Clients().empty());
}

TEST_F(PhysicalMemoryTest, ContextTakesMemoryAndIsRefusedWhereThereIsNone) {
  const auto memory = machine_.Open(kTotal);
  auto context = NewContext(*memory, kTotal - kUnit);
  EXPECT_EQ(memory->UsedBytes(), kTotal - kUnit);
  std::shared_ptr<const void> none;
  EXPECT_EQ(memory->OpenContext(2 * kUnit, &none), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(none, nullptr);
  context.reset();
  EXPECT_EQ(memory->UsedBytes(), 0u);
}

TEST_F(PhysicalMemoryTest, ClientUsesWhatItAllocatedAndNotWhatItImported) {
  const auto one = machine_.Open(kTotal);
  const auto other = machine_.Open(kTotal);
  const auto context = NewContext(*one);
  const auto used = [&] { return other->Clients()[0].bytes; };
  Ref first = Allocate(*one, kUnit);
  Ref second = Allocate(*one, 2 * kUnit);
  EXPECT_EQ(used(), 3 * kUnit);
  second.reset();
  EXPECT_EQ(used(), kUnit);
  const Ref others = Allocate(*other, kUnit);
  Descriptor descriptor;
  ASSERT_EQ(other->Export(*others, &descriptor), CUDA_SUCCESS);
  Ref imported;
  ASSERT_EQ(one->Import(descriptor.get(), &imported), CUDA_SUCCESS);
  EXPECT_EQ(used(), kUnit);
  first.reset();
  EXPECT_EQ(used(), 0u);
}

// Two processes act at random. The model records the owner of each range.
TEST_F(PhysicalMemoryTest, RandomTrafficNeverOverlapsAndAlwaysAddsUp) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::unique_ptr<PhysicalMemory> processes[2] = {machine_.Open(kTotal),
                                                        machine_.Open(kTotal)};
  std::vector<Ref> live;
  for (int step = 0; step < 3000; ++step) {
    PhysicalMemory& memory = *processes[random() % 2];
    Ref added;
    if (random() % 2 == 0) {
      memory.Allocate((1 + random() % 4) * kUnit, &added);
    } else if (!live.empty() && random() % 2 == 0) {
      const Descriptor fd = Export(live[random() % live.size()]);
      ASSERT_EQ(memory.Import(fd.get(), &added), CUDA_SUCCESS);
    } else if (!live.empty()) {
      live.erase(live.begin() + static_cast<ptrdiff_t>(random() % live.size()));
    }
    if (added != nullptr) live.push_back(std::move(added));
    std::map<uint64_t, uint64_t> ranges;  // start → bytes, aliases once
    for (const Ref& ref : live) ranges[ref->offset()] = ref->bytes();
    uint64_t end = 0, used = 0;
    for (const auto& [start, bytes] : ranges) {
      ASSERT_GE(start, end) << "overlap in step " << step;
      end = start + bytes;
      used += bytes;
    }
    ASSERT_EQ(memory.UsedBytes(), used) << "step " << step;
  }
}

TEST_F(PhysicalMemoryTest, ThreadsAllocateAndReleaseTogether) {
  const auto memory = machine_.Open(kTotal);
  std::vector<std::thread> threads;
  for (char mark = 1; mark <= 4; ++mark) {
    threads.emplace_back([&memory, mark] {
      for (int i = 0; i < 200; ++i) {
        const Ref mine = Allocate(*memory, kUnit);
        EXPECT_EQ(Read(mine), 0);
        Write(mine, mark);
        EXPECT_EQ(Read(mine), mark);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory->UsedBytes(), 0u);
}

}  // namespace
}  // namespace fineserve::emucuda
