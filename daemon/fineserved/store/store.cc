#include "daemon/fineserved/store/store.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/log/log.h"
#include "daemon/contract/abi/move_messages.h"
#include "daemon/fineserved/store/inventory_file.h"
#include "daemon/fineserved/store/own_link.h"
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

// Numbers of an offer's entries.
constexpr uint32_t kUncheckedCopy = 1;  // its bytes were not read yet

// Large allocations are also copied over other GPUs' links, in pieces of this
// size; H100: 0.6 ms of a link.
constexpr uint64_t kPieceBytes = uint64_t{32} << 20;
constexpr uint64_t kSharedBytes = uint64_t{8} << 20;

// Interval between searches for carried copies that are no longer needed.
constexpr uint64_t kLetGoMs = 500;

// A known fingerprint is trusted after this many bytes were compared.
constexpr uint64_t kSampleBytes = uint64_t{64} << 10;

// The sampled part differs for each fingerprint.
uint64_t SampleOffset(const ContentKey& key) {
  if (key.bytes <= kSampleBytes) return 0;
  return key.print.high % (key.bytes - kSampleBytes);
}

driver::Descriptor CopyOf(int descriptor) {
  return driver::Descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
}

FileRange RangeOf(const CopyPlace& place) {
  return {place.offset, place.bytes};
}

}  // namespace

// One Keep.
struct Store::Job {
  HolderId holder;
  std::vector<Handed> memory;
  std::vector<ByteRange> ranges = {};  // where they are mapped here
  std::vector<ContentKey> keys = {};
  std::vector<std::optional<CopyId>> copies = {};
  std::vector<CopyId> added = {};  // made, or another daemon's
  std::set<uint32_t> files = {};   // that its copies are in
  uint64_t copied_bytes = 0;

  bool MayUse(uint32_t file) const {
    return files.contains(file) || files.size() < abi::kMostStoreFiles;
  }
};

// Memory that is being filled.
struct Store::Filling {
  uint32_t order = 0;
  absl::Status status = {};    // the first error
  uint64_t others_before = 0;  // bytes that had come by other GPUs' links
  std::vector<MappedMemory> mapped = {};
  std::vector<ByteRange> ranges = {};
  std::vector<CopyId> copies = {};  // one for each range
  // Descriptors of the store's files, for other daemons.
  std::map<uint32_t, std::shared_ptr<const driver::Descriptor>> files = {};
};

Store::Store(const driver::Driver& driver, driver::CUdevice device)
    : driver_(driver), device_(device), carrier_(driver, device) {}

Store::~Store() {
  if (!context_) return;
  context_->MakeCurrent();
  if (stream_ != nullptr) Rest().IgnoreError();
  fillings_.clear();
  queue_.reset();
  carrier_.Clear();
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
    queue_.emplace(std::make_unique<OwnLink>(driver_, stream_), &clock_);
  }
  // Allocates this now: the GPU that an engine comes back to may be full.
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
  owned_.insert(*own_file_);
  files_.push_back(*std::move(file));
  return absl::OkStatus();
}

// Runs a kernel: a context takes memory for its first one.
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
  OwnFiles();
  Job job = {holder, std::move(memory)};
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
  absl::StatusOr<Kept> kept = s.ok() ? ClaimCopies(job) : s;
  Contents::Freed freed;
  if (kept.ok()) {
    std::vector<Contents::Entry> entries;
    for (size_t i = 0; i < job.memory.size(); ++i) {
      entries.push_back({job.memory[i].number, *job.copies[i]});
    }
    contents_.Hold(holder, std::move(entries), &freed);
  }
  for (const CopyId copy : job.added) contents_.Abandon(copy, &freed);
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

void Store::Fill(HolderId holder, uint32_t order, std::vector<Handed> memory) {
  const auto former = fillings_.find(holder);
  if (former != fillings_.end() && former->second.order != order) {
    DropFilling(holder);
  }
  const auto [at, is_new] = fillings_.try_emplace(holder, Filling{order});
  Filling& filling = at->second;
  if (is_new && queue_) filling.others_before = queue_->others_bytes();
  if (filling.status.ok() && !memory.empty()) {
    filling.status = BeginFill(holder, std::move(memory), &filling);
  }
}

