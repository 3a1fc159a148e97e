#include "shim/classify/frame_step.h"

#include <dlfcn.h>
#include <string.h>

namespace fineserve::shim {
namespace {

// Registers by their DWARF numbers.
constexpr uint64_t kRbp = 6;
constexpr uint64_t kRsp = 7;
constexpr uint64_t kReturnAddress = 16;

// Reads forward in a loaded table and never past its end: missing bytes read as
// zero, and ok() is false from then on.
class TableReader {
 public:
  // Reads a record of .eh_frame: a length in 4 bytes, then that many bytes.
  // (The form with an 8-byte length, which begins with the length -1, is not
  // supported.)
  explicit TableReader(const uint8_t* record)
      : at_(record + 4), end_(record + 4) {
    uint32_t bytes;
    memcpy(&bytes, record, sizeof(bytes));
    if (bytes != UINT32_MAX) end_ += bytes;
  }

  template <typename T>
  T Fixed() {
    T value = 0;
    if (static_cast<size_t>(end_ - at_) < sizeof(T)) {
      Fail();
    } else {
      memcpy(&value, at_, sizeof(T));
      at_ += sizeof(T);
    }
    return value;
  }

  uint64_t Leb128() {  // unsigned
    uint64_t value = 0;
    uint8_t byte;
    unsigned shift = 0;
    do {
      byte = Fixed<uint8_t>();
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      shift += 7;
    } while ((byte & 0x80) != 0);
    return value;
  }

  void Skip(uint64_t bytes) {
    if (bytes > static_cast<uint64_t>(end_ - at_)) {
      Fail();
    } else {
      at_ += bytes;
    }
  }

  const uint8_t* at() const { return at_; }
  bool done() const { return at_ == end_; }
  bool ok() const { return ok_; }

