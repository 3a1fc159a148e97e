#include "daemon/contract/wire/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/base/errno_status.h"
#include "daemon/base/whole_file.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::wire {
namespace {

constexpr size_t kKeyChars = 40;
constexpr size_t kKeyBytes = 32;
// A folder's files have only a few lines.
constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kMostNameChars = 64;

absl::Status Errno(const std::string& path) {
  return base::ErrnoStatus(path, errno == ENOENT
                                     ? absl::StatusCode::kNotFound
                                     : absl::StatusCode::kUnavailable);
}

absl::StatusOr<std::string> ReadOpen(int fd, const std::string& path) {
  std::string text;
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got < 0) return Errno(path);
    if (got == 0) return text;
    text.append(piece.data(), static_cast<size_t>(got));
    if (text.size() > kMostBytes) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": too long"));
    }
  }
}

// Replaces the file, which stays private to its owner. A file that root writes
// belongs to the service's user.
absl::Status Replace(const std::string& path, const std::string& text) {
  return base::ReplaceFile(path, text, {.synced = true, .keeps_owner = true});
}

absl::Status MakeFolder(const std::string& path) {
  for (size_t slash = 1; slash != std::string::npos;) {
    slash = path.find('/', slash + 1);
    const std::string part = path.substr(0, slash);
    if (mkdir(part.c_str(), 0755) != 0 && errno != EEXIST) return Errno(part);
  }
  return absl::OkStatus();
}

bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= kMostNameChars && name[0] != '#' &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return c > ' ' && c < '\x7f'; });
}

}  // namespace

absl::StatusOr<KeyPair> NewKeyPair() {
  std::array<char, kKeyChars + 1> public_key, secret_key;
  // Tries again if the key begins with a dash, because a command line would
  // take it for a flag.
  do {
    if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
      return absl::UnimplementedError(
          "this libzmq has no CURVE; install one that is built with libsodium");
    }
  } while (public_key[0] == '-');
  return KeyPair{public_key.data(), secret_key.data()};
}

bool IsKey(absl::string_view text) {
  if (text.size() != kKeyChars) return false;
  std::array<uint8_t, kKeyBytes> bytes;
  return zmq_z85_decode(bytes.data(), std::string(text).c_str()) != nullptr;
}

std::string KeyOfBytes(absl::string_view bytes) {
  if (bytes.size() != kKeyBytes) return "";
  std::array<char, kKeyChars + 1> text;
  zmq_z85_encode(text.data(), reinterpret_cast<const uint8_t*>(bytes.data()),
                 bytes.size());
  return text.data();
}

std::string KeyFolder::Default() {
  const char* set = getenv("FINESERVE_KEYS");
  return set != nullptr && set[0] != '\0' ? set : "/etc/fineserve/curve";
}

absl::StatusOr<KeyPair> KeyFolder::Own() const {
  const std::string path = SecretPath();
  const driver::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 && errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat(
        path,
        " is missing: this machine has no keys; make them with: fsctl "
        "keys new"));
  }
  struct stat facts = {};
  if (file.get() < 0 || fstat(file.get(), &facts) != 0) return Errno(path);
  if ((facts.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        path,
        " can be read by other users; chmod 600 it, or make new keys "
        "with: fsctl keys new --replace"));
  }
  const absl::StatusOr<std::string> text = ReadOpen(file.get(), path);
  if (!text.ok()) return text.status();
  KeyPair keys;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() != 2 || !IsKey(words[1])) continue;
    if (words[0] == "public") keys.public_key = words[1];
    if (words[0] == "secret") keys.secret_key = words[1];
  }
  if (keys.public_key.empty() || keys.secret_key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " holds no keys; make new ones with: fsctl keys new --replace"));
  }
  return keys;
}

absl::Status KeyFolder::WriteOwn(const KeyPair& keys, bool replace) const {
  if (!replace && access(SecretPath().c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(
        SecretPath(),
        " exists; other machines trust it, so replace it only "
        "if it is lost or known to others: fsctl keys new --replace"));
  }
  if (absl::Status s = MakeFolder(folder_); !s.ok()) return s;
  return Replace(SecretPath(),
                 absl::StrCat("public ", keys.public_key, "\nsecret ",
                              keys.secret_key, "\n"));
}

absl::StatusOr<std::map<std::string, std::string>> KeyFolder::Trusted() const {
  std::map<std::string, std::string> trusted;
  const std::string path = TrustedPath();
  const driver::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 && errno == ENOENT) return trusted;
  if (file.get() < 0) return Errno(path);
  struct stat facts = {};
  if (fstat(file.get(), &facts) != 0) return Errno(path);
  if ((facts.st_mode & 022) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " can be written by other users; chmod 600 it"));
  }
  const absl::StatusOr<std::string> text = ReadOpen(file.get(), path);
  if (!text.ok()) return text.status();
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() != 2 || !IsName(words[0]) || !IsKey(words[1])) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ":", number, ": not \"NAME KEY\"; correct or remove it"));
    }
    trusted[words[0]] = words[1];
  }
  return trusted;
}

absl::Status KeyFolder::WriteTrusted(
    const std::map<std::string, std::string>& trusted) const {
  if (absl::Status s = MakeFolder(folder_); !s.ok()) return s;
  std::string text;
  for (const auto& [machine, key] : trusted) {
    absl::StrAppend(&text, machine, " ", key, "\n");
  }
  return Replace(TrustedPath(), text);
}

absl::Status KeyFolder::Trust(const std::string& machine,
                              const std::string& key) const {
  if (!IsName(machine)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", machine,
                     "\" is no name for a machine; use the one in [cluster] "
                     "of the fleet file"));
  }
  if (!IsKey(key)) {
    return absl::InvalidArgumentError(
        "that is no public key, which has 40 characters; print it on the other "
        "machine with: fsctl keys show");
  }
  auto trusted = Trusted();
  if (!trusted.ok()) return trusted.status();
  (*trusted)[machine] = key;
  return WriteTrusted(*trusted);
}

absl::Status KeyFolder::Distrust(const std::string& machine) const {
  auto trusted = Trusted();
  if (!trusted.ok()) return trusted.status();
  if (trusted->erase(machine) == 0) {
    return absl::NotFoundError(
        absl::StrCat("machine \"", machine, "\" is not trusted"));
  }
  return WriteTrusted(*trusted);
}

}  // namespace fineserve::wire
