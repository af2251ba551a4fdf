#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "profiler/counter_api.h"
#include "profiler/phase.h"

namespace draftscope {

/// What tier T3 counts over each outermost phase: one pass on GH100, so nothing is replayed. Bytes are to be
/// trusted, the time is what the counters themselves saw and no phase time (reference: CUPTI, Range
/// Profiler).
inline constexpr std::array<const char*, 3> gpu_counter_names = {
    "dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"};

/// The hardware's buffers hold some 2,000 ranges.
inline constexpr std::size_t most_counter_ranges = 1024;

struct CounterReading {
    Phase phase = Phase::none;
    TimeNs start_ns = 0;  ///< CLOCK_MONOTONIC at which the phase was opened: joins it to its step
    std::array<double, gpu_counter_names.size()> values{};
};

struct CounterLosses {
    std::uint64_t no_room = 0;  ///< phases that came when all ranges were taken
    std::uint64_t dropped = 0;  ///< ranges that came back without values
    std::string failure;        ///< the first refusal while counting; counting has ended with it
};

/// Counts over the phases of one recorder (as its listener). A phase's children count in it: ranges don't
/// nest. Everything on the recording thread, whose CUDA context must be current.
class CounterSession : public RangeListener {
  public:
    explicit CounterSession(std::unique_ptr<CounterApi> api, std::size_t most_ranges = most_counter_ranges);
    ~CounterSession() override;
    CounterSession(const CounterSession&) = delete;
    CounterSession& operator=(const CounterSession&) = delete;

    /// Begins to count; the state says why not.
    CuptiProbe begin();
    void open(const SpanEvent& opening) override;
    void close(const SpanEvent& ended) override;
    /// Reads what was counted once half of the ranges are taken (always with `all`), and goes on counting.
    /// Between phases only; inside one nothing happens.
    void take(std::vector<CounterReading>& out, bool all);
    void end();
    CounterLosses take_losses();

  private:
    void fail(const char* what, int code);

    std::unique_ptr<CounterApi> api_;
    std::size_t most_ranges_;
    std::vector<CounterReading> ranges_;  ///< since the last start, in order; a range's name is its index
    std::vector<bool> read_;
    CounterLosses losses_;
    int depth_ = 0;
    bool counting_ = false, pushed_ = false;
};

}  // namespace draftscope
