// Measures the cost of moving weights off the GPU and back: see kQuestion.

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/micro/gpu_site.h"
#include "bench/micro/timed_move.h"
#include "bench/report/report.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/abi/move_link.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/fineserved/backing/find_device.h"
#include "kernels/driver/driver_handles.h"
#include "kernels/fingerprint_kernel.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] =
    R"(How long does an idle engine take to leave the GPU and to come back, beside what
the link and a pass over its memory take?

Two equal engines (stock_engine, unmodified) under the preload, a real
fineserved, the emulated device, whose link is a copy in memory. Baselines in the
same run, on as much memory in pieces of the same sizes: making it and copying to
it from registered host memory, and a pass of the fingerprint kernel. On the
emulated device that kernel runs on the host, some hundred times slower than on
an H100: a pass is taken off an activation, which ends with one.

Then on devices whose links to the host have a rate that both share with other
processes, so that the link is what an activation takes: by the engine's own link
alone, and with that of a second GPU, whose daemon copies a part.)";

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kLinkMbPerS = 400;

void RightOrDie(driver::CUresult result) {
  if (result != driver::CUDA_SUCCESS) Die(absl::StrCat("CUDA error ", result));
}

double Seconds(const RealClock& clock, uint64_t since_ns) {
  return static_cast<double>(clock.NowNs() - since_ns) / 1e9;
}

// An engine that holds its weights until this object ends.
class Engine {
 public:
  Engine(const GpuSite& site, const std::string& name, uint64_t weights_mib,
         bool under_shim, const process::Environment& own = {}) {
    const RealClock clock;
    const uint64_t began_ns = clock.NowNs();
    process::Environment more = {{"FINESERVE_ENGINE", name},
                                 {"FINESERVE_KV_SIZES", "4MiB"},
                                 {"FINESERVE_EVICT", "auto"}};
    if (!under_shim) more["LD_PRELOAD"] = "";
    more.insert(own.begin(), own.end());
    process_ = std::make_unique<stage::Process>(
        process::Words(absl::StrCat(site.Program("stock_engine"),
                                    " --kv 4MiB --weights ", weights_mib,
                                    "MiB --hold")),
        site.EngineEnvironment(more));
    if (process_->ReadLineWith("ready").empty()) {
      Die("the engine did not start: " + process_->About());
    }
    start_s_ = Seconds(clock, began_ns);
  }
  double start_s() const { return start_s_; }

 private:
  std::unique_ptr<stage::Process> process_;
  double start_s_ = 0;
};

// The same amount of memory as an engine's weights, on the device and on the
// host.
class Baseline {
 public:
  Baseline(const driver::Driver& driver, const backing::Device& device,
           uint64_t bytes)
      : call_(driver.call()),
        context_(OrDie(driver::Context::Retain(driver, device.ordinal))),
        kernel_(OrDie(kernels::FingerprintKernel::Load(driver))),
        host_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)) {
    if (host_ == MAP_FAILED) Die("no host memory");
    RightOrDie(call_.cuMemHostRegister_v2(host_, bytes, 0));
    const uint64_t piece = bytes / kPieces / (2 * kMiB) * (2 * kMiB);
    for (uint64_t i = 0; i < kPieces; ++i) {
      RightOrDie(call_.cuMemAlloc_v2(&pieces_.emplace_back(), piece));
      ranges_.push_back({pieces_.back(), piece});
      // Writes the memory first, since the emulated device reads unwritten
      // memory faster.
      RightOrDie(call_.cuMemcpyHtoD_v2(
          pieces_.back(), static_cast<char*>(host_) + i * piece, piece));
    }
    RightOrDie(call_.cuMemAlloc_v2(&digests_, kPieces * 16));
  }
  // Copies to new memory, which the emulated device creates page by page.
  double CopyS() const {
    std::vector<driver::CUdeviceptr> made(kPieces);
    const double s = Timed([&] {
      for (uint64_t i = 0; i < kPieces; ++i) {
        RightOrDie(call_.cuMemAlloc_v2(&made[i], ranges_[i].bytes));
        RightOrDie(call_.cuMemcpyHtoDAsync_v2(
            made[i], static_cast<char*>(host_) + i * ranges_[i].bytes,
            ranges_[i].bytes, nullptr));
      }
    });
    for (const driver::CUdeviceptr one : made) {
      RightOrDie(call_.cuMemFree_v2(one));
    }
    return s;
  }
  double PassS() const {
    return Timed([&] { OkOrDie(kernel_.Launch(ranges_, digests_, nullptr)); });
  }

 private:
  static constexpr uint64_t kPieces = 4;
  template <typename Work>
  double Timed(Work work) const {
    const RealClock clock;
    const uint64_t began_ns = clock.NowNs();
    work();
    RightOrDie(call_.cuCtxSynchronize());
    return Seconds(clock, began_ns);
  }

  const driver::EntryPoints& call_;
  const driver::Context context_;
  const kernels::FingerprintKernel kernel_;
  void* const host_;
  std::vector<driver::CUdeviceptr> pieces_;
  std::vector<kernels::ByteRange> ranges_;
  driver::CUdeviceptr digests_ = 0;
};

