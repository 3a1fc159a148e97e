#include "tools/lab/sim/fleet/site.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/fleet/config/toml_keys.h"

namespace fineserve::sim {
namespace {

using config::Amount;
using config::Section;
using config::Setter;

constexpr uint32_t kMostTokens = 1 << 24;

// A time in µs.
Setter Time(Micros* out) {
  return [=](const toml::node& node) {
    double us = 0;
    absl::Status s = Amount(&us)(node);
    *out = static_cast<Micros>(us);
    return s;
  };
}

// Reads a time in seconds, at most a day, and keeps it in µs.
Setter Seconds(Micros* out) {
  return [=](const toml::node& node) {
    double s = 0;
    absl::Status read = config::AmountIn(&s, 0, 86'400)(node);
    *out = static_cast<Micros>(1e6 * s);
    return read;
  };
}

Setter Rate(uint64_t* bytes_per_s) {
  return [=](const toml::node& node) {
    double rate = 0;
    absl::Status s = config::AmountIn(&rate, 1, 1e15)(node);
    *bytes_per_s = static_cast<uint64_t>(rate);
    return s;
  };
}

Setter HandSection(const std::string& path, Site* site) {
  return [=](const toml::node& node) {
    site->has_hand = true;
    HandTimes& hand = site->hand;
    return Section(path, {{"start_s", Seconds(&hand.start_us)},
                          {"weights_per_s", Rate(&hand.weights_per_s)},
                          {"stop_s", Seconds(&hand.stop_us)},
                          {"back_per_s", Rate(&hand.back_per_s)}})(node);
  };
}

Setter EvictionSection(const std::string& path, Site* site) {
  return [=](const toml::node& node) {
    SiteEviction& e = site->eviction.emplace();
    return Section(path, {{"headroom", config::ByteSize(&e.headroom_bytes)},
                          {"scratch", config::ByteSize(&e.scratch_bytes)},
                          {"link_per_s", Rate(&e.link_per_s)},
                          {"leave_us", Time(&e.leave_us)}})(node);
  };
}

Setter Part(double* out) {
  return [=](const toml::node& node) {
    absl::Status s = Amount(out)(node);
    if (s.ok() && *out > 1) return config::WrongType("a part of 1, like 0.4");
    return s;
  };
}

Setter Factors(Slowdown* out) {
  return config::List("a list like [1.0, 1.9]",
                      [=](const toml::node& node) -> absl::Status {
                        double factor = 0;
                        if (absl::Status s = Amount(&factor)(node); !s.ok())
                          return s;
                        if (factor < 1)
                          return config::WrongType("a factor of at least 1");
                        out->factors.push_back(factor);
                        return absl::OkStatus();
                      });
}

Setter Truth(absl::optional<config::StepProfile>* out) {
  return [=](const toml::node& node) {
    config::StepProfile& p = out->emplace();
    return Section("truth",
                   {{"base_us", Amount(&p.base_us)},
                    {"per_token_us", Amount(&p.per_token_us)},
                    {"per_sequence_us", Amount(&p.per_sequence_us)}})(node);
  };
}

Setter ModelSection(const std::string& path, Site* site) {
  return [=](const toml::node& node) {
    std::string name;
    SiteModel m;
    double bytes = 0;
    absl::Status s = Section(
        path, {{"name", config::Text(&name)},
               {"kv_token_bytes", Amount(&bytes)},
               {"planes", config::Count(&m.planes, 1, 4096)},
               {"longest", config::Count(&m.longest_tokens, 1, kMostTokens)},
               {"tp", config::Count(&m.tp, 1, 64)},
               {"exchange_us", Amount(&m.exchange_us)},
               {"exchange_token_us", Amount(&m.exchange_token_us)},
               {"prefix_hits", Part(&m.prefix_hits)},
               {"bytes_per_token", Amount(&m.bytes_per_token)},
               {"weights", config::ByteSize(&m.weight_bytes)},
               {"truth", Truth(&m.truth)}})(node);
    if (!s.ok()) return s;
    if (name.empty()) {
      return config::At(path, node.source(), "a [[model]] needs a name");
    }
    m.kv_token_bytes = static_cast<uint64_t>(bytes);
    site->models[name] = m;
    return s;
  };
}

}  // namespace

HandTimes ColdStart() {
  HandTimes times;
  times.start_us = 30'000'000;
  times.weights_per_s = 4'000'000'000;
  return times;
}

std::string HandSource(const Site& site) {
  const HandTimes& hand = site.hand;
  return absl::StrFormat(
      "; engines start in %.1f s and at %.2f GB/s of weights, and end in %.1f "
      "s%s",
      1e-6 * static_cast<double>(hand.start_us),
      1e-9 * static_cast<double>(hand.weights_per_s),
      1e-6 * static_cast<double>(hand.stop_us),
      site.has_hand ? "" : " (Prism's without its remedies, §5.2 and Fig. 9)");
}

absl::StatusOr<Site> ReadSite(const std::string& path) {
  Site site;
  const absl::Status s = config::ReadToml(
      path,
      {{"source", config::Text(&site.source)},
       {"gpu", Section(path, {{"memory", config::ByteSize(&site.memory_bytes)},
                              {"pool", config::ByteSize(&site.pool_bytes)},
                              {"slab", config::ByteSize(&site.slab_bytes)},
                              {"planes", config::Count(&site.planes, 1, 4096)},
                              {"fill_us", Time(&site.pool.fill_us)},
                              {"poll_us", Time(&site.pool.poll_us)},
                              {"slowdown", Factors(&site.slowdown)}})},
       {"path", Section(path, {{"ask_us", Time(&site.path.ask_us)},
                               {"send_us", Time(&site.path.send_us)},
                               {"answer_us", Time(&site.path.answer_us)},
                               {"beat_us", Time(&site.path.beat_us)}})},
       {"engine", HandSection(path, &site)},
       {"eviction", EvictionSection(path, &site)},
       {"model", config::Sections("model", ModelSection(path, &site))}});
  if (!s.ok()) return s;
  if (site.pool.poll_us == 0 || site.path.beat_us == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": poll_us and beat_us must be at least 1"));
  }
  if (site.eviction && site.memory_bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": [eviction] needs the GPU's memory: say in [gpu] memory = "
        "\"80GiB\""));
  }
  return site;
}

}  // namespace fineserve::sim
