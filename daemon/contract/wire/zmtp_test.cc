#include "daemon/contract/wire/zmtp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace fineserve::wire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Greeting() {
  return std::string("\xFF\0\0\0\0\0\0\0\1\x7F\3\1NULL", 16) +
         std::string(48, '\0');
}
std::string Ready(const std::string& type) {
  const std::string body = std::string("\5READY\x0BSocket-Type\0\0\0", 21) +
                           static_cast<char>(type.size()) + type;
  return std::string("\4") + static_cast<char>(body.size()) + body;
}
std::string Message(const std::string& bytes) {
  std::string sent;
  AppendZmtpMessage(bytes, &sent);
  return sent;
}
std::string Opening() { return Greeting() + Ready("ROUTER"); }

// A reader's result for `bytes` that come in pieces of `piece`.
struct Understood {
  Understood(const std::string& bytes, size_t piece) {
    std::string held;
    for (size_t at = 0; at < bytes.size() && status.ok(); at += piece) {
      held += bytes.substr(at, piece);
      const auto taken = reader.Read(
          held,
          [this](absl::string_view m) {
            EXPECT_EQ(reinterpret_cast<uintptr_t>(m.data()) % 8, 0u);
            messages.emplace_back(m);
          },
          &replies);
      status = taken.status();
      if (taken.ok()) held.erase(0, *taken);
    }
  }

  ZmtpReader reader;
  absl::Status status;
  std::vector<std::string> messages;
  std::string replies;
};

TEST(ZmtpTest, MessagesAreTheSameHoweverTheyAreCut) {
  const std::string longest(70'000, 'l');
  const std::string bytes = Opening() + Message("one") + Message("") +
                            Message(std::string(255, 'a')) +
                            Message(std::string(256, 'b')) + Message(longest);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{64}, bytes.size()}) {
    const Understood understood(bytes, piece);
    EXPECT_TRUE(understood.status.ok()) << understood.status;
    EXPECT_THAT(understood.messages,
                ElementsAre("one", "", std::string(255, 'a'),
                            std::string(256, 'b'), longest))
        << "in pieces of " << piece;
  }
}

TEST(ZmtpTest, OpeningIsAGreetingAndReadyOfADealer) {
  EXPECT_EQ(ZmtpOpening(), Greeting() + Ready("DEALER"));
}

TEST(ZmtpTest, IsReadyOnceTheOtherSideIs) {
  EXPECT_FALSE(Understood(Greeting(), 64).reader.ready());
  EXPECT_TRUE(Understood(Opening(), 64).reader.ready());
}

TEST(ZmtpTest, PingIsAnsweredWithWhatItSays) {
  const std::string ping(
      "\4\x0A\4PING\0\x0A"
      "abc",
      12);
  const Understood understood(Opening() + ping, 1);
  EXPECT_EQ(understood.replies, std::string("\4\x08\4PONG"
                                            "abc",
                                            10));
}

TEST(ZmtpTest, CommandsOfLaterVersionsAreIgnored) {
  const std::string later("\4\x06\5LATER", 8);
  const std::string pong("\4\x05\4PONG", 7);
  const Understood understood(Opening() + later + pong + Message("m"), 3);
  EXPECT_TRUE(understood.status.ok()) << understood.status;
  EXPECT_THAT(understood.messages, ElementsAre("m"));
  EXPECT_THAT(understood.replies, IsEmpty());
}

struct WrongBytes {
  const char* name;
  std::string bytes;
  const char* why;
};

class ZmtpWrongTest : public ::testing::TestWithParam<WrongBytes> {};

TEST_P(ZmtpWrongTest, IsAnErrorThatSaysWhatWasWrong) {
  for (const size_t piece : {size_t{1}, GetParam().bytes.size()}) {
    const Understood understood(GetParam().bytes, piece);
    EXPECT_THAT(std::string(understood.status.message()),
                HasSubstr(GetParam().why));
    EXPECT_THAT(understood.messages, IsEmpty());
  }
}

std::string WithByte(std::string bytes, size_t at, char byte) {
  bytes.at(at) = byte;
  return bytes;
}

INSTANTIATE_TEST_SUITE_P(
    , ZmtpWrongTest,
    ::testing::Values(
        WrongBytes{"Http", "HTTP/1.1 400 Bad Request\r\n", "no ZMTP"},
        WrongBytes{"OldVersion", WithByte(Greeting(), 10, 1), "older than 3.0"},
        WrongBytes{"Curve", WithByte(Greeting(), 12, 'C'),
                   "\"CULL\", not NULL"},
        WrongBytes{"Publisher", Greeting() + Ready("PUB"), "no ROUTER"},
        WrongBytes{"MessageFirst", Greeting() + Message("m"), "before its"},
        WrongBytes{"PingFirst", Greeting() + std::string("\4\7\4PING\0\0", 9),
                   "did not begin with READY"},
        WrongBytes{"CutReady", Greeting() + std::string("\4\7\5READY\x0B", 9),
                   "READY is cut off"},
        WrongBytes{"SecondReady", Opening() + Ready("ROUTER"), "second READY"},
        WrongBytes{"Refused",
                   Greeting() + std::string("\4\x0A\5ERROR\3no\n", 12),
                   "it refused: no\\n"},
        WrongBytes{"UnknownFlags", Opening() + std::string("\x18\1x"),
                   "unknown flags of a frame, 24"},
        WrongBytes{"SeveralFrames", Opening() + std::string("\1\1x", 3),
                   "several frames"},
        WrongBytes{"CutCommand", Opening() + std::string("\4\2\5x", 4),
                   "command that is cut off"},
        WrongBytes{"CutPing", Opening() + std::string("\4\6\4PING\0", 8),
                   "PING that is cut off"},
        // The frame is refused for its size alone, so nothing is kept for it.
        WrongBytes{"TooLong",
                   Opening() + std::string("\2\0\0\0\0\0\x40\0\1", 9),
                   "a frame of 4194305 bytes"},
        WrongBytes{"TooLongACommand",
                   Opening() + std::string("\6\0\0\0\0\0\0\x10\1", 9),
                   "a frame of 4097 bytes"}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace fineserve::wire
