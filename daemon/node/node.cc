#include "daemon/node/node.h"

#include <sys/random.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/log/log.h"
#include "daemon/base/whole_file.h"
#include "daemon/fleet/machines/lead_grant.h"
#include "daemon/scheduling/lead/standing_plan.h"

namespace fineserve::node {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

constexpr auto kTuple = asio::experimental::as_tuple(asio::use_awaitable);
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr milliseconds kLeaseTurn(200);
constexpr milliseconds kLookTurn(500);
constexpr milliseconds kTellTurn(100);
// The view is this node's sign of life.
constexpr uint64_t kViewNs = kSecondNs / 2;
// Time allowed to a machine that has not been seen since this node began.
constexpr uint64_t kNeverSeenNs = 60 * kSecondNs;
constexpr uint64_t kMarginNs = kSecondNs;
// Limit on the delay with which etcd ends leases. A machine is lost when its
// registration has been missing for the rest of a TTL, so all machines know of
// the loss two TTLs after that machine was cut off.
constexpr uint64_t kLatestNs = 2 * kSecondNs;
constexpr uint64_t kUsageNs = 10 * kSecondNs;
constexpr char kClusterFile[] = "/cluster.id";

// Puts this machine's own member first, so that it is asked first.
etcd::ClientSettings ClientOf(const config::ClusterSettings& cluster,
                              const std::string& host) {
  etcd::ClientSettings settings;
  for (const config::HostPort& at : cluster.etcd) {
    const auto place =
        at.host == host ? settings.endpoints.begin() : settings.endpoints.end();
    settings.endpoints.insert(place, {at.host, at.port});
  }
  return settings;
}

std::vector<std::string> NamesOf(const config::ClusterSettings& cluster) {
  std::vector<std::string> names;
  for (const config::Machine& m : cluster.machines) names.push_back(m.name);
  return names;
}

uint64_t Draw() {
  uint64_t drawn = 0;
  if (getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn)) abort();
  return drawn;
}

// A lease's id is positive.
int64_t DrawLease() { return static_cast<int64_t>(Draw() >> 1) | 1; }

asio::awaitable<void> Sleep(milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(kTuple);
}

}  // namespace

Node::Node(asio::io_context* io, Setup setup, const Clock* clock)
    : io_(*io),
      setup_(std::move(setup)),
      clock_(clock),
      etcd_(io, ClientOf(setup_.fleet.cluster, setup_.machine.host)),
      membership_({setup_.machine.name, setup_.fleet.cluster.ttl_s * kSecondNs,
                   kMarginNs},
                  clock),
      machines_(NamesOf(setup_.fleet.cluster),
                setup_.fleet.cluster.ttl_s * kSecondNs - kLatestNs,
                kNeverSeenNs, setup_.fleet.cluster.ttl_s * kSecondNs, clock),
      directory_(setup_.fleet.cluster, setup_.folder,
                 wire::KeyFolder(wire::KeyFolder::Default())),
      daemons_(setup_.fleet.cluster, setup_.machine, &directory_, clock),
      instance_(absl::StrCat(absl::Hex(Draw(), absl::kZeroPad16))) {
  // If etcd was set up again, its terms would be lower, and daemons would
  // refuse them.
  std::ifstream file(setup_.folder + kClusterFile);
  if (file >> remembered_) etcd_.SetCluster(remembered_);
}

std::string Node::Key(const std::string& name) const {
  return absl::StrCat("/fineserve/", setup_.fleet.cluster.name, "/", name);
}

void Node::Start() {
  cluster::RemoveGrant(setup_.folder);
  asio::co_spawn(io_, KeepLease(), asio::detached);
  asio::co_spawn(io_, FollowFleet(), asio::detached);
  asio::co_spawn(io_, TellDaemons(), asio::detached);
}

void Node::Stop() {
  if (std::exchange(ending_, true)) return;
  cluster::RemoveGrant(setup_.folder);
  asio::co_spawn(io_, End(), asio::detached);
}

Node::Work<> Node::End() {
  if (membership_.lease() != 0) {
    etcd::Txn txn;
    txn.puts = {{Key("ended/" + setup_.machine.name), "", 0}};
    (void)co_await etcd_.Commit(txn);
    // A lease that cannot be revoked lapses.
    (void)co_await etcd_.Revoke(membership_.lease());
  }
  io_.stop();
}

void Node::Note(const absl::Status& s) {
  if (s.ok()) {
    quorum_ns_ = clock_->NowNs();
    if (!trouble_.empty()) log::Info("etcd answers again");
    trouble_.clear();
    return;
  }
  std::string line(s.message());
  if (trouble_.empty()) log::Warning("{}", line);
  trouble_ = std::move(line);
}

void Node::NoteWrite(const absl::Status& s) {
  Note(s);
  write_trouble_ =
      s.ok() ? "" : absl::StrCat("cannot write to etcd: ", s.message());
}

