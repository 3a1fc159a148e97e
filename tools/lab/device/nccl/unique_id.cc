#include "tools/lab/device/nccl/unique_id.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "tools/lab/device/nccl/last_error.h"

namespace fineserve::nccl {
namespace {

constexpr std::string_view kMark = "emucuda:";
constexpr size_t kDigits = 32;

}  // namespace

ncclResult_t MakeUniqueId(ncclUniqueId* id) {
  unsigned char random[kDigits / 2];
  if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
    return Refuse(ncclSystemError, "no random id: %s", strerror(errno));
  }
  *id = {};
  memcpy(id->internal, kMark.data(), kMark.size());
  char* to = id->internal + kMark.size();
  for (const unsigned char byte : random) to += snprintf(to, 3, "%02x", byte);
  return ncclSuccess;
}

std::string FileNameOf(const ncclUniqueId& id) {
  const std::string_view text(id.internal,
                              strnlen(id.internal, kUniqueIdBytes));
  if (text.size() != kMark.size() + kDigits || !text.starts_with(kMark)) {
    return "";
  }
  const std::string_view digits = text.substr(kMark.size());
  if (digits.find_first_not_of("0123456789abcdef") != digits.npos) return "";
  return "nccl-" + std::string(digits);
}

}  // namespace fineserve::nccl