absl::Status Store::BeginFill(HolderId holder, std::vector<Handed> memory,
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
  for (size_t i = 0; i < copies.size(); ++i) {
    const ByteRange range = filling->mapped.back().ranges()[i];
    const CopyPlace place = contents_.PlaceOf(copies[i]);
    const char* const base = Pinned(place);
    if (base == nullptr) {
      return absl::ResourceExhaustedError("the store's file cannot be mapped");
    }
    Enqueue({holder, base, range.address, range.bytes}, place,
            std::move(memory[i]), filling);
    filling->ranges.push_back(range);
    filling->copies.push_back(copies[i]);
  }
  return absl::OkStatus();
}

// Enqueues the copy, in pieces if other links should share the work.
void Store::Enqueue(Piece whole, const CopyPlace& place, Handed memory,
                    Filling* filling) {
  const bool is_shared = queue_->has_others() && whole.bytes >= kSharedBytes;
  std::shared_ptr<const driver::Descriptor>& file = filling->files[place.file];
  if (is_shared && file == nullptr) {
    absl::StatusOr<driver::Descriptor> claim = files_[place.file].Claim({});
    if (claim.ok()) {
      file = std::make_shared<const driver::Descriptor>(*std::move(claim));
    }
  }
  if (!is_shared || file == nullptr) return queue_->Add(std::move(whole));
  const auto transfer = std::make_shared<const Transfer>(
      Transfer{file, place.offset, std::move(memory)});
  for (uint64_t at = 0; at < whole.bytes; at += kPieceBytes) {
    queue_->Add({whole.holder, whole.from + at, whole.to + at,
                 std::min(kPieceBytes, whole.bytes - at), transfer, at});
  }
}

absl::Status Store::Carry(const Transfer& whole, uint64_t offset,
                          uint64_t bytes) {
  if (!prepared_) {
    return absl::UnavailableError("no engine may leave this GPU");
  }
  return carrier_.Carry(whole, offset, bytes, stream_);
}

int Store::Tend() {
  if (queue_) queue_->Pump();
  const uint64_t now_ns = clock_.NowNs();
  if (!carrier_.is_empty() &&
      now_ns - carried_looked_ns_ >= kLetGoMs * 1'000'000 &&
      !carrier_.LetGoUnneeded()) {
    carried_looked_ns_ = now_ns;
  }
  if (queue_ && queue_->has_waiting()) return 1;
  return carrier_.is_empty() ? -1 : static_cast<int>(kLetGoMs);
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
  if (s.ok() && total != 0) s = queue_->Finish(holder);
  if (s.ok() && total != 0) s = Check(holder, filling);
  const bool has_come = s.ok() && total != 0;
  if (has_come && queue_->others_bytes() != filling.others_before) {
    log::Info("{} bytes came by other GPUs' links",
              queue_->others_bytes() - filling.others_before);
  }
  DropFilling(holder);
  return s;
}

void Store::DropFill(HolderId holder, uint32_t order) {
  const auto found = fillings_.find(holder);
  if (found != fillings_.end() && found->second.order == order) {
    DropFilling(holder);
  }
}

// Copies what differs again, over this GPU's link only: another link may have
// brought wrong bytes.
absl::Status Store::Check(HolderId holder, const Filling& filling) {
  absl::StatusOr<std::vector<size_t>> differing = Differing(filling);
  if (!differing.ok() || differing->empty()) return differing.status();
  log::Warning(
      "{} allocations that came back are not as their copies: they are "
      "copied once more",
      differing->size());
  queue_->DropOthers();
  for (const size_t i : *differing) {
    const char* const base = Pinned(contents_.PlaceOf(filling.copies[i]));
    queue_->Add(
        {holder, base, filling.ranges[i].address, filling.ranges[i].bytes});
  }
  differing = Differing(filling);
  if (!differing.ok() || differing->empty()) return differing.status();
  contents_.Hide(filling.copies[differing->front()]);
  is_offer_old_ = true;
  return absl::DataLossError(
      "its copy in the store has changed: this process ends");
}

absl::StatusOr<std::vector<size_t>> Store::Differing(const Filling& filling) {
  const absl::StatusOr<std::vector<kernels::Fingerprint>> prints =
      Fingerprints(filling.ranges);
  if (!prints.ok()) return prints.status();
  std::vector<size_t> differing;
  for (size_t i = 0; i < prints->size(); ++i) {
    if ((*prints)[i] != contents_.KeyOf(filling.copies[i]).print) {
      differing.push_back(i);
    }
  }
  return differing;
}

