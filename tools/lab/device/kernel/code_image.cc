#include "tools/lab/device/kernel/code_image.h"

#include <elf.h>

#include <cctype>
#include <cstdint>
#include <cstring>

namespace fineserve::emucuda {
namespace {

// From fatbinary_section.h and fatbinary.h.
constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kFatBinaryMagic = 0xba55ed50;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* code;
};

struct FatBinary {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
};

// The elf.h of older systems lacks this constant.
constexpr uint16_t kMachineCuda = 190;

template <typename T>
T Read(const void* from) {
  T value;
  memcpy(&value, from, sizeof(value));
  return value;
}

bool IsFatBinary(const void* code) {
  const auto header = Read<FatBinary>(code);
  return header.magic == kFatBinaryMagic && header.version == 1 &&
         header.header_bytes >= sizeof(FatBinary);
}

bool IsWrapper(const void* code) {
  const auto wrapper = Read<Wrapper>(code);
  return wrapper.code != nullptr && IsFatBinary(wrapper.code);
}

bool IsCudaElf(const void* code) {
  const auto header = Read<Elf64_Ehdr>(code);
  return header.e_ident[EI_CLASS] == ELFCLASS64 &&
         header.e_machine == kMachineCuda;
}

// Returns the end of the comment that begins at `text`, or `text` itself if no
// comment begins there.
const char* SkipComment(const char* text) {
  if (text[0] != '/') return text;
  if (text[1] == '/') return text + strcspn(text, "\n");
  const char* end = text[1] == '*' ? strstr(text + 2, "*/") : nullptr;
  return end != nullptr ? end + 2 : text;
}

bool IsPtx(const char* text) {
  for (const char* before = nullptr; before != text;) {
    before = text;
    while (isspace(static_cast<unsigned char>(*text)) != 0) ++text;
    text = SkipComment(text);
  }
  constexpr char kFirst[] = ".version";
  return strncmp(text, kFirst, sizeof(kFirst) - 1) == 0;
}

}  // namespace

bool LooksLikeCode(const void* code) {
  switch (Read<uint32_t>(code)) {
    case kWrapperMagic:
      return IsWrapper(code);
    case kFatBinaryMagic:
      return IsFatBinary(code);
    default:
      return memcmp(code, ELFMAG, SELFMAG) == 0
                 ? IsCudaElf(code)
                 : IsPtx(static_cast<const char*>(code));
  }
}

}  // namespace fineserve::emucuda
