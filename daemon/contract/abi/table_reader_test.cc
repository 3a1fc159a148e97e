#include "daemon/contract/abi/table_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <stop_token>
#include <string>
#include <thread>

#include "daemon/contract/abi/engine_entry.h"
#include "daemon/contract/abi/transport.h"

namespace fineserve::abi {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kSlabs = 10;
constexpr uint64_t kGranuleBytes = 2 << 20;

// A memfd with a valid table of ten slabs and no engine, writable here.
class TableReaderTest : public ::testing::Test {
 protected:
  TableReaderTest() : bytes_(TableBytes(kSlabs)) {
    fd_ = memfd_create(kTableMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes_)), 0);
    base_ = static_cast<char*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    FillHeader();
    fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  }
  ~TableReaderTest() override {
    munmap(base_, bytes_);
    close(fd_);
  }

  void FillHeader() {
    TableHeader& h = header();
    memcpy(h.magic, kTableMagic, sizeof(h.magic));
    h.abi_version = kAbiVersion;
    h.flags = kTableEmulatedDevice;
    h.table_bytes = bytes_;
    h.epoch = 77;
    h.daemon_pid = 4711;
    h.engine_capacity = kEngineCapacity;
    h.engines_offset = sizeof(TableHeader);
    h.slabs_offset = h.engines_offset + kEngineCapacity * sizeof(EngineEntry);
    h.granule_bytes = kGranuleBytes;
    h.granules_per_slab = 4;
    h.slab_count = kSlabs;
    CopyText(h.gpu_name, "GPU");
  }

  TableHeader& header() { return *reinterpret_cast<TableHeader*>(base_); }
  EngineEntry& engine(uint32_t slot) {
    return reinterpret_cast<EngineEntry*>(base_ + sizeof(TableHeader))[slot];
  }
  SlabEntry& slab(uint32_t i) {
    return reinterpret_cast<SlabEntry*>(
        base_ + sizeof(TableHeader) + kEngineCapacity * sizeof(EngineEntry))[i];
  }

  static void SetEngine(EngineEntry& entry, const EngineRecord& record) {
    StoreRecord(record, &entry);
  }

  static EngineRecord AliveEngine(uint32_t id) {
    EngineRecord record = {};
    record.id = id;
    record.state = EngineState::kAlive;
    record.member_count = 1;
    record.member_pids[0] = 100 + id;
    CopyText(record.name, "vllm");
    return record;
  }

  absl::StatusOr<TableSnapshot> Read() {
    absl::StatusOr<TableReader> reader = TableReader::Map(fd_);
    if (!reader.ok()) return reader.status();
    return reader->Read();
  }

  const size_t bytes_;
  int fd_;
  char* base_;
};

TEST_F(TableReaderTest, CopiesConstantsCountersEnginesAndSlabs) {
  header().counters.leases_granted = 5;
  header().counters.connections_refused = 6;
  header().counters.loop_longest_turn_us = 7;
  SetEngine(engine(3), AliveEngine(9));
  slab(2).word = SlabWord::Pack({SlabState::kFull, 9, 12});
  slab(2).since_ns = 1234;
  const auto table = Read();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->flags, kTableEmulatedDevice);
  EXPECT_EQ(table->epoch, 77u);
  EXPECT_EQ(table->daemon_pid, 4711u);
  EXPECT_EQ(table->pool_bytes(), kSlabs * 4 * kGranuleBytes);
  EXPECT_EQ(table->counters.leases_granted, 5u);
  EXPECT_EQ(table->counters.connections_refused, 6u);
  EXPECT_EQ(table->counters.loop_longest_turn_us, 7u);
  ASSERT_EQ(table->engines.size(), 1u);
  EXPECT_EQ(table->engines[0].id, 9u);
  EXPECT_THAT(table->engines[0].member_pids, ElementsAre(109u));
  ASSERT_EQ(table->slabs.size(), kSlabs);
  EXPECT_EQ(table->slabs[2].word.state, SlabState::kFull);
  EXPECT_EQ(table->slabs[2].word.lease, 12u);
  EXPECT_EQ(table->slabs[2].since_ns, 1234u);
  EXPECT_EQ(table->torn_engines, 0u);
}

TEST_F(TableReaderTest, OtherVersionIsRefusedNamingBoth) {
  header().abi_version = 41;
  const absl::Status status = Read().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 41"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("version " + std::to_string(kAbiVersion)));
}

