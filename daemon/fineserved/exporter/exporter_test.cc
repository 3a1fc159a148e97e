#include "daemon/fineserved/exporter/exporter.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/fineserved/exporter/snapshot_fixture.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::exporter {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kScrape[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

// A client's connection; every wait is bounded by the test's own limit.
class Scraper {
 public:
  explicit Scraper(const std::string& address)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    int port = 0;
    EXPECT_TRUE(
        absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(
        connect(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
        0);
  }

  void Send(const std::string& bytes) {
    EXPECT_EQ(send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Reads until the other side closes.
  std::string ReadAll() {
    std::string all;
    while (Fill(&all)) {
    }
    return all;
  }
  // Reads the head and the body of the next answer; the head gives the body's
  // length.
  std::string ReadAnswer() {
    size_t head = std::string::npos;
    while ((head = held_.find("\r\n\r\n")) == std::string::npos) {
      if (!Fill(&held_)) return held_;
    }
    const size_t field = held_.find("content-length: ") + 16;
    const size_t length = std::stoul(held_.substr(field)) + head + 4;
    while (held_.size() < length && Fill(&held_)) {
    }
    const std::string answer = held_.substr(0, length);
    held_.erase(0, length);
    return answer;
  }

 private:
  bool Fill(std::string* to) {
    char bytes[65536];
    const ssize_t n = read(socket_.get(), bytes, sizeof(bytes));
    if (n > 0) to->append(bytes, static_cast<size_t>(n));
    return n > 0;
  }

  const driver::Descriptor socket_;
  std::string held_;
};

// The exporter, and the daemon's main thread, which a thread of the test plays.
class ExporterTest : public ::testing::Test {
 protected:
  ~ExporterTest() override { EndMainThread(); }

  void Start(const Limits& limits = {}, bool main_thread_answers = true) {
    auto exporter = Exporter::Start(
        "127.0.0.1", 0, [this] { return former_.fetch_add(1) + 41; }, limits);
    ASSERT_TRUE(exporter.ok()) << exporter.status();
    exporter_ = *std::move(exporter);
    if (main_thread_answers) main_ = std::thread([this] { Answer(); });
  }
  void EndMainThread() {
    ending_ = true;
    if (main_.joinable()) main_.join();
  }
  void Answer() {
    while (!ending_) {
      pollfd wanted = {exporter_->descriptor(), POLLIN, 0};
      if (poll(&wanted, 1, 5) < 1) continue;
      ++snapshots_;
      exporter_->Give(SnapshotWith(3), 1'000'000);
    }
  }
  std::string Ask(const std::string& request) {
    Scraper scraper(exporter_->address());
    scraper.Send(request);
    return scraper.ReadAnswer();
  }

  std::atomic<uint32_t> former_{0};
  std::unique_ptr<Exporter> exporter_;
  std::atomic<bool> ending_{false};
  std::atomic<uint32_t> snapshots_{0};
  std::thread main_;
};

TEST_F(ExporterTest, AScrapeGetsThePage) {
  Start();
  const std::string answer = Ask(kScrape);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("content-type: text/plain; version=0.0.4"));
  EXPECT_THAT(answer, HasSubstr("\nfineserve_scrapes_total 1\n"));
  EXPECT_THAT(answer, HasSubstr("\nfineserve_former_pool_processes 41\n"));
  EXPECT_THAT(answer, HasSubstr("engine=\"e2\""));
}

TEST_F(ExporterTest, AConnectionStaysAndAnswersWhatWasSentAhead) {
  Start();
  Scraper scraper(exporter_->address());
  scraper.Send(absl::StrCat(kScrape, kScrape));
  EXPECT_THAT(scraper.ReadAnswer(), HasSubstr("fineserve_scrapes_total 1\n"));
  const std::string second = scraper.ReadAnswer();
  EXPECT_THAT(second, HasSubstr("fineserve_scrapes_total 2\n"));
  EXPECT_THAT(second, HasSubstr("fineserve_scrape_loop_seconds_total 0.002\n"));
  // Former pools are not looked for at every scrape.
  EXPECT_THAT(second, HasSubstr("fineserve_former_pool_processes 41\n"));
}

TEST_F(ExporterTest, HeadHasThePagesLengthAlone) {
  Start();
  Scraper scraper(exporter_->address());
  scraper.Send(
      "HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string answer = scraper.ReadAll();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(ExporterTest, AnotherPathIsNotFoundAndAnotherMethodNotAllowed) {
  Start();
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
              StartsWith("HTTP/1.1 404 "));
  const std::string answer = Ask("DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(answer, HasSubstr("allow: GET, HEAD\r\n"));
  EXPECT_EQ(snapshots_, 0u);
}

TEST_F(ExporterTest, OtherBytesAreRefusedAndClosed) {
  Start();
  for (const std::string& bytes :
       {std::string("GET /metrics HTTP/1.1\r\n\r\n"),  // no Host
        std::string("SSH-2.0-x\r\n\r\n"),
        std::string("POST /metrics HTTP/1.1\r\nHost: x\r\n"
                    "Content-Length: 5\r\n\r\nhello"),
        absl::StrCat("GET /metrics HTTP/1.1\r\nHost: x\r\nA: ",
                     std::string(100'000, 'a'), "\r\n\r\n")}) {
    Scraper scraper(exporter_->address());
    scraper.Send(bytes);
    const std::string answer = scraper.ReadAll();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 4")) << bytes.substr(0, 40);
    EXPECT_THAT(answer, HasSubstr("connection: close\r\n"));
  }
  EXPECT_EQ(snapshots_, 0u);
}

TEST_F(ExporterTest, ABusyMainThreadIsSaidSo) {
  Limits limits;
  limits.snapshot_ms = 20;
  Start(limits, /*main_thread_answers=*/false);
  EXPECT_THAT(Ask(kScrape), StartsWith("HTTP/1.1 503 "));
}

TEST_F(ExporterTest, ConnectionsBeyondTheLimitAreClosedAndOthersServed) {
  Limits limits;
  limits.connections = 2;
  Start(limits);
  Scraper first(exporter_->address());
  Scraper second(exporter_->address());
  Scraper third(exporter_->address());
  EXPECT_EQ(third.ReadAll(), "");
  first.Send(kScrape);
  EXPECT_THAT(first.ReadAnswer(), StartsWith("HTTP/1.1 200 "));
  second.Send(kScrape);
  EXPECT_THAT(second.ReadAnswer(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(ExporterTest, ASilentConnectionIsClosed) {
  Limits limits;
  limits.idle_s = 0;
  Start(limits);
  Scraper scraper(exporter_->address());
  EXPECT_EQ(scraper.ReadAll(), "");
}

TEST_F(ExporterTest, ManyScrapersAtOnceAllGetWholePages) {
  Start();
  std::vector<std::thread> scrapers;
  for (int i = 0; i < 8; ++i) {
    scrapers.emplace_back([this] {
      for (int n = 0; n < 20; ++n) {
        const std::string answer = Ask(kScrape);
        EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
        EXPECT_THAT(answer, EndsWith("\n"));
      }
    });
  }
  for (std::thread& scraper : scrapers) scraper.join();
  EXPECT_LE(snapshots_, 160u);
  EXPECT_THAT(Ask(kScrape), HasSubstr("fineserve_scrapes_total 161\n"));
}

TEST_F(ExporterTest, EndsWhileAScrapeWaits) {
  Start({}, /*main_thread_answers=*/false);
  Scraper scraper(exporter_->address());
  scraper.Send(kScrape);
  pollfd wanted = {exporter_->descriptor(), POLLIN, 0};
  ASSERT_EQ(poll(&wanted, 1, 60'000), 1);
  exporter_.reset();
  EXPECT_EQ(scraper.ReadAll(), "");
}

TEST(ExporterStartTest, AnAddressThatIsTakenIsNamed) {
  const auto first = Exporter::Start("127.0.0.1", 0, nullptr);
  ASSERT_TRUE(first.ok());
  const std::string at = (*first)->address();
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(at.substr(at.rfind(':') + 1), &port));
  const auto second =
      Exporter::Start("127.0.0.1", static_cast<uint16_t>(port), nullptr);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("cannot listen on ", at)));
}

}  // namespace
}  // namespace fineserve::exporter