absl::Status Store::Compare(const std::vector<Handed>& memory) {
  if (memory.size() % 2 != 0) {
    return absl::InvalidArgumentError("an allocation has no counterpart");
  }
  absl::Status s = Begin();
  if (!s.ok()) return s;
  absl::StatusOr<MappedMemory> mapped =
      MappedMemory::Map(driver_, device_, memory);
  if (!mapped.ok()) return mapped.status();
  std::vector<ByteRange> sides[2];
  for (size_t i = 0; i < memory.size(); ++i) {
    sides[i % 2].push_back(mapped->ranges()[i]);
  }
  const auto own = Fingerprints(sides[0]);
  if (!own.ok()) return own.status();
  const auto others = Fingerprints(sides[1]);
  if (!others.ok()) return others.status();
  for (size_t i = 0; i < own->size(); ++i) {
    if (sides[0][i].bytes == sides[1][i].bytes && (*own)[i] == (*others)[i]) {
      continue;
    }
    return absl::FailedPreconditionError(
        "its parameters are not those of the other process");
  }
  return absl::OkStatus();
}

// Waits until submitted copies have ended before any of their memory is
// unmapped.
void Store::DropFilling(HolderId holder) {
  const auto filling = fillings_.find(holder);
  if (filling == fillings_.end()) return;
  if (queue_) queue_->Drop(holder);
  if (stream_ != nullptr) Rest().IgnoreError();
  fillings_.erase(filling);
}

// Finds the contents that have copies here, then copies the others.
absl::Status Store::MatchOrCopy(Job* job) {
  job->files = {*own_file_};
  job->copies.resize(job->keys.size());
  for (size_t i = 0; i < job->keys.size(); ++i) {
    const std::optional<CopyId> found = contents_.Find(job->keys[i]);
    if (!found) continue;
    const absl::StatusOr<bool> used = Use(job, i, *found);
    if (!used.ok()) return used.status();
  }
  absl::Status s = MatchOthers(job);
  return s.ok() ? CopyNew(job) : s;
}

// Uses the copy. False if it may not be used, or has other contents.
absl::StatusOr<bool> Store::Use(Job* job, size_t i, CopyId copy) {
  const uint32_t file = contents_.PlaceOf(copy).file;
  if (!job->MayUse(file)) return false;
  absl::StatusOr<bool> same = IsSame(job->ranges[i].address, copy);
  if (!same.ok() || !*same) return same;
  job->files.insert(file);
  job->copies[i] = copy;
  return true;
}

absl::Status Store::MatchOthers(Job* job) {
  std::vector<std::unique_ptr<Link>> links;
  for (OtherDaemon& other : ask_others_()) {
    const absl::Status s = MatchOffer(other.offer, job);
    if (!s.ok()) return s;
    if (other.link != nullptr) links.push_back(std::move(other.link));
  }
  queue_->SetOthers(std::move(links));
  CloseUnused();
  return absl::OkStatus();
}

// Uses what is offered. Ignores a malformed list and a copy that no longer
// exists. If two engines that left at the same time each have a copy, both
// daemons use the same copy from now on.
absl::Status Store::MatchOffer(const Offer& offer, Job* job) {
  const absl::StatusOr<std::vector<abi::InventoryEntry>> list =
      ReadInventory(offer.inventory.get(), offer.files.size());
  if (!list.ok()) return absl::OkStatus();
  std::map<ContentKey, abi::InventoryEntry, KeyLess> offered;
  for (const abi::InventoryEntry& entry : *list) {
    offered.insert({{{entry.print[0], entry.print[1]}, entry.bytes}, entry});
  }
  for (size_t i = 0; i < job->keys.size(); ++i) {
    const auto found = offered.find(job->keys[i]);
    if (found == offered.end()) continue;
    abi::InventoryEntry entry = found->second;
    entry.file = FileOf(offer.files[entry.file].get());
    if (entry.file == UINT32_MAX || !IsBetter(entry.file, job->copies[i])) {
      continue;
    }
    const std::optional<CopyId> copy =
        AdoptCopy(entry, entry.number != kUncheckedCopy);
    if (!copy) continue;
    job->added.push_back(*copy);
    const absl::StatusOr<bool> used = Use(job, i, *copy);
    if (!used.ok()) return used.status();
    // Pins the copy now, so that this does not delay the engine's return.
    if (*used) Pinned(contents_.PlaceOf(*copy));
  }
  return absl::OkStatus();
}

