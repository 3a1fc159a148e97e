#include "tests/integration/machines/machines_site.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/socket.h"
#include "daemon/fleet/machines/lead_grant.h"
#include "tests/integration/planning/planned_model.h"
#include "tests/integration/planning/running_engine.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/fleet_text.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::integration {
namespace {

constexpr uint16_t kProxyPort = 8000;
// Small, so that a test can use it up.
constexpr uint64_t kEtcdQuotaBytes = 16 << 20;
constexpr uint16_t kEtcdPort = 2379;
constexpr uint16_t kEtcdPeerPort = 2380;
constexpr std::chrono::seconds kConvergence{90};

std::string NameOf(int machine) { return "m" + std::to_string(machine); }

void AtOnceOnEach(const std::function<void(int)>& act) {
  std::thread threads[kMachines];
  for (int i = 0; i < kMachines; ++i) threads[i] = std::thread(act, i);
  for (std::thread& thread : threads) thread.join();
}

// Returns the requests to one of three models in a real trace of 134 s, four
// times as fast.
std::vector<workload::Arrival> ArrivalsOf(uint32_t model) {
  constexpr double kSpeed = 4;
  const auto trace = workload::ReadTrace(FINESERVE_TRACE);
  EXPECT_TRUE(trace.ok()) << trace.status();
  std::vector<workload::Arrival> arrivals;
  if (!trace.ok()) return arrivals;
  for (workload::Arrival arrival : trace->arrivals) {
    arrival.at_s /= kSpeed;
    if (arrival.model == model) arrivals.push_back(arrival);
  }
  return arrivals;
}

}  // namespace

std::vector<process::EtcdAddress> MachinesSite::Members() {
  std::vector<process::EtcdAddress> members;
  for (int i = 0; i < kMachines; ++i) {
    members.push_back({Network::Host(i), kEtcdPort, kEtcdPeerPort});
  }
  return members;
}

MachinesSite::~MachinesSite() {
  for (const auto& load : loads_) load->End();
  ending_ = true;
  if (watch_.joinable()) watch_.join();
  for (OneMachine& m : machines_) {
    if (m.up != nullptr && m.up->alive()) m.up->Signal(SIGKILL);
  }
  // If fsctl up is killed, its engines keep running.
  for (int model = 0; model < kMachines; ++model) {
    for (int i = 0; i < kMachines; ++i) {
      if (ports_[model] == 0) continue;
      const pid_t pid = TinyserveOn(static_cast<uint16_t>(ports_[model] + i));
      if (pid != 0) kill(pid, SIGKILL);
    }
  }
}

void MachinesSite::SetUp() {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "needs three GPUs";
  if (!process::HasEtcd()) GTEST_SKIP() << process::kNoEtcd;
  const std::string trouble = Network::Trouble();
  if (!trouble.empty()) GTEST_SKIP() << trouble;
  network_ = std::make_unique<Network>(kMachines);
}

std::string MachinesSite::FolderOf(int machine) const {
  return folder() + "/" + NameOf(machine);
}

Process::Environment MachinesSite::EnvironmentOf(int machine) const {
  Process::Environment e = environment();
  e["FINESERVE_RUNTIME_DIR"] = FolderOf(machine) + "/run";
  e["FINESERVE_KEYS"] = FolderOf(machine) + "/keys";
  e["EMUCUDA_DIR"] = devices_.path() + "/" + NameOf(machine);
  return e;
}

std::unique_ptr<Process> MachinesSite::StartOn(
    int machine, const std::vector<std::string>& command) {
  return std::make_unique<Process>(network_->On(machine, command),
                                   EnvironmentOf(machine));
}

std::unique_ptr<Process> MachinesSite::StartDaemonOn(
    int machine, const std::vector<std::string>& arguments) {
  return StartOn(machine,
                 With(With({Program("fineserved")},
                           Words("--pool 64MiB --slab 4MiB --gpu " + Gpu())),
                      arguments));
}

Finished MachinesSite::FsctlOn(int machine,
                               const std::vector<std::string>& arguments) {
  return RunToEnd(network_->On(machine, With({Program("fsctl")}, arguments)),
                  EnvironmentOf(machine));
}

