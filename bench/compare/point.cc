#include "bench/compare/point.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace fineserve::bench {
namespace {

using workload::Outcome;
using workload::Summary;

constexpr double kMostPoints = 3, kMostPercent = 15, kMostLost = 1;
constexpr double kMostActivationsPercent = 10;

void TellSide(const std::string& of, const Side& side, Report* report) {
  const Summary& s = side.summary;
  report->Figure(of + ": on time (%)", 100 * s.attainment);
  report->Figure(of + ": TTFT p50 (ms)", 1000 * s.ttft_s.p50);
  report->Figure(of + ": TTFT p90 (ms)", 1000 * s.ttft_s.p90);
  report->Figure(of + ": TPOT p50 (ms)", 1000 * s.tpot_s.p50);
  report->Figure(of + ": refused", static_cast<double>(s.dropped));
  report->Figure(of + ": failed", static_cast<double>(s.failed));
  report->Figure(of + ": preempted", side.preemptions);
  report->Figure(of + ": activations", side.activations);
}

std::string ActivationsRow(const Point& point) {
  if (point.real.activations == 0) return "";
  return absl::StrFormat("%-16s %8s %.0f real, %.0f simulated\n",
                         "  activations", "", point.real.activations,
                         point.simulated.activations);
}

std::string OneQueueRow(const Point& point) {
  if (!point.one_queue) return "";
  const Summary& s = point.one_queue->summary;
  return absl::StrFormat("%-16s %8s %11.1f (lost: %+.1f, %+.1f) %5.0f %20.0f\n",
                         "  one queue", "", 100 * s.attainment,
                         point.LostToOneQueue(point.real),
                         point.LostToOneQueue(point.simulated),
                         1000 * s.ttft_s.p50, 1000 * s.ttft_s.p90);
}

}  // namespace

double Point::AttainmentDifference() const {
  return 100 * (simulated.summary.attainment - real.summary.attainment);
}

double Point::LostToOneQueue(const Side& side) const {
  return 100 * (one_queue->summary.attainment - side.summary.attainment);
}

double PercentOff(double simulated, double real) {
  return 100 * (simulated / real - 1);
}

Summary SummaryFrom(double from_s, const std::vector<Outcome>& outcomes,
                    double seconds) {
  std::vector<Outcome> counted;
  for (const Outcome& o : outcomes) {
    if (o.begin_s >= from_s) counted.push_back(o);
  }
  return workload::Summarize(counted, seconds - from_s);
}

std::string Header() {
  return absl::StrFormat("%-16s %8s %20s %20s %20s %13s %11s %9s %5s %5s\n",
                         "trace, load", "requests", "on time % (differs)",
                         "TTFT p50 ms (off %)", "TTFT p90 ms (off %)",
                         "TPOT p50 ms", "refused", "preempted", "late",
                         "host%");
}

std::string Row(const Point& point) {
  const Summary& r = point.real.summary;
  const Summary& s = point.simulated.summary;
  return absl::StrFormat(
             "%-16s %8d %5.1f %5.1f (%+5.1f) %6.0f %5.0f (%+4.0f) %6.0f %5.0f "
             "(%+4.0f) %6.1f %6.1f %5d %5d %4.0f %4.0f %5.0f %5.0f%s\n",
             point.name, static_cast<int>(r.requests), 100 * r.attainment,
             100 * s.attainment, point.AttainmentDifference(),
             1000 * r.ttft_s.p50, 1000 * s.ttft_s.p50,
             PercentOff(s.ttft_s.p50, r.ttft_s.p50), 1000 * r.ttft_s.p90,
             1000 * s.ttft_s.p90, PercentOff(s.ttft_s.p90, r.ttft_s.p90),
             1000 * r.tpot_s.p50, 1000 * s.tpot_s.p50,
             static_cast<int>(r.dropped), static_cast<int>(s.dropped),
             point.real.preemptions, point.simulated.preemptions,
             point.late_steps, 100 * point.host_busy,
             point.counts() ? "" : " too busy: does not count") +
         OneQueueRow(point) + ActivationsRow(point);
}

void Tell(const std::vector<Point>& points, Report* report) {
  double attainment = 0, p50 = 0, p90 = 0, lost = 0, real_lost = 0;
  double activations = 0;
  size_t counted = 0, queued = 0;
  bool evicts = false;
  for (const Point& p : points) {
    TellSide(p.name + ", real", p.real, report);
    TellSide(p.name + ", simulated", p.simulated, report);
    if (p.one_queue) {
      TellSide(p.name + ", one queue, simulated", *p.one_queue, report);
      lost = std::max(lost, p.LostToOneQueue(p.simulated));
      if (p.counts()) {
        real_lost = std::max(real_lost, p.LostToOneQueue(p.real));
      }
      ++queued;
    }
    report->Figure(p.name + ": host busy (%)", 100 * p.host_busy);
    report->Figure(p.name + ": steps that ended late", p.late_steps);
    if (!p.counts()) continue;
    ++counted;
    const Summary& r = p.real.summary;
    const Summary& s = p.simulated.summary;
    attainment = std::max(attainment, std::abs(p.AttainmentDifference()));
    p50 = std::max(p50, std::abs(PercentOff(s.ttft_s.p50, r.ttft_s.p50)));
    p90 = std::max(p90, std::abs(PercentOff(s.ttft_s.p90, r.ttft_s.p90)));
    if (p.real.activations == 0) continue;
    evicts = true;
    activations = std::max(
        activations,
        std::abs(PercentOff(p.simulated.activations, p.real.activations)));
  }
  report->Figure("runs that count (host at most 80 % busy)",
                 static_cast<double>(counted));
  if (queued > 0) {
    report->Claim("on time: most that is lost to one queue (points)", lost,
                  kMostLost, Compare::kAtMost);
    report->Claim("on time: most that real ones lose to it (points)", real_lost,
                  kMostLost, Compare::kAtMost);
  }
  if (counted == 0) return;
  report->Claim("on time: most that they differ (points)", attainment,
                kMostPoints, Compare::kAtMost);
  report->Claim("TTFT p50: most that the simulator is off (%)", p50,
                kMostPercent, Compare::kAtMost);
  report->Claim("TTFT p90: most that the simulator is off (%)", p90,
                kMostPercent, Compare::kAtMost);
  if (!evicts) return;
  report->Claim("activations: most that the simulator is off (%)", activations,
                kMostActivationsPercent, Compare::kAtMost);
}

}  // namespace fineserve::bench
