// A network and an etcd that misbehave without being down: what clients see,
// and that the fleet agrees again. FINESERVE_FAULT_S sets how long each fault
// lasts.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/integration/machines/machines_site.h"
#include "tools/lab/process/from_environment.h"

namespace fineserve::integration {
namespace {

// Returns how long a fault lasts: by default longer than a lease.
std::chrono::seconds FaultTime() {
  return std::chrono::seconds(process::FromEnvironment("FINESERVE_FAULT_S", 6));
}

// Calls etcd's JSON gateway from Python, which every Debian has: `call(host,
// path, body)`.
constexpr char kGateway[] = R"(
import json, sys, urllib.error, urllib.request
hosts = sys.argv[1:]
def call(host, path, body):
    request = urllib.request.Request(f"http://{host}/v3/{path}",
                                     json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)
)";
// Overwrites a key until the quota is used up.
constexpr char kFill[] = R"(
for _ in range(200):
    try:
        call(hosts[0], "kv/put", {"key": "Zmls", "value": "AAAA" * 250000})
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        sys.exit(0 if "space exceeded" in text else text)
sys.exit("etcd took all of it")
)";
// Makes room as etcd's operators do: forgets old revisions, gives the space
// back, and ends each member's alarm.
constexpr char kMakeRoom[] = R"(
revision = call(hosts[0], "maintenance/status", {})["header"]["revision"]
call(hosts[0], "kv/compaction", {"revision": revision, "physical": True})
for host in hosts:
    call(host, "maintenance/defragment", {})
for alarm in call(hosts[0], "maintenance/alarm", {}).get("alarms", []):
    call(hosts[0], "maintenance/alarm", {"action": "DEACTIVATE", **alarm})
)";

class FaultsTest : public MachinesSite {
 protected:
  void Etcd(const std::string& script) {
    std::vector<std::string> command = {"python3", "-c", kGateway + script};
    for (const process::EtcdAddress& member : Members()) {
      command.push_back(member.host + ":" + std::to_string(member.client_port));
    }
    const Finished done = RunToEnd(network_->On(0, command), {});
    EXPECT_EQ(done.code, 0) << done.err;
  }
  bool AllAgree() { return Agree({0, 1, 2}); }
  bool AllAnswer() { return AnswersAt(0) && AnswersAt(1) && AnswersAt(2); }
  // Checks the clients of all machines while the network has this weather for
  // some seconds, and afterwards.
  void Weather(const std::string& what, const PacketSwitch::Weather& weather) {
    BeginLoads({0, 1, 2});
    network_->between()->SetWeather(weather);
    std::this_thread::sleep_for(FaultTime());
    EndLoads(what);
    network_->between()->SetWeather({});
    EXPECT_TRUE(
        Becomes("all machines agree again", [&] { return AllAgree(); }));
    EXPECT_TRUE(
        Becomes("all models answer everywhere", [&] { return AllAnswer(); }));
  }
};

TEST_F(FaultsTest, AFarLossyNetworkBreaksNothing) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  Weather("200 ms and 5 % loss between machines",
          {.delay = std::chrono::milliseconds(200), .loss = .05});
}

TEST_F(FaultsTest, AGarblingNetworkBreaksNothing) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  // Garbles only our own traffic, because etcd's members have no keys and would
  // believe garbled bytes.
  Weather("one segment in 20 between proxies and daemons garbled",
          {.garbled = .05, .garbled_port = kDaemonPort});
  EXPECT_GT(network_->between()->garbled(), 0u);
}

TEST_F(FaultsTest, AFullEtcdFreezesMovesAndServes) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  const uint64_t term = Term();
  const auto plan = [&] {
    return JsonAt(FsctlOn(0, {"plan", "--json"}).out, "/number");
  };
  BeginLoads({0, 1, 2});
  Etcd(kFill);
  std::this_thread::sleep_for(FaultTime());
  EXPECT_TRUE(Becomes("fsctl doctor says that etcd takes no writes", [&] {
    const std::string said = FsctlOn(1, {"doctor"}).out;
    return said.find("space exceeded") != std::string::npos;
  }));
  const std::string full = plan();
  EXPECT_TRUE(Becomes("what it could not carry is refused", [&] {
    return FsctlOn(1, {"plan", "--freeze"}).code != 0;
  }));
  EXPECT_EQ(plan(), full);
  EXPECT_TRUE(AllAnswer());
  EndLoads("etcd's quota used up");
  EXPECT_EQ(Count(Ending::kRefused), 0);
  Etcd(kMakeRoom);
  EXPECT_TRUE(Becomes("all machines agree again", [&] { return AllAgree(); }));
  EXPECT_TRUE(Becomes("it can be steered", [&] {
    return FsctlOn(1, {"plan", "--freeze"}).code == 0;
  }));
  EXPECT_GE(Term(), term);
}

}  // namespace
}  // namespace fineserve::integration
