#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/units.h"

/// The CUPTI calls that Draftscope needs, without CUPTI's headers. The library is opened at run time
/// (cupti_library.cpp); tests use a fake.
namespace draftscope {

/// Availability of CUPTI.
enum class CuptiState : std::uint8_t {
    ready,
    not_built,      ///< built without the CUPTI headers
    no_library,     ///< libcupti was not found
    too_old,        ///< found, but too old for graph attribution
    no_driver,      ///< no usable NVIDIA driver
    held,           ///< another tool in this process uses CUPTI
    no_permission,  ///< only administrators may use it
    unsupported,    ///< virtual, partitioned or otherwise unsupported device
    fatal,          ///< CUPTI shut itself down while tracing
    failed,         ///< any other refusal
};
std::string_view to_text(CuptiState state);  ///< "ready", "no driver", ...

/// A state with texts for the user.
struct CuptiProbe {
    CuptiState state = CuptiState::no_library;
    std::string library;  ///< path or name that was loaded
    /// CUPTI_API_VERSION of the library: 130001 = 13.0.1; older versions have small numbers
    std::uint32_t version = 0;
    std::string holder;  ///< name of the tool that uses CUPTI, if state is held
    std::string text;    ///< one line for the user
    std::string remedy;  ///< what to do; "" = nothing
};

enum class GpuOpKind : std::uint8_t { kernel, memcpy, memset, graph };
enum class CuptiActivity : std::uint8_t { kernels, copies, fills, graphs };

/// One activity record. Times are CLOCK_MONOTONIC; 0 if CUPTI had no buffer for them.
struct GpuActivity {
    GpuOpKind kind = GpuOpKind::kernel;
    const char* mangled = nullptr;  ///< name of a kernel, valid during the call only
    TimeNs start_ns = 0;
    TimeNs end_ns = 0;
    /// Correlation id of the launching API call; shared by the nodes of a graph.
    std::uint32_t correlation = 0;
    std::uint32_t device = 0, context = 0, stream = 0;
    std::uint64_t graph_node = 0;  ///< node of the executable graph; 0 = launched eagerly
    std::uint32_t graph_exec = 0;
    std::int32_t grid[3] = {};
    std::int32_t block[3] = {};
    std::uint64_t bytes = 0;      ///< copies and fills
    std::uint16_t registers = 0;  ///< kernels: per thread
    std::uint8_t copy_kind = 0;   ///< CUPTI's number: 1 host to device, 2 device to host, 8 device to device
};

/// Receives CUPTI's callbacks, on CUPTI's threads or on threads of the traced program, and ignores them. No
/// function may block.
class CuptiListener {
  public:
    virtual ~CuptiListener() = default;
    /// A node was added to a graph by the calling thread.
    virtual void node_created(std::uint64_t /*node*/) {}
    /// Instantiation or a graph copy created `node` from `original`.
    virtual void node_cloned(std::uint64_t /*node*/, std::uint64_t /*original*/) {}
    virtual void node_destroyed(std::uint64_t /*node*/) {}
    /// A call that launches, copies or waits starts or ends. `name` stays valid.
    virtual void call_entered(std::uint32_t /*correlation*/, const char* /*name*/) {}
    virtual void call_left(std::uint32_t /*correlation*/) {}
    /// Returns a buffer for records, or null; CUPTI then drops and counts the records.
    virtual std::uint8_t* buffer_requested(std::size_t& /*bytes*/) { return nullptr; }
    virtual void buffer_completed(std::uint8_t* /*buffer*/, std::size_t /*valid*/) {}
    /// CUPTI has disabled itself.
    virtual void on_fatal_error(int /*code*/) {}
};

/// The interface to CUPTI.
class CuptiApi {
  public:
    virtual ~CuptiApi() = default;
    /// Loads the library and checks it. Changes nothing.
    virtual CuptiProbe probe() = 0;
    /// Takes CUPTI's only subscription and sets clock, buffers and callbacks. Call it before CUDA creates a
    /// context.
    virtual CuptiProbe subscribe(CuptiListener& listener) = 0;
    virtual void unsubscribe() = 0;
    /// Returns 0 or CUPTI's error code.
    virtual int enable(CuptiActivity activity) = 0;
    /// Delivers full buffers; with `all`, also those with unfinished records. Does not wait for the GPU.
    virtual int flush(bool all) = 0;
    /// Returns the number of records dropped since the last call for lack of buffers.
    virtual std::uint64_t take_dropped() = 0;
    /// Visits the records of a filled buffer. Unknown kinds are skipped.
    virtual void read(std::uint8_t* buffer, std::size_t valid,
                      FunctionRef<void(const GpuActivity&)> visit) = 0;
    virtual std::string message(int code) = 0;
};

/// Returns the names to try for CUPTI, in order. If `wanted` is "", they are the environment variable
/// DRAFTSCOPE_CUPTI, then the libraries of the system, the toolkit and Python packages.
std::vector<std::string> cupti_candidates(const std::string& wanted);
/// Returns the implementation on libcupti. `library` "" = environment variable DRAFTSCOPE_CUPTI, then the
/// default paths.
std::unique_ptr<CuptiApi> make_cupti_api(const std::string& library = {});
/// Returns the state and remedy of a refused call; `what` names the call.
CuptiProbe cupti_refusal(int code, const std::string& message, const std::string& holder,
                         const std::string& what);

}  // namespace draftscope
