#include "tools/lab/device/machine/state_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace fineserve::emucuda {
namespace {

// FNV-1a; two salts give 128 bits. Unlike std::hash, it gives the same result
// in every process and build.
uint64_t Fingerprint(std::string_view text, uint64_t salt) {
  uint64_t hash = 0xcbf29ce484222325ull ^ salt;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  }
  return hash;
}

bool IsOursAlone(const char* path, std::string* complaint) {
  struct stat status;
  if (lstat(path, &status) != 0 || !S_ISDIR(status.st_mode)) {
    *complaint = "is not a folder";
  } else if (status.st_uid != geteuid()) {
    *complaint = "belongs to uid " + std::to_string(status.st_uid);
  } else if ((status.st_mode & 077) != 0) {
    *complaint = "can be entered by other users: run chmod 700 on it";
  } else {
    return true;
  }
  return false;
}

}  // namespace

std::string FormatUuid(const Uuid& uuid) {
  std::string text = "GPU";
  char byte[3];
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    snprintf(byte, sizeof(byte), "%02x", uuid[i]);
    text += byte;
  }
  return text;
}

std::optional<StateFolder> StateFolder::Open(const std::string& path,
                                             std::string* complaint) {
  const std::string prefix = "emucuda: state folder " + path + " ";
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    *complaint = prefix + "cannot be created: " + strerror(errno);
    return std::nullopt;
  }
  std::string reason;
  if (!IsOursAlone(path.c_str(), &reason)) {
    *complaint = prefix + reason;
    return std::nullopt;
  }
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) {
    *complaint = prefix + strerror(errno);
    return std::nullopt;
  }
  return StateFolder(real);
}

Descriptor StateFolder::OpenFile(int device, const char* suffix) const {
  return Descriptor(open(FileName(device, suffix).c_str(),
                         O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
}

void StateFolder::Remove(int device, const char* suffix) const {
  unlink(FileName(device, suffix).c_str());
}

std::string StateFolder::FileName(int device, const char* suffix) const {
  return path_ + "/gpu" + std::to_string(device) + "." + suffix;
}

Uuid StateFolder::DeviceUuid(int device) const {
  const std::string text = path_ + "#" + std::to_string(device);
  const uint64_t words[2] = {Fingerprint(text, 0),
                             Fingerprint(text, 0x9e3779b97f4a7c15ull)};
  Uuid uuid;
  memcpy(uuid.data(), words, uuid.size());
  return uuid;
}

}  // namespace fineserve::emucuda
