// The whole service with two engines of different formats. tinyserve's answers
// are known in advance, so every answer is compared.

#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <utility>
#include <vector>

#include "tests/integration/serving/answer_load.h"
#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"
#include "tools/lab/process/free_port.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

class ServingTest : public ServingSite {
 protected:
  using Engine = std::unique_ptr<TinyEngine>;
  // The SLO of requests that must be answered, however slow the machine is.
  static constexpr char kNoHurry[] = "x-slo-ttft-ms: 120000\r\n";

  // Starts the daemon, the engines "wide" and "deep" (each a model of its
  // name), and the proxy.
  void StartAll(const std::string& without_daemon = "fail_open") {
    const uint16_t wide_port = process::FreePort(),
                   deep_port = process::FreePort();
    WriteFleet(
        {{"wide", 4096, wide_port}, {"deep", 8192, deep_port, {}, "exact"}},
        without_daemon);
    StartDaemonOfFleet();
    const std::string flags = "--view --speed 20 --max-model-len 4096 ";
    wide_ = StartTiny("wide", wide_port, flags + "--page 64KiB");
    deep_ = StartTiny("deep", deep_port, flags + "--planes 4 --page 32KiB");
    StartProxy();
  }
  HttpResponse Ask(const TinyEngine& engine, const std::string& prompt,
                   uint32_t tokens, const std::string& fields = kNoHurry) {
    return HttpClient(port()).Ask("POST", "/v1/completions",
                                  engine.Body(prompt, tokens), fields);
  }

  static size_t CountOf(const std::string& what, const std::string& text) {
    size_t count = 0;
    for (size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + 1)) {
      ++count;
    }
    return count;
  }

  // Returns the number of requests that the daemon counts as waiting or
  // running.
  int RequestsInBooks() {
    return JsonInt(Fsctl({"requests", "--json"}).out, "/total");
  }
  // Returns the tokens of KV that the daemon has booked for the model's engine.
  int Held(const std::string& name) {
    const std::string models = Fsctl({"models", "--json"}).out;
    for (int m = 0;; ++m) {
      const std::string model = "/models/" + std::to_string(m);
      const std::string found = JsonText(models, model + "/name");
      if (found == "") return -1;
      if (found == name) {
        return JsonInt(models, model + "/engines/0/held_tokens");
      }
    }
  }

  // Clients that all send their requests, and read their answers later.
  class Crowd {
   public:
    Crowd(const TinyEngine& engine, uint16_t port, uint32_t clients)
        : engine_(engine) {
      for (uint32_t n = 0; n < clients; ++n) {
        clients_.emplace_back(port);
        clients_.back().Send("POST", "/v1/completions",
                             engine.Body(Prompt(n, 900), 40), kNoHurry);
      }
    }
    // Reads the answers of the next `count` clients in the order in which they
    // asked.
    void ReadAnswers(uint32_t count) {
      for (; count > 0; --count, ++next_) {
        HttpResponse answer = clients_[next_].ReadHead();
        answer.body = clients_[next_].ReadBody();
        EXPECT_EQ(answer.status, 200) << answer.body;
        EXPECT_EQ(TextOf(answer), engine_.Expected(Prompt(next_, 900), 40));
        if (HasFailure()) return;
      }
    }

   private:
    const TinyEngine& engine_;
    std::vector<HttpClient> clients_;
    uint32_t next_ = 0;
  };

  Engine wide_, deep_;
};

TEST_F(ServingTest, AnswersOfBothModelsComeThroughAsTheyMustBe) {
  StartAll();
  for (const TinyEngine* engine : {wide_.get(), deep_.get()}) {
    const std::string prompt = Prompt(1, 300);
    EXPECT_EQ(TextOf(Ask(*engine, prompt, 40)), engine->Expected(prompt, 40));
    HttpClient client(port());
    client.Send("POST", "/v1/completions",
                engine->Body(prompt, 40, ", \"stream\": true"), kNoHurry);
    EXPECT_EQ(client.ReadHead().status, 200);
    std::string text, last;
    while (const auto event = client.ReadEvent()) {
      last = *event;
      if (last == "[DONE]") break;
      text += JsonText(last, kTextOfAnswer);
    }
    EXPECT_EQ(last, "[DONE]");
    EXPECT_EQ(text, engine->Expected(prompt, 40));
  }
}

TEST_F(ServingTest, LoadOnBothModelsIsAnsweredRightOrRefused) {
  StartAll();
  AnswerLoad wide(*wide_, port(), 8, {500, 40});
  AnswerLoad deep(*deep_, port(), 4, {200, 40});
  EXPECT_TRUE(Eventually([&] {
    return wide.right() >= 100 && deep.right() >= 50;
  })) << wide.right()
      << " and " << deep.right() << " right, " << wide.refused() << " and "
      << deep.refused() << " refused";
  wide.End();
  deep.End();
  EXPECT_EQ(wide.wrong() + deep.wrong() + wide.lost() + deep.lost(), 0);
}

