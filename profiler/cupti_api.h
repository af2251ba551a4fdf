#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/units.h"

/// The few CUPTI calls that Draftscope needs, without CUPTI's headers: the library itself is opened at run
/// time (cupti_library.cpp), tests put a fake in its place.
namespace draftscope {

enum class CuptiState : std::uint8_t {
    ready,
    not_built,      ///< built without the CUPTI headers
    no_library,     ///< libcupti was not found
    too_old,        ///< found, but lacks what graph attribution needs
    no_driver,      ///< no usable NVIDIA driver
    held,           ///< another tool of this process has CUPTI
    no_permission,  ///< counters are for administrators here
    unsupported,    ///< virtual, partitioned or otherwise closed device
    fatal,          ///< CUPTI shut itself down while tracing
    failed,         ///< any other refusal
};
std::string_view to_text(CuptiState state);  ///< "ready", "no driver", ...

struct CuptiProbe {
    CuptiState state = CuptiState::no_library;
    std::string library;        ///< path or name that was loaded
    std::uint32_t version = 0;  ///< CUPTI_API_VERSION of the library: 130001 = 13.0.1, small numbers before
    std::string holder;         ///< state held: who
    std::string text;           ///< one line for people
    std::string remedy;         ///< what to do; "" = nothing
};

enum class GpuOpKind : std::uint8_t { kernel, memcpy, memset, graph };
enum class CuptiActivity : std::uint8_t { kernels, copies, fills, graphs };

/// One activity record. Times are CLOCK_MONOTONIC; 0 when CUPTI ran out of places to write them.
struct GpuActivity {
    GpuOpKind kind = GpuOpKind::kernel;
    const char* name = nullptr;  ///< kernels: mangled, valid during the call only
    TimeNs start_ns = 0;
    TimeNs end_ns = 0;
    std::uint32_t correlation = 0;  ///< of the API call that launched it; a graph's nodes share it
    std::uint32_t device = 0, context = 0, stream = 0;
    std::uint64_t graph_node = 0;  ///< of the executable graph; 0 = launched eagerly
    std::uint32_t graph_exec = 0;
    std::int32_t grid[3] = {};
    std::int32_t block[3] = {};
    std::uint64_t bytes = 0;      ///< copies and fills
    std::uint16_t registers = 0;  ///< kernels: per thread
    std::uint8_t copy_kind = 0;   ///< CUPTI's number: 1 host to device, 2 device to host, 8 device to device
};

/// What CUPTI tells, on threads of its own or of the traced program. None of it may block.
class CuptiListener {
  public:
    virtual ~CuptiListener() = default;
    /// A node was added to a graph by the calling thread.
    virtual void node_created(std::uint64_t node) = 0;
    /// Instantiation and graph copies: `node` is `original` again.
    virtual void node_cloned(std::uint64_t node, std::uint64_t original) = 0;
    virtual void node_destroyed(std::uint64_t node) = 0;
    /// A call that launches, copies or waits begins and ends; `name` lives for ever.
    virtual void call_entered(std::uint32_t correlation, const char* name) = 0;
    virtual void call_left(std::uint32_t correlation) = 0;
    /// Room for records; null when there is none, and CUPTI drops and counts.
    virtual std::uint8_t* buffer_wanted(std::size_t& bytes) = 0;
    virtual void buffer_filled(std::uint8_t* buffer, std::size_t valid) = 0;
    /// CUPTI has switched itself off.
    virtual void died(int code) = 0;
};

class CuptiApi {
  public:
    virtual ~CuptiApi() = default;
    /// Loads the library and looks around; changes nothing.
    virtual CuptiProbe probe() = 0;
    /// Takes the one subscription, sets clock, buffers and callbacks. To be called before CUDA makes a
    /// context.
    virtual CuptiProbe subscribe(CuptiListener& listener) = 0;
    virtual void unsubscribe() = 0;
    /// 0 or CUPTI's error code.
    virtual int enable(CuptiActivity activity) = 0;
    /// Hands over full buffers; `all` also those with unfinished records. Doesn't wait for the GPU.
    virtual int flush(bool all) = 0;
    /// Records that found no buffer since the last call.
    virtual std::uint64_t take_dropped() = 0;
    /// Walks the records of a filled buffer; kinds it doesn't know are skipped.
    virtual void read(std::uint8_t* buffer, std::size_t valid,
                      FunctionRef<void(const GpuActivity&)> visit) = 0;
    virtual std::string message(int code) = 0;
};

/// Names to open CUPTI by, in order. `wanted` "" = environment DRAFTSCOPE_CUPTI, then the system's, the
/// toolkit's and those of Python packages.
std::vector<std::string> cupti_candidates(const std::string& wanted);
/// The real one. `library` "" = environment DRAFTSCOPE_CUPTI, then the usual names and places.
std::unique_ptr<CuptiApi> make_cupti_api(const std::string& library = {});
/// The state and remedy of a refusal; `what` names the call.
CuptiProbe cupti_refusal(int code, const std::string& message, const std::string& holder,
                         const std::string& what);
/// May this user read GPU counters (tier T3)? From the driver's parameters and the process's capabilities.
CuptiProbe probe_gpu_counters();
/// The same of given files, for tests: `params` as /proc/driver/nvidia/params, `status` as /proc/self/status.
CuptiProbe probe_gpu_counters(const std::string& params, const std::string& status);

}  // namespace draftscope
