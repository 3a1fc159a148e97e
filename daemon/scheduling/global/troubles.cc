#include "daemon/scheduling/global/troubles.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/scheduling/global/model/groups.h"

namespace fineserve::plan {
namespace {

std::string Names(const Problem& p, const Group& group) {
  return absl::StrJoin(group, " + ", [&p](std::string* out, uint32_t g) {
    absl::StrAppend(out, p.gpus[g].name);
  });
}

// The `tp` GPUs of a group with the most of `bytes_of`, and the least bytes
// among them.
struct Roomiest {
  Group group;
  double bytes = -std::numeric_limits<double>::infinity();
};
template <typename BytesOf>
Roomiest FindRoomiest(const Problem& p, const Replica& r, BytesOf bytes_of) {
  Roomiest found;
  ForEachChoice(p, r, [&](absl::Span<const uint32_t> gpus) {
    std::vector<std::pair<double, uint32_t>> open;
    for (const uint32_t g : gpus) open.push_back({-bytes_of(g), g});
    if (open.size() < r.tp) return;
    std::sort(open.begin(), open.end());
    if (-open[r.tp - 1].first <= found.bytes) return;
    found.bytes = -open[r.tp - 1].first;
    found.group.clear();
    for (size_t i = 0; i < r.tp; ++i) found.group.push_back(open[i].second);
    std::sort(found.group.begin(), found.group.end());
  });
  return found;
}

std::string NoGroup(const Assignment& a, uint32_t replica) {
  const Problem& p = a.problem();
  const Replica& r = p.replicas[replica];
  return absl::StrFormat(
      "%s: no node has %d GPUs that it may use: lower its TP%s",
      p.NameOf(replica), r.tp, r.allowed.empty() ? "" : ", or mend its pins");
}

// Describes a replica that fits no group, not even an empty one.
std::string TooLarge(const Problem& p, uint32_t replica, double needed,
                     const Roomiest& largest) {
  const uint32_t tp = p.replicas[replica].tp;
  const Gpu& gpu = p.gpus[largest.group.front()];
  if (gpu.pool_bytes > 0) {
    return absl::StrFormat(
        "%s: takes %.1f GiB on each of %d GPUs, and is %.1f GiB short on %s "
        "although it is alone there, because %.1f GiB are its KV pool's "
        "and weights have the rest: give fineserved another --pool, or the "
        "model a larger TP or a smaller quantisation",
        p.NameOf(replica), needed / kGib, tp, -largest.bytes / kGib,
        Names(p, largest.group), gpu.pool_bytes / kGib);
  }
  return absl::StrFormat(
      "%s: takes %.1f GiB on each of %d GPUs, the largest have %.1f GiB: "
      "give it a larger TP, a smaller quantisation, or GPUs of %.1f GiB",
      p.NameOf(replica), needed / kGib, tp, (needed + largest.bytes) / kGib,
      needed / kGib);
}

// Empty unless every group that has room lacks host memory.
std::string HostTooSmall(const Assignment& a, uint32_t replica, Charge charge) {
  const Problem& p = a.problem();
  const Replica& r = p.replicas[replica];
  const Roomiest best = FindRoomiest(p, r, [&](uint32_t g) {
    const bool room =
        a.Missing(g, replica, charge) <= 0 && !a.Sibling(replica, g);
    return room ? -a.HostMissing(p.node_of[g], replica)
                : -std::numeric_limits<double>::infinity();
  });
  if (best.group.empty() || best.bytes >= 0) return "";
  return absl::StrFormat(
      "%s: its process takes %.1f GiB of host memory, and %s, which comes "
      "nearest, is %.1f GiB short: free as much there, or add a node",
      p.NameOf(replica), r.process_bytes / kGib,
      NodeTitle(p.gpus[best.group.front()].node), -best.bytes / kGib);
}

std::string Mend(const Assignment& a, uint32_t replica, Charge charge) {
  const Problem& p = a.problem();
  const Replica& r = p.replicas[replica];
  const double needed = Charged(r, charge);
  const Assignment empty(p);
  const Roomiest largest = FindRoomiest(
      p, r, [&](uint32_t g) { return -empty.Missing(g, replica, charge); });
  if (largest.group.empty()) return NoGroup(a, replica);
  if (largest.bytes < 0) {
    return TooLarge(p, replica, needed, largest);
  }
  const Roomiest free = FindRoomiest(p, r, [&](uint32_t g) {
    return a.Sibling(replica, g) ? -std::numeric_limits<double>::infinity()
                                 : -a.Missing(g, replica, charge);
  });
  if (free.group.empty()) {
    return absl::StrFormat(
        "%s: another replica of it is on every GPU that has room: add a "
        "GPU, ask for fewer replicas, or let them share",
        p.NameOf(replica));
  }
  if (const std::string text = HostTooSmall(a, replica, charge);
      !text.empty()) {
    return text;
  }
  if (free.bytes >= 0 && a.HostedReplicas(r.model) > 0) {
    return absl::StrFormat(
        "%s: is left out, for with its memory the others make more tokens: ask "
        "for fewer replicas, or add a GPU",
        p.NameOf(replica));
  }
  if (free.bytes >= 0) {
    return absl::StrFormat(
        "%s: there is room on %s, which the policy does not use: take another "
        "policy, such as fineserve-opt",
        p.NameOf(replica), Names(p, free.group));
  }
  return absl::StrFormat(
      "%s: is %.1f GiB short on %s, which comes nearest: free as much there, "
      "or add %d GPU%s with %.1f GiB",
      p.NameOf(replica), -free.bytes / kGib, Names(p, free.group), r.tp,
      r.tp == 1 ? "" : "s", needed / kGib);
}

// True if the policy chooses how many replicas the model has and there is room
// for one more: then the placement is worth more without it.
bool LeftOutByChoice(const Assignment& a, uint32_t replica, Charge charge) {
  const uint32_t model = a.problem().replicas[replica].model;
  if (!a.problem().ChoosesNumber(model) || a.HostedReplicas(model) == 0) {
    return false;
  }
  bool room = false;
  ForEachGroup(a, replica, charge, [&room](const Group&) { room = true; });
  return room;
}

}  // namespace

std::vector<Trouble> FindTroubles(const Assignment& a, Charge charge) {
  const Problem& p = a.problem();
  std::vector<Trouble> troubles;
  for (uint32_t m = 0; m < p.models.size(); ++m) {
    if (!p.sizings[m].shortfall.empty()) {
      troubles.push_back({p.models[m].name, p.sizings[m].shortfall});
    }
    for (uint32_t r = p.first_replica[m]; r < p.first_replica[m + 1]; ++r) {
      if (a.Hosted(r) || LeftOutByChoice(a, r, charge)) continue;
      troubles.push_back({p.models[m].name, Mend(a, r, charge)});
    }
  }
  return troubles;
}

}  // namespace fineserve::plan
