#include "daemon/fleet/door/fleet_holder.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::apply {
namespace {

using Kind = Question::Kind;

config::SectionDescription ClusterOf(const config::FleetDescription& fleet) {
  const auto found = fleet.find("cluster");
  return found == fleet.end() ? config::SectionDescription() : found->second;
}

absl::Status IsOurs(const std::string& ours, const std::string& theirs) {
  if (ours.empty()) {
    return absl::FailedPreconditionError(
        "it was started without a fleet; start it with --fleet");
  }
  if (config::IsSameFleet(ours, theirs)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("it follows another fleet file, ", ours));
}

}  // namespace

Answer FleetHolder::Reply(const Question& question) {
  Answer answer = Describe();
  if (question.kind == Kind::kState) return answer;
  absl::Status done = IsOurs(answer.fleet_path, question.fleet_path);
  if (done.ok() && question.kind == Kind::kCheck) {
    done = Check(question.digest, &answer.notes);
  } else if (done.ok()) {
    done = Do(question);
    answer = Describe();
  }
  answer.error = std::string(done.message());
  return answer;
}

Answer FleetHolder::Describe() const {
  Answer answer;
  answer.runs_s = absl::ToDoubleSeconds(
      absl::FromChrono(std::chrono::steady_clock::now() - started_));
  DescribeTo(&answer);
  return answer;
}

absl::Status FleetHolder::Do(const Question& question) {
  if (question.kind != Kind::kTake) return Other(question);
  SetDrain(question.seconds);
  return Take(question.digest);
}

absl::Status FleetHolder::Other(const Question&) {
  return absl::UnimplementedError("this process cannot do that");
}

absl::Status FleetHolder::Check(const std::string& digest,
                                std::vector<std::string>* notes) {
  const absl::StatusOr<config::FleetDescription> read = Read(notes);
  if (!read.ok()) return read.status();
  Answer now;
  DescribeTo(&now);
  if (ClusterOf(now.fleet) != ClusterOf(*read)) {
    notes->push_back(absl::StrCat("restart ", now.process,
                                  " and fineserve-node to change [cluster]"));
  }
  if (digest.empty() || config::DigestOf(*read) == digest) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "it reads the file otherwise than fsctl does: the file has changed "
      "since, or one of them has another version; try again");
}

absl::Status FleetHolder::Take(const std::string& digest) {
  std::vector<std::string> notes;
  const absl::Status s = Check(digest, &notes);
  return s.ok() ? TakeRead() : s;
}

}  // namespace fineserve::apply
