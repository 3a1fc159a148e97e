// Fuzzes the client with any bytes from whatever listens at a daemon's path,
// cut anywhere: every way to cut them gives the same messages and replies, and
// what we send is understood as intended.
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/zmtp.h"
#include "tests/fuzz/target.h"

namespace {

using fineserve::wire::AppendZmtpMessage;
using fineserve::wire::kMessageBytes;
using fineserve::wire::ZmtpReader;

// A ROUTER's greeting and READY.
std::string Start() {
  return std::string("\xFF\0\0\0\0\0\0\0\1\x7F\3\1NULL", 16) +
         std::string(48, '\0') +
         std::string("\4\x1C\5READY\x0BSocket-Type\0\0\0\6ROUTER", 30);
}

void Expect(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "%s\n", what);
  abort();
}

struct Understood {
  std::vector<std::string> messages;
  std::string replies;
  bool ok = true;
};

Understood Understand(absl::string_view bytes, size_t piece) {
  Understood understood;
  ZmtpReader reader;
  std::string held;
  while (!bytes.empty() && understood.ok) {
    held.append(bytes.data(), std::min(piece, bytes.size()));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    const auto taken = reader.Read(
        held,
        [&](absl::string_view message) {
          Expect(message.size() <= size_t{kMessageBytes}, "a message too long");
          Expect(reinterpret_cast<uintptr_t>(message.data()) % 8 == 0,
                 "a message that is not aligned");
          understood.messages.emplace_back(message);
        },
        &understood.replies);
    understood.ok = taken.ok();
    if (!taken.ok()) break;
    Expect(*taken <= held.size(), "more was taken than came");
    held.erase(0, *taken);
  }
  return understood;
}

void FuzzRead(absl::string_view bytes, size_t piece) {
  const Understood whole = Understand(bytes, bytes.size());
  const Understood cut = Understand(bytes, piece);
  Expect(whole.ok == cut.ok, "one cut is wrong");
  Expect(whole.messages == cut.messages, "a cut changes the messages");
  Expect(whole.replies == cut.replies, "a cut changes the replies");
}

void FuzzSend(absl::string_view bytes, size_t piece) {
  std::string sent = Start();
  AppendZmtpMessage(bytes, &sent);
  AppendZmtpMessage(bytes.substr(0, piece), &sent);
  const Understood understood = Understand(sent, 1 + piece);
  Expect(understood.ok && understood.messages.size() == 2 &&
             understood.messages[0] == bytes &&
             understood.messages[1] == bytes.substr(0, piece),
         "what is sent is not what is read");
}

}  // namespace

std::vector<std::vector<uint8_t>> fineserve::fuzz::Seeds() {
  const std::string frames(
      "\0\3one\4\x0A\4PING\0\x0A"
      "abc\2\0\0\0\0\0\0\0\5later",
      31);
  std::vector<std::vector<uint8_t>> seeds;
  for (const std::string& seed : {"\x07" + Start(), "\x01" + Start() + frames,
                                  "\x40" + Start() + frames}) {
    seeds.emplace_back(seed.begin(), seed.end());
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  if (count < 2) return 0;
  const size_t piece = 1 + bytes[0] % 64;
  const absl::string_view text(reinterpret_cast<const char*>(bytes) + 1,
                               count - 1);
  FuzzRead(text, piece);
  FuzzSend(text, piece);
  return 0;
}
