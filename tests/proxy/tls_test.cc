// Clients that speak TLS: curl, and clients that misbehave.

#include <gmock/gmock.h>
#include <signal.h>
#include <time.h>

#include <cmath>
#include <filesystem>

#include "tests/proxy/site.h"

namespace fineserve::proxy_tests {
namespace {

using process::Eventually;
using stage::Finished;
using stage::RunToEnd;
using testing::HasSubstr;

class TlsTest : public ProxyTest {
 protected:
  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }
  // Makes NAME.pem and NAME.key for "localhost".
  void MakeCertificate(const std::string& name) {
    const Finished made = RunToEnd(
        {"/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout",
         Path(name + ".key"), "-out", Path(name + ".pem")},
        {});
    ASSERT_EQ(made.code, 0) << made.err;
  }
  void Use(const std::string& name) {
    for (const char* end : {".pem", ".key"}) {
      std::filesystem::copy_file(
          Path(name + end), Path(std::string("used") + end),
          std::filesystem::copy_options::overwrite_existing);
    }
  }
  void StartTls() {
    MakeCertificate("first");
    Use("first");
    Start("", {"--tls-cert", Path("used.pem"), "--tls-key", Path("used.key")});
  }
  std::vector<std::string> Curl(const std::string& path,
                                const std::vector<std::string>& more = {},
                                const std::string& trusted = "first") {
    const std::string host = "localhost:" + std::to_string(port_);
    return process::With(
        process::Words("/usr/bin/curl --silent --show-error --max-time 60 "
                       "--cacert " +
                       Path(trusted + ".pem") + " --resolve " + host +
                       ":127.0.0.1 https://" + host + path),
        more);
  }
};

TEST_F(TlsTest, CurlIsServedByHttp11) {
  StartTls();
  const Finished models = RunToEnd(
      Curl("/v1/models",
           {"--http2", "--write-out", " %{http_version} %{ssl_verify_result}"}),
      {});
  EXPECT_EQ(models.code, 0) << models.err;
  EXPECT_THAT(models.out, HasSubstr("\"chat\""));
  EXPECT_THAT(models.out, testing::EndsWith(" 1.1 0"));
}

TEST_F(TlsTest, StreamComesEventByEventAndLargeBodiesWhole) {
  StartTls();
  stage::Process curl(
      Curl("/v1/chat/completions", {"--no-buffer", "--data", kStream}), {});
  Peer engine = AcceptChat();
  engine.Answer(kStreamHead + Chunk("data: one\n\n"));
  EXPECT_EQ(curl.ReadLine(), "data: one");
  const std::string large(3 << 20, 'x');
  engine.Send(Chunk(large + "\n") + kLastChunk);
  EXPECT_EQ(curl.ReadLine(), "");
  EXPECT_EQ(curl.ReadLine(), large);
  EXPECT_EQ(curl.Wait(), 0);
}

TEST_F(TlsTest, EngineAbortsWhenTheClientLeaves) {
  StartTls();
  stage::Process curl(
      Curl("/v1/chat/completions", {"--no-buffer", "--data", kStream}), {});
  Peer engine = AcceptChat();
  engine.Answer(kStreamHead + Chunk("data: one\n\n"));
  EXPECT_EQ(curl.ReadLine(), "data: one");
  curl.Signal(SIGKILL);
  EXPECT_TRUE(engine.IsClosed());
}

TEST_F(TlsTest, CertificateIsReadAgainAndAWrongOneIsNotTaken) {
  StartTls();
  MakeCertificate("second");
  Use("second");
  proxy_->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] {
    return RunToEnd(Curl("/v1/models", {}, "second"), {}).code == 0;
  }));
  EXPECT_NE(RunToEnd(Curl("/v1/models", {}, "first"), {}).code, 0);
  WriteFile(Path("used.pem"), "nonsense");
  proxy_->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] {
    return proxy_->Stderr().find("keeping the present certificate") !=
           std::string::npos;
  }));
  EXPECT_EQ(RunToEnd(Curl("/v1/models", {}, "second"), {}).code, 0);
}

TEST_F(TlsTest, ExpiryOfTheCertificateIsAMetric) {
  StartTls();
  const double in_two_days = static_cast<double>(time(nullptr)) + 2 * 86400;
  EXPECT_TRUE(Eventually([&] {
    return std::abs(Metric("fineserve_certificate_expiry_timestamp_seconds") -
                    in_two_days) < 3600;
  }));
}

TEST_F(TlsTest, ClientThatSpeaksPlainlyIsCountedAndClosed) {
  StartTls();
  Peer client = Client("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  client.ReceiveAll();
  EXPECT_TRUE(Eventually(
      [&] { return Metric("fineserve_tls_handshakes_failed_total") == 1; }));
}

TEST_F(TlsTest, DrainEndsOnceAnswersAreThrough) {
  StartTls();
  stage::Process curl(Curl("/v1/chat/completions", {"--data", kChat}), {});
  Peer engine = AcceptChat();
  engine.ReceiveMessage();
  proxy_->Signal(SIGTERM);
  const std::string large(2 << 20, 'x');
  engine.Send(Plain(large));
  EXPECT_EQ(curl.ReadLine(), large);
  EXPECT_EQ(curl.Wait(), 0);
  EXPECT_EQ(proxy_->Wait(), 0);
}

TEST_F(TlsTest, WrongFilesAreRefusedWithTheirNames) {
  MakeCertificate("first");
  MakeCertificate("second");
  WriteFleet("");
  const auto run = [&](const std::vector<std::string>& flags) {
    return RunToEnd(
        process::With(
            {Program(), "--check", "--fleet", folder_ + "/fleet.toml"}, flags),
        {});
  };
  EXPECT_EQ(run({"--tls-cert", Path("first.pem")}).code, 2);
  const Finished mixed =
      run({"--tls-cert", Path("first.pem"), "--tls-key", Path("second.key")});
  EXPECT_EQ(mixed.code, 2);
  EXPECT_THAT(mixed.err, HasSubstr("--tls-key: "));
  const Finished missing =
      run({"--tls-cert", Path("none.pem"), "--tls-key", Path("second.key")});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("--tls-cert: cannot use"));
}

}  // namespace
}  // namespace fineserve::proxy_tests
