#include "daemon/store/store.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/abi/move_messages.h"
#include "daemon/abi/sealed_memfd.h"
#include "daemon/log/log.h"
#include "kernels/driver/status.h"

namespace fineserve::store {

using driver::CUdeviceptr;
using driver::Granule;
using driver::Mapping;
using driver::Reservation;
using driver::ToStatus;
using kernels::ByteRange;

// Another process's memory, mapped side by side while this object lives.
class MappedMemory {
 public:
  static absl::StatusOr<MappedMemory> Map(const driver::Driver& driver,
                                          driver::CUdevice device,
                                          const std::vector<Handed>& memory) {
    uint64_t bytes = 0;
    for (const Handed& one : memory) bytes += one.bytes;
    absl::StatusOr<Reservation> range = Reservation::Create(driver, bytes);
    if (!range.ok()) return range.status();
    MappedMemory mapped(*std::move(range));
    CUdeviceptr at = mapped.range_.address();
    for (const Handed& one : memory) {
      absl::StatusOr<Granule> granule =
          Granule::Import(driver, one.memory.get(), one.bytes);
      if (!granule.ok()) return granule.status();
      absl::StatusOr<Mapping> mapping = Mapping::Create(driver, at, *granule);
      if (!mapping.ok()) return mapping.status();
      mapped.mappings_.push_back(*std::move(mapping));
      mapped.ranges_.push_back({at, one.bytes});
      at += one.bytes;
    }
    absl::Status s =
        driver::AllowReadWrite(driver, device, mapped.range_.address(), bytes);
    if (!s.ok()) return s;
    return mapped;
  }

  const std::vector<ByteRange>& ranges() const { return ranges_; }

 private:
  explicit MappedMemory(Reservation range) : range_(std::move(range)) {}