void Node::RememberCluster() {
  if (etcd_.cluster() == remembered_) return;
  remembered_ = etcd_.cluster();
  const absl::Status s = base::ReplaceFile(setup_.folder + kClusterFile,
                                           absl::StrCat(remembered_, "\n"));
  if (!s.ok()) log::Warning("{}", std::string(s.message()));
}

// --- the lease ---

Node::Work<> Node::KeepLease() {
  while (!ending_) {
    co_await RenewOnce();
    co_await Sleep(kLeaseTurn);
  }
}

Node::Work<> Node::RenewOnce() {
  const uint64_t asked_ns = clock_->NowNs();
  if (membership_.WantsLease()) {
    const int64_t lease = DrawLease();
    const absl::StatusOr<int64_t> ttl_s =
        co_await etcd_.Grant(lease, setup_.fleet.cluster.ttl_s);
    Note(ttl_s.status());
    if (ttl_s.ok()) {
      membership_.Granted(lease, static_cast<uint64_t>(*ttl_s) * kSecondNs,
                          asked_ns);
    }
    co_return;
  }
  if (!membership_.WantsToRenew()) co_return;
  membership_.AskedToRenew();
  const int64_t lease = membership_.lease();
  const absl::StatusOr<int64_t> ttl_s = co_await etcd_.KeepAlive(lease);
  if (ttl_s.ok()) {
    Note(absl::OkStatus());
    membership_.KeptAlive(lease, static_cast<uint64_t>(*ttl_s) * kSecondNs,
                          asked_ns);
  } else if (absl::IsNotFound(ttl_s.status())) {
    log::Warning("the lease in etcd has lapsed; asking for another");
    membership_.Lapsed(lease);
  } else {
    Note(ttl_s.status());
  }
}

// --- the fleet ---

Node::Work<> Node::FollowFleet() {
  while (!ending_) {
    daemons_.Turn();
    membership_.SetWilling(daemons_.AnyAnswers());
    // gcc 12 miscompiles this as the condition of an if.
    const bool looked = co_await LookOnce();
    if (looked) co_await StandOrResign();
    if (looked) co_await Register();
    co_await Sleep(kLookTurn);
  }
}

Node::Work<bool> Node::LookOnce() {
  const absl::StatusOr<etcd::RangeAnswer> answer =
      co_await etcd_.Range(Key(""));
  if (answer.ok()) RememberCluster();
  Note(answer.status());
  if (answer.ok()) Take(*answer);
  co_return answer.ok();
}

void Node::Take(const etcd::RangeAnswer& answer) {
  absl::optional<Election> election;
  std::vector<cluster::MachineRecord> records;
  std::set<std::string> ended;
  plan_.clear();
  registered_seen_ = false;
  for (const etcd::Entry& entry : answer.entries) {
    if (entry.key == Key("election")) {
      election = Election{entry.value, entry.lease,
                          static_cast<uint64_t>(entry.create_revision)};
    } else if (entry.key == Key("plan")) {
      plan_ = entry.value;
    } else if (absl::StartsWith(entry.key, Key("ended/"))) {
      ended.insert(entry.key.substr(Key("ended/").size()));
    } else if (absl::StartsWith(entry.key, Key("machines/"))) {
      absl::StatusOr<cluster::MachineRecord> record =
          cluster::ParseRecord(entry.value);
      if (!record.ok()) continue;
      registered_seen_ |= entry.key == Key("machines/" + setup_.machine.name) &&
                          entry.lease == membership_.lease();
      records.push_back(*std::move(record));
    }
  }
  // The plan was deleted, or etcd went back to an older plan, so it is carried
  // again.
  if (plan_ != carried_text_) carried_text_.clear();
  const absl::StatusOr<lead::StandingPlan> plan = lead::ParsePlan(plan_);
  carried_ = plan.ok() ? plan->number : 0;
  membership_.Saw(election);
  machines_.Saw(records, ended);
}

Node::Work<> Node::StandOrResign() {
  etcd::Txn txn;
  if (membership_.WantsToStand()) {
    txn.when = {{Key("election"), 0}};
    txn.puts = {{Key("election"), setup_.machine.name, membership_.lease()}};
  } else if (membership_.WantsToResign()) {
    log::Warning("giving the lead back: no fineserved of this machine answers");
    txn.when = {
        {Key("election"), static_cast<int64_t>(membership_.election()->term)}};
    txn.deletes = {Key("election")};
    membership_.AskedToResign();
    WriteFiles();  // removes the grant before another machine leads
  } else {
    co_return;
  }
  const absl::StatusOr<etcd::TxnAnswer> answer = co_await etcd_.Commit(txn);
  Note(answer.status());
  // Learns the outcome, and the plan as it is then.
  co_await LookOnce();
}

