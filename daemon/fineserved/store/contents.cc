#include "daemon/fineserved/store/contents.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/byte_size.h"

namespace fineserve::store {

std::optional<CopyId> Contents::Find(const ContentKey& key) const {
  const auto found = known_.find(key);
  if (found == known_.end()) return std::nullopt;
  return found->second;
}

std::optional<CopyId> Contents::At(uint32_t file, uint64_t offset) const {
  for (const auto& [id, copy] : copies_) {
    if (copy.place.file == file && copy.place.offset == offset) return id;
  }
  return std::nullopt;
}

std::vector<CopyPlace> Contents::PlacesIn(uint32_t file) const {
  std::vector<CopyPlace> places;
  for (const auto& [id, copy] : copies_) {
    if (copy.place.file == file) places.push_back(copy.place);
  }
  std::sort(places.begin(), places.end(),
            [](const CopyPlace& a, const CopyPlace& b) {
              return a.offset < b.offset;
            });
  return places;
}

uint64_t Contents::BytesIn(uint32_t file) const {
  uint64_t bytes = 0;
  for (const auto& [id, copy] : copies_) {
    if (copy.place.file == file) bytes += copy.place.bytes;
  }
  return bytes;
}

void Contents::SetOthers(uint32_t file, bool is_others) {
  if (is_others) {
    others_.insert(file);
  } else {
    others_.erase(file);
  }
}

std::vector<CopyId> Contents::Known() const {
  std::vector<CopyId> known;
  for (const auto& [key, copy] : known_) known.push_back(copy);
  return known;
}

void Contents::Hide(CopyId copy) {
  const auto known = known_.find(copies_.at(copy).key);
  if (known != known_.end() && known->second == copy) known_.erase(known);
}

CopyId Contents::Add(const ContentKey& key, const CopyPlace& place) {
  const CopyId id{++last_copy_};
  copies_[id] = {key, place};
  all_bytes_ += place.bytes;
  return id;
}

void Contents::Abandon(CopyId copy, Freed* freed) {
  const auto found = copies_.find(copy);
  if (found != copies_.end() && found->second.holders == 0) Drop(copy, freed);
}

void Contents::Drop(CopyId id, Freed* freed) {
  Hide(id);
  const auto copy = copies_.find(id);
  freed->push_back(copy->second.place);
  all_bytes_ -= copy->second.place.bytes;
  copies_.erase(copy);
}

std::optional<CopyId> Contents::CopyOf(HolderId holder, uint32_t number) const {
  const auto found = holders_.find(holder);
  if (found == holders_.end() || !found->second.is_out) return std::nullopt;
  for (const Entry& entry : found->second.entries) {
    if (entry.number == number) return entry.copy;
  }
  return std::nullopt;
}

// Also removes the freed spare copies from their holders, so that their
// contents will be copied again.
absl::Status Contents::MakeRoom(uint64_t bytes, uint64_t limit,
                                const std::vector<CopyId>& keep, Freed* freed) {
  std::vector<std::pair<uint64_t, CopyId>> spare;
  uint64_t spare_bytes = 0;
  for (const auto& [id, copy] : copies_) {
    if (copy.needed != 0 || copy.holders == 0 || IsOthers(id)) continue;
    if (std::find(keep.begin(), keep.end(), id) != keep.end()) continue;
    spare.push_back({copy.used, id});
    spare_bytes += copy.place.bytes;
  }
  uint64_t held = held_bytes();
  const uint64_t after = held + bytes;
  if (after > limit && after - limit > spare_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the host's store has room for ", abi::SizeText(limit), ", holds ",
        abi::SizeText(held - spare_bytes), " that are needed, and ",
        abi::SizeText(bytes), " more would have to be copied"));
  }
  std::sort(spare.begin(), spare.end());
  for (const auto& [used, id] : spare) {
    if (held + bytes <= limit) break;
    held -= copies_.at(id).place.bytes;
    for (auto& [holder_id, holder] : holders_) {
      std::erase_if(holder.entries,
                    [id = id](const Entry& e) { return e.copy == id; });
    }
    Drop(id, freed);
  }
  return absl::OkStatus();
}

