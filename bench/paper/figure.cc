#include "bench/paper/figure.h"

#include <algorithm>
#include <cmath>

namespace fineserve::bench {
namespace {

constexpr double kAboutShare = 0.2;

// A single seed has no interval, so only its value counts.
double HalfOf(const Interval& ours) {
  return std::isfinite(ours.half) ? ours.half : 0;
}

}  // namespace

const char* Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kReproduced:
      return "reproduced";
    case Verdict::kDirectionOnly:
      return "direction only";
    case Verdict::kNot:
      return "not reproduced";
  }
  return "?";
}

Verdict Judge(Sense sense, double paper, double even, const Interval& ours) {
  const double half = HalfOf(ours);
  if (sense == Sense::kExact) {
    return ours.mean == paper ? Verdict::kReproduced : Verdict::kNot;
  }
  if (sense == Sense::kAbout) {
    const double off =
        std::max(0.0, std::abs(ours.mean - paper) - half) / std::abs(paper);
    return off <= kAboutShare ? Verdict::kReproduced : Verdict::kNot;
  }
  // An interval that is wide enough reaches any number.
  if (ours.mean - half <= even) return Verdict::kNot;
  return ours.mean + half >= paper ? Verdict::kReproduced
                                   : Verdict::kDirectionOnly;
}

Verdict Worse(Verdict a, Verdict b) { return std::max(a, b); }

}  // namespace fineserve::bench