// True for the preferred one of two files, which is the same for all daemons.
bool Store::IsBetter(uint32_t file, const std::optional<CopyId>& copy) const {
  return !copy ||
         files_[file].inode() < files_[contents_.PlaceOf(*copy).file].inode();
}

// Copies the missing contents. A content that a process has twice is copied
// once.
absl::Status Store::CopyNew(Job* job) {
  Missing missing;
  uint64_t bytes = 0;
  for (size_t i = 0; i < job->copies.size(); ++i) {
    const ContentKey& key = job->keys[i];
    if (job->copies[i]) {
      found_bytes_ += key.bytes;
      continue;
    }
    std::vector<size_t>& same = missing[key];
    if (same.empty()) bytes += key.bytes;
    same.push_back(i);
  }
  if (missing.empty()) return absl::OkStatus();
  std::vector<CopyId> keep;
  for (const auto& copy : job->copies) {
    if (copy) keep.push_back(*copy);
  }
  absl::Status s = MakeRoom(bytes, keep);
  if (!s.ok()) return s;
  s = CopyMissing(missing, job);
  s.Update(Rest());
  return s;
}

// Spare copies with which another daemon's engine is out free no memory.
absl::Status Store::MakeRoom(uint64_t bytes, const std::vector<CopyId>& keep) {
  FreeUnlocked();
  for (;;) {
    Contents::Freed freed;
    const absl::Status s = contents_.MakeRoom(bytes, Limit(), keep, &freed);
    if (!s.ok() || freed.empty()) return s;
    Free(freed);
  }
}

// Copies the missing contents. The host memory for one is allocated while
// another is copied.
absl::Status Store::CopyMissing(const Missing& missing, Job* job) {
  const driver::EntryPoints& call = driver_.call();
  for (const auto& [key, same] : missing) {
    absl::StatusOr<uint64_t> offset = files_[*own_file_].Append(key.bytes);
    if (!offset.ok()) return offset.status();
    const CopyPlace place = {*own_file_, *offset, key.bytes};
    const CopyId copy = contents_.Add(key, place);
    job->added.push_back(copy);
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
    job->copied_bytes += key.bytes;
    for (const size_t i : same) job->copies[i] = copy;
  }
  return absl::OkStatus();
}

// A former daemon's copy may have been overwritten since.
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
    is_offer_old_ = true;
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

// Locks the copies that the process needs, on descriptors for the process, and
// lists these copies.
absl::StatusOr<Kept> Store::ClaimCopies(const Job& job) {
  Kept kept;
  kept.copied_bytes = job.copied_bytes;
  std::map<uint32_t, uint32_t> numbers;  // of files, in the inventory
  std::map<uint32_t, std::vector<FileRange>> ranges;
  std::vector<abi::InventoryEntry> entries;
  for (size_t i = 0; i < job.memory.size(); ++i) {
    const CopyPlace& place = contents_.PlaceOf(*job.copies[i]);
    const uint32_t number =
        numbers.emplace(place.file, static_cast<uint32_t>(numbers.size()))
            .first->second;
    ranges[number].push_back(RangeOf(place));
    entries.push_back({job.memory[i].number,
                       number,
                       place.offset,
                       place.bytes,
                       {job.keys[i].print.low, job.keys[i].print.high}});
  }
  kept.files.resize(numbers.size());
  std::vector<driver::Descriptor> claims;
  for (const auto& [file, number] : numbers) {
    absl::StatusOr<driver::Descriptor> claim =
        files_[file].Claim(std::move(ranges[number]));
    if (!claim.ok()) return claim.status();
    claims.push_back(CopyOf(claim->get()));
    kept.files[number] = *std::move(claim);
    if (!claims.back().valid()) {
      return absl::ResourceExhaustedError("too many open files");
    }
  }
  absl::StatusOr<driver::Descriptor> list =
      WriteInventory(kept.files.size(), entries);
  if (!list.ok()) return list.status();
  kept.inventory = *std::move(list);
  claims_[job.holder].pending = std::move(claims);
  return kept;
}