void Contents::Take(const std::vector<Entry>& entries, bool needed) {
  ++uses_;
  for (const Entry& entry : entries) {
    Copy& copy = copies_.at(entry.copy);
    ++copy.holders;
    copy.needed += needed;
    copy.used = uses_;
  }
}

void Contents::Let(std::vector<Entry>* entries, bool needed, Freed* freed) {
  for (const Entry& entry : *entries) {
    Copy& copy = copies_.at(entry.copy);
    copy.needed -= needed;
    if (--copy.holders == 0) Drop(entry.copy, freed);
  }
  entries->clear();
}

void Contents::Hold(HolderId id, std::vector<Entry> entries, Freed* freed) {
  Take(entries, /*needed=*/true);
  Holder& holder = holders_[id];
  Let(&holder.pending, /*needed=*/true, freed);
  holder.pending = std::move(entries);
}

void Contents::Commit(HolderId id, Freed* freed) {
  const auto found = holders_.find(id);
  if (found == holders_.end() || found->second.pending.empty()) return;
  Holder& holder = found->second;
  Let(&holder.entries, holder.is_out, freed);
  holder.entries = std::exchange(holder.pending, {});
  holder.is_out = true;
  for (const Entry& entry : holder.entries) {
    known_.emplace(copies_.at(entry.copy).key, entry.copy);
  }
}

void Contents::Cancel(HolderId id, Freed* freed) {
  const auto found = holders_.find(id);
  if (found == holders_.end()) return;
  Let(&found->second.pending, /*needed=*/true, freed);
}

void Contents::Return(HolderId id, Freed* freed) {
  const auto found = holders_.find(id);
  if (found == holders_.end() || !found->second.is_out) return;
  found->second.is_out = false;
  std::vector<Entry> own;
  std::vector<Entry> others;
  for (const Entry& entry : found->second.entries) {
    (IsOthers(entry.copy) ? others : own).push_back(entry);
  }
  ++uses_;
  for (const Entry& entry : own) {
    Copy& copy = copies_.at(entry.copy);
    --copy.needed;
    copy.used = uses_;
  }
  Let(&others, /*needed=*/true, freed);
  found->second.entries = std::move(own);
}

void Contents::Forget(HolderId id, Freed* freed) {
  const auto found = holders_.find(id);
  if (found == holders_.end()) return;
  Holder& holder = found->second;
  Let(&holder.pending, /*needed=*/true, freed);
  Let(&holder.entries, holder.is_out, freed);
  holders_.erase(found);
}

void Contents::Adopt(HolderId id, std::vector<Entry> entries, bool is_out,
                     Freed* freed) {
  Forget(id, freed);
  Hold(id, std::move(entries), freed);
  Commit(id, freed);
  if (!is_out) Return(id, freed);
}

uint64_t Contents::others_bytes() const {
  uint64_t bytes = 0;
  for (const uint32_t file : others_) bytes += BytesIn(file);
  return bytes;
}

size_t Contents::copies() const {
  return static_cast<size_t>(
      std::count_if(copies_.begin(), copies_.end(),
                    [&](const auto& copy) { return !IsOthers(copy.first); }));
}

uint64_t Contents::spare_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, copy] : copies_) {
    if (copy.needed == 0 && !IsOthers(id)) bytes += copy.place.bytes;
  }
  return bytes;
}

uint64_t Contents::unshared_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, holder] : holders_) {
    if (!holder.is_out) continue;
    for (const Entry& entry : holder.entries) {
      bytes += copies_.at(entry.copy).place.bytes;
    }
  }
  return bytes;
}

}  // namespace fineserve::store