 private:
  void Fail() {
    at_ = end_;
    ok_ = false;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
};

// DW_EH_PE_…: the address encodings that assemblers and linkers use here. All
// take 4 bytes; a distance is signed.
constexpr uint8_t kFromHere = 0x1b;
constexpr uint8_t kFromTable = 0x3b;
constexpr uint8_t kUnsigned = 0x03;

// Finds the record (FDE) of the function at pc in .eh_frame_hdr, which holds:
// version 1, three encodings, the address of .eh_frame and the number of
// entries; then the entries {function, its FDE}, both relative to the header,
// ascending.
const uint8_t* FindFde(const uint8_t* header, uint64_t pc) {
  if (header[0] != 1 || header[1] != kFromHere || header[2] != kUnsigned ||
      header[3] != kFromTable) {
    return nullptr;
  }
  struct Entry {
    int32_t function;
    int32_t fde;
  };
  uint32_t count;
  memcpy(&count, header + 8, sizeof(count));
  const auto* entries = reinterpret_cast<const Entry*>(header + 12);
  const auto base = reinterpret_cast<uint64_t>(header);
  uint32_t low = 0;  // entries below it begin at or before pc
  for (uint32_t high = count; low < high;) {
    const uint32_t middle = low + (high - low) / 2;
    if (base + static_cast<int64_t>(entries[middle].function) <= pc) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == 0 ? nullptr : header + entries[low - 1].fde;
}

// Reads a CIE (the part that many functions share) up to its program. False if
// it does not have the form that compilers emit: version 1, code in bytes,
// offsets in units of -8 bytes (one byte, 0x78), and an augmentation of 'z',
// optionally 'P' and 'L', and 'R' at the end. The CIE of a signal frame has an
// 'S'.
bool OpenCie(TableReader* r) {
  r->Skip(4);  // 0: it is a CIE
  if (r->Fixed<uint8_t>() != 1 || r->Fixed<char>() != 'z') return false;
  bool from_here = false;
  for (char letter; (letter = r->Fixed<char>()) != '\0';) {
    if (letter != 'P' && letter != 'L' && letter != 'R') return false;
    // The encoding for 'R' must be the augmentation's last byte.
    from_here = letter == 'R';
  }
  if (!from_here || r->Fixed<uint8_t>() != 1 || r->Fixed<uint8_t>() != 0x78 ||
      r->Fixed<uint8_t>() != kReturnAddress) {
    return false;
  }
  const uint64_t bytes = r->Leb128();
  if (bytes == 0) return false;
  r->Skip(bytes - 1);
  return r->Fixed<uint8_t>() == kFromHere && r->ok();
}

// The part that we need of a row of the table that call frame programs compute.
struct Row {
  uint64_t cfa_register = 0;
  uint64_t cfa_bytes = 0;
  uint64_t rbp_words = 0;     // below the CFA; 0: unchanged
  uint64_t return_words = 0;  // below the CFA; 0: there is no caller
};

// Runs call frame programs up to the row of one address.
class RowFinder {
 public:
  RowFinder(uint64_t begin, uint64_t pc) : location_(begin), pc_(pc) {}

  // Returns false at an instruction that compilers hardly ever use; libgcc's
  // unwinder handles it.
  bool Run(TableReader r) {
    while (!r.done() && location_ <= pc_) {
      if (!Step(&r)) return false;
    }
    return r.ok();
  }

  // Saves the current row as the one that "restore" goes back to.
  void FixInitial() { initial_ = row_; }
  const Row& row() const { return row_; }

 private:
  // DW_CFA_… (DWARF 5, 7.24). The first three have an operand in their lower
  // six bits.
  enum : uint8_t {
    kAdvance = 0x40,
    kOffset = 0x80,
    kRestore = 0xc0,
    kNothing = 0x00,
    kAdvance1 = 0x02,
    kAdvance2 = 0x03,
    kAdvance4 = 0x04,
    kUndefined = 0x07,
    kRemember = 0x0a,
    kRecall = 0x0b,
    kCfa = 0x0c,
    kCfaRegister = 0x0d,
    kCfaOffset = 0x0e,
    kArgumentsSize = 0x2e,  // GNU's (LSB 5.0, 10.5): only exceptions need it
  };

  bool Step(TableReader* r) {
    const auto byte = r->Fixed<uint8_t>();
    const uint64_t low = byte & 0x3f;
    switch (byte & 0xc0) {
      case kAdvance:
        location_ += low;
        return true;
      case kOffset:
        Save(low, r->Leb128());
        return true;
      case kRestore:
        if (low == kRbp) row_.rbp_words = initial_.rbp_words;
        return low != kReturnAddress;
    }
    switch (byte) {
      case kNothing:
        return true;
      case kArgumentsSize:
        r->Leb128();
        return true;
      case kAdvance1:
        location_ += r->Fixed<uint8_t>();
        return true;
      case kAdvance2:
        location_ += r->Fixed<uint16_t>();
        return true;
      case kAdvance4:
        location_ += r->Fixed<uint32_t>();
        return true;
      case kUndefined:
        row_.return_words = 0;
        return r->Leb128() == kReturnAddress;
      case kRemember:
        remembered_[depth_++ % kMostRemembered] = row_;
        return depth_ <= kMostRemembered;
      case kRecall:
        if (depth_ == 0) return false;
        row_ = remembered_[--depth_];
        return true;
      case kCfa:
        row_.cfa_register = r->Leb128();
        row_.cfa_bytes = r->Leb128();
        return true;
      case kCfaRegister:
        row_.cfa_register = r->Leb128();
        return true;
      case kCfaOffset:
        row_.cfa_bytes = r->Leb128();
        return true;
    }
    return false;
  }

  void Save(uint64_t reg, uint64_t words) {
    if (reg == kRbp) row_.rbp_words = words;
    if (reg == kReturnAddress) row_.return_words = words;
  }

  static constexpr size_t kMostRemembered = 4;  // compilers nest by one

  uint64_t location_;
  const uint64_t pc_;
  Row row_;
  Row initial_;
  Row remembered_[kMostRemembered];
  size_t depth_ = 0;
};

FrameStep StepOf(const Row& row) {
  using Kind = FrameStep::Kind;
  if (row.return_words == 0) return {Kind::kLast};
  const bool usual = row.return_words == 1 && row.rbp_words <= kMostRbpWords &&
                     (row.cfa_register == kRbp || row.cfa_register == kRsp) &&
                     row.cfa_bytes % 8 == 0 &&
                     row.cfa_bytes / 8 <= kMostCfaWords;
  if (!usual) return {};
  return {Kind::kCaller, row.cfa_register == kRbp,
          static_cast<uint32_t>(row.cfa_bytes / 8),
          static_cast<uint32_t>(row.rbp_words)};
}

}  // namespace

FrameStep ReadFrameStep(uint64_t pc) {
  dl_find_object module;
  if (_dl_find_object(reinterpret_cast<void*>(pc), &module) != 0 ||
      module.dlfo_eh_frame == nullptr) {
    return {};
  }
  const uint8_t* const record =
      FindFde(static_cast<const uint8_t*>(module.dlfo_eh_frame), pc);
  if (record == nullptr) return {};
  TableReader fde(record);
  const uint8_t* const here = fde.at();
  TableReader cie(here - fde.Fixed<uint32_t>());
  if (!OpenCie(&cie)) return {};
  const auto begin_from = reinterpret_cast<uint64_t>(fde.at());
  const uint64_t begin = begin_from + fde.Fixed<int32_t>();
  if (pc - begin >= fde.Fixed<uint32_t>()) return {};
  fde.Skip(fde.Leb128());  // augmentation: the address of its exception table
  RowFinder row(begin, pc);
  if (!fde.ok() || !row.Run(cie)) return {};
  row.FixInitial();
  return row.Run(fde) ? StepOf(row.row()) : FrameStep{};
}

}  // namespace fineserve::shim
