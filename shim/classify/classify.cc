#include "shim/classify/classify.h"

#include <string.h>

#include <algorithm>

#include "daemon/contract/abi/byte_size.h"
#include "shim/host/warn.h"

namespace fineserve::shim {
namespace {

// Parses one item of a list. Leaves `bytes` alone if the item is not a size.
bool ParseItem(const char* item, size_t length, uint64_t* bytes) {
  char text[abi::kByteSizeText];
  if (length >= sizeof(text)) return false;
  memcpy(text, item, length);
  text[length] = '\0';
  return abi::ParseByteSize(text, bytes);
}

}  // namespace

void DeclaredSizes::Set(const uint64_t* sizes, uint32_t count) {
  count = std::min(count, abi::kDeclaredSizeCapacity);
  for (uint32_t i = 0; i < count; ++i) {
    sizes_[i].store(sizes[i], std::memory_order_relaxed);
  }
  // Release: publishes the sizes. Pairs with the acquire in Contains.
  count_.store(count, std::memory_order_release);
}

bool DeclaredSizes::Contains(uint64_t bytes) const {
  const uint32_t count = count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    if (sizes_[i].load(std::memory_order_relaxed) == bytes) return true;
  }
  return false;
}

uint32_t ParseSizes(const char* list,
                    uint64_t (&sizes)[abi::kDeclaredSizeCapacity]) {
  uint32_t count = 0;
  while (*list != '\0') {
    const size_t length = strcspn(list, ",");
    uint64_t bytes = 0;
    if (length == 0) {
      // Skips an empty item (two commas in a row, or one at the end) without a
      // warning.
    } else if (!ParseItem(list, length, &bytes)) {
      Warn(
          "FINESERVE_KV_SIZES: \"%.*s\" is not a size (write 64MiB or "
          "67108864)",
          static_cast<int>(length), list);
    } else if (bytes < kLargeBytes) {
      Warn("FINESERVE_KV_SIZES: %.*s is ignored because it is under 2MiB",
           static_cast<int>(length), list);
    } else if (count == abi::kDeclaredSizeCapacity) {
      Warn("FINESERVE_KV_SIZES: only the first %u sizes are used", count);
      break;
    } else {
      sizes[count++] = bytes;
    }
    list += length + (list[length] == ',' ? 1 : 0);
  }
  return count;
}

Classification Classify(uint64_t bytes, bool in_scope, const RuleMatch& match,
                        const DeclaredSizes& declared) {
  if (in_scope) return {true, abi::Reason::kScope};
  if (match.found && match.kv) return {true, abi::Reason::kFrames};
  if (match.found) return {false, abi::Reason::kExcluded};
  if (declared.Contains(bytes)) return {true, abi::Reason::kDeclaredSize};
  return {false, abi::Reason::kNotKv};
}

}  // namespace fineserve::shim
