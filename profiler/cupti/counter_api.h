#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "profiler/cupti/cupti_api.h"

/// The calls of CUPTI's Range Profiler that tier T3 needs, without CUPTI's headers. It counts GPU counters
/// over named time ranges in one pass, so that nothing is replayed. All calls must come from one thread with
/// its CUDA context current.
namespace draftscope {

/// The interface to the Range Profiler.
class CounterApi {
  public:
    virtual ~CounterApi() = default;
    /// Checks whether the library has the required functions. Changes nothing.
    virtual CuptiProbe probe() = 0;
    /// Returns the number of passes to count `names` on a chip ("GH100"). 0 = unknown; `why` says why.
    virtual int passes(const std::string& chip, std::span<const char* const> names, std::string& why) = 0;
    /// Prepares to count `names` on the device of the current context, with up to `max_ranges` ranges
    /// between start and stop. A refusal is returned as its state. More than one pass is also a refusal.
    virtual CuptiProbe open(std::span<const char* const> names, std::size_t max_ranges) = 0;
    /// Returns 0 or CUPTI's error code, as do all functions below.
    virtual int start() = 0;
    /// `name` must be unique since the last start.
    virtual int push(const char* name) = 0;
    virtual int pop() = 0;
    /// Stops counting, waits for the counters and visits each range with its name and one value per counter.
    /// `dropped` = ranges that did not fit the hardware's buffers.
    virtual int stop(FunctionRef<void(std::string_view, std::span<const double>)> visit,
                     std::uint64_t& dropped) = 0;
    virtual void close() = 0;
    virtual std::string message(int code) = 0;
};

/// Returns the implementation on CUPTI. `library` as in make_cupti_api.
std::unique_ptr<CounterApi> make_counter_api(const std::string& library = {});

/// Checks whether counters can be read on this machine: first the permission, then the library.
CuptiProbe probe_counters();

}  // namespace draftscope
