// The interface to admission: its calls, and when they come.

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include "tests/proxy/admission_site.h"

namespace fineserve::proxy_tests {
namespace {

using proxy::AdmissionRequest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AdmissionTest : public AdmissionSite {
 protected:
  AdmissionTest() : AdmissionSite(/*counts_prompts=*/false) {}
};

TEST_F(AdmissionTest, HearsWhatTheRequestAsksFor) {
  Peer client = Ask("refuse",
                    "x-slo-ttft-ms: 250\r\nx-slo-tpot-ms: 40\r\n"
                    "x-fineserve-priority: 2\r\nx-fineserve-degrade: 1\r\n");
  client.ReceiveMessage();
  ASSERT_EQ(journal_.requests().size(), 1u);
  const AdmissionRequest asked = journal_.requests()[0];
  EXPECT_NE(asked.id, 0u);
  EXPECT_EQ(asked.model, "m");
  EXPECT_EQ(asked.prompt_tokens, 2u);  // 8 bytes
  EXPECT_EQ(asked.max_tokens, 9u);
  EXPECT_EQ(asked.slo_ttft_us, 250'000);
  EXPECT_EQ(asked.slo_tpot_us, 40'000);
  EXPECT_EQ(asked.priority, 2);
  EXPECT_EQ(asked.tenant, "refuse");
  EXPECT_TRUE(asked.degrade_ok);
}

TEST_F(AdmissionTest, RefusalIsAnAnswerThatSaysWhenToComeBack) {
  Peer client = Ask("refuse");
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 429);
  EXPECT_EQ(answer.Field("retry-after"), "3");
  EXPECT_EQ(answer.Field("retry-after-ms"), "2500");
  EXPECT_EQ(answer.Field("x-fineserve-reason"), "slo_unreachable");
  EXPECT_EQ(answer.Field("x-fineserve-predicted-ttft-ms"), "4000");
  EXPECT_THAT(answer.body, HasSubstr("its first token would come in 4000 ms"));
  EXPECT_THAT(journal_.events(), ElementsAre("submit 1"));
  EXPECT_TRUE(a_.IsQuiet() && b_.IsQuiet());
}

TEST_F(AdmissionTest, ClientThatLeavesTheQueueIsCancelled) {
  Peer client = Ask("wait");
  ASSERT_TRUE(journal_.AwaitEvents(1));
  client.Close();
  ASSERT_TRUE(journal_.AwaitEvents(2));
  EXPECT_THAT(journal_.events(), ElementsAre("submit 1", "cancel 1"));
  EXPECT_TRUE(a_.IsQuiet());
}

TEST_F(AdmissionTest, RequestGoesToItsEngineWhenItsVerdictComes) {
  Peer waits = Ask("wait");
  ASSERT_TRUE(journal_.AwaitEvents(1));
  EXPECT_TRUE(a_.IsQuiet());
  Peer releases = Ask("release");
  Peer first = a_.Accept(), second = a_.Accept();
  for (Peer* engine : {&first, &second}) {
    engine->ReceiveMessage();
    engine->Send(Plain("{}"));
  }
  EXPECT_EQ(waits.ReceiveMessage().status(), 200);
  EXPECT_EQ(releases.ReceiveMessage().status(), 200);
}

TEST_F(AdmissionTest, HearsOfAStreamsFirstTokenAndOfItsEnd) {
  Peer client = Peer::To(port_);
  client.Send(Post("/v1/completions", R"({"model":"m","stream":true})"));
  Peer engine = a_.Accept();
  engine.Answer(kStreamHead + Chunk("data: 1\n\n") + Chunk("data: 2\n\n") +
                "0\r\n\r\n");
  client.ReceiveMessage();
  ASSERT_TRUE(journal_.AwaitEvents(3));
  EXPECT_THAT(journal_.events(),
              ElementsAre("submit 1", "first 1", "done 1: 0+2"));
}

TEST_F(AdmissionTest, IsAskedWhereverEnginesGenerate) {
  for (const char* path :
       {"/v1/responses", "/v1/messages", "/v1/chat/completions/batch"}) {
    Peer client = Peer::To(port_);
    client.Send(Post(path, R"({"model":"m","max_tokens":7})",
                     "x-gateway-inference-fairness-id: refuse\r\n"));
    EXPECT_EQ(client.ReceiveMessage().status(), 429) << path;
    EXPECT_EQ(journal_.requests().back().max_tokens, 7u) << path;
  }
  EXPECT_EQ(journal_.requests().size(), 3u);
  EXPECT_TRUE(a_.IsQuiet());
}

TEST_F(AdmissionTest, IsAskedAboutSoundThatComesAsAForm) {
  Peer client = Peer::To(port_);
  client.Send(Post("/v1/audio/transcriptions",
                   "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n"
                   "\r\nm\r\n--x--\r\n",
                   "Content-Type: multipart/form-data; boundary=x\r\n"));
  Peer engine = a_.Accept();
  EXPECT_THAT(engine.ReceiveMessage().body, HasSubstr("name=\"model\""));
  engine.Send(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
  EXPECT_EQ(journal_.requests().size(), 1u);
  client.Send(Post("/v1/audio/translations", "--y",
                   "Content-Type: multipart/form-data; boundary=x\r\n"));
  EXPECT_THAT(client.ReceiveMessage().body, HasSubstr("bad_form"));
}

TEST_F(AdmissionTest, IsNotAskedWhereEnginesOnlyRead) {
  Peer client = Peer::To(port_);
  client.Send(Post("/v1/embeddings", R"({"model":"m","input":"x"})"));
  Peer engine = a_.Accept();
  engine.Answer(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
  EXPECT_TRUE(journal_.requests().empty());
  EXPECT_EQ(Metric("fineserve_forwarded_total{model=\"m\"}"), 1);
  ASSERT_TRUE(journal_.AwaitEvents(2));
  EXPECT_THAT(journal_.events(), ElementsAre("forward 1 to a", "done 1: 0+0"));
}

// A whole answer does not show when its first token came.
TEST_F(AdmissionTest, HearsOfAWholeAnswersEndAlone) {
  Peer client = Ask("x");
  Peer engine = a_.Accept();
  engine.Answer(Plain(
      R"({"usage":{"prompt_tokens":3,"total_tokens":9,"completion_tokens":6}})"));
  client.ReceiveMessage();
  ASSERT_TRUE(journal_.AwaitEvents(2));
  EXPECT_THAT(journal_.events(), ElementsAre("submit 1", "done 1: 3+6"));
}

TEST_F(AdmissionTest, HearsHowFarAStreamIs) {
  Peer client = Peer::To(port_);
  client.Send(Post("/v1/completions", R"({"model":"m","stream":true})"));
  Peer engine = a_.Accept();
  engine.Answer(kStreamHead + Chunk(": wait\n\n"));
  EXPECT_EQ(journal_.generated(1), 0u);
  engine.Send(Chunk("data: 1\n\n"));
  client.ReceiveUntil("data: 1");
  EXPECT_EQ(journal_.generated(1), 1u);
  engine.Send(Chunk("data: 2\n\nda") + Chunk("ta: 3\n\n"));
  client.ReceiveUntil(": 3");
  EXPECT_EQ(journal_.generated(1), 3u);
}

TEST_F(AdmissionTest, EngineThatFailsIsReportedAndAvoided) {
  Peer client = Ask("x");
  Peer failing = a_.Accept();
  failing.ReceiveMessage();
  failing.Close();
  Peer engine = b_.Accept();
  engine.Answer(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
  ASSERT_TRUE(journal_.AwaitEvents(4));
  EXPECT_THAT(journal_.events(), ElementsAre("submit 1", "engine gone 1: 0+0",
                                             "submit 2", "done 2: 0+0"));
  EXPECT_EQ(journal_.requests()[1].avoid_engine, "a");
}

TEST_F(AdmissionTest, ClientThatLeavesAnAnswerIsReported) {
  Peer client = Peer::To(port_);
  client.Send(Post("/v1/completions", R"({"model":"m","stream":true})"));
  Peer engine = a_.Accept();
  engine.Answer(kStreamHead + Chunk("data: 1\n\n") + Chunk("data: 2\n\n"));
  client.ReceiveUntil("data: 2");
  client.Close();
  ASSERT_TRUE(journal_.AwaitEvents(3));
  EXPECT_THAT(journal_.events(),
              ElementsAre("submit 1", "first 1", "client gone 1: 0+2"));
}

class SlowBodyTest : public AdmissionSite {
 protected:
  static proxy::Limits OneSecond() {
    proxy::Limits limits;
    limits.body_s = 1;
    return limits;
  }
  SlowBodyTest() : AdmissionSite(/*counts_prompts=*/false, OneSecond()) {}
};

TEST_F(SlowBodyTest, BodyThatComesByteByByteEndsWithItsTime) {
  Peer client = Peer::To(port_);
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
      "\r\n");
  // Sends bytes for 20 s, each well within the deadline of a piece.
  int sent = 0;
  while (sent < 200 && client.SendNow("x") == 1) {
    ++sent;
    usleep(100'000);
  }
  EXPECT_LT(sent, 100);
  EXPECT_THAT(journal_.events(), ElementsAre());
}

TEST_F(AdmissionTest, DecidesWhetherTheProxyIsReady) {
  Peer client = Peer::To(port_);
  client.Send("GET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.ReceiveMessage().status(), 503);
}

// The proxy ends with a request in its queue and leaves nothing behind.
TEST_F(AdmissionTest, EndOfTheProxyCancelsWhatWaits) {
  Peer client = Ask("wait");
  ASSERT_TRUE(journal_.AwaitEvents(1));
  kill(getpid(), SIGTERM);
  EXPECT_EQ(client.ReceiveAll(), "");
  ASSERT_TRUE(journal_.AwaitEvents(2));
  EXPECT_EQ(journal_.events()[1], "cancel 1");
}

}  // namespace
}  // namespace fineserve::proxy_tests