// Nullopt if it is not there.
std::optional<CopyId> Store::AdoptCopy(const abi::InventoryEntry& entry,
                                       bool is_checked) {
  const CopyPlace place = {entry.file, entry.offset, entry.bytes};
  if (place.file == UINT32_MAX) return std::nullopt;
  const ContentKey key = {{entry.print[0], entry.print[1]}, entry.bytes};
  const std::optional<CopyId> shared = contents_.At(place.file, place.offset);
  if (shared) {
    const ContentKey& is = contents_.KeyOf(*shared);
    return is.print == key.print && is.bytes == key.bytes ? shared
                                                          : std::nullopt;
  }
  if (!files_[place.file].Lock(RangeOf(place))) return std::nullopt;
  const CopyId copy = contents_.Add(key, place);
  if (!is_checked) unchecked_.insert(copy);
  return copy;
}

uint32_t Store::FileOf(int file) {
  struct stat st = {};
  for (uint32_t i = 0; fstat(file, &st) == 0 && i < files_.size(); ++i) {
    if (files_[i].inode() == st.st_ino) return i;
  }
  absl::StatusOr<StoreFile> adopted = StoreFile::Adopt(file);
  if (!adopted.ok()) return UINT32_MAX;
  const auto number = static_cast<uint32_t>(files_.size());
  files_.push_back(*std::move(adopted));
  contents_.SetOthers(number, true);
  OwnFiles();
  return number;
}

void Store::OwnFiles() {
  for (uint32_t i = 0; i < files_.size(); ++i) {
    if (owned_.contains(i) || !files_[i].Own()) continue;
    owned_.insert(i);
    contents_.SetOthers(i, false);
  }
}

absl::Status Store::Adopt(HolderId holder, bool is_out,
                          driver::Descriptor inventory,
                          std::vector<driver::Descriptor> files) {
  absl::Status s = TakeOver(holder, is_out, inventory, std::move(files));
  is_offer_old_ = true;
  CloseUnused();
  return s;
}

absl::Status Store::TakeOver(HolderId holder, bool is_out,
                             const driver::Descriptor& inventory,
                             std::vector<driver::Descriptor> files) {
  // A known holder brings the copies that it got from this store.
  if (contents_.Has(holder)) return absl::OkStatus();
  absl::StatusOr<std::vector<abi::InventoryEntry>> list =
      ReadInventory(inventory.get(), files.size());
  if (!list.ok()) return list.status();
  std::vector<uint32_t> numbers;
  for (const driver::Descriptor& file : files) {
    numbers.push_back(FileOf(file.get()));
  }
  std::vector<Contents::Entry> entries;
  Contents::Freed freed;
  bool lacks_any = false;
  for (abi::InventoryEntry& entry : *list) {
    entry.file = numbers[entry.file];
    const std::optional<CopyId> copy = AdoptCopy(entry, /*is_checked=*/false);
    // A spare copy may have been freed since.
    lacks_any = lacks_any || !copy;
    if (!copy) continue;
    entries.push_back({entry.number, *copy});
  }
  if (lacks_any && is_out) {
    for (const Contents::Entry& entry : entries) {
      contents_.Abandon(entry.copy, &freed);
    }
    Free(freed);
    return absl::DataLossError(
        "an inventory names bytes that are not in its files");
  }
  if (is_out) {
    claims_[holder].held = std::move(files);
  } else {
    Unclaim(&files);
  }
  contents_.Adopt(holder, std::move(entries), is_out, &freed);
  Free(freed);
  return absl::OkStatus();
}

void Store::Commit(HolderId holder) {
  DropFilling(holder);
  const auto claims = claims_.find(holder);
  if (claims != claims_.end() && !claims->second.pending.empty()) {
    claims->second.held = std::exchange(claims->second.pending, {});
  }
  Contents::Freed freed;
  contents_.Commit(holder, &freed);
  is_offer_old_ = true;
  Free(freed);
}

void Store::Cancel(HolderId holder) {
  const auto claims = claims_.find(holder);
  if (claims != claims_.end()) Unclaim(&claims->second.pending);
  Contents::Freed freed;
  contents_.Cancel(holder, &freed);
  Free(freed);
}

void Store::Return(HolderId holder) {
  DropFilling(holder);
  OwnFiles();
  const auto claims = claims_.find(holder);
  if (claims != claims_.end()) Unclaim(&claims->second.held);
  Contents::Freed freed;
  contents_.Return(holder, &freed);
  Free(freed);
}

