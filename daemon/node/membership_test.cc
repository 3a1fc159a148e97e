#include "daemon/node/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tools/lab/process/random_seed.h"

namespace fineserve::node {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kLost = 5;
constexpr uint64_t kNever = 60;
constexpr uint64_t kLeaseNs = 7;

cluster::MachineRecord Record(const std::string& name,
                              const std::string& instance = "i") {
  return {name, "10.0.0.1", instance, "", {}};
}

class MachineWatchTest : public ::testing::Test {
 protected:
  ManualClock clock_;
  MachineWatch watch_{{"a", "b"}, kLost, kNever, kLeaseNs, &clock_};
};

TEST_F(MachineWatchTest, MachineThatWasMissingLongEnoughIsLost) {
  watch_.Saw({Record("a"), Record("b")}, {});
  clock_.AdvanceNs(100);  // etcd could not be asked: no machine was seen
                          // missing
  EXPECT_THAT(watch_.Lost(), IsEmpty());
  watch_.Saw({Record("a")}, {});
  clock_.AdvanceNs(kLost - 1);
  EXPECT_THAT(watch_.Lost(), IsEmpty());
  EXPECT_FALSE(watch_.All()[1].is_alive);
  clock_.AdvanceNs(1);
  EXPECT_THAT(watch_.Lost(), ElementsAre("b"));
  watch_.Saw({Record("a"), Record("b")}, {});
  EXPECT_THAT(watch_.Lost(), IsEmpty());
  EXPECT_TRUE(watch_.All()[1].is_alive);
}

TEST_F(MachineWatchTest, MachineThatNeverCameIsGivenMoreTime) {
  watch_.Saw({Record("a")}, {});
  clock_.AdvanceNs(kNever - 1);
  EXPECT_THAT(watch_.Lost(), IsEmpty());
  clock_.AdvanceNs(1);
  EXPECT_THAT(watch_.Lost(), ElementsAre("b"));
}

TEST_F(MachineWatchTest, MachineIsSilentSinceItsLeaseWasRenewed) {
  clock_.AdvanceNs(100);
  const uint64_t began = clock_.NowNs();
  watch_.Saw({Record("a")}, {});
  EXPECT_EQ(watch_.All()[1].silent_ns, began) << "it was never seen";
  watch_.Saw({Record("a"), Record("b")}, {});
  clock_.AdvanceNs(10);
  watch_.Saw({}, {"b"});
  EXPECT_EQ(watch_.All()[0].silent_ns, clock_.NowNs() - kLeaseNs);
  EXPECT_EQ(watch_.All()[1].silent_ns, clock_.NowNs()) << "it has ended";
  watch_.Saw({Record("a")}, {});
  EXPECT_EQ(watch_.All()[0].silent_ns, 0u);
}

TEST_F(MachineWatchTest, MachinesOfNoFleetFileAreNoMachines) {
  watch_.Saw({Record("a"), Record("b"), Record("stranger")}, {});
  EXPECT_EQ(watch_.All().size(), 2u);
}

TEST_F(MachineWatchTest, ASecondNodeOfOneNameIsNoticed) {
  watch_.Saw({Record("a", "i")}, {});
  EXPECT_FALSE(watch_.HasDouble("a", "i"));
  watch_.Saw({Record("a", "j")}, {});
  EXPECT_TRUE(watch_.HasDouble("a", "i"));
}

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kTtl = 5 * kSecond;
constexpr uint64_t kMargin = kSecond;

class MembershipTest : public ::testing::Test {
 protected:
  // Gives the membership a lease and the key of the election.
  void Lead() {
    m_.Granted(7, kTtl, clock_.NowNs());
    m_.Saw(Election{"a", 7, 42});
  }

