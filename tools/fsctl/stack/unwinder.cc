#include "tools/fsctl/stack/unwinder.h"

#include <elf.h>
#include <libunwind.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>

#include "absl/types/optional.h"

// libunwind exports this function for programs that find unwind tables
// themselves, but declares it in none of its headers.
extern "C" int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t space,
                                                  unw_word_t ip,
                                                  unw_dyn_info_t* table,
                                                  unw_proc_info_t* found,
                                                  int wants_info, void* walk);

namespace fineserve::fsctl {
namespace {

// Reads code and unwind tables, which do not change while the process runs, and
// only where files are mapped.
class MappedFiles {
 public:
  MappedFiles(pid_t pid, const AddressMap* map) : pid_(pid), map_(*map) {}

  template <typename T>
  bool Read(uint64_t address, T* value) {
    auto* out = reinterpret_cast<char*>(value);
    for (size_t done = 0; done < sizeof(*value);) {
      const Page* page = Find((address + done) / kPageBytes);
      if (page == nullptr) return false;
      const size_t at = (address + done) % kPageBytes;
      const size_t bytes = std::min(sizeof(*value) - done, kPageBytes - at);
      memcpy(out + done, page->data() + at, bytes);
      done += bytes;
    }
    return true;
  }

 private:
  using Page = std::array<char, kPageBytes>;

  const Page* Find(uint64_t number) {
    const auto [place, is_new] = pages_.try_emplace(number);
    if (is_new && map_.BaseOf(number * kPageBytes)) {
      auto page = std::make_unique<Page>();
      iovec local = {page->data(), kPageBytes};
      iovec remote = {reinterpret_cast<void*>(number * kPageBytes), kPageBytes};
      if (process_vm_readv(pid_, &local, 1, &remote, 1, 0) ==
          static_cast<ssize_t>(kPageBytes)) {
        place->second = std::move(page);
      }
    }
    return place->second.get();  // null: not readable
  }

  const pid_t pid_;
  const AddressMap& map_;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;  // by number
};

// .eh_frame_hdr (Linux Standard Base, "Exception Frame Header").
struct FrameHeader {
  uint8_t version;
  uint8_t frame_encoding, count_encoding, table_encoding;
  int32_t frame;
  uint32_t count;  // of pairs of a function and its entry
};
static_assert(sizeof(FrameHeader) == 12);
constexpr uint8_t kRelativeToItself32 = 0x1b, kUnsigned32 = 0x03,
                  kRelativeToHeader32 = 0x3b;

// The search tables of the files' .eh_frame sections, in the form that all
// linkers write.
class UnwindTables {
 public:
  UnwindTables(const AddressMap* map, MappedFiles* files)
      : map_(*map), files_(*files) {}

  // Null: the code at `ip` has none.
  unw_dyn_info_t* Find(uint64_t ip) {
    const absl::optional<uint64_t> base = map_.BaseOf(ip);
    if (!base) return nullptr;
    const auto [place, is_new] = tables_.try_emplace(*base);
    if (is_new) place->second = Read(*base);
    return place->second ? &*place->second : nullptr;
  }

 private:
  absl::optional<unw_dyn_info_t> Read(uint64_t base) {
    Elf64_Ehdr elf;
    if (!files_.Read(base, &elf) || memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0) {
      return absl::nullopt;
    }
    uint64_t lowest = UINT64_MAX, highest = 0;
    absl::optional<uint64_t> header;
    for (uint64_t i = 0; i < elf.e_phnum; ++i) {
      Elf64_Phdr part;
      if (!files_.Read(base + elf.e_phoff + i * sizeof(part), &part)) break;
      if (part.p_type == PT_GNU_EH_FRAME) header = part.p_vaddr;
      if (part.p_type != PT_LOAD) continue;
      lowest = std::min<uint64_t>(lowest, part.p_vaddr & ~(kPageBytes - 1));
      highest = std::max<uint64_t>(highest, part.p_vaddr + part.p_memsz);
    }
    if (!header || lowest > highest) return absl::nullopt;
    const uint64_t moved = base - lowest;
    return Table(*header + moved, base, highest + moved);
  }

  absl::optional<unw_dyn_info_t> Table(uint64_t at, uint64_t begin,
                                       uint64_t end) {
    FrameHeader header;
    if (!files_.Read(at, &header) || header.version != 1 ||
        header.frame_encoding != kRelativeToItself32 ||
        header.count_encoding != kUnsigned32 ||
        header.table_encoding != kRelativeToHeader32) {
      return absl::nullopt;
    }
    unw_dyn_info_t table = {};
    table.format = UNW_INFO_FORMAT_REMOTE_TABLE;
    table.start_ip = begin;
    table.end_ip = end;
    table.u.rti.segbase = at;
    table.u.rti.table_data = at + sizeof(header);
    constexpr size_t kPairBytes = 8;
    table.u.rti.table_len =
        uint64_t{header.count} * kPairBytes / sizeof(unw_word_t);
    return table;
  }