Node::Work<> Node::Register() {
  if (membership_.lease() == 0 || ending_) co_return;
  cluster::MachineRecord record{setup_.machine.name, setup_.machine.host,
                                instance_, setup_.key, daemons_.Records()};
  const std::string text = cluster::RecordText(record);
  // etcd keeps every version, so constantly changing figures do not count as a
  // change; they are sent every kUsageNs.
  for (cluster::DaemonRecord& d : record.daemons) {
    d.used_bytes = 0;
    d.refused = {};
    d.plans_refused = 0;
  }
  const std::string facts = cluster::RecordText(record);
  const bool is_told = facts == registered_ && registered_seen_ &&
                       registered_under_ == membership_.lease();
  // While writes fail, this write also shows when they succeed again.
  const bool rests = is_told && write_trouble_.empty();
  if (rests && clock_->NowNs() - registered_ns_ < kUsageNs) co_return;
  etcd::Txn txn;
  const int64_t lease = membership_.lease();
  txn.puts = {{Key("machines/" + setup_.machine.name), text, lease}};
  txn.deletes = {Key("ended/" + setup_.machine.name)};
  const absl::StatusOr<etcd::TxnAnswer> answer = co_await etcd_.Commit(txn);
  // NotFound means that the lease has lapsed in the meantime.
  if (!absl::IsNotFound(answer.status())) NoteWrite(answer.status());
  if (!answer.ok()) co_return;
  registered_ = facts;
  registered_under_ = lease;
  registered_ns_ = clock_->NowNs();
}

// --- this machine's daemons ---

Node::Work<> Node::TellDaemons() {
  while (!ending_) {
    WriteFiles();
    co_await CarryPlan();
    co_await Sleep(kTellTurn);
  }
}

Node::Work<> Node::CarryPlan() {
  const uint64_t term = membership_.Term();
  if (term == 0 || term != granted_term_) co_return;
  const absl::StatusOr<std::string> text =
      base::ReadWholeFile(setup_.folder + "/plan.json");
  if (!text.ok() || *text == carried_text_) co_return;
  const absl::StatusOr<lead::StandingPlan> plan = lead::ParsePlan(*text);
  // A plan of another term was written by a daemon that was suspended.
  if (!plan.ok() || plan->term != term) co_return;
  etcd::Txn txn;
  txn.when = {{Key("election"), static_cast<int64_t>(term)}};
  txn.puts = {{Key("plan"), *text}};
  const absl::StatusOr<etcd::TxnAnswer> answer = co_await etcd_.Commit(txn);
  NoteWrite(answer.status());
  if (!answer.ok()) co_return;
  if (!answer->succeeded) {
    ++fenced_;
    log::Warning(
        "etcd refused plan {} of term {}: another machine leads, or none does",
        plan->number, term);
    co_return;
  }
  carried_text_ = *text;
  carried_ = plan->number;
  WriteFiles();
}

void Node::WriteGrant(uint64_t term) {
  if (term != granted_term_) {
    log::Info("leading: term {}", term);
    granted_term_ = term;
    first_plan_ = plan_;
    carried_text_.clear();
  }
  const cluster::LeadGrant grant{term, membership_.LeadsUntilNs(), first_plan_,
                                 carried_, machines_.Lost()};
  const std::string text =
      absl::StrCat(grant.term, " ", grant.until_ns, " ", grant.carried, " ",
                   absl::StrJoin(grant.lost_machines, " "));
  if (text == written_grant_) return;
  const absl::Status s = cluster::WriteGrant(setup_.folder, grant);
  if (s.ok()) written_grant_ = text;
  if (!s.ok()) log::Error("{}", std::string(s.message()));
}

void Node::WriteFiles() {
  // Stop has removed the grant; calls under way at that time end later.
  if (ending_) return;
  const uint64_t now = clock_->NowNs();
  const uint64_t term = membership_.Term();
  if (term != 0) {
    WriteGrant(term);
  } else if (std::exchange(granted_term_, 0) != 0) {
    log::Warning("no longer leading");
    cluster::RemoveGrant(setup_.folder);
  }
  if (now - view_ns_ < kViewNs && view_ns_ != 0) return;
  view_ns_ = now;
  cluster::FleetView view;
  view.machine = setup_.machine.name;
  view.fleet_path = setup_.fleet_path;
  if (const auto& election = membership_.election()) {
    view.leader = election->leader;
    view.term = election->term;
  }
  view.has_quorum = membership_.HasQuorum();
  view.written_ns = now;
  view.quorum_ns = quorum_ns_;
  view.plan_number = carried_;
  view.strangers = etcd_.strangers();
  view.fenced = fenced_;
  view.trouble = Trouble();
  view.machines = machines_.All();
  const absl::Status s = cluster::WriteView(setup_.folder, view);
  if (!s.ok()) log::Error("{}", std::string(s.message()));
}

std::string Node::Trouble() const {
  if (!membership_.HasQuorum()) return trouble_;
  if (!write_trouble_.empty()) return write_trouble_;
  if (registered_under_ != 0 &&
      machines_.HasDouble(setup_.machine.name, instance_)) {
    return absl::StrCat("another fineserve-node calls itself ",
                        setup_.machine.name,
                        ", too; end one of them, or set $FINESERVE_MACHINE");
  }
  if (!daemons_.AnyAnswers()) {
    return "no fineserved of this machine answers; start it with --fleet";
  }
  return "";
}

}  // namespace fineserve::node
