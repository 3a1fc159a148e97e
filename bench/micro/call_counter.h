#ifndef BENCH_MICRO_CALL_COUNTER_H_
#define BENCH_MICRO_CALL_COUNTER_H_

#include <cstdint>
#include <iterator>
#include <string>

namespace fineserve::bench {

// Counts this process's driver calls about memory, by the emulated driver's
// counters.
class CallCounter {
 public:
  // `library`: the emulated driver, which this process has loaded.
  explicit CallCounter(const std::string& library);

  // Return the calls of `name`, or of all functions that the driver counts,
  // since this object was constructed.
  uint64_t Of(const std::string& name) const;
  uint64_t All() const;

 private:
  static constexpr const char* kNames[] = {
      "cuMemCreate",     "cuMemMap",
      "cuMemSetAccess",  "cuMemAddressReserve",
      "cuMemRelease",    "cuMemExportToShareableHandle",
      "cuMemUnmap",      "cuMemImportFromShareableHandle",
      "cuMemAddressFree"};
  uint64_t (*count_)(const char*);
  uint64_t start_[std::size(kNames)];
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_CALL_COUNTER_H_
