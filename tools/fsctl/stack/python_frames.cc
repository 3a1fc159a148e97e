#include "tools/fsctl/stack/python_frames.h"

#include <sys/uio.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/contract/abi/printable.h"

namespace fineserve::fsctl {
namespace {

// Offsets by offsetof in the headers of CPython 3.11.2, 3.11.7 and 3.12.1.
// CPython's internal structures do not change within a minor version.
constexpr PythonLayout k311 = {40,  0,  16, 8,  152, 56,  true, 8,
                               48,  32, 56, 69, 112, 128, 136,  72,
                               184, 8,  16, 32, 16,  32,  48,   72};
constexpr PythonLayout k312 = {40,  0, 72, 8,  136, 56,  true, 0,
                               8,   0, 56, 70, 112, 128, 136,  68,
                               192, 8, 16, 32, 16,  32,  40,   56};

// From 3.13 on the interpreter publishes its offsets in the words of
// _Py_DebugOffsets at the beginning of _PyRuntime (3.13's pycore_runtime.h).
constexpr size_t kDebugWords = 73;
using DebugOffsets = std::array<uint64_t, kDebugWords>;
constexpr char kCookie[] = "xdebugpy";
constexpr uint64_t kMostOffset = 1 << 20;
// Bytes of a frame that are read.
constexpr uint64_t kFrameBytes = 80;
// Characters of a non-ASCII string begin two words later than those of an ASCII
// string.
constexpr uint64_t kWideBehind = 16;

PythonLayout LayoutOf(const DebugOffsets& o) {
  return {o[5],  o[8],  o[9],  o[21], o[24], o[23], false, 0,
          o[29], o[30], o[31], o[33], o[35], o[37], o[38], o[39],
          o[43], o[45], o[65], o[66], o[69], o[68], o[70], o[70] + kWideBehind};
}

bool IsWithinFrame(const PythonLayout& l) {
  return std::max({l.frame_previous, l.frame_code, l.frame_instruction,
                   l.frame_owner}) <= kFrameBytes - sizeof(uint64_t);
}

template <typename T>
T At(const std::array<char, kFrameBytes>& frame, uint64_t offset) {
  T value;
  memcpy(&value, frame.data() + offset, sizeof(value));
  return value;
}

// A value of _frame.owner: an entry from C code, which runs no Python function.
constexpr uint8_t kOwnedByC = 3;

// Bits of a string's state, the same in 3.11 to 3.13.
constexpr uint32_t kKind = 0x1c, kCompact = 0x20, kAscii = 0x40;
constexpr int kKindShift = 2;

constexpr size_t kMostInterpreters = 64, kMostThreads = 4096;
constexpr uint64_t kMostText = 4096, kMostLines = 1 << 20;
// The part that this may take of a stopped thread's time, which may be 50 ms
// (note 0040).
constexpr double kPatienceS = 0.01;

double NowS() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// Searches the library first: a program that is linked to the library has none
// of its symbols.
absl::optional<uint64_t> Find(const AddressMap& map, const char* symbol) {
  for (const char* file : {"libpython3", "python3"}) {
    const auto found = map.AddressOf(map.PathOf(file), symbol);
    if (found) return found;
  }
  return absl::nullopt;
}

// Reads the entries of a location table, one after another.
class LineReader {
 public:
  explicit LineReader(const std::string& table) : table_(table) {}

  bool done() const { return at_ >= table_.size(); }
  uint32_t Byte() {
    return done() ? 0 : static_cast<unsigned char>(table_[at_++]);
  }
  // Reads a number of six bits a byte, the lowest bits first.
  int64_t Number() {
    uint64_t number = 0;
    for (int shift = 0; shift < 36; shift += 6) {
      const uint64_t byte = Byte();
      number |= (byte & 63) << shift;
      if ((byte & 64) == 0) break;
    }
    return static_cast<int64_t>(number);
  }
  int64_t Signed() {
    const int64_t number = Number();
    return (number & 1) != 0 ? -(number >> 1) : number >> 1;
  }
  void SkipEntry() {
    while (!done() && (table_[at_] & 0x80) == 0) ++at_;
  }