// A one-letter word is a token, but its bytes count as half a token. The pool
// holds 8,192 tokens of "deep", whose prompts are counted. The prompts of
// "wide" are only estimated, so one reaches an engine that cannot hold it.
TEST_F(ServingTest, CountedPromptThatFitsNowhereIsRefusedBeforeItsEngineHasIt) {
  StartAll();
  const auto words = [](size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += "a ";
    return text;
  };
  HttpResponse counted = Ask(*deep_, words(10'000), 5);
  EXPECT_EQ(counted.status, 400) << counted.body;
  EXPECT_EQ(counted.headers["x-fineserve-reason"], "context_length_exceeded");
  HttpResponse estimated = Ask(*wide_, words(12'000), 5);
  EXPECT_EQ(estimated.status, 400) << estimated.body;
  EXPECT_EQ(estimated.headers["x-fineserve-reason"], "") << "by the engine";
}

// Initially, 256 of the 4,000 tokens are expected. The engine stops in the
// middle of its answer.
TEST_F(ServingTest, LongAnswerIsBookedAsItGrows) {
  StartAll();
  HttpClient client(port());
  wide_->HoldAfter(400);
  client.Send("POST", "/v1/completions",
              wide_->Body(Prompt(1, 20), 4000, ", \"stream\": true"));
  wide_->AwaitHold();
  EXPECT_EQ(client.ReadHead().status, 200);
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(client.ReadEvent().has_value());
  EXPECT_TRUE(Eventually([&] { return Held("wide") >= 20 + 400; }))
      << Held("wide");
  client.Close();
  EXPECT_TRUE(Eventually([&] { return Held("wide") == 0; })) << Held("wide");
}

// A prompt of 2,000 tokens fills at least one step: 1.9 ms by the profile.
TEST_F(ServingTest, DeadlineThatCannotBeMetIsRefusedAtOnceOrDegraded) {
  StartAll();
  const std::string prompt = Prompt(1, 2000);
  const auto ask = [&](const std::string& fields) {
    return HttpClient(port()).Ask("POST", "/v1/completions",
                                  wide_->Body(prompt, 5), fields);
  };
  const HttpResponse refused = ask("x-slo-ttft-ms: 1\r\n");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(JsonText(refused.body, "/error/code"), "slo_unreachable");
  EXPECT_THAT(refused.body, HasSubstr("predicted_ttft_ms"));
  EXPECT_NE(refused.headers.at("retry-after"), "");
  const HttpResponse late =
      ask("x-slo-ttft-ms: 1\r\nx-fineserve-degrade: 1\r\n");
  EXPECT_EQ(late.status, 200) << late.body;
  EXPECT_EQ(TextOf(late), wide_->Expected(prompt, 5));
  EXPECT_EQ(ask(kNoHurry).status, 200);
}

TEST_F(ServingTest, ClientThatGoesAwayEndsItsRequestInTheEngine) {
  StartAll();
  for (const char* stream : {", \"stream\": true", ""}) {
    const uint64_t aborted = wide_->Stat("aborted");
    HttpClient client(port());
    wide_->HoldAfter(1);
    client.Send("POST", "/v1/completions",
                wide_->Body(Prompt(1, 20), 1000, stream));
    wide_->AwaitHold();
    client.Close();
    EXPECT_TRUE(Eventually([&] {
      return wide_->Stat("aborted") == aborted + 1;
    })) << "stream: "
        << stream;
    wide_->Continue();
  }
}

TEST_F(ServingTest, EngineKilledMidStreamEndsItsStreamWithAnErrorOnly) {
  StartAll();
  AnswerLoad others(*wide_, port(), 4, {300, 40});
  HttpClient client(port());
  deep_->HoldAfter(10);
  client.Send("POST", "/v1/completions",
              deep_->Body(Prompt(1, 20), 1000, ", \"stream\": true"));
  deep_->AwaitHold();
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_TRUE(client.ReadEvent().has_value());
  deep_->process().Signal(SIGKILL);
  std::string last, before;
  while (const auto event = client.ReadEvent()) {
    before = std::exchange(last, *event);
  }
  EXPECT_FALSE(client.broken()) << "the stream is ended as one";
  EXPECT_THAT(before + last, HasSubstr("\"error\""));
  const int answered = others.right();
  EXPECT_TRUE(Eventually([&] { return others.right() >= answered + 20; }));
  others.End();
  EXPECT_EQ(others.wrong() + others.lost(), 0);
  // The model has no other engine, so the request waits for this engine's
  // return for as long as its SLO.
  const HttpResponse refused =
      Ask(*deep_, "hello", 5, "x-slo-ttft-ms: 1000\r\n");
  EXPECT_EQ(refused.status, 503) << refused.body;
}

TEST_F(ServingTest, DaemonKilledUnderLoadChangesNoAnswer) {
  StartAll("fail_open");
  AnswerLoad load(*wide_, port(), 4, {300, 40});
  ASSERT_TRUE(Eventually([&] { return load.right() >= 10; }));
  daemon_->EndBy(SIGKILL);
  const int answered = load.right();
  EXPECT_TRUE(Eventually([&] { return load.right() >= answered + 30; }))
      << load.right() - answered << " more, " << load.refused() << " refused";
  load.End();
  EXPECT_EQ(load.wrong() + load.lost(), 0);
}

// Most of the crowd waits, because 16 requests fill the pool. The proxy greets
// the daemon once a second, and the daemon forgets the proxy 3 s after its last
// greeting. The proxy takes the daemon for silent 2.5 s after the last verdict.
// So each round stops the proxy at a different time after the round's
// beginning. The engine is stopped too, so that only the proxy's greeting
// comes.
class StoppedProxyTest : public ServingTest,
                         public testing::WithParamInterface<std::vector<int>> {
};

TEST_P(StoppedProxyTest, NoClientWaitsForEverAfterTheProxyWasStopped) {
  using Clock = std::chrono::steady_clock;
  StartAll();
  const auto greetings = [&] {
    return CountOf("a proxy has connected", daemon_->Stderr());
  };
  for (const int asked_ms : GetParam()) {
    if (HasFailure()) break;
    const auto until = Clock::now() + std::chrono::milliseconds(asked_ms);
    while (Clock::now() < until) Ask(*wide_, "hello", 5);
    wide_->HoldAfter(10);
    Crowd crowd(*wide_, port(), 48);
    wide_->AwaitHold();
    const size_t before = greetings();
    proxy_->Signal(SIGSTOP);
    EXPECT_TRUE(Eventually([&] { return RequestsInBooks() == 0; }));
    proxy_->Signal(SIGCONT);
    EXPECT_TRUE(Eventually([&] { return greetings() > before; }));
    wide_->Continue();
    crowd.ReadAnswers(48);
    EXPECT_TRUE(Eventually([&] { return RequestsInBooks() == 0; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Rounds, StoppedProxyTest,
                         testing::Values(std::vector<int>{0, 600},
                                         std::vector<int>{200, 800},
                                         std::vector<int>{400}),
                         [](const auto& rounds) {
                           return "From" +
                                  std::to_string(rounds.param.front()) + "Ms";
                         });

TEST_F(ServingTest, NoClientWaitsForEverAfterTheDaemonWasStopped) {
  StartAll();
  Crowd crowd(*wide_, port(), 48);
  crowd.ReadAnswers(8);
  daemon_->Signal(SIGSTOP);
  EXPECT_TRUE(Eventually(
      [&] { return CountOf("no fineserved answers", proxy_->Stderr()) > 0; }));
  daemon_->Signal(SIGCONT);
  crowd.ReadAnswers(40);
  EXPECT_TRUE(Eventually([&] { return RequestsInBooks() == 0; }));
}

TEST_F(ServingTest, ReloadTakesAnotherFleetAndGoesOnCounting) {
  StartAll();
  const auto admitted = [&] {
    const Finished models = Fsctl({"models", "--json"});
    return JsonInt(models.out, "/models/0/admitted");
  };
  const auto reload = [&] {
    const auto times = [&] {
      return CountOf("configuration read again", daemon_->Stderr());
    };
    const size_t before = times();
    daemon_->Signal(SIGHUP);
    EXPECT_TRUE(Eventually([&] { return times() > before; }));
  };
  EXPECT_EQ(Ask(*wide_, "hello", 5).status, 200);
  EXPECT_EQ(admitted(), 1);
  reload();
  EXPECT_EQ(admitted(), 1);
  std::ofstream(fleet_path(), std::ios::app)
      << "[scheduler]\npolicy = \"fcfs\"\n";
  reload();
  EXPECT_EQ(JsonText(Fsctl({"models", "--json"}).out, "/policy"), "fcfs");
  EXPECT_EQ(admitted(), 1) << "counts go on";
  EXPECT_EQ(Ask(*wide_, "hello", 5).status, 200);
  // A mistake in the fleet leaves everything as it was.
  std::ofstream(fleet_path()) << "[scheduler]\npolicy = \"best\"\n";
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] {
    return CountOf("one of fineserve, moore-hodgson, fcfs",
                   daemon_->Stderr()) == 1;
  }));
  EXPECT_EQ(admitted(), 2);
}

TEST_F(ServingTest, AnswersThatAreNotStreamedAreOnTimeOrLate) {
  StartAll();
  EXPECT_EQ(Ask(*wide_, "hello", 5, "").status, 200);
  EXPECT_TRUE(Eventually([&] {
    return JsonInt(Fsctl({"models", "--json"}).out, "/models/0/on_time") == 1;
  }));
}

// The daemon notifies the proxy of a clean end; otherwise the proxy would wait
// 2.5 s for an answer.
TEST_F(ServingTest, EndOfTheDaemonHoldsNoRequestUp) {
  using Clock = std::chrono::steady_clock;
  StartAll("fail_open");
  EXPECT_EQ(Ask(*wide_, "hello", 5).status, 200);
  daemon_->EndBy(SIGTERM);
  const auto before = Clock::now();
  EXPECT_EQ(Ask(*wide_, "hello", 5).status, 200);
  EXPECT_LT(Clock::now() - before, std::chrono::milliseconds(1500));
  EXPECT_EQ(HttpClient(port()).Ask("GET", "/ready").body,
            "{\"ready\":true,\"scheduled\":false,"
            "\"gpus_without_daemon\":[\"any\"]}");
  StartDaemonOfFleet();
  EXPECT_TRUE(Eventually([&] {
    return HttpClient(port()).Ask("GET", "/ready").body ==
           "{\"ready\":true,\"scheduled\":true,\"gpus_without_daemon\":[]}";
  }));
  const Finished models = Fsctl({"models"});
  EXPECT_THAT(models.out, HasSubstr("1 requests were admitted unscheduled"));
}

TEST_F(ServingTest, DrainedModelIsRefusedAtOnce) {
  using Clock = std::chrono::steady_clock;
  StartAll();
  EXPECT_EQ(Fsctl({"drain"}).code, 2) << "of what?";
  EXPECT_EQ(Fsctl({"drain", "wide", "--all"}).code, 2);
  EXPECT_EQ(Ask(*wide_, "hello", 5).status, 200);
  EXPECT_EQ(Fsctl({"drain", "--all"}).code, 0);
  for (const TinyEngine* engine : {wide_.get(), deep_.get()}) {
    const auto before = Clock::now();
    HttpResponse refused = Ask(*engine, "hello", 5);
    EXPECT_EQ(refused.status, 503) << refused.body;
    EXPECT_EQ(refused.headers["x-fineserve-reason"], "no_engine");
    EXPECT_LT(Clock::now() - before, std::chrono::seconds(2));
  }
  EXPECT_EQ(Fsctl({"drain", "--all", "--undo"}).code, 0);
  EXPECT_EQ(Ask(*wide_, "hello", 5).status, 200);
}

TEST_F(ServingTest, DrainLastsThroughAnotherFleetAndAnotherDaemonUntilUndone) {
  StartAll();
  const auto drains = [&](const char* whether) {
    return Eventually([&] {
      return JsonAt(Fsctl({"models", "--json"}).out,
                    "/models/0/engines/0/drains") == whether;
    });
  };
  EXPECT_EQ(Fsctl({"drain", "wide"}).code, 0);
  EXPECT_TRUE(drains("true"));
  std::ofstream(fleet_path(), std::ios::app)
      << "[scheduler]\npolicy = \"fcfs\"\n";
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] {
    return JsonText(Fsctl({"models", "--json"}).out, "/policy") == "fcfs";
  }));
  EXPECT_TRUE(drains("true"));
  daemon_->EndBy(SIGKILL);
  StartDaemonOfFleet();
  EXPECT_TRUE(drains("true"));
  EXPECT_EQ(Fsctl({"drain", "wide", "--undo"}).code, 0);
  EXPECT_TRUE(drains("false"));
  EXPECT_EQ(Ask(*wide_, "hello", 5).status, 200);
}

TEST_F(ServingTest, WithoutItsDaemonAClosedProxySaysWhenToComeBack) {
  StartAll("fail_closed");
  EXPECT_EQ(Ask(*wide_, "hello", 5).status, 200);
  daemon_->EndBy(SIGKILL);
  HttpResponse response;
  EXPECT_TRUE(Eventually([&] {
    response = Ask(*wide_, "hello", 5);
    return response.status == 503;
  })) << response.status;
  EXPECT_NE(response.headers["retry-after"], "");
}

}  // namespace
}  // namespace fineserve::integration