class Bench {
 public:
  Bench(uint64_t weights_mib, uint64_t rounds)
      : weights_mib_(weights_mib), rounds_(rounds) {
    // An engine's slabs are in quarantine for a while after its end.
    site_.StartDaemon({"--pool", "512MiB", "--slab", "4MiB"});
    link_ = std::make_unique<abi::ObserverLink>(
        OrDie(abi::ConnectObserver(site_.SocketPath())));
  }

  // Returns the seconds that a pass of the fingerprint kernel takes per byte.
  double Run(Report* report) {
    std::vector<double> plain_s, shim_s;
    for (uint64_t i = 0; i < rounds_; ++i) {
      plain_s.push_back(Engine(site_, "plain", weights_mib_, false).start_s());
      shim_s.push_back(Engine(site_, "shim", weights_mib_, true).start_s());
    }
    const Engine chat(site_, "chat", weights_mib_, true);
    const Engine twin(site_, "twin", weights_mib_, true);
    const backing::DeviceChoice choice = {"emulated", site_.EmulatedFolder()};
    const driver::Driver driver =
        OrDie(driver::Driver::Load(choice.DriverLibrary()));
    const backing::Device device = OrDie(backing::FindDevice(driver, choice));
    const double first_s = Move("chat", abi::Place::kHost);
    const uint64_t one = Store().held_bytes;
    Move("twin", abi::Place::kHost);
    const uint64_t both = Store().held_bytes;
    Move("twin", abi::Place::kGpu);
    const Baseline baseline(driver, device, moved_bytes_);
    const uint64_t copied = Store().copied_bytes;
    std::vector<double> in_s, out_s, copy_s, pass_s, link_ratio, pass_ratio;
    for (uint64_t i = 0; i < rounds_; ++i) {
      copy_s.push_back(baseline.CopyS());
      pass_s.push_back(baseline.PassS());
      in_s.push_back(Move("chat", abi::Place::kGpu));
      out_s.push_back(Move("chat", abi::Place::kHost));
      link_ratio.push_back((in_s.back() - pass_s.back()) / copy_s.back());
      pass_ratio.push_back(out_s.back() / pass_s.back());
    }
    report->Figure("memory that moves (MiB)",
                   static_cast<double>(moved_bytes_ / kMiB));
    report->Figure("first eviction (ms)", first_s * 1e3);
    report->Figure("eviction, unchanged (ms)", Median(out_s) * 1e3);
    report->Figure("activation (ms)", Median(in_s) * 1e3);
    report->Figure("making and copying as much, registered (ms)",
                   Median(copy_s) * 1e3);
    report->Figure("pass of the fingerprint kernel (ms)", Median(pass_s) * 1e3);
    report->Figure("start of an engine, plain (ms)", Median(plain_s) * 1e3);
    report->Figure("start of an engine that can leave (ms)",
                   Median(shim_s) * 1e3);
    report->Claim("activation, less a pass / making and copying",
                  Median(link_ratio), 1.15, Compare::kAtMost);
    report->Claim("eviction, unchanged / pass", Median(pass_ratio), 1.2,
                  Compare::kAtMost);
    report->Claim("bytes that unchanged evictions copied",
                  static_cast<double>(Store().copied_bytes - copied), 0,
                  Compare::kAtMost);
    report->Claim("held for two equal engines / for one",
                  static_cast<double>(both) / static_cast<double>(one), 1,
                  Compare::kAtMost);
    report->Claim("plain start / start of one that can leave",
                  Median(plain_s) / Median(shim_s), 0.97, Compare::kAtLeast);
    return Median(pass_s) / static_cast<double>(moved_bytes_);
  }

