#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "profiler/cupti_api.h"

/// The few calls of CUPTI's Range Profiler that tier T3 needs, without CUPTI's headers: GPU counters over
/// named ranges of time, in one pass, so that nothing is replayed. All from one thread, with its CUDA context
/// current.
namespace draftscope {

class CounterApi {
  public:
    virtual ~CounterApi() = default;
    /// Does the library have what is needed? Changes nothing.
    virtual CuptiProbe probe() = 0;
    /// Passes that counting `names` takes on a chip ("GH100"); 0 = it can't be told, `why` says so.
    virtual int passes(const std::string& chip, std::span<const char* const> names, std::string& why) = 0;
    /// Makes ready to count `names` on the device of the calling thread's context, in up to `most_ranges`
    /// ranges between start and stop. A refusal names its state; more than one pass is one.
    virtual CuptiProbe open(std::span<const char* const> names, std::size_t most_ranges) = 0;
    /// 0 or CUPTI's error code, as all below.
    virtual int start() = 0;
    /// `name` must be unlike any since the last start.
    virtual int push(const char* name) = 0;
    virtual int pop() = 0;
    /// Stops counting, waits for the counters, hands over each range: its name and a value for each of the
    /// names. `dropped` = ranges that the hardware had no room for.
    virtual int stop(FunctionRef<void(std::string_view, std::span<const double>)> visit,
                     std::uint64_t& dropped) = 0;
    virtual void close() = 0;
    virtual std::string message(int code) = 0;
};

/// The real one. `library` as make_cupti_api.
std::unique_ptr<CounterApi> make_counter_api(const std::string& library = {});

/// May and can counters be read here: by permission, then by library?
CuptiProbe probe_counters();

}  // namespace draftscope
