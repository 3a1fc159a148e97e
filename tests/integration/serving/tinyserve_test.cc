// tinyserve, the engine that computes its answers from its KV: what it says
// over HTTP, and that its answers stay what they must be while it shares a pool
// and other engines die.
//
// A slab of 8 MiB holds 128 blocks of format "wide" (one plane of 64 KiB, 4 KiB
// a token) and 64 of "deep" (four planes of 32 KiB, 8 KiB a token).

#include <gmock/gmock.h>
#include <signal.h>

#include <utility>

#include "tests/integration/serving/answer_load.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class TinyserveTest : public Site {
 protected:
  using Engine = std::unique_ptr<TinyEngine>;

  std::unique_ptr<Process> StartPool(const std::string& pool = "64MiB") {
    return StartDaemon({"--pool", pool, "--slab", "8MiB", "--planes", "4"});
  }
  // Starts the engine without the preload, so that it allocates its KV itself.
  Engine StartAlone(std::vector<std::string> arguments = {}) {
    Process::Environment environment = EngineEnvironment();
    environment["LD_PRELOAD"] = "";
    return Start("alone", std::move(arguments), environment);
  }
  Engine StartWide(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--view", "--page", "64KiB"});
    return Start("wide", std::move(more), EngineEnvironment());
  }
  Engine StartDeep(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--view", "--planes", "4", "--page", "32KiB"});
    return Start("deep", std::move(more), EngineEnvironment());
  }

  Engine Start(const std::string& model, std::vector<std::string> arguments,
               const Process::Environment& environment) {
    arguments.insert(arguments.begin(),
                     {"--speed", "50", "--max-model-len", "1024"});
    return std::make_unique<TinyEngine>(Program("tinyserve"), model,
                                        std::move(arguments), environment);
  }
};

TEST_F(TinyserveTest, AnswersWhatItsModelAnswersWithoutThePreload) {
  const Engine engine = StartAlone();
  for (const uint32_t tokens : {1u, 15u, 16u, 17u, 500u}) {
    const std::string prompt = Prompt(tokens, tokens);
    EXPECT_EQ(engine->Complete(prompt, 40), engine->Expected(prompt, 40));
  }
}

TEST_F(TinyserveTest, AnswersTheSameOnAViewOfThePool) {
  const auto daemon = StartPool();
  for (const char* mode : {"view", "guarded", "strict"}) {
    const Engine engine = StartWide({"--mode", mode});
    const std::string prompt = Prompt(1, 500);
    EXPECT_EQ(engine->Complete(prompt, 40), engine->Expected(prompt, 40))
        << mode;
    EXPECT_EQ(engine->process().EndBy(SIGTERM), 0)
        << engine->process().Stderr();
    EXPECT_TRUE(EventuallyFree(8)) << mode;
  }
}

// Runs it like any stock program whose KV size the operator has declared.
TEST_F(TinyserveTest, AnswersTheSameOnWholeSlabs) {
  const auto daemon = StartPool();
  Set("FINESERVE_KV_SIZES", "16MiB");
  const Engine engine = Start("whole", {"--page", "64KiB", "--blocks", "256"},
                              EngineEnvironment());
  EXPECT_EQ(SlabsOf(engine->process().pid()), 2u);
  const std::string prompt = Prompt(1, 500);
  EXPECT_EQ(engine->Complete(prompt, 40), engine->Expected(prompt, 40));
}

TEST_F(TinyserveTest, RequiredViewIsTakenWithoutBeingAskedFor) {
  const auto daemon = StartPool();
  Set("FINESERVE_VIEW", "required");
  const Engine engine = Start("wide", {"--page", "64KiB"}, EngineEnvironment());
  const Finished engines =
      Fsctl({"explain", std::to_string(engine->process().pid())});
  EXPECT_THAT(engines.out, HasSubstr("view"));
  EXPECT_EQ(engine->Complete("hello", 5), engine->Expected("hello", 5));
}

// Prompts are longer than a step's budget, and there are more sequences than
// blocks.
TEST_F(TinyserveTest, ChunkedAndPreemptedRequestsAnswerAsAnyOther) {
  const Engine engine =
      StartAlone({"--max-num-batched-tokens", "64", "--blocks", "100",
                  "--max-model-len", "512"});
  AnswerLoad load(*engine, 8, {200, 100});
  EXPECT_TRUE(Eventually(
      [&] { return load.right() >= 24 && engine->Stat("preemptions") >= 5; }));
  load.End();
  EXPECT_EQ(load.wrong() + load.lost(), 0);
  EXPECT_TRUE(Eventually([&] {
    return engine->Metric("vllm:kv_cache_usage_perc") == 0;
  })) << "all blocks come back";
}

