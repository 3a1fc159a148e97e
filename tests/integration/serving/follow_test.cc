// One request followed from its client to its engine: by fsctl, and as a trace
// in a collector.

#include <gmock/gmock.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tests/proxy/collector.h"
#include "tools/lab/process/free_port.h"

namespace fineserve::integration {
namespace {

using nlohmann::json;
using proxy_tests::Collector;
using ::testing::HasSubstr;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";

class FollowServingTest : public ServingSite {
 protected:
  void StartAll(const std::vector<std::string>& proxy_flags) {
    const uint16_t port = process::FreePort();
    WriteFleet({{"wide", 4096, port}}, "fail_closed");
    StartDaemonOfFleet();
    engine_ = StartTiny("wide", port,
                        "--page 64KiB --view --speed 20 --max-model-len 4096 "
                        "--log-requests");
    StartProxy(proxy_flags);
  }
  std::string Admin() const {
    return "127.0.0.1:" + std::to_string(admin_port());
  }
  HttpResponse Ask(const std::string& fields) {
    return HttpClient(port()).Ask("POST", "/v1/completions",
                                  engine_->Body(Prompt(1, 20), 4),
                                  "x-slo-ttft-ms: 120000\r\n" + fields);
  }

  std::unique_ptr<TinyEngine> engine_;
};

TEST_F(FollowServingTest, OneTraceLeadsFromTheClientToTheEngine) {
  Collector collector;
  StartAll({"--otlp-endpoint", collector.url()});
  const HttpResponse answer =
      Ask(std::string("traceparent: 00-") + kTrace +
          "-00f067aa0ba902b7-01\r\nx-request-id: mine\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("x-request-id"), "mine");
  auto spans = collector.AwaitSpans(3);
  ASSERT_EQ(spans.count("relaying"), 1u);
  for (const auto& [name, span] : spans) {
    EXPECT_EQ(span.at("traceId"), kTrace) << name;
  }
  EXPECT_EQ(spans["POST /v1/completions"]["parentSpanId"], "00f067aa0ba902b7");
  const std::string relaying = spans["relaying"]["spanId"];
  EXPECT_THAT(engine_->process().Stderr(),
              HasSubstr(std::string("request mine traceparent 00-") + kTrace +
                        "-" + relaying + "-01\n"));
}

TEST_F(FollowServingTest, FsctlTraceNamesTheDaemonAndWhereItRan) {
  StartAll({});
  EXPECT_EQ(Ask("x-request-id: mine\r\n").status, 200);
  const std::vector<std::string> at = {"--admin", Admin()};
  const Finished text = Fsctl({"trace", "mine", at[0], at[1]});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("admitted by fineserved to wide"));
  EXPECT_THAT(text.out, HasSubstr("ended: answered"));
  EXPECT_EQ(Fsctl({"trace", "mine"}).out, text.out) << "it finds the proxy";
  EXPECT_EQ(Fsctl({"trace", "mi"}).out, text.out) << "no other begins so";
  const Finished as_json = Fsctl({"trace", "mine", at[0], at[1], "--json"});
  const json life = json::parse(as_json.out);
  EXPECT_EQ(life.at("tokens_in"), 20);
  EXPECT_EQ(life.at("tokens_out"), 4);
  EXPECT_EQ(life.at("decided_by"), "fineserved");
  const Finished other = Fsctl({"trace", "other", at[0], at[1]});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("no such request"));
}

TEST_F(FollowServingTest, FsctlTraceTakesTheIdThatRequestsShows) {
  StartAll({});
  engine_->process().Signal(SIGSTOP);  // so that the request stays under way
  std::thread client([this] { Ask(""); });
  std::string id;
  EXPECT_TRUE(Eventually([&] {
    const json shown = json::parse(Fsctl({"requests", "--json"}).out);
    if (shown.at("requests").empty()) return false;
    id = shown.at("requests").at(0).at("id");
    return true;
  }));
  EXPECT_THAT(Fsctl({"requests"}).out, HasSubstr("  " + id + "\n"));
  const Finished trace = Fsctl({"trace", id});
  EXPECT_EQ(trace.code, 0) << trace.err;
  EXPECT_THAT(trace.out, HasSubstr("under way"));
  engine_->process().Signal(SIGCONT);
  client.join();
}

TEST_F(FollowServingTest, FsctlFollowsRequestsAsTheyEnd) {
  StartAll({});
  Process follower({Program("fsctl"), "requests", "--follow", "--model", "wide",
                    "--admin", Admin()},
                   environment());
  EXPECT_THAT(follower.ReadLine(), HasSubstr("ENGINE"));
  EXPECT_EQ(Ask("x-request-id: mine\r\n").status, 200);
  const std::string line = follower.ReadLine();
  EXPECT_THAT(line, HasSubstr("answered"));
  EXPECT_THAT(line, ::testing::EndsWith(" mine"));
}

TEST_F(FollowServingTest, WithoutAProxyFsctlSaysWhatToGive) {
  const Finished none =
      Fsctl({"trace", "x", "--admin",
             "127.0.0.1:" + std::to_string(process::FreePort())});
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.err, HasSubstr("--admin HOST:PORT"));
}

}  // namespace
}  // namespace fineserve::integration
