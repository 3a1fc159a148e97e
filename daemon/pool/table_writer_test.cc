#include "daemon/pool/table_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "daemon/contract/abi/engine_entry.h"

namespace fineserve::slab {
namespace {

class TableWriterTest : public ::testing::Test {
 protected:
  TableWriterTest() {
    TableIdentity identity;
    identity.epoch = 99;
    identity.geometry = {2 << 20, 4, 10};
    identity.gpu_name = "test GPU";
    writer_ = *TableWriter::Create(identity, &clock_);
    base_ = static_cast<char*>(mmap(nullptr, abi::TableBytes(10), PROT_READ,
                                    MAP_SHARED, writer_->descriptor(), 0));
  }
  ~TableWriterTest() override { munmap(base_, abi::TableBytes(10)); }

  const abi::TableHeader& header() {
    return *reinterpret_cast<abi::TableHeader*>(base_);
  }

  ManualClock clock_;
  std::unique_ptr<TableWriter> writer_;
  char* base_;
};

TEST_F(TableWriterTest, PublishesGeometryAndIdentity) {
  EXPECT_EQ(memcmp(header().magic, abi::kTableMagic, 8), 0);
  EXPECT_EQ(header().abi_version, abi::kAbiVersion);
  EXPECT_EQ(header().epoch, 99u);
  EXPECT_EQ(header().daemon_pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(header().slab_count, 10u);
  EXPECT_EQ(header().table_bytes, abi::TableBytes(10));
  EXPECT_STREQ(header().gpu_name, "test GPU");
}

TEST_F(TableWriterTest, SlabChangeIsVisibleToAReader) {
  clock_.AdvanceNs(42);
  writer_->SetSlab(SlabId{3}, {abi::SlabState::kFull, 7, 5});
  const auto* slabs =
      reinterpret_cast<abi::SlabEntry*>(base_ + header().slabs_offset);
  const abi::SlabWord word = abi::SlabWord::Unpack(slabs[3].word.load());
  EXPECT_EQ(word.state, abi::SlabState::kFull);
  EXPECT_EQ(word.engine, 7u);
  EXPECT_EQ(word.lease, 5u);
  EXPECT_EQ(slabs[3].since_ns.load(), 42u);
}

TEST_F(TableWriterTest, HandedOutTablesCannotBeWrittenOrResized) {
  const int fd = writer_->descriptor();
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
            MAP_FAILED);
  EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(fd, 0), -1);
  // Even the next daemon, which may write the table, cannot resize it.
  EXPECT_EQ(ftruncate(writer_->kept_descriptor(), 0), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST_F(TableWriterTest, ExhaustionHasTheTimeOfItsFirstSign) {
  clock_.AdvanceNs(42);
  writer_->SetExhausted(true);
  EXPECT_EQ(header().exhausted_ns.load(), 42u);
  clock_.AdvanceNs(10);
  writer_->SetExhausted(true);
  EXPECT_EQ(header().exhausted_ns.load(), 42u);
  writer_->SetExhausted(false);
  EXPECT_EQ(header().exhausted_ns.load(), 0u);
}

// A reader must never see a mixture of two records.
TEST_F(TableWriterTest, EngineRecordIsNeverSeenHalfWritten) {
  const auto* entry =
      reinterpret_cast<abi::EngineEntry*>(base_ + header().engines_offset);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> consistent{0};
  std::thread reader([&] {
    while (!stop.load()) {
      abi::EngineRecord seen;
      if (!abi::CopyRecord(*entry, &seen)) continue;
      EXPECT_EQ(seen.slabs_held, seen.since_ns);
      ++consistent;
    }
  });
  for (uint64_t i = 1; i < 20000 || consistent.load() == 0; ++i) {
    abi::EngineRecord record = {};
    record.slabs_held = i;
    record.since_ns = i;
    writer_->SetEngine(0, record);
  }
  stop.store(true);
  reader.join();
}

TEST_F(TableWriterTest, SureBlocksOfASlotEndWithItsEngine) {
  EXPECT_TRUE(writer_->ShowSure(3, SureBlocks{0, 7}));
  EXPECT_FALSE(writer_->ShowSure(3, SureBlocks{0, 7}));
  EXPECT_TRUE(writer_->ShowSure(3, SureBlocks{0, 8}));
  writer_->ClearEngine(3);
  EXPECT_FALSE(writer_->ShowSure(3, absl::nullopt)) << "it says nothing";
}

}  // namespace
}  // namespace fineserve::slab
