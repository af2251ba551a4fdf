#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/phase.h"
#include "base/units.h"
#include "profiler/cupti/counter_api.h"

namespace draftscope {

/// Counters of tier T3 over each outermost phase. GH100 counts them in one pass, so nothing is replayed. The
/// bytes are reliable. The time is what the counters themselves measured, not a phase time (reference: CUPTI,
/// Range Profiler).
inline constexpr std::array<const char*, 3> gpu_counter_names = {
    "dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"};

/// The hardware's buffers hold about 2,000 ranges.
inline constexpr std::size_t max_counter_ranges = 1024;

/// The counters of one phase.
struct CounterReading {
    Phase phase = Phase::none;
    TimeNs start_ns = 0;  ///< CLOCK_MONOTONIC when the phase was opened; joins it to its step
    std::array<double, gpu_counter_names.size()> values{};
};

struct CounterLosses {
    std::uint64_t skipped = 0;  ///< phases skipped because all ranges were in use
    std::uint64_t dropped = 0;  ///< ranges without values
    std::string failure;        ///< first error while counting, which ended the counting
};

/// Counts over the phases of one recorder (as its listener). A phase includes its children, because ranges
/// don't nest. All calls come from the recording thread, whose CUDA context must be current.
class CounterSession : public RangeSink {
  public:
    explicit CounterSession(std::unique_ptr<CounterApi> api, std::size_t max_ranges = max_counter_ranges);
    ~CounterSession() override;
    CounterSession(const CounterSession&) = delete;
    CounterSession& operator=(const CounterSession&) = delete;

    /// Starts counting. On failure the state gives the reason.
    CuptiProbe begin();
    void open(const SpanEvent& opening) override;
    void close(const SpanEvent& ended) override;
    /// Reads the counted values and continues counting. Without `all` it waits until half of the ranges are
    /// used. Call it between phases; inside a phase it does nothing.
    void take(std::vector<CounterReading>& out, bool all);
    void end();
    CounterLosses take_losses();

  private:
    void fail(const char* what, int code);

    std::unique_ptr<CounterApi> api_;
    std::size_t max_ranges_;
    std::vector<CounterReading> ranges_;  ///< since the last start, in order; a range's name is its index
    std::vector<bool> read_;
    CounterLosses losses_;
    int depth_ = 0;
    bool counting_ = false, pushed_ = false;
};

}  // namespace draftscope