void MachinesSite::ExchangeKeys() {
  std::string keys[kMachines];
  AtOnceOnEach([&](int machine) {
    const Finished made = FsctlOn(machine, {"keys", "new", "--json"});
    EXPECT_EQ(made.code, 0) << made.err;
    keys[machine] = JsonText(made.out, "/public_key");
  });
  AtOnceOnEach([&](int machine) {
    for (int other = 0; other < kMachines; ++other) {
      if (other == machine) continue;
      const Finished trusted =
          FsctlOn(machine, {"keys", "trust", NameOf(other), keys[other]});
      EXPECT_EQ(trusted.code, 0) << trusted.err;
    }
  });
}

void MachinesSite::WriteFiles() {
  std::vector<std::string> gpus, etcd;
  std::string machines;
  for (int i = 0; i < kMachines; ++i) {
    gpus.push_back(machines_[i].gpu);
    etcd.push_back(Network::Host(i) + ":" + std::to_string(kEtcdPort));
    machines += stage::TomlValue::InlineTable(
                    {{"name", NameOf(i)},
                     {"host", Network::Host(i)},
                     {"gpus", std::vector<std::string>{gpus.back()}}})
                    .text() +
                ",\n";
  }
  stage::FleetText file;
  file.Proxy({}, kProxyPort);
  // The long cool-down suppresses moves made only for their gain, which would
  // make the test's steps harder to follow.
  file.Table("[planner]", {{"period", 1},
                           {"window", 5},
                           {"cool_down", 3600},
                           {"start", 30},
                           {"drain", 20}});
  file.Table("[cluster]", {{"etcd", etcd}});
  file.Append("machines = [\n" + machines + "]\n");
  for (int m = 0; m < kMachines; ++m) {
    const std::string name = models_[m].model();
    // Each of the test's machines has all ports free, but TinyserveOn finds
    // engines by port, so ports must differ.
    ports_[m] = process::FreePorts(kMachines);
    WritePlannedProfile(name, /*kv_token_bytes=*/4096, folder());  // its view's
    file.Model(name, PlannedKeys(name, /*rate=*/4));
    file.Table("[[engine]]",
               {{"name", name},
                {"model", name},
                {"url", "http://{host}:" + std::to_string(ports_[m])},
                {"gpus", gpus},
                {"command", With(PlannedCommand(Program("tinyserve"), name),
                                 {"--host", "{host}"})}});
  }
  file.WriteTo(fleet_path_);
}

void MachinesSite::StartEtcd(int machine) {
  machines_[machine].etcd =
      StartOn(machine, process::EtcdCommand(Members(), machine, devices_.path(),
                                            kEtcdQuotaBytes));
}

void MachinesSite::StartStrangeEtcd(int machine) {
  const std::string folder = devices_.path() + "/strange";
  mkdir(folder.c_str(), 0700);
  machines_[machine].etcd =
      StartOn(machine, process::EtcdCommand({Members()[machine]}, 0, folder));
}

void MachinesSite::StartNode(int machine) {
  machines_[machine].node =
      StartOn(machine, {Program("fineserve-node"), "--fleet", fleet_path_});
}

void MachinesSite::StartProxyOn(int machine) {
  machines_[machine].proxy =
      StartOn(machine, {Program("fineserve-proxy"), "--fleet", fleet_path_});
}

void MachinesSite::RestartOurs(int machine) {
  OneMachine& m = machines_[machine];
  for (Process* process : {m.daemon.get(), m.node.get(), m.proxy.get()}) {
    process->EndBy(SIGTERM);
  }
  m.daemon = StartDaemonOn(machine, {"--fleet", fleet_path_});
  AwaitDaemon(m.daemon.get());
  StartNode(machine);
  StartProxyOn(machine);
}

std::set<int> MachinesSite::EnginePorts() const {
  std::set<int> ports;
  for (const uint16_t first : ports_) {
    for (int i = 0; i < kMachines; ++i) ports.insert(first + i);
  }
  return ports;
}

