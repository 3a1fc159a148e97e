#include "tests/conformance/relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace fineserve::conformance {
namespace {

using ::testing::TestPartResult;

constexpr uint32_t kProperty = 1000;  // besides TestPartResult::Type

// The place (a property's key) and the text (its value) follow it.
struct RecordHead {
  uint32_t kind;
  int32_t line;
  uint32_t place_bytes;
  uint32_t text_bytes;
};

int listening_fd = -1;  // set in the child, before it has threads

void Append(uint32_t kind, int line, const std::string& place,
            const std::string& text) {
  const RecordHead head = {kind, line, static_cast<uint32_t>(place.size()),
                           static_cast<uint32_t>(text.size())};
  std::string record(reinterpret_cast<const char*>(&head), sizeof(head));
  record += place;
  record += text;
  // One write, so records of several processes do not mix. A record that does
  // not fit into memory is lost, but the exit status still shows the failure.
  if (write(listening_fd, record.data(), record.size()) < 0) return;
}

class Listener : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const TestPartResult& part) override {
    if (part.passed()) return;
    const char* file = part.file_name();
    Append(part.type(), part.line_number(), file == nullptr ? "" : file,
           part.message());
  }
};

void Replay(uint32_t kind, int line, const std::string& place,
            const std::string& text) {
  switch (kind) {
    case kProperty:
      return ::testing::Test::RecordProperty(place, text);
    case TestPartResult::kSkip:
      // GoogleTest's JSON has no room for the reason.
      ::testing::Test::RecordProperty("skip_reason", text);
      GTEST_SKIP() << text;
    default:
      ADD_FAILURE_AT(place.c_str(), line) << text;
  }
}

std::string ReadAll(int fd) {
  std::string bytes(static_cast<size_t>(lseek(fd, 0, SEEK_END)), '\0');
  const ssize_t n = pread(fd, bytes.data(), bytes.size(), 0);
  bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return bytes;
}

}  // namespace

Relay::Relay() : log_(memfd_create("relay", MFD_CLOEXEC)) {
  if (!log_.valid() || fcntl(log_.get(), F_SETFL, O_APPEND) != 0) abort();
}

void Relay::Listen() {
  listening_fd = log_.get();
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Listener);
}

void Relay::Finish() {
  if (listening_fd < 0) return;
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const ::testing::TestResult* result = test->result();
  for (int i = 0; i < result->test_property_count(); ++i) {
    const ::testing::TestProperty& p = result->GetTestProperty(i);
    Append(kProperty, 0, p.key(), p.value());
  }
}

void Relay::Replay() const {
  const std::string log = ReadAll(log_.get());
  size_t at = 0;
  RecordHead head;
  while (at + sizeof(head) <= log.size()) {
    memcpy(&head, log.data() + at, sizeof(head));
    at += sizeof(head);
    if (log.size() - at < uint64_t{head.place_bytes} + head.text_bytes) break;
    conformance::Replay(head.kind, head.line, log.substr(at, head.place_bytes),
                        log.substr(at + head.place_bytes, head.text_bytes));
    at += head.place_bytes + head.text_bytes;
  }
}

}  // namespace fineserve::conformance