  ManualClock clock_;
  Membership m_{{"a", kTtl, kMargin}, &clock_};
};

TEST_F(MembershipTest, IsACandidateOnlyWithALeaseAndWithoutALeader) {
  EXPECT_TRUE(m_.WantsLease());
  m_.Saw(absl::nullopt);
  EXPECT_FALSE(m_.WantsToStand()) << "without a lease";
  m_.Granted(7, kTtl, clock_.NowNs());
  EXPECT_FALSE(m_.WantsToStand()) << "before it has looked again";
  m_.Saw(Election{"b", 8, 41});
  EXPECT_FALSE(m_.WantsToStand()) << "b leads";
  m_.Saw(absl::nullopt);
  EXPECT_TRUE(m_.WantsToStand());
  m_.SetWilling(false);
  EXPECT_FALSE(m_.WantsToStand()) << "its daemons do not answer";
}

TEST_F(MembershipTest, LeadsUntilTtlLessMarginAfterTheRequestWasSent) {
  Lead();
  EXPECT_EQ(m_.Term(), 42u);
  clock_.AdvanceNs(3 * kSecond);
  // The request was sent 1 s ago, so its answer took 1 s.
  m_.KeptAlive(7, kTtl, 2 * kSecond);
  EXPECT_EQ(m_.LeadsUntilNs(), 2 * kSecond + kTtl - kMargin);
  clock_.AdvanceNs(3 * kSecond - 1);
  EXPECT_EQ(m_.Term(), 42u);
  clock_.AdvanceNs(1);
  EXPECT_EQ(m_.Term(), 0u);
}

TEST_F(MembershipTest, AnAnswerThatWasOvertakenTakesNothingBack) {
  Lead();
  clock_.AdvanceNs(2 * kSecond);
  m_.KeptAlive(7, kTtl, 2 * kSecond);
  m_.KeptAlive(7, kTtl, kSecond);
  EXPECT_EQ(m_.LeadsUntilNs(), 2 * kSecond + kTtl - kMargin);
}

TEST_F(MembershipTest, ALongerTtlThanAskedForIsNotUsed) {
  m_.Granted(7, 60 * kSecond, clock_.NowNs());
  m_.Saw(Election{"a", 7, 42});
  EXPECT_EQ(m_.LeadsUntilNs(), kTtl - kMargin);
}

TEST_F(MembershipTest, ALapsedLeaseEndsTheTerm) {
  Lead();
  m_.Lapsed(6);  // an older one
  EXPECT_EQ(m_.Term(), 42u);
  m_.Lapsed(7);
  EXPECT_EQ(m_.Term(), 0u);
  EXPECT_TRUE(m_.WantsLease());
}

TEST_F(MembershipTest, AKeyOfAFormerLeaseGivesNoTerm) {
  m_.Granted(7, kTtl, clock_.NowNs());
  m_.Saw(Election{"a", 6, 40});  // of this machine's former process
  EXPECT_EQ(m_.Term(), 0u);
  EXPECT_FALSE(m_.WantsToStand());
}

TEST_F(MembershipTest, AnotherOneInTheElectionEndsTheTerm) {
  Lead();
  m_.Saw(Election{"b", 8, 43});
  EXPECT_EQ(m_.Term(), 0u);
}

TEST_F(MembershipTest, TheSameTermGoesOnIfTheLeaseHasHeld) {
  Lead();
  clock_.AdvanceNs(kTtl);
  EXPECT_EQ(m_.Term(), 0u);
  m_.KeptAlive(7, kTtl, clock_.NowNs());
  EXPECT_EQ(m_.Term(), 42u)
      << "etcd knew the lease, so no machine led in between";
}

TEST_F(MembershipTest, ResignsWhenItsDaemonsDoNotAnswer) {
  Lead();
  m_.SetWilling(false);
  EXPECT_EQ(m_.Term(), 0u);
  EXPECT_TRUE(m_.WantsToResign());
  m_.Saw(absl::nullopt);
  EXPECT_FALSE(m_.WantsToResign());
}

TEST_F(MembershipTest, ATermThatItAskedToResignIsOver) {
  Lead();
  m_.SetWilling(false);
  m_.AskedToResign();
  m_.SetWilling(true);
  EXPECT_EQ(m_.Term(), 0u) << "the answer may be lost, and the key gone";
  m_.Saw(Election{"a", 7, 42});
  EXPECT_EQ(m_.Term(), 0u) << "the request may be on its way still";
  EXPECT_TRUE(m_.WantsToResign());
  m_.Saw(absl::nullopt);
  EXPECT_TRUE(m_.WantsToStand());
  m_.Saw(Election{"a", 7, 43});
  EXPECT_EQ(m_.Term(), 43u);
  EXPECT_FALSE(m_.WantsToResign());
}

TEST_F(MembershipTest, QuorumIsAnAnswerWithinATtl) {
  EXPECT_FALSE(m_.HasQuorum());
  m_.Saw(absl::nullopt);
  EXPECT_TRUE(m_.HasQuorum());
  clock_.AdvanceNs(kTtl);
  EXPECT_FALSE(m_.HasQuorum());
}

TEST_F(MembershipTest, RenewsFourTimesWithinATtl) {
  Lead();
  EXPECT_FALSE(m_.WantsToRenew());
  clock_.AdvanceNs(kTtl / 4);
  EXPECT_TRUE(m_.WantsToRenew());
  m_.AskedToRenew();
  EXPECT_FALSE(m_.WantsToRenew());
}

// --- several machines, an etcd, and time ---

// etcd as the client sees it, in true time.
class Etcd {
 public:
  void LapseUntil(uint64_t now_ns) {
    for (auto it = leases_.begin(); it != leases_.end();) {
      if (it->second > now_ns) {
        ++it;
        continue;
      }
      if (election_ && election_->lease == it->first) election_.reset();
      it = leases_.erase(it);
    }
  }
  int64_t Grant(uint64_t now_ns) {
    leases_[++last_lease_] = now_ns + kTtl;
    return last_lease_;
  }
  bool KeepAlive(int64_t lease, uint64_t now_ns) {
    const auto found = leases_.find(lease);
    if (found == leases_.end()) return false;
    found->second = now_ns + kTtl;
    return true;
  }
  void Stand(const std::string& machine, int64_t lease) {
    if (election_ || leases_.count(lease) == 0) return;
    election_ = Election{machine, lease, ++revision_};
  }
  void Resign(uint64_t term) {
    if (Write(term)) election_.reset();
  }
  bool Write(uint64_t term) const {
    return election_ && election_->term == term;
  }
  const absl::optional<Election>& election() const { return election_; }