 private:
  const std::string& table_;
  size_t at_ = 0;
};

}  // namespace

uint32_t PythonLine(const std::string& table, uint32_t first_line,
                    int64_t units) {
  constexpr uint32_t kNoLine = 15, kLong = 14, kNoColumns = 13, kOneLine = 10;
  int64_t line = first_line, end = 0;
  LineReader reader(table);
  while (!reader.done()) {
    const uint32_t head = reader.Byte();
    const uint32_t code = (head >> 3) & 15;
    end += (head & 7) + 1;
    if (code == kLong || code == kNoColumns) {
      line += reader.Signed();
    } else if (code >= kOneLine && code < kNoColumns) {
      line += code - kOneLine;
    }
    reader.SkipEntry();
    if (units < end) {
      return code == kNoLine || line < 0 ? 0 : static_cast<uint32_t>(line);
    }
  }
  return 0;
}

template <typename T>
bool PythonReader::Read(uint64_t address, T* value) const {
  iovec local = {value, sizeof(*value)};
  iovec remote = {reinterpret_cast<void*>(address), sizeof(*value)};
  return process_vm_readv(pid_, &local, 1, &remote, 1, 0) ==
         static_cast<ssize_t>(sizeof(*value));
}

// Returns an empty string if some of the bytes cannot be read.
std::string PythonReader::ReadBytes(uint64_t address, uint64_t bytes) const {
  std::string copy(bytes, '\0');
  iovec local = {copy.data(), copy.size()};
  iovec remote = {reinterpret_cast<void*>(address), copy.size()};
  const ssize_t got = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
  return got == static_cast<ssize_t>(bytes) ? copy : "";
}

// Replaces each character that is not ASCII by "?". Returns "?" for an object
// that is not a string.
std::string PythonReader::Text(uint64_t object) const {
  uint64_t length = 0;
  uint32_t state = 0;
  if (!Read(object + layout_.text_length, &length) || length > kMostText ||
      !Read(object + layout_.text_state, &state) || (state & kCompact) == 0) {
    return "?";
  }
  const bool is_ascii = (state & kAscii) != 0;
  const uint64_t width = is_ascii ? 1 : (state & kKind) >> kKindShift;
  if (width != 1 && width != 2 && width != 4) return "?";
  const std::string raw =
      ReadBytes(object + (is_ascii ? layout_.text_ascii : layout_.text_wide),
                length * width);
  std::string text;
  for (size_t i = 0; i < raw.size(); i += width) {
    const bool is_small =
        std::all_of(raw.begin() + i + 1, raw.begin() + i + width,
                    [](char c) { return c == 0; });
    text += is_small && (raw[i] & 0x80) == 0 ? raw[i] : '?';
  }
  return abi::Printable(text.data(), text.size());
}

bool PythonReader::ChooseLayout(uint64_t version, uint64_t runtime) {
  const uint64_t major = version >> 24, minor = (version >> 16) & 0xff;
  DebugOffsets offsets;
  if (major == 3 && minor == 11) {
    layout_ = k311;
  } else if (major == 3 && minor == 12) {
    layout_ = k312;
  } else if (major == 3 && minor == 13 && Read(runtime, &offsets) &&
             memcmp(offsets.data(), kCookie, sizeof(offsets[0])) == 0 &&
             offsets[1] == version && offsets[2] == 0 &&
             std::all_of(offsets.begin() + 3, offsets.end(),
                         [](uint64_t o) { return o < kMostOffset; }) &&
             IsWithinFrame(LayoutOf(offsets))) {
    layout_ = LayoutOf(offsets);
  } else {
    trouble_ = absl::StrFormat(
        "Python %d.%d is not known to this fsctl, or is free-threaded: its "
        "functions are not shown",
        major, minor);
    return false;
  }
  return true;
}

void PythonReader::FindThreads(uint64_t runtime) {
  uint64_t interpreter = 0;
  Read(runtime + layout_.interpreters_head, &interpreter);
  for (size_t i = 0; interpreter != 0 && i < kMostInterpreters; ++i) {
    uint64_t thread = 0, next = 0;
    Read(interpreter + layout_.threads_head, &thread);
    while (thread != 0 && threads_.size() < kMostThreads) {
      uint64_t id = 0;
      if (!Read(thread + layout_.thread_id, &id) ||
          !Read(thread + layout_.thread_next, &next) ||
          !threads_.emplace(id, thread).second) {
        break;
      }
      thread = next;
    }
    next = 0;
    Read(interpreter + layout_.interpreter_next, &next);
    interpreter = next;
  }
}

PythonReader::PythonReader(pid_t pid, const AddressMap& map) : pid_(pid) {
  const auto runtime = Find(map, "_PyRuntime");
  if (!runtime) return;
  const auto version_at = Find(map, "Py_Version");
  uint64_t version = 0;
  if (!version_at || !Read(*version_at, &version)) {
    trouble_ = "this Python is older than 3.11: its functions are not shown";
    return;
  }
  if (!ChooseLayout(version, *runtime)) return;
  code_type_ = Find(map, "PyCode_Type").value_or(0);
  FindThreads(*runtime);
}

PythonCalls PythonReader::CallsOf(uint64_t thread_pointer) const {
  PythonCalls found;
  const auto state = threads_.find(thread_pointer);
  if (state == threads_.end()) return found;
  const double begin = NowS();
  uint64_t id = 0, frame = 0;
  if (!Read(state->second + layout_.thread_id, &id) || id != thread_pointer ||
      !Read(state->second + layout_.thread_frame, &frame)) {
    return found;  // it has ended Python since
  }
  if (layout_.is_frame_behind && frame != 0 &&
      !Read(frame + layout_.frame_behind, &frame)) {
    frame = 0;
  }
  for (size_t i = 0; frame != 0; ++i) {
    std::array<char, kFrameBytes> bytes;
    if (!Read(frame, &bytes)) {
      found.trouble = "its other Python frames cannot be read";
      break;
    }
    if (i == kMostFrames) {
      found.trouble =
          absl::StrCat("its Python frames are more than ", kMostFrames);
      break;
    }
    if (NowS() > begin + kPatienceS) {
      found.trouble = "reading its other Python frames would take too long";
      break;
    }
    if (At<uint8_t>(bytes, layout_.frame_owner) != kOwnedByC) {
      found.calls.push_back({At<uint64_t>(bytes, layout_.frame_code),
                             At<uint64_t>(bytes, layout_.frame_instruction)});
    }
    frame = At<uint64_t>(bytes, layout_.frame_previous);
  }
  return found;
}

std::vector<PythonFrame> PythonReader::Name(const PythonCalls& calls,
                                            std::string* trouble) const {
  *trouble = calls.trouble;
  std::vector<PythonFrame> frames;
  for (const PythonCall& call : calls.calls) {
    uint64_t type = 0, name = 0, file = 0, lines = 0, bytes = 0;
    uint32_t first = 0;
    if (!Read(call.code + layout_.type, &type) || type != code_type_ ||
        !Read(call.code + layout_.code_name, &name) ||
        !Read(call.code + layout_.code_file, &file) ||
        !Read(call.code + layout_.code_lines, &lines) ||
        !Read(call.code + layout_.code_first_line, &first)) {
      *trouble = "its other Python frames are not consistent";
      break;
    }
    std::string table;
    if (Read(lines + layout_.bytes_size, &bytes) && bytes < kMostLines) {
      table = ReadBytes(lines + layout_.bytes_data, bytes);
    }
    const int64_t units = static_cast<int64_t>(call.instruction - call.code -
                                               layout_.code_begin) /
                          2;
    frames.push_back({Text(name), Text(file), PythonLine(table, first, units)});
  }
  return frames;
}

}  // namespace fineserve::fsctl