void MachinesSite::StartAll() {
  for (int i = 0; i < kMachines; ++i) {
    mkdir(FolderOf(i).c_str(), 0700);
    mkdir((devices_.path() + "/" + NameOf(i)).c_str(), 0700);
    StartEtcd(i);
    machines_[i].daemon = StartDaemonOn(i, {});
  }
  ExchangeKeys();
  ASSERT_FALSE(HasFailure()) << "the machines have no keys";
  for (OneMachine& m : machines_) {
    AwaitDaemon(m.daemon.get());
    m.gpu = process::GpuInLog(m.daemon->Stderr());
    m.daemon.reset();
  }
  WriteFiles();
  for (int i = 0; i < kMachines; ++i) {
    machines_[i].daemon = StartDaemonOn(i, {"--fleet", fleet_path_});
    StartNode(i);
    StartProxyOn(i);
  }
  for (int i = 0; i < kMachines; ++i) {
    AwaitDaemon(machines_[i].daemon.get());
    machines_[i].up = StartOn(i, {Program("fsctl"), "up", fleet_path_});
  }
  watch_ = std::thread([this] { WatchLeaders(); });
  ASSERT_TRUE(Becomes("all machines agree and all models answer", [this] {
    return Agree({0, 1, 2}) && AnswersAt(0) && AnswersAt(1) && AnswersAt(2);
  }));
}

std::set<uint64_t> MachinesSite::Grants() const {
  const uint64_t now = RealClock().NowNs();
  std::set<uint64_t> terms;
  for (int i = 0; i < kMachines; ++i) {
    const auto grant = cluster::ReadGrant(FolderOf(i) + "/run", now);
    if (!grant.ok()) continue;
    EXPECT_TRUE(terms.insert(grant->term).second);
  }
  return terms;
}