 private:
  int64_t last_lease_ = 0;
  uint64_t revision_ = 0;
  std::map<int64_t, uint64_t> leases_;  // until when, ns
  absl::optional<Election> election_;
};

// A clock that runs at its own rate and from its own start.
class DriftingClock final : public Clock {
 public:
  DriftingClock(const uint64_t* true_ns, uint64_t start_ns, double rate)
      : true_ns_(true_ns), start_ns_(start_ns), rate_(rate) {}
  uint64_t NowNs() const override {
    return start_ns_ +
           static_cast<uint64_t>(static_cast<double>(*true_ns_) * rate_);
  }

 private:
  const uint64_t* const true_ns_;
  const uint64_t start_ns_;
  const double rate_;
};

// A machine whose requests to etcd take time both ways and may be lost. At
// times it freezes, or has no daemons.
struct Machine {
  Machine(std::string machine_name, const uint64_t* true_ns, uint64_t start_ns,
          double rate)
      : name(std::move(machine_name)),
        clock(true_ns, start_ns, rate),
        membership({name, kTtl, kMargin}, &clock) {}

  std::string name;
  DriftingClock clock;
  Membership membership;
  // Times of the only request under way: when it reaches etcd, and when the
  // answer is here.
  uint64_t arrives_ns = 0, answered_ns = 0;  // 0: none is under way
  uint64_t asked_ns = 0;                     // by its own clock
  bool is_lost = false;
  int kind = 0;
  uint64_t resigned_term = 0;
  bool is_alive_answer = false;
  int64_t lease_answer = 0;
  absl::optional<Election> election_answer;
  uint64_t still_until_ns = 0;
};

class Fleet {
 public:
  explicit Fleet(uint64_t seed) : random_(seed) {
    for (int i = 0; i < 3; ++i) {
      const double rate = 0.99 + 0.01 * i;  // 1 % apart from the true time
      machines_.push_back(
          std::make_unique<Machine>(std::string(1, static_cast<char>('a' + i)),
                                    &now_ns_, Draw(1000) * kSecond, rate));
    }
  }