// Without this, the right answers elsewhere in this file would prove nothing.
TEST_F(TinyserveTest, OneBitOfKvThatChangesChangesTheAnswer) {
  for (const char* checked : {"0", "2"}) {
    const Engine engine = StartAlone({"--checked-blocks", checked});
    const std::string prompt = Prompt(1, 300);
    HttpClient client(engine->port());
    engine->HoldAfter(1);
    client.Send("POST", "/v1/completions",
                engine->Body(prompt, 100, ", \"stream\": true"));
    engine->AwaitHold();
    EXPECT_EQ(engine->process().Ask("flip"), "ok flipped");
    engine->Continue();
    EXPECT_EQ(client.ReadHead().status, 200);
    std::string text;
    while (const auto event = client.ReadEvent()) {
      if (*event == "[DONE]") break;
      text += JsonText(*event, kTextOfAnswer);
    }
    EXPECT_NE(text, engine->Expected(prompt, 100));
    EXPECT_EQ(text.size(), engine->Expected(prompt, 100).size());
    // The next request writes its own KV.
    EXPECT_EQ(engine->Complete(prompt, 20), engine->Expected(prompt, 20));
  }
}

TEST_F(TinyserveTest, StreamIsVllmsEvents) {
  const Engine engine = StartAlone();
  HttpClient client(engine->port());
  client.Send("POST", "/v1/completions",
              engine->Body("hello", 3,
                           ", \"stream\": true, \"stream_options\": "
                           "{\"include_usage\": true}"),
              "X-Request-Id: mine\r\n");
  HttpResponse head = client.ReadHead();
  EXPECT_EQ(head.headers["content-type"], "text/event-stream; charset=utf-8");
  EXPECT_EQ(head.headers["transfer-encoding"], "chunked");
  EXPECT_EQ(head.headers["x-request-id"], "mine");
  std::string text;
  std::vector<std::string> finish;
  for (int i = 0; i < 3; ++i) {
    const std::string chunk = client.ReadEvent().value_or("");
    EXPECT_EQ(JsonText(chunk, "/id"), "cmpl-mine");
    EXPECT_EQ(JsonText(chunk, "/object"), "text_completion");
    text += JsonText(chunk, kTextOfAnswer);
    finish.push_back(JsonAt(chunk, "/choices/0/finish_reason"));
  }
  EXPECT_EQ(text, engine->Expected("hello", 3));
  EXPECT_THAT(finish, ElementsAre("null", "null", "\"length\""));
  const std::string last = client.ReadEvent().value_or("");
  EXPECT_EQ(JsonAt(last, "/choices"), "[]");
  EXPECT_EQ(JsonInt(last, "/usage/total_tokens"), 4);
  EXPECT_EQ(client.ReadEvent(), "[DONE]");
  EXPECT_EQ(client.ReadEvent(), std::nullopt);
  // The connection is kept.
  EXPECT_EQ(
      TextOf(client.Ask("POST", "/v1/completions", engine->Body("again", 2))),
      engine->Expected("again", 2));
}

TEST_F(TinyserveTest, ClientThatGoesAwayHasItsRequestAbortedAndBlocksFreed) {
  const auto daemon = StartPool();
  const Engine engine = StartWide();
  for (const char* stream : {", \"stream\": true", ""}) {
    const uint64_t aborted = engine->Stat("aborted");
    HttpClient client(engine->port());
    engine->HoldAfter(1);
    client.Send("POST", "/v1/completions",
                engine->Body(Prompt(1, 200), 800, stream));
    engine->AwaitHold();
    EXPECT_EQ(engine->Stat("running"), 1u);
    EXPECT_GT(engine->Metric("vllm:kv_cache_usage_perc"), 0);
    client.Close();
    EXPECT_TRUE(Eventually([&] {
      return engine->Stat("aborted") == aborted + 1;
    })) << "stream: "
        << stream;
    engine->Continue();
    EXPECT_TRUE(Eventually([&] { return engine->Stat("running") == 0; }));
    EXPECT_EQ(engine->Metric("vllm:kv_cache_usage_perc"), 0);
  }
}