 private:
  double Move(const std::string& engine, abi::Place to) {
    const TimedMove moved = OrDie(MoveTimed(*link_, engine, to));
    moved_bytes_ = moved.bytes;
    return moved.seconds;
  }
  abi::StoreAnswer Store() { return OrDie(abi::AskStore(*link_)); }

  const uint64_t weights_mib_, rounds_;
  GpuSite site_;
  std::unique_ptr<abi::ObserverLink> link_;
  uint64_t moved_bytes_ = 0;
};

// Measures activations over one link to the host and over two.
class LinksBench {
 public:
  LinksBench(uint64_t weights_mib, uint64_t rounds)
      : weights_mib_(weights_mib), rounds_(rounds) {
    site_.Set("EMUCUDA_DEVICES", "2");
    site_.Set("EMUCUDA_LINK_MB_S", absl::StrCat(kLinkMbPerS));
    site_.StartDaemon(Flags(0));
    link_ = std::make_unique<abi::ObserverLink>(
        OrDie(abi::ConnectObserver(site_.SocketPath())));
    site_.AddDaemon(Flags(1));
  }

  void Run(double pass_s_per_byte, Report* report) {
    const Engine chat(site_, "chat", weights_mib_, true);
    const double one_s = Activation();
    const double pass_s = pass_s_per_byte * bytes_;
    // The second daemon copies for others only once an engine may leave the
    // second GPU.
    const Engine other(site_, "other", 16, true,
                       {{"CUDA_VISIBLE_DEVICES", "1"}});
    const double two_s = Activation();
    const double link_s = bytes_ / (static_cast<double>(kLinkMbPerS) * 1e6);
    report->Figure("what the bytes take on one emulated link (ms)",
                   link_s * 1e3);
    report->Figure("activation by it (ms)", one_s * 1e3);
    report->Figure("activation by two (ms)", two_s * 1e3);
    report->Claim("activation by one link, less a pass / bytes / rate",
                  (one_s - pass_s) / link_s, 1.15, Compare::kAtMost);
    report->Claim("activation by two links / by one, both less a pass",
                  (two_s - pass_s) / (one_s - pass_s), 0.6, Compare::kAtMost);
  }

 private:
  static std::vector<std::string> Flags(int gpu) {
    return {"--pool", "64MiB", "--slab",
            "4MiB",   "--gpu", absl::StrCat("emulated:", gpu)};
  }
  // Returns the median of several activations, after one that registers memory.
  double Activation() {
    std::vector<double> in_s;
    for (uint64_t i = 0; i <= rounds_; ++i) {
      OrDie(MoveTimed(*link_, "chat", abi::Place::kHost));
      const TimedMove in = OrDie(MoveTimed(*link_, "chat", abi::Place::kGpu));
      bytes_ = static_cast<double>(in.bytes);
      if (i > 0) in_s.push_back(in.seconds);
    }
    return Median(in_s);
  }

  const uint64_t weights_mib_, rounds_;
  GpuSite site_;
  std::unique_ptr<abi::ObserverLink> link_;
  double bytes_ = 0;
};

int Main(int argc, char** argv) {
  const Arguments arguments = Arguments::ReadOrExit(
      argc, argv,
      {"activate",
       kQuestion,
       {{"--weights", "MIB", "512", "of each engine"},
        {"--rounds", "N", "9", "of evictions, activations and starts"}}});
  Report report("activate");
  const uint64_t weights_mib = arguments.Count("--weights");
  const uint64_t rounds = arguments.Count("--rounds");
  const double pass_s_per_byte = Bench(weights_mib, rounds).Run(&report);
  LinksBench(weights_mib, rounds).Run(pass_s_per_byte, &report);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