  // Makes a step of 10 ms. Fails the test if two may lead.
  void Step() {
    now_ns_ += kSecond / 100;
    etcd_.LapseUntil(now_ns_);
    int leaders = 0;
    for (auto& m : machines_) {
      Turn(m.get());
      // Frozen machines count, too: they might be in the middle of a write.
      const uint64_t term = m->membership.Term();
      if (term == 0) continue;
      ++leaders;
      ++led_;
      EXPECT_TRUE(etcd_.Write(term)) << m->name << " leads in term " << term;
    }
    EXPECT_LE(leaders, 1);
  }
  int led() const { return led_; }
  uint64_t last_term() const {
    return etcd_.election() ? etcd_.election()->term : 0;
  }

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }

  void Ask(Machine* m) {
    Membership& s = m->membership;
    m->kind = s.WantsLease()      ? 0
              : s.WantsToRenew()  ? 1
              : s.WantsToStand()  ? 2
              : s.WantsToResign() ? 3
                                  : 4;
    if (m->kind == 1) s.AskedToRenew();
    if (m->kind == 3) {
      s.AskedToResign();
      m->resigned_term = s.election()->term;
    }
    m->asked_ns = m->clock.NowNs();
    m->is_lost = Draw(10) == 0;
    // A message takes mostly some ms, at times seconds.
    const uint64_t most = Draw(20) == 0 ? 4 * kSecond : kSecond / 20;
    m->arrives_ns = now_ns_ + 1 + Draw(most);
    m->answered_ns = m->arrives_ns + 1 + Draw(most);
  }

  void Arrive(Machine* m) {
    Membership& s = m->membership;
    m->arrives_ns = 0;
    if (m->kind == 0) m->lease_answer = etcd_.Grant(now_ns_);
    if (m->kind == 1) m->is_alive_answer = etcd_.KeepAlive(s.lease(), now_ns_);
    if (m->kind == 2) etcd_.Stand(m->name, s.lease());
    if (m->kind == 3) etcd_.Resign(m->resigned_term);
    m->election_answer = etcd_.election();
  }

  void Hear(Machine* m) {
    Membership& s = m->membership;
    m->answered_ns = 0;
    if (m->is_lost) return;
    if (m->kind == 0) s.Granted(m->lease_answer, kTtl, m->asked_ns);
    if (m->kind == 1 && m->is_alive_answer) {
      s.KeptAlive(s.lease(), kTtl, m->asked_ns);
    }
    if (m->kind == 1 && !m->is_alive_answer) s.Lapsed(s.lease());
    if (m->kind >= 2) s.Saw(m->election_answer);
  }

  void Turn(Machine* m) {
    // Messages on the wire travel on while the machine is frozen.
    if (m->arrives_ns != 0 && now_ns_ >= m->arrives_ns) Arrive(m);
    if (now_ns_ < m->still_until_ns) return;
    if (Draw(3000) == 0) m->still_until_ns = now_ns_ + Draw(20) * kSecond;
    // Its daemons end, and others begin.
    if (Draw(200) == 0) m->membership.SetWilling(Draw(4) != 0);
    if (m->answered_ns != 0) {
      if (m->arrives_ns == 0 && now_ns_ >= m->answered_ns) Hear(m);
      return;
    }
    Ask(m);
  }

  std::mt19937_64 random_;
  uint64_t now_ns_ = 0;
  Etcd etcd_;
  std::vector<std::unique_ptr<Machine>> machines_;
  int led_ = 0;
};

TEST(MembershipPropertyTest, NoTwoLeadAtOnceWhateverIsLostLateOrStopped) {
  const uint64_t seed = process::RandomSeed();
  SCOPED_TRACE(seed);
  Fleet fleet(seed);
  constexpr int kSteps = 100'000;  // 1000 s
  for (int i = 0; i < kSteps && !::testing::Test::HasFailure(); ++i) {
    fleet.Step();
  }
  EXPECT_GT(fleet.led(), kSteps / 4) << "seed " << seed;
}

}  // namespace

}  // namespace fineserve::node