  const AddressMap& map_;
  MappedFiles& files_;
  std::map<uint64_t, absl::optional<unw_dyn_info_t>> tables_;  // by base
};

#if defined(__x86_64__)
// By libunwind's number.
using Registers = std::array<unw_word_t, UNW_X86_64_RIP + 1>;

Registers Numbered(const user_regs_struct& r) {
  Registers registers = {};
  registers[UNW_X86_64_RAX] = r.rax;
  registers[UNW_X86_64_RDX] = r.rdx;
  registers[UNW_X86_64_RCX] = r.rcx;
  registers[UNW_X86_64_RBX] = r.rbx;
  registers[UNW_X86_64_RSI] = r.rsi;
  registers[UNW_X86_64_RDI] = r.rdi;
  registers[UNW_X86_64_RBP] = r.rbp;
  registers[UNW_X86_64_RSP] = r.rsp;
  registers[UNW_X86_64_R8] = r.r8;
  registers[UNW_X86_64_R9] = r.r9;
  registers[UNW_X86_64_R10] = r.r10;
  registers[UNW_X86_64_R11] = r.r11;
  registers[UNW_X86_64_R12] = r.r12;
  registers[UNW_X86_64_R13] = r.r13;
  registers[UNW_X86_64_R14] = r.r14;
  registers[UNW_X86_64_R15] = r.r15;
  registers[UNW_X86_64_RIP] = r.rip;
  return registers;
}
#elif defined(__aarch64__)
using Registers = std::array<unw_word_t, UNW_AARCH64_PC + 1>;

Registers Numbered(const user_regs_struct& r) {
  Registers registers = {};
  std::copy(std::begin(r.regs), std::end(r.regs), registers.begin());
  registers[UNW_AARCH64_SP] = r.sp;
  registers[UNW_AARCH64_PC] = r.pc;
  return registers;
}
#endif

// Heuristic: a walk of 256 frames reads some 20,000 words. The limit is needed
// because the process may map unwind tables whose expressions never end.
constexpr uint64_t kMostReads = 1'000'000;

// Answers libunwind's questions about one stack.
struct Walk {
  const ThreadSnapshot& thread;
  Registers registers;
  MappedFiles* files;
  UnwindTables* tables;
  uint64_t reads_left = kMostReads;
};
Walk& Of(void* argument) { return *static_cast<Walk*>(argument); }

int FindFunction(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t* found,
                 int wants_info, void* argument) {
  unw_dyn_info_t* table = Of(argument).tables->Find(ip);
  if (table == nullptr) return -UNW_ENOINFO;
  return UNW_OBJ(dwarf_search_unwind_table)(space, ip, table, found, wants_info,
                                            argument);
}

int ReadMemory(unw_addr_space_t, unw_word_t address, unw_word_t* value,
               int write, void* argument) {
  Walk& walk = Of(argument);
  if (write != 0 || walk.reads_left == 0) return -UNW_EINVAL;
  --walk.reads_left;
  const std::string& stack = walk.thread.stack;
  const uint64_t offset = address - walk.thread.stack_begin;
  if (address >= walk.thread.stack_begin && offset < stack.size()) {
    if (stack.size() - offset < sizeof(*value)) return -UNW_EINVAL;
    memcpy(value, stack.data() + offset, sizeof(*value));
    return 0;
  }
  return walk.files->Read(address, value) ? 0 : -UNW_EINVAL;
}

int ReadRegister(unw_addr_space_t, unw_regnum_t number, unw_word_t* value,
                 int write, void* argument) {
  const Registers& registers = Of(argument).registers;
  if (write != 0 || number < 0 ||
      static_cast<size_t>(number) >= registers.size()) {
    return -UNW_EBADREG;
  }
  *value = registers[number];
  return 0;
}

void NothingToFree(unw_addr_space_t, unw_proc_info_t*, void*) {}
int NoDynamicCode(unw_addr_space_t, unw_word_t*, void*) { return -UNW_ENOINFO; }
int NoFloats(unw_addr_space_t, unw_regnum_t, unw_fpreg_t*, int, void*) {
  return -UNW_EBADREG;
}
int NoResume(unw_addr_space_t, unw_cursor_t*, void*) { return -UNW_EINVAL; }
int NoName(unw_addr_space_t, unw_word_t, char*, size_t, unw_word_t*, void*) {
  return -UNW_ENOINFO;
}

unw_accessors_t kQuestions = {FindFunction, NothingToFree, NoDynamicCode,
                              ReadMemory,   ReadRegister,  NoFloats,
                              NoResume,     NoName};

}  // namespace

struct Unwinder::Target {
  Target(pid_t pid, const AddressMap* map)
      : space(unw_create_addr_space(&kQuestions, 0)),
        files(pid, map),
        tables(map, &files) {
    unw_set_caching_policy(space, UNW_CACHE_GLOBAL);
  }
  ~Target() { unw_destroy_addr_space(space); }

  unw_addr_space_t space;
  MappedFiles files;
  UnwindTables tables;
};

Unwinder::Unwinder(pid_t pid, const AddressMap* map)
    : target_(std::make_unique<Target>(pid, map)) {}
Unwinder::~Unwinder() = default;

std::vector<uint64_t> Unwinder::Frames(const ThreadSnapshot& thread) {
  std::vector<uint64_t> frames;
  if (!thread.trouble.empty()) return frames;
  Walk walk = {thread, Numbered(thread.registers), &target_->files,
               &target_->tables};
  unw_cursor_t cursor;
  if (unw_init_remote(&cursor, target_->space, &walk) != 0) return frames;
  do {
    unw_word_t ip = 0;
    if (unw_get_reg(&cursor, UNW_REG_IP, &ip) != 0 || ip == 0) break;
    frames.push_back(ip);
  } while (frames.size() < kMostFrames && unw_step(&cursor) > 0);
  return frames;
}

}  // namespace fineserve::fsctl