  Reservation range_;
  std::vector<Mapping> mappings_;  // these end first
  std::vector<ByteRange> ranges_;
};

namespace {

// A fingerprint that is known is believed after a look at as many bytes.
constexpr uint64_t kSampleBytes = uint64_t{64} << 10;

// Another part of it for each fingerprint.
uint64_t SampleOffset(const ContentKey& key) {
  if (key.bytes <= kSampleBytes) return 0;
  return key.print.high % (key.bytes - kSampleBytes);
}

std::vector<char> ReadWhole(int file) {
  struct stat st = {};
  fstat(file, &st);
  std::vector<char> bytes(static_cast<size_t>(st.st_size));
  const ssize_t read = pread(file, bytes.data(), bytes.size(), 0);
  bytes.resize(read > 0 ? static_cast<size_t>(read) : 0);
  return bytes;
}

driver::Descriptor CopyOf(int descriptor) {
  return driver::Descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
}

}  // namespace

// One Keep.
struct Store::Job {
  HolderId holder;
  std::vector<Handed> memory;
  std::vector<ByteRange> ranges;  // where they are mapped here
  std::vector<ContentKey> keys;
  std::vector<std::optional<CopyId>> copies;
  std::vector<CopyId> made;
};

// Memory that is being filled.
struct Store::Filling {
  uint32_t order = 0;
  absl::Status status = {};  // the first error
  std::vector<MappedMemory> mapped = {};
  std::vector<ByteRange> ranges = {};
  std::vector<CopyId> copies = {};  // one for each range
};

Store::Store(const driver::Driver& driver, driver::CUdevice device)
    : driver_(driver), device_(device) {}

Store::~Store() {
  if (!context_) return;
  context_->MakeCurrent();
  if (stream_ != nullptr) Rest().IgnoreError();
  fillings_.clear();
  pinned_.clear();
  if (digests_ != 0) driver_.call().cuMemFree_v2(digests_);
  if (stream_ != nullptr) driver_.call().cuStreamDestroy_v2(stream_);
}

absl::Status Store::Begin() {
  if (!context_) {
    absl::StatusOr<driver::Context> context =
        driver::Context::Retain(driver_, device_);
    if (!context.ok()) return context.status();
    context_.emplace(*std::move(context));
  }
  if (!kernel_) {
    auto kernel = kernels::FingerprintKernel::Load(driver_);
    if (!kernel.ok()) return kernel.status();
    kernel_.emplace(*std::move(kernel));
  }
  if (stream_ == nullptr) {
    const absl::Status s = ToStatus(
        driver_.call(),
        driver_.call().cuStreamCreate(&stream_, driver::CU_STREAM_NON_BLOCKING),
        "cuStreamCreate");
    if (!s.ok()) return s;
  }
  // Now: a GPU that an engine comes back to may be full.
  if (digests_ == 0) {
    const absl::Status s = ToStatus(
        driver_.call(),
        driver_.call().cuMemAlloc_v2(
            &digests_, abi::kMostAllocations * sizeof(kernels::Fingerprint)),
        "cuMemAlloc(digests)");
    if (!s.ok()) return s;
  }
  if (own_file_) return absl::OkStatus();
  absl::StatusOr<StoreFile> file = StoreFile::Create();
  if (!file.ok()) return file.status();
  own_file_ = static_cast<uint32_t>(files_.size());
  files_.push_back(*std::move(file));
  return absl::OkStatus();
}

// A context takes memory for its first kernel.
absl::Status Store::Prepare() {
  if (prepared_) return absl::OkStatus();
  absl::Status s = Begin();
  if (s.ok())
    s = Fingerprints({{digests_, sizeof(kernels::Fingerprint)}}).status();
  prepared_ = s.ok();
  return s;
}

absl::StatusOr<Kept> Store::Keep(HolderId holder, std::vector<Handed> memory) {
  absl::Status s = Begin();
  if (!s.ok()) return s;
  Job job = {holder, std::move(memory), {}, {}, {}, {}};
  absl::StatusOr<MappedMemory> mapped =
      MappedMemory::Map(driver_, device_, job.memory);
  if (!mapped.ok()) return mapped.status();
  job.ranges = mapped->ranges();
  absl::StatusOr<std::vector<kernels::Fingerprint>> prints =
      Fingerprints(job.ranges);
  if (!prints.ok()) return prints.status();
  for (size_t i = 0; i < prints->size(); ++i) {
    job.keys.push_back({(*prints)[i], job.ranges[i].bytes});
  }
  s = MatchOrCopy(&job);
  absl::StatusOr<Kept> kept = s.ok() ? WriteInventory(job) : s;
  Contents::Freed freed;
  if (kept.ok()) {
    std::vector<Contents::Entry> entries;
    for (size_t i = 0; i < job.memory.size(); ++i) {
      entries.push_back({job.memory[i].number, *job.copies[i]});
    }
    contents_.Hold(holder, std::move(entries), &freed);
  } else {
    for (const CopyId copy : job.made) contents_.Abandon(copy, &freed);
  }
  Free(freed);
  return kept;
}

absl::StatusOr<std::vector<kernels::Fingerprint>> Store::Fingerprints(
    const std::vector<ByteRange>& ranges) {
  const driver::EntryPoints& call = driver_.call();
  std::vector<kernels::Fingerprint> prints(ranges.size());
  if (prints.size() > abi::kMostAllocations) {
    return absl::InvalidArgumentError("it has too many allocations");
  }
  absl::Status s = kernel_->Launch(ranges, digests_, stream_);
  if (s.ok()) s = Rest();
  if (s.ok()) {
    s = ToStatus(call,
                 call.cuMemcpyDtoH_v2(prints.data(), digests_,
                                      prints.size() * sizeof(prints[0])),
                 "reading fingerprints");
  }
  if (!s.ok()) return s;
  return prints;
}

// Waits for what was submitted.
absl::Status Store::Rest() {
  return ToStatus(driver_.call(), driver_.call().cuStreamSynchronize(stream_),
                  "copying");
}

// Null if it cannot be mapped.
char* Store::Pinned(const CopyPlace& place) {
  const auto [at, is_new] =
      pinned_.try_emplace({place.file, place.offset}, driver_.call(),
                          files_[place.file], place.offset, place.bytes);
  char* const base = at->second.base();
  if (base != nullptr && !at->second.is_registered() && !warned_) {
    warned_ = true;
    log::Warning(
        "the driver registers no host memory here: evictions and activations "
        "take several times as long");
  }
  if (base == nullptr) pinned_.erase(at);
  return base;
}

void Store::Fill(HolderId holder, uint32_t order,
                 const std::vector<Handed>& memory) {
  const auto former = fillings_.find(holder);
  if (former != fillings_.end() && former->second.order != order) {
    DropFilling(holder);
  }
  Filling& filling =
      fillings_.try_emplace(holder, Filling{order}).first->second;
  if (filling.status.ok() && !memory.empty()) {
    filling.status = BeginFill(holder, memory, &filling);
  }
}

absl::Status Store::BeginFill(HolderId holder,
                              const std::vector<Handed>& memory,
                              Filling* filling) {
  absl::Status s = Begin();
  if (!s.ok()) return s;
  std::vector<CopyId> copies;
  for (const Handed& one : memory) {
    const std::optional<CopyId> copy = contents_.CopyOf(holder, one.number);
    if (!copy || contents_.KeyOf(*copy).bytes != one.bytes) {
      return absl::NotFoundError("the store has no copy of that memory");
    }
    copies.push_back(*copy);
  }
  absl::StatusOr<MappedMemory> mapped =
      MappedMemory::Map(driver_, device_, memory);
  if (!mapped.ok()) return mapped.status();
  filling->mapped.push_back(*std::move(mapped));
  const driver::EntryPoints& call = driver_.call();
  for (size_t i = 0; i < copies.size(); ++i) {
    const ByteRange range = filling->mapped.back().ranges()[i];
    const char* const base = Pinned(contents_.PlaceOf(copies[i]));
    if (base == nullptr) {
      return absl::ResourceExhaustedError("the store's file cannot be mapped");
    }
    s = ToStatus(
        call,
        call.cuMemcpyHtoDAsync_v2(range.address, base, range.bytes, stream_),
        "copying to the GPU");
    if (!s.ok()) return s;
    filling->ranges.push_back(range);
    filling->copies.push_back(copies[i]);
  }
  return absl::OkStatus();
}

absl::Status Store::FinishFill(HolderId holder, uint32_t order,
                               uint32_t total) {
  const auto found = fillings_.find(holder);
  if (found == fillings_.end() || found->second.order != order) {
    return absl::AbortedError("what was handed over was let go");
  }
  const Filling& filling = found->second;
  absl::Status s = filling.status;
  if (s.ok() && filling.copies.size() != total) {
    s = absl::AbortedError("some of what was handed over was let go");
  }
  if (s.ok() && total != 0) s = Check(filling);
  DropFilling(holder);
  return s;
}

void Store::DropFill(HolderId holder, uint32_t order) {
  const auto found = fillings_.find(holder);
  if (found != fillings_.end() && found->second.order == order) {
    DropFilling(holder);
  }
}

absl::Status Store::Check(const Filling& filling) {
  absl::StatusOr<std::vector<kernels::Fingerprint>> prints =
      Fingerprints(filling.ranges);
  if (!prints.ok()) return prints.status();
  for (size_t i = 0; i < prints->size(); ++i) {
    if ((*prints)[i] == contents_.KeyOf(filling.copies[i]).print) continue;
    contents_.Hide(filling.copies[i]);
    return absl::DataLossError(
        "its copy in the store has changed: this process ends");
  }
  return absl::OkStatus();
}

// Nothing is unmapped before what was submitted is at rest.
void Store::DropFilling(HolderId holder) {
  const auto filling = fillings_.find(holder);
  if (filling == fillings_.end()) return;
  if (stream_ != nullptr) Rest().IgnoreError();
  fillings_.erase(filling);
}

// Finds the copies that are here, then makes the others.
absl::Status Store::MatchOrCopy(Job* job) {
  std::set<uint32_t> used = {*own_file_};
  const auto may_use = [&](uint32_t file) {
    return used.contains(file) || used.size() < abi::kMostStoreFiles;
  };
  for (size_t i = 0; i < job->keys.size(); ++i) {
    std::optional<CopyId> found = contents_.Find(job->keys[i]);
    if (found) {
      const uint32_t file = contents_.PlaceOf(*found).file;
      absl::StatusOr<bool> same = may_use(file);
      if (*same) same = IsSame(job->ranges[i].address, *found);
      if (!same.ok()) return same.status();
      if (*same) {
        used.insert(file);
        found_bytes_ += job->keys[i].bytes;
      } else {
        found.reset();
      }
    }
    job->copies.push_back(found);
  }
  return CopyNew(job);
}

// Contents that a process has twice are copied once.
absl::Status Store::CopyNew(Job* job) {
  Missing missing;
  uint64_t bytes = 0;
  for (size_t i = 0; i < job->copies.size(); ++i) {
    if (job->copies[i]) continue;
    const ContentKey& key = job->keys[i];
    std::vector<size_t>& same =
        missing[{key.print.low, key.print.high, key.bytes}];
    if (same.empty()) bytes += key.bytes;
    same.push_back(i);
  }
  if (missing.empty()) return absl::OkStatus();
  std::vector<CopyId> keep;
  for (const auto& copy : job->copies) {
    if (copy) keep.push_back(*copy);
  }
  Contents::Freed freed;
  absl::Status s = contents_.MakeRoom(bytes, Limit(), *own_file_, keep, &freed);
  Free(freed);
  if (!s.ok()) return s;
  s = CopyMissing(missing, job);
  s.Update(Rest());
  return s;
}

// Memory of the host is made for one while another is copied.
absl::Status Store::CopyMissing(const Missing& missing, Job* job) {
  const driver::EntryPoints& call = driver_.call();
  for (const auto& [print, same] : missing) {
    const ContentKey& key = job->keys[same[0]];
    absl::StatusOr<uint64_t> offset = files_[*own_file_].Append(key.bytes);
    if (!offset.ok()) return offset.status();
    const CopyPlace place = {*own_file_, *offset, key.bytes};
    const CopyId copy = contents_.Add(key, place);
    job->made.push_back(copy);
    char* const base = Pinned(place);
    if (base == nullptr) {
      return absl::ResourceExhaustedError(
          "the host has no memory for the copy");
    }
    const absl::Status s =
        ToStatus(call,
                 call.cuMemcpyDtoHAsync_v2(base, job->ranges[same[0]].address,
                                           key.bytes, stream_),
                 "copying to the host");
    if (!s.ok()) return s;
    copied_bytes_ += key.bytes;
    for (const size_t i : same) job->copies[i] = copy;
  }
  return absl::OkStatus();
}

// A former daemon's may have been written to since.
bool Store::HasItsFingerprint(CopyId copy) const {
  const CopyPlace& place = contents_.PlaceOf(copy);
  const MappedRange range(files_[place.file], place.offset, place.bytes);
  return range.base() != nullptr &&
         kernels::FingerprintOnHost(
             {reinterpret_cast<uint64_t>(range.base()), place.bytes}) ==
             contents_.KeyOf(copy).print;
}

absl::StatusOr<bool> Store::IsSame(CUdeviceptr memory, CopyId copy) {
  if (unchecked_.contains(copy)) {
    unchecked_.erase(copy);
    if (!HasItsFingerprint(copy)) {
      contents_.Hide(copy);
      return false;
    }
  }
  const driver::EntryPoints& call = driver_.call();
  const CopyPlace& place = contents_.PlaceOf(copy);
  const uint64_t bytes = std::min(place.bytes, kSampleBytes);
  const uint64_t offset = SampleOffset(contents_.KeyOf(copy));
  std::vector<char> sample(bytes), copied(bytes);
  const ssize_t read = pread(files_[place.file].descriptor(), copied.data(),
                             bytes, static_cast<off_t>(place.offset + offset));
  const absl::Status s = ToStatus(
      call, call.cuMemcpyDtoH_v2(sample.data(), memory + offset, bytes),
      "reading a sample");
  if (!s.ok()) return s;
  return read == static_cast<ssize_t>(bytes) && sample == copied;
}

absl::StatusOr<Kept> Store::WriteInventory(const Job& job) {
  Kept kept;
  std::map<uint32_t, uint32_t> numbers;  // of files, in the inventory
  std::vector<abi::InventoryEntry> entries;
  for (size_t i = 0; i < job.memory.size(); ++i) {
    const CopyPlace& place = contents_.PlaceOf(*job.copies[i]);
    const auto [number, is_new] =
        numbers.try_emplace(place.file, static_cast<uint32_t>(numbers.size()));
    if (is_new) {
      kept.files.push_back(CopyOf(files_[place.file].descriptor()));
      if (!kept.files.back().valid()) {
        return absl::ResourceExhaustedError("too many open files");
      }
    }
    entries.push_back({job.memory[i].number,
                       number->second,
                       place.offset,
                       place.bytes,
                       {job.keys[i].print.low, job.keys[i].print.high}});
  }
  for (const CopyId copy : job.made) {
    kept.copied_bytes += contents_.PlaceOf(copy).bytes;
  }
  const abi::InventoryHeader header = {abi::kInventoryMagic,
                                       static_cast<uint32_t>(kept.files.size()),
                                       static_cast<uint32_t>(entries.size())};
  const uint64_t list_bytes = entries.size() * sizeof(entries[0]);
  const abi::SealedMemfd list = abi::SealedMemfd::Create(
      "fineserve-inventory", sizeof(header) + list_bytes);
  if (list.valid()) kept.inventory = list.ReadOnly();
  if (!kept.inventory.valid()) {
    return absl::ResourceExhaustedError("the inventory cannot be made");
  }
  memcpy(list.base(), &header, sizeof(header));
  memcpy(static_cast<char*>(list.base()) + sizeof(header), entries.data(),
         list_bytes);
  list.SealAgainstWriters();
  return kept;
}

CopyId Store::AdoptCopy(const abi::InventoryEntry& entry) {
  const std::optional<CopyId> shared = contents_.At(entry.file, entry.offset);
  if (shared) return *shared;
  const ContentKey key = {{entry.print[0], entry.print[1]}, entry.bytes};
  const CopyId copy =
      contents_.Add(key, {entry.file, entry.offset, entry.bytes});
  unchecked_.insert(copy);
  return copy;
}

uint32_t Store::FileOf(driver::Descriptor file) {
  absl::StatusOr<StoreFile> adopted = StoreFile::Adopt(std::move(file));
  if (!adopted.ok()) return UINT32_MAX;
  for (uint32_t i = 0; i < files_.size(); ++i) {
    if (files_[i].inode() == adopted->inode()) return i;
  }
  files_.push_back(*std::move(adopted));
  return static_cast<uint32_t>(files_.size() - 1);
}

absl::Status Store::Adopt(HolderId holder, bool is_out,
                          driver::Descriptor inventory,
                          std::vector<driver::Descriptor> files) {
  absl::Status s =
      TakeOver(holder, is_out, std::move(inventory), std::move(files));
  CloseUnused();
  return s;
}

absl::Status Store::TakeOver(HolderId holder, bool is_out,
                             driver::Descriptor inventory,
                             std::vector<driver::Descriptor> files) {
  // What it brings is what it got from here.
  if (contents_.Has(holder)) return absl::OkStatus();
  const std::vector<char> bytes = ReadWhole(inventory.get());
  abi::InventoryHeader header = {};
  if (bytes.size() >= sizeof(header)) {
    memcpy(&header, bytes.data(), sizeof(header));
  }
  if (header.magic != abi::kInventoryMagic || header.files != files.size() ||
      bytes.size() !=
          sizeof(header) + header.count * sizeof(abi::InventoryEntry)) {
    return absl::InvalidArgumentError("this is no inventory of a store");
  }
  std::vector<uint32_t> numbers;
  for (driver::Descriptor& file : files) {
    numbers.push_back(FileOf(std::move(file)));
  }
  std::vector<abi::InventoryEntry> list(header.count);
  memcpy(list.data(), bytes.data() + sizeof(header),
         list.size() * sizeof(list[0]));
  for (abi::InventoryEntry& entry : list) {
    entry.file = entry.file < numbers.size() ? numbers[entry.file] : UINT32_MAX;
    // A spare copy may have been freed since.
    const bool is_there = entry.file != UINT32_MAX && entry.bytes != 0 &&
                          files_[entry.file].HasAll(entry.offset, entry.bytes);
    if (!is_there && is_out) {
      return absl::DataLossError(
          "an inventory names bytes that are not in its files");
    }
    if (!is_there) entry.bytes = 0;
  }
  std::vector<Contents::Entry> entries;
  for (const abi::InventoryEntry& entry : list) {
    if (entry.bytes == 0) continue;
    entries.push_back({entry.number, AdoptCopy(entry)});
  }
  Contents::Freed freed;
  contents_.Adopt(holder, std::move(entries), is_out, &freed);
  Free(freed);
  return absl::OkStatus();
}

void Store::Commit(HolderId holder) {
  DropFilling(holder);
  Contents::Freed freed;
  contents_.Commit(holder, &freed);
  Free(freed);
}

void Store::Cancel(HolderId holder) {
  Contents::Freed freed;
  contents_.Cancel(holder, &freed);
  Free(freed);
}

void Store::Return(HolderId holder) {
  DropFilling(holder);
  contents_.Return(holder);
}

void Store::Forget(HolderId holder) {
  DropFilling(holder);
  Contents::Freed freed;
  contents_.Forget(holder, &freed);
  Free(freed);
}

void Store::Free(const Contents::Freed& freed) {
  if (freed.empty()) return;
  for (const CopyPlace& place : freed) {
    pinned_.erase({place.file, place.offset});
    if (place.file == own_file_) {
      files_[place.file].Free(place.offset, place.bytes);
    }
  }
  CloseUnused();
}

void Store::CloseUnused() {
  for (uint32_t i = 0; i < files_.size(); ++i) {
    if (i != own_file_ && contents_.BytesIn(i) == 0) files_[i].Close();
  }
}

// Memory that was freed in former daemons' files counts while those are open.
uint64_t Store::Limit() const {
  if (limit_ == 0) return contents_.held_bytes() + SpareHostBytes();
  uint64_t lost = 0;
  for (uint32_t i = 0; i < files_.size(); ++i) {
    const uint64_t held = contents_.BytesIn(i);
    lost += files_[i].memory_bytes() - std::min(files_[i].memory_bytes(), held);
  }
  return limit_ - std::min(limit_, lost);
}

metrics::StoreFigures Store::figures() const {
  return {contents_.held_bytes(),
          contents_.spare_bytes(),
          contents_.unshared_bytes(),
          Limit(),
          copied_bytes_,
          found_bytes_,
          contents_.copies()};
}

}  // namespace fineserve::store