TEST_F(TableReaderTest, WriterThatDiesInTheMiddleLeavesTheRecordBefore) {
  SetEngine(engine(0), AliveEngine(1));
  SetEngine(engine(1), AliveEngine(2));
  // The copy that does not count.
  const uint32_t next = engine(1).sequence.load() + 1;
  for (auto& word : engine(1).records[next % 2]) word = ~uint64_t{0};
  const auto table = Read();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->torn_engines, 0u);
  ASSERT_EQ(table->engines.size(), 2u);
  EXPECT_EQ(table->engines[1].id, 2u);
}

TEST_F(TableReaderTest, NameOfAPeerReachesNoTerminalRaw) {
  EngineRecord record = AliveEngine(1);
  CopyText(record.name, "a\x1b[2J\nb");
  SetEngine(engine(0), record);
  const auto table = Read();
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->engines[0].name, "a?[2J?b");
}

TEST_F(TableReaderTest, UnsealedFileIsNotMapped) {
  const int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, static_cast<off_t>(bytes_)), 0);
  ASSERT_EQ(pwrite(fd, base_, bytes_, 0), static_cast<ssize_t>(bytes_));
  const absl::Status status = TableReader::Map(fd).status();
  close(fd);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sealed"));
}

TEST_F(TableReaderTest, FileShorterThanTheHeaderIsNotMapped) {
  const int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, sizeof(TableHeader) - 1), 0);
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
  const absl::Status status = TableReader::Map(fd).status();
  close(fd);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

// A breakage of one rule of slab_table.h in an otherwise valid table.
struct Breakage {
  const char* name;
  const char* message;  // must occur in the error
  void (*apply)(TableHeader&, EngineEntry&, SlabEntry&);
};

template <typename Change>
void ChangeEngine(EngineEntry& entry, Change change) {
  EngineRecord record;
  ASSERT_TRUE(CopyRecord(entry, &record));
  change(record);
  StoreRecord(record, &entry);
}

constexpr Breakage kBreakages[] = {
    {"Magic", "magic",
     [](TableHeader& h, EngineEntry&, SlabEntry&) { h.magic[0] = 'X'; }},
    {"TableBytes", "table_bytes",
     [](TableHeader& h, EngineEntry&, SlabEntry&) { h.table_bytes += 8; }},
    {"Epoch", "epoch",
     [](TableHeader& h, EngineEntry&, SlabEntry&) { h.epoch = 0; }},
    {"DaemonPid", "daemon_pid",
     [](TableHeader& h, EngineEntry&, SlabEntry&) {
       h.daemon_pid = 0x80000000;
     }},
    {"GpuName", "gpu_name",
     [](TableHeader& h, EngineEntry&, SlabEntry&) {
       memset(h.gpu_name, 'x', sizeof(h.gpu_name));
     }},
    {"EngineCapacity", "engine_capacity",
     [](TableHeader& h, EngineEntry&, SlabEntry&) {
       h.engine_capacity = 0xffffffff;
     }},
    {"EnginesInHeader", "engines_offset",
     [](TableHeader& h, EngineEntry&, SlabEntry&) { h.engines_offset = 0; }},
    {"EnginesMisaligned", "engines_offset",
     [](TableHeader& h, EngineEntry&, SlabEntry&) { h.engines_offset += 4; }},
    {"EnginesBehindTheEnd", "engines_offset",
     [](TableHeader& h, EngineEntry&, SlabEntry&) {
       h.engines_offset = 0xfffffff8;
     }},
    {"SlabsBehindTheEnd", "slabs_offset",
     [](TableHeader& h, EngineEntry&, SlabEntry&) { h.slabs_offset += 8; }},
    {"SlabsOverEngines", "slabs_offset",
     [](TableHeader& h, EngineEntry&, SlabEntry&) { h.slabs_offset -= 8; }},
    {"TooManySlabs", "slabs_offset",
     [](TableHeader& h, EngineEntry&, SlabEntry&) { h.slab_count += 1; }},
    {"AbsurdSlabs", "slab_count",
     [](TableHeader& h, EngineEntry&, SlabEntry&) {
       h.slab_count = 0xffffffff;
     }},
    {"NoSlab", "slab_count",
     [](TableHeader& h, EngineEntry&, SlabEntry&) { h.slab_count = 0; }},
    {"NoGranule", "granules",
     [](TableHeader& h, EngineEntry&, SlabEntry&) { h.granules_per_slab = 0; }},
    {"PoolOverflows", "granules",
     [](TableHeader& h, EngineEntry&, SlabEntry&) {
       h.granule_bytes = UINT64_MAX;
     }},
    {"EngineState", "state",
     [](TableHeader&, EngineEntry& e, SlabEntry&) {
       ChangeEngine(e, [](EngineRecord& r) { r.state = EngineState{3}; });
     }},
    {"MemberCount", "member_count",
     [](TableHeader&, EngineEntry& e, SlabEntry&) {
       ChangeEngine(e, [](EngineRecord& r) { r.member_count = 17; });
     }},
    {"MemberPid", "pid",
     [](TableHeader&, EngineEntry& e, SlabEntry&) {
       ChangeEngine(e, [](EngineRecord& r) { r.member_pids[0] = 0; });
     }},
    {"EngineName", "name",
     [](TableHeader&, EngineEntry& e, SlabEntry&) {
       ChangeEngine(
           e, [](EngineRecord& r) { memset(r.name, 'x', sizeof(r.name)); });
     }},
    {"SlabState", "slab 0: state is 7",
     [](TableHeader&, EngineEntry&, SlabEntry& s) { s.word = 7; }},
};