// The namespaces share one clock, so two grants can be compared here. Between
// two reads, one grant may end and the next begin; but if the same two grants
// are there in a second round, both held at the same time in between.
void MachinesSite::WatchLeaders() {
  while (!ending_) {
    const std::set<uint64_t> first = Grants();
    if (first.size() > 1) {
      const std::set<uint64_t> again = Grants();
      const auto stayed =
          std::count_if(first.begin(), first.end(),
                        [&](uint64_t term) { return again.count(term) > 0; });
      EXPECT_LE(stayed, 1) << "two machines may lead at once";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::optional<cluster::FleetView> MachinesSite::View(int machine) const {
  auto view = cluster::ReadView(FolderOf(machine) + "/run");
  if (!view.ok()) return std::nullopt;
  return *std::move(view);
}

std::optional<cluster::FleetView> MachinesSite::NewestView() const {
  // A stopped node's last view may name that node as the leader.
  std::optional<cluster::FleetView> newest;
  for (int i = 0; i < kMachines; ++i) {
    auto view = View(i);
    if (!view || !view->has_quorum || view->leader.empty()) continue;
    if (!newest || view->term > newest->term) newest = std::move(view);
  }
  return newest;
}

int MachinesSite::Leader() const {
  const auto view = NewestView();
  return view ? view->leader[1] - '0' : -1;
}

uint64_t MachinesSite::Term() const {
  const auto view = NewestView();
  return view ? view->term : 0;
}

bool MachinesSite::Agree(const std::vector<int>& among) const {
  std::set<std::pair<uint64_t, uint64_t>> plans;
  for (const int i : among) {
    const auto view = View(i);
    if (!view || !view->has_quorum || view->leader.empty()) return false;
    const int leader = view->leader[1] - '0';
    if (std::find(among.begin(), among.end(), leader) == among.end()) {
      return false;
    }
    for (const int other : among) {
      const cluster::SeenMachine& seen = view->machines[other];
      if (!seen.is_alive || seen.record.daemons.size() != 1) return false;
      const cluster::DaemonRecord& d = seen.record.daemons[0];
      if (!d.answers || d.plan_term != view->term) return false;
      plans.insert({d.plan_term, d.plan_number});
    }
  }
  return plans.size() == 1;
}

bool MachinesSite::AnswersAt(int machine) {
  int right = 0;
  network_->InThreadOn(machine, [&] {
    for (const TinyModel& model : models_) {
      HttpClient client(kProxyPort);
      if (!client.connected()) return;
      const HttpResponse answer =
          client.Ask("POST", "/v1/completions", model.Body("hello", 5));
      if (answer.status != 200) return;
      right += TextOf(answer) == model.Expected("hello", 5);
    }
  });
  return right == kMachines;
}

void MachinesSite::Show(int machine,
                        const std::vector<std::string>& arguments) {
  if (getenv("FINESERVE_SHOW") == nullptr) return;
  printf("\n%s$ fsctl %s\n%s\n", NameOf(machine).c_str(),
         absl::StrJoin(arguments, " ").c_str(),
         FsctlOn(machine, arguments).out.c_str());
  fflush(stdout);
}

bool MachinesSite::Becomes(const std::string& what,
                           const std::function<bool()>& condition) {
  const auto began = std::chrono::steady_clock::now();
  const bool became = process::BecomesTrue(condition, kConvergence);
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - began;
  printf("%5.1f s: %s%s\n", took.count(), what.c_str(), became ? "" : " (NOT)");
  fflush(stdout);
  if (became) return true;
  for (int i = 0; i < kMachines; ++i) {
    printf("--- %s\n%s\n", NameOf(i).c_str(),
           FsctlOn(i, {"nodes"}).out.c_str());
    printf("%s\n", FsctlOn(i, {"nodes"}).err.c_str());
    for (const auto* p : {machines_[i].daemon.get(), machines_[i].node.get(),
                          machines_[i].proxy.get(), machines_[i].up.get()}) {
      if (p != nullptr) printf("%s\n", p->Stderr().c_str());
    }
  }
  return false;
}

void MachinesSite::BeginLoads(const std::vector<int>& machines) {
  constexpr int kClients = 2;
  loads_.clear();
  for (const int i : machines) {
    network_->InThreadOn(i, [&] {
      for (uint32_t m = 0; m < kMachines; ++m) {
        const AnswerLoad::Shape shape = {200, 40, /*mixed=*/true,
                                         ArrivalsOf(m)};
        loads_.push_back(std::make_unique<AnswerLoad>(models_[m], kProxyPort,
                                                      kClients, shape));
      }
    });
  }
}

int MachinesSite::Count(Ending ending) const {
  int count = 0;
  for (const auto& load : loads_) count += load->Count(ending);
  return count;
}

void MachinesSite::EndLoads(const std::string& what) {
  for (const auto& load : loads_) load->AskNoMore();
  for (const auto& load : loads_) load->End();
  printf(
      "%s: right %d, refused %d, broken off with an error %d, cut %d, left %d, "
      "wrong %d\n",
      what.c_str(), Count(Ending::kRight), Count(Ending::kRefused),
      Count(Ending::kBadGateway) + Count(Ending::kErrorEvent),
      Count(Ending::kCut), Count(Ending::kLeft), Count(Ending::kWrong));
  fflush(stdout);
  EXPECT_EQ(Count(Ending::kWrong), 0) << what;
  EXPECT_GT(Count(Ending::kRight), 0) << what;
}

std::string MachinesSite::AskDaemonOn(int machine,
                                      wire::PlanNoticeT notice) const {
  auto socket = wire::ClientSocket::Connect(finding::AdmissionPath(
      FolderOf(machine) + "/run/" + machines_[machine].gpu + ".sock"));
  EXPECT_TRUE(socket.ok()) << socket.status();
  const std::string bytes = wire::Encode(0, 0, std::move(notice));
  EXPECT_TRUE(Eventually([&] { return socket->Send(bytes); }));
  absl::optional<std::string> answer;
  EXPECT_TRUE(Eventually([&] {
    answer = socket->Receive();
    return answer.has_value();
  }));
  return answer.value_or("");
}

wire::ReportT MachinesSite::ReportOf(int machine) const {
  auto message = wire::Decode(AskDaemonOn(machine, {}));
  wire::ReportT* report = message.ok() ? message->body.AsReport() : nullptr;
  EXPECT_NE(report, nullptr) << machine;
  return report == nullptr ? wire::ReportT() : std::move(*report);
}

std::string MachinesSite::TellPlan(int machine, uint64_t term,
                                   uint64_t number) {
  wire::PlanNoticeT notice;
  notice.plan = std::make_unique<wire::PlanT>();
  notice.plan->term = term;
  notice.plan->number = number;
  const auto message = wire::Decode(AskDaemonOn(machine, std::move(notice)));
  const wire::RefusedT* refused =
      message.ok() ? message->body.AsRefused() : nullptr;
  return refused == nullptr ? "" : refused->why;
}

void MachinesSite::SignalPlanners(int machine, int signal) {
  machines_[machine].node->Signal(signal);
  machines_[machine].daemon->Signal(signal);
}

}  // namespace fineserve::integration