TEST_F(TinyserveTest, BadRequestIsRefusedAsByVllm) {
  const Engine engine = StartAlone({"--max-model-len", "64"});
  HttpClient client(engine->port());
  const auto refused = [&](const std::string& body) {
    const HttpResponse response = client.Ask("POST", "/v1/completions", body);
    EXPECT_EQ(JsonInt(response.body, "/error/code"), response.status);
    return std::to_string(response.status) + " " +
           JsonText(response.body, "/error/type") + " " +
           JsonText(response.body, "/error/message");
  };
  EXPECT_THAT(refused("{\"prompt\": "), StartsWith("400 Bad Request"));
  EXPECT_THAT(refused("{\"model\": \"other\", \"prompt\": \"a\"}"),
              StartsWith("404 NotFoundError The model `other` does not"));
  EXPECT_THAT(refused(engine->Body(Prompt(1, 64), 1)),
              HasSubstr("maximum context length is 64 tokens"));
  EXPECT_THAT(refused(engine->Body("a", 2, ", \"n\": 2")),
              HasSubstr("n other"));
  EXPECT_EQ(client.Ask("GET", "/v1/completions").status, 405);
  EXPECT_EQ(client.Ask("GET", "/nowhere").status, 404);
  EXPECT_EQ(client.Ask("GET", "/health").status, 200);
  HttpClient garbage(engine->port());
  garbage.SendRaw("garbage\r\n\r\n");
  EXPECT_EQ(garbage.ReadHead().status, 400);
}

TEST_F(TinyserveTest, ChosenFailuresHaveTheirExitCodes) {
  Process::Environment environment = EngineEnvironment();
  environment["LD_PRELOAD"] = "";
  const auto code = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), Program("tinyserve"));
    return RunToEnd(arguments, environment).code;
  };
  EXPECT_EQ(code({"--page", "100"}), 2);
  EXPECT_EQ(code({"--speed", "0"}), 2);
  EXPECT_EQ(code({"--blocks", "10"}), 4) << "less than one request";
  EXPECT_EQ(code({"--page", "1GiB", "--blocks", "5000"}), 4) << "no memory";
  EXPECT_EQ(code({"--view"}), 5) << "no shim";
  EXPECT_EQ(code({"--host", "192.0.2.1", "--blocks", "300"}), 1);
  EXPECT_EQ(code({"--help"}), 0);
}

// Slabs move back and forth to the engine that has the load, and no answer is
// ever wrong.
TEST_F(TinyserveTest, TwoFormatsTradeSlabsUnderLoadAndEveryAnswerIsRight) {
  const auto daemon = StartPool();
  const Engine wide = StartWide();
  const Engine deep = StartDeep();
  const Engine* const both[] = {&wide, &deep};
  for (int turn = 0; turn < 4; ++turn) {
    const Engine& busy = *both[turn % 2];
    const Engine& idle = *both[(turn + 1) % 2];
    AnswerLoad heavy(*busy, 12, {600, 60});
    AnswerLoad light(*idle, 1, {30, 10});
    EXPECT_TRUE(Eventually([&] {
      return SlabsOf(busy->process().pid()) >= 6 && heavy.right() >= 24;
    })) << busy->model()
        << " has " << SlabsOf(busy->process().pid()) << " slabs, "
        << heavy.right() << " answers";
    heavy.End();
    light.End();
    EXPECT_EQ(heavy.wrong() + heavy.lost(), 0) << busy->model();
    EXPECT_EQ(light.wrong() + light.lost(), 0) << idle->model();
    EXPECT_GT(light.right(), 0);
  }
}

// Shows that the engines are not just lucky: in mode "view", a neighbour's
// stray writes reach this engine's KV, and its answer shows them; in mode
// "guarded", they do not reach it.
TEST_F(TinyserveTest, StrayWritesOfANeighbourShowUnlessItIsGuarded) {
  const auto daemon = StartPool();
  for (const std::string mode : {"guarded", "view"}) {
    const Engine wide = StartWide();
    Process stray({Program("view_engine"), "--mode", mode},
                  EngineEnvironment());
    EXPECT_THAT(stray.ReadLine(), StartsWith("ready"));
    const std::string prompt = Prompt(1, 300);
    HttpClient client(wide->port());
    wide->HoldAfter(1);
    client.Send("POST", "/v1/completions", wide->Body(prompt, 150));
    wide->AwaitHold();
    // With one plane of 64 KiB pages, the block ids are the same as the other
    // engine's.
    for (int block = 128; block < 9 * 128; ++block) {
      stray.Ask("poke " + std::to_string(block));
    }
    wide->Continue();
    HttpResponse response = client.ReadHead();
    response.body = client.ReadBody();
    EXPECT_EQ(TextOf(response) == wide->Expected(prompt, 150),
              mode == "guarded");
  }
}