// A forked child may still have the descriptors, without using them, so they
// are unclaimed here.
void Store::Forget(HolderId holder) {
  DropFilling(holder);
  const auto claims = claims_.find(holder);
  if (claims != claims_.end()) {
    Unclaim(&claims->second.pending);
    Unclaim(&claims->second.held);
    claims_.erase(claims);
  }
  Contents::Freed freed;
  contents_.Forget(holder, &freed);
  Free(freed);
}

void Store::Unclaim(std::vector<driver::Descriptor>* claims) {
  for (const driver::Descriptor& claim : *claims) StoreFile::Unclaim(claim);
  claims->clear();
}

void Store::Free(const Contents::Freed& freed) {
  if (freed.empty()) return;
  is_offer_old_ = true;
  for (const CopyPlace& place : freed) {
    pinned_.erase({place.file, place.offset});
    files_[place.file].LetGo(RangeOf(place));
  }
  CloseUnused();
}

void Store::CloseUnused() {
  for (uint32_t i = 0; i < files_.size(); ++i) {
    if (i == own_file_ || contents_.BytesIn(i) != 0) continue;
    files_[i].Close();
    owned_.erase(i);
  }
}

void Store::FreeUnlocked() {
  for (const uint32_t file : owned_) {
    if (files_[file].memory_bytes() <= contents_.BytesIn(file)) continue;
    uint64_t begin = 0;
    for (const CopyPlace& place : contents_.PlacesIn(file)) {
      files_[file].FreeUnlocked(begin, place.offset);
      begin = place.offset + place.bytes;
    }
    files_[file].FreeUnlocked(begin, INT64_MAX);
  }
}

// Returns the limit. Memory in the store's files that is freed here but needed
// elsewhere counts, too.
uint64_t Store::Limit() const {
  if (limit_ == 0) return contents_.held_bytes() + SpareHostBytes();
  uint64_t lost = 0;
  for (const uint32_t file : owned_) {
    const uint64_t held = contents_.BytesIn(file);
    lost += files_[file].memory_bytes() -
            std::min(files_[file].memory_bytes(), held);
  }
  return limit_ - std::min(limit_, lost);
}

std::shared_ptr<const Offer> Store::offer() {
  if (!std::exchange(is_offer_old_, false)) return offer_;
  absl::StatusOr<std::shared_ptr<const Offer>> made = MakeOffer();
  offer_ = made.ok() ? *std::move(made) : nullptr;
  return offer_;
}

absl::StatusOr<std::shared_ptr<const Offer>> Store::MakeOffer() const {
  auto offer = std::make_shared<Offer>();
  std::map<uint32_t, uint32_t> numbers;  // of files, in the offer
  std::vector<abi::InventoryEntry> entries;
  for (const CopyId copy : contents_.Known()) {
    const CopyPlace& place = contents_.PlaceOf(copy);
    const bool may_use =
        numbers.contains(place.file) || numbers.size() < abi::kMostStoreFiles;
    if (!may_use) continue;
    const auto [number, is_new] =
        numbers.emplace(place.file, static_cast<uint32_t>(numbers.size()));
    if (is_new) {
      // The descriptor does not carry this daemon's locks, which would end only
      // with the last receiver.
      absl::StatusOr<driver::Descriptor> file = files_[place.file].Claim({});
      if (!file.ok()) return file.status();
      offer->files.push_back(*std::move(file));
    }
    const kernels::Fingerprint print = contents_.KeyOf(copy).print;
    entries.push_back({unchecked_.contains(copy) ? kUncheckedCopy : 0,
                       number->second,
                       place.offset,
                       place.bytes,
                       {print.low, print.high}});
  }
  if (entries.empty()) return nullptr;
  absl::StatusOr<driver::Descriptor> list =
      WriteInventory(offer->files.size(), entries);
  if (!list.ok()) return list.status();
  offer->inventory = *std::move(list);
  return offer;
}

metrics::StoreFigures Store::figures() const {
  return {contents_.held_bytes(),
          contents_.spare_bytes(),
          contents_.unshared_bytes(),
          Limit(),
          copied_bytes_,
          found_bytes_,
          contents_.copies(),
          contents_.others_bytes(),
          queue_ ? queue_->own_bytes() : 0,
          queue_ ? queue_->others_bytes() : 0};
}

}  // namespace fineserve::store
