// Peers that do not belong to the fleet: machines without its keys, bytes that
// were changed on their way, an etcd of another fleet. All of them are refused
// and counted, any machine shows the counts, and the fleet continues to work.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/connection_watch.h"
#include "daemon/contract/wire/keys.h"
#include "daemon/contract/wire/socket.h"
#include "kernels/driver/descriptor.h"
#include "tests/integration/machines/machines_site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using wire::ConnectionFault;

class StrangersTest : public MachinesSite {
 protected:
  // Connects from machine 1 to the daemon of machine 0 until that daemon has
  // counted one more refusal.
  void KnockAs(const wire::KeyPair& own, const std::string& server_key,
               ConnectionFault why) {
    const uint64_t before = Refused(0, why);
    network_->InThreadOn(1, [&] {
      auto client = wire::ClientSocket::Connect(
          wire::RemoteDaemon{Network::Host(0), kDaemonPort, server_key}, own);
      ASSERT_TRUE(client.ok()) << client.status();
      EXPECT_TRUE(Eventually([&] {
        EXPECT_FALSE(client->Send("open the door"));
        return Refused(0, why) > before;
      }));
    });
  }
  void KnockPlainly() {
    const uint64_t before = Refused(0, ConnectionFault::kNoHandshake);
    network_->InThreadOn(1, [&] {
      const driver::Descriptor fd(
          socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in at = {};
      at.sin_family = AF_INET;
      at.sin_port = htons(kDaemonPort);
      inet_pton(AF_INET, Network::Host(0).c_str(), &at.sin_addr);
      ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)),
                0);
      const std::string bytes = "GET / HTTP/1.1\r\n\r\n";
      EXPECT_EQ(write(fd.get(), bytes.data(), bytes.size()),
                static_cast<ssize_t>(bytes.size()));
      EXPECT_TRUE(Eventually(
          [&] { return Refused(0, ConnectionFault::kNoHandshake) > before; }));
    });
  }
  uint64_t Refused(int machine, ConnectionFault why) {
    return wire::CountsOf(
        ReportOf(machine).refused.get())[static_cast<size_t>(why)];
  }
};

TEST_F(StrangersTest, AreRefusedCountedAndShownByAnyMachine) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  const wire::KeyPair own = *KeysOf(1).Own();
  const std::string m0 = KeysOf(0).Own()->public_key;
  for (const ConnectionFault why :
       {ConnectionFault::kUntrusted, ConnectionFault::kNoHandshake}) {
    EXPECT_EQ(Refused(0, why), 0u) << "only the fleet has been there";
  }
  BeginLoads({0, 1, 2});
  KnockAs(*wire::NewKeyPair(), m0, ConnectionFault::kUntrusted);
  KnockAs(own, wire::NewKeyPair()->public_key, ConnectionFault::kNoHandshake);
  KnockPlainly();
  network_->between()->SetWeather(
      {.garbled = .05, .garbled_port = kDaemonPort});
  EXPECT_TRUE(Becomes("a changed frame is counted", [&] {
    return Refused(0, ConnectionFault::kDamaged) > 0;
  }));
  network_->between()->SetWeather({});
  EndLoads("strangers at the door");
  // The other machines learn of the refusals twice a minute.
  EXPECT_TRUE(Becomes("fsctl nodes of another machine shows all of it", [&] {
    const std::string json = FsctlOn(2, {"nodes", "--json"}).out;
    for (const char* why : {"untrusted", "no_handshake", "damaged"}) {
      const std::string at = std::string("/machines/0/daemons/0/refused/");
      if (JsonAt(json, at + why).empty() || JsonAt(json, at + why) == "0") {
        return false;
      }
    }
    return true;
  }));
  Show(2, {"nodes"});
  const auto says = [&](int machine, const char* command, const char* what) {
    return FsctlOn(machine, {command}).out.find(what) != std::string::npos;
  };
  EXPECT_TRUE(Becomes("status and doctor tell it, too", [&] {
    return says(2, "status", "connections of keys that are not trusted") &&
           says(0, "doctor", "connections that did not finish CURVE's");
  }));
  EXPECT_TRUE(Becomes("all machines agree", [&] { return Agree({0, 1, 2}); }));
}

// One machine of the fleet gets new keys, by fsctl keys new.
TEST_F(StrangersTest, MachineWithNewKeysIsRefusedUntilItIsTrusted) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  const Finished made = FsctlOn(2, {"keys", "new", "--replace", "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string key = JsonText(made.out, "/public_key");
  RestartOurs(2);
  EXPECT_TRUE(Becomes("the others refuse it, and count it", [&] {
    return Refused(0, ConnectionFault::kUntrusted) > 0 &&
           Refused(1, ConnectionFault::kUntrusted) > 0;
  }));
  for (const int other : {0, 1}) {
    EXPECT_EQ(FsctlOn(other, {"keys", "trust", "m2", key}).code, 0);
  }
  // A machine that was refused, or that has a new key, tries again after 5 s of
  // silence.
  EXPECT_TRUE(Becomes("all machines agree again, and answer", [&] {
    return Agree({0, 1, 2}) && AnswersAt(0) && AnswersAt(1) && AnswersAt(2);
  }));
}

TEST_F(StrangersTest, AnotherClustersEtcdIsRefusedAndCounted) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  BeginLoads({0, 1, 2});
  const auto stop_etcd = [&] { machines_[2].etcd->EndBy(SIGKILL); };
  stop_etcd();
  StartStrangeEtcd(2);
  EXPECT_TRUE(Becomes("answers of another etcd are refused and counted",
                      [&] { return View(2) && View(2)->strangers > 0; }));
  EXPECT_TRUE(Becomes("and the fleet follows its own", [&] {
    return Agree({0, 1, 2});
  }));
  const Finished nodes = FsctlOn(2, {"nodes"});
  EXPECT_THAT(nodes.out, HasSubstr("answers of another etcd cluster"));
  EXPECT_THAT(FsctlOn(2, {"doctor"}).out,
              HasSubstr("answers of another etcd cluster"));
  // A node that starts beside the strange etcd does not believe it either.
  machines_[2].node->EndBy(SIGKILL);
  const uint64_t began_ns = RealClock().NowNs();
  StartNode(2);
  EXPECT_TRUE(Becomes("a new node refuses it, too", [&] {
    return View(2) && View(2)->written_ns > began_ns &&
           View(2)->strangers > 0 && Agree({0, 1, 2});
  }));
  EndLoads("another cluster's etcd on one machine");
  EXPECT_EQ(Count(Ending::kRefused), 0);
  stop_etcd();
  StartEtcd(2);
  EXPECT_TRUE(Becomes("all machines agree again", [&] {
    return Agree({0, 1, 2});
  }));
}

}  // namespace
}  // namespace fineserve::integration