TEST_F(TinyserveTest, KilledEngineTakesNoAnswerOfTheOtherWithIt) {
  const auto daemon = StartPool();
  const Engine wide = StartWide();
  AnswerLoad load(*wide, 6, {400, 60});
  for (int kill = 0; kill < 3; ++kill) {
    const Engine deep = StartDeep();
    HttpClient stream(deep->port());
    deep->HoldAfter(10);
    stream.Send("POST", "/v1/completions",
                deep->Body(Prompt(1, 900), 100, ", \"stream\": true"));
    EXPECT_EQ(stream.ReadHead().status, 200);
    deep->AwaitHold();
    EXPECT_TRUE(stream.ReadEvent().has_value());
    EXPECT_EQ(deep->process().EndBy(SIGKILL), -SIGKILL);
    std::optional<std::string> last;
    while (const auto event = stream.ReadEvent()) last = event;
    EXPECT_NE(last, "[DONE]") << "it died in the middle";
    const int answered = load.right();
    EXPECT_TRUE(Eventually([&] { return load.right() >= answered + 12; }));
  }
  load.End();
  EXPECT_EQ(load.wrong() + load.lost(), 0);
}

// The load of two engines comes and goes, beside a third engine of another
// format that is killed again and again. No token ever differs from what each
// would answer alone. $FINESERVE_TEST_REQUESTS sets how many answers are
// compared.
TEST_F(TinyserveTest, NoTokenDiffersUnderContentionKillsAndHandOvers) {
  const auto daemon = StartPool();
  const std::vector<std::string> fast = {"--speed", "1000", "--max-num-seqs",
                                         "24"};
  const Engine wide = StartWide(fast);
  const Engine deep = StartDeep(fast);
  const int wanted = WantedAnswers(800);
  int right = 0, kills = 0, hand_overs = 0;
  uint32_t slabs = 0;
  for (int turn = 0; right < wanted; ++turn) {
    const Engine doomed = StartWide({"--speed", "1000", "--block-tokens", "8"});
    AnswerLoad heavy(turn % 2 == 0 ? *wide : *deep, 10, {500, 30});
    AnswerLoad light(turn % 2 == 0 ? *deep : *wide, 2, {60, 20});
    AnswerLoad lost(*doomed, 4, {300, 30});
    ASSERT_TRUE(Eventually([&] { return heavy.right() >= 40; }));
    const uint32_t now = SlabsOf(wide->process().pid());
    hand_overs += now != std::exchange(slabs, now);
    doomed->process().Signal(SIGKILL);
    ++kills;
    const int answered = heavy.right();
    ASSERT_TRUE(Eventually([&] { return heavy.right() >= answered + 20; }));
    heavy.End();
    light.End();
    lost.End();
    ASSERT_EQ(heavy.wrong() + heavy.lost() + light.wrong() + light.lost(), 0)
        << "turn " << turn;
    ASSERT_EQ(lost.wrong(), 0) << "turn " << turn;
    right += heavy.right() + light.right();
  }
  EXPECT_GE(hand_overs, kills / 2) << "slabs changed hands";
  RecordProperty("requests", right);
  RecordProperty("kills", kills);
  RecordProperty("hand_overs", hand_overs);
}

TEST_F(TinyserveTest, DaemonThatDiesStopsNoAnswer) {
  auto daemon = StartPool();
  const Engine wide = StartWide();
  AnswerLoad load(*wide, 4, {300, 60});
  EXPECT_TRUE(Eventually([&] { return load.right() >= 8; }));
  daemon->EndBy(SIGKILL);
  const int answered = load.right();
  EXPECT_TRUE(Eventually([&] { return load.right() >= answered + 16; }));
  load.End();
  EXPECT_EQ(load.wrong() + load.lost(), 0);
}

TEST_F(TinyserveTest, CurlStreams) {
  const Engine engine = StartAlone();
  const Finished curl =
      RunToEnd({"curl", "-sN", "-H", "Content-Type: application/json", "-d",
                engine->Body("hello", 4, ", \"stream\": true"),
                "http://127.0.0.1:" + std::to_string(engine->port()) +
                    "/v1/completions"},
               environment());
  EXPECT_EQ(curl.code, 0) << curl.err;
  EXPECT_THAT(curl.out, StartsWith("data: {"));
  EXPECT_THAT(curl.out, testing::EndsWith("}\n\ndata: [DONE]\n\n"));
}

}  // namespace
}  // namespace fineserve::integration
