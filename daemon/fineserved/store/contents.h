#ifndef DAEMON_FINESERVED_STORE_CONTENTS_H_
#define DAEMON_FINESERVED_STORE_CONTENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "kernels/fingerprint.h"

namespace fineserve::store {

// A process whose resident memory the store has copied.
enum class HolderId : uint32_t {};  // its pid

// The key of a content: equal keys mean equal bytes (fingerprint.h).
struct ContentKey {
  kernels::Fingerprint print;
  uint64_t bytes = 0;
};

struct KeyLess {
  bool operator()(const ContentKey& a, const ContentKey& b) const {
    return a.print != b.print ? a.print < b.print : a.bytes < b.bytes;
  }
};

// Where a copy's bytes are.
struct CopyPlace {
  uint32_t file = 0;  // the store's number of it
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

enum class CopyId : uint64_t {};

// Which copies the store has, who needs them, and which one goes when host
// memory is short (design note 0039). Pure: what it says is to be freed, the
// caller frees.
//
//   Hold ─► pending ─Commit─► out ─Return─► here ─Hold─► …
//              └──Cancel──► as before
//
// A holder's copies are needed while it is out: nothing else has its bytes.
// While it is here they are spare: they save the next eviction its copying, and
// go first when memory is short, the longest unused first. A copy that no
// holder holds goes at once. So do spare ones in files that others own: those
// count what is in them, and these would stay in their way.
//
// Invariants: a copy that is needed or pending is never freed; a copy is found
// by others only once its holder has been out with it, since until then its
// bytes may have changed while they were copied.
class Contents {
 public:
  // One allocation of a holder, by the number that the holder gave it, and its
  // copy.
  struct Entry {
    uint32_t number = 0;
    CopyId copy = {};
  };
  using Freed = std::vector<CopyPlace>;

  // Returns a copy of these bytes with which a holder has been out.
  std::optional<CopyId> Find(const ContentKey& key) const;
  std::optional<CopyId> At(uint32_t file, uint64_t offset) const;
  // Ordered by offset.
  std::vector<CopyPlace> PlacesIn(uint32_t file) const;
  uint64_t BytesIn(uint32_t file) const;
  // Notes whether another daemon owns the file; by default none does.
  void SetOthers(uint32_t file, bool is_others);
  const CopyPlace& PlaceOf(CopyId copy) const { return copies_.at(copy).place; }
  const ContentKey& KeyOf(CopyId copy) const { return copies_.at(copy).key; }
  // All copies that Find finds.
  std::vector<CopyId> Known() const;

  // Frees spare copies, except those in `keep`, until there is room for `bytes`
  // more within `limit`. ResourceExhausted, with nothing freed, if that is not
  // enough.
  absl::Status MakeRoom(uint64_t bytes, uint64_t limit,
                        const std::vector<CopyId>& keep, Freed* freed);
  // The copy is not found again.
  void Hide(CopyId copy);
  // Adds a copy that is being made. It has no holder yet, and stays until a
  // Hold names it or Abandon is called.
  CopyId Add(const ContentKey& key, const CopyPlace& place);
  void Abandon(CopyId copy, Freed* freed);

  // The holder is about to leave with these entries. Replaces a pending Hold.
  void Hold(HolderId holder, std::vector<Entry> entries, Freed* freed);
  // Commit: the holder has left. Cancel: it has stayed.
  void Commit(HolderId holder, Freed* freed);
  void Cancel(HolderId holder, Freed* freed);
  // The holder is back on the GPU.
  void Return(HolderId holder, Freed* freed);
  // Called when the holder's process has ended.
  void Forget(HolderId holder, Freed* freed);
  // Adopts a holder of a former daemon's store, with copies that Add has made.
  void Adopt(HolderId holder, std::vector<Entry> entries, bool is_out,
             Freed* freed);

  // Returns the copy of one of the holder's allocations, by its number, while
  // the holder is out; the copy then stays.
  std::optional<CopyId> CopyOf(HolderId holder, uint32_t number) const;
  bool Has(HolderId holder) const { return holders_.contains(holder); }
  // held_bytes counts files that no other daemon owns; others_bytes, files of
  // other daemons.
  uint64_t held_bytes() const { return all_bytes_ - others_bytes(); }
  uint64_t others_bytes() const;
  // Returns the bytes of copies whose holders are all on the GPU.
  uint64_t spare_bytes() const;
  // Returns the bytes that holders which are out would take if nothing were
  // shared.
  uint64_t unshared_bytes() const;
  size_t copies() const;  // in files that no other daemon owns

 private:
  struct Copy {
    ContentKey key;
    CopyPlace place;
    uint32_t holders = 0;  // entries that name it
    uint32_t needed = 0;   // of these, pending ones and those of who is out
    uint64_t used = 0;     // the number of its last use: grows with time
  };
  struct Holder {
    std::vector<Entry> entries;
    std::vector<Entry> pending;
    bool is_out = false;
  };

  void Take(const std::vector<Entry>& entries, bool needed);
  void Let(std::vector<Entry>* entries, bool needed, Freed* freed);
  void Drop(CopyId copy, Freed* freed);
  bool IsOthers(CopyId copy) const {
    return others_.contains(copies_.at(copy).place.file);
  }

  std::map<CopyId, Copy> copies_;
  std::map<ContentKey, CopyId, KeyLess> known_;  // those that Find finds
  std::map<HolderId, Holder> holders_;
  std::set<uint32_t> others_;  // files
  uint64_t all_bytes_ = 0;
  uint64_t last_copy_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace fineserve::store

#endif  // DAEMON_FINESERVED_STORE_CONTENTS_H_