class BrokenTable : public TableReaderTest,
                    public ::testing::WithParamInterface<Breakage> {};

TEST_P(BrokenTable, IsRefusedNamingTheField) {
  SetEngine(engine(0), AliveEngine(1));
  ASSERT_TRUE(Read().ok());
  GetParam().apply(header(), engine(0), slab(0));
  const absl::Status status = Read().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(, BrokenTable, ::testing::ValuesIn(kBreakages),
                         [](const auto& info) { return info.param.name; });

// A writer rewrites one engine as fast as it can; every record that is not
// reported torn must be one that was written whole.
TEST_F(TableReaderTest, RecordUnderAFastWriterIsWholeOrTorn) {
  std::jthread writer([&](std::stop_token stop) {
    for (uint32_t id = 1; !stop.stop_requested(); ++id) {
      EngineRecord record = AliveEngine(id % 1000 + 1);
      record.slabs_held = record.id;
      record.since_ns = record.id;
      SetEngine(engine(0), record);
    }
  });
  // Only records that were seen count: the writer may not have begun yet.
  for (int seen = 0; seen < 5000;) {
    const auto table = Read();
    ASSERT_TRUE(table.ok()) << table.status();
    for (const EngineSnapshot& e : table->engines) {
      ++seen;
      ASSERT_EQ(e.slabs_held, e.id);
      ASSERT_EQ(e.since_ns, e.id);
      ASSERT_THAT(e.member_pids, ElementsAre(100 + e.id));
    }
  }
}

// Checks the invariants of any snapshot, whichever process wrote the bytes.
void CheckBounds(const TableSnapshot& table) {
  ASSERT_LE(table.slabs.size(), kSlabs);
  ASSERT_LE(table.engines.size() + table.torn_engines, kEngineCapacity);
  for (const SlabSnapshot& s : table.slabs) {
    ASSERT_LT(static_cast<int>(s.word.state), kSlabStateCount);
  }
  for (const EngineSnapshot& e : table.engines) {
    ASSERT_LE(e.member_pids.size(), kMemberCapacity);
    for (char c : e.name) ASSERT_TRUE(c >= 0x20 && c <= 0x7e);
  }
}

// Scribbles while another thread reads; magic and version are kept right most
// of the time, so that the reader gets past them.
TEST_F(TableReaderTest, ScribbledMemoryNeverBreaksTheReader) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::jthread scribbler([&](std::stop_token stop) {
    std::mt19937_64 random(seed);
    while (!stop.stop_requested()) {
      const size_t front = random() % 4 == 0 ? 512 : bytes_;
      const size_t at = random() % front / 8 * 8;
      const uint64_t word = random() % 3 == 0 ? random() : random() % 8;
      __atomic_store_n(reinterpret_cast<uint64_t*>(base_ + at), word,
                       __ATOMIC_RELAXED);
      if (random() % 4 == 0) FillHeader();
    }
  });
  int readable = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto table = Read();
    if (!table.ok()) continue;
    ++readable;
    CheckBounds(*table);
  }
  RecordProperty("readable", readable);
}

TEST_F(TableReaderTest, RandomEntriesAreReadOrRefusedInBounds) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int readable = 0;
  for (int i = 0; i < 2000; ++i) {
    for (int n = 0; n < 4; ++n) {
      const size_t at =
          sizeof(TableHeader) + random() % (bytes_ - sizeof(TableHeader));
      base_[at] = static_cast<char>(random() % 4);
    }
    const auto table = Read();
    if (!table.ok()) {
      memset(base_ + sizeof(TableHeader), 0, bytes_ - sizeof(TableHeader));
      continue;
    }
    ++readable;
    CheckBounds(*table);
  }
  EXPECT_GT(readable, 100);  // else the test looked at refusals only
}

}  // namespace
}  // namespace fineserve::abi
