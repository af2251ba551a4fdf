#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/device_bench.h"

/// A GPU that is none, under the program's own CUDA code: CUDA's runtime functions, with streams, events and
/// graphs, and the kernels of kernels/cuda in the SIMT emulator.
///
/// Work waits in its stream until something has to run, as late and in as unfair an order as events allow.
/// Errors follow the CUDA runtime's reference ("Stream Management", "Graph Management", "Error Handling").
/// Where it leaves a behaviour open, the call is refused.
namespace draftscope::testing {

/// When the work of streams runs.
enum class FakeSchedule {
    late,    ///< when a wait needs it
    eager,   ///< when it is enqueued, if events allow
    random,  ///< by `seed`, at any call
};

struct FakeGpu {
    unsigned thread_order = 1;  ///< of the threads of a block: 0 ascending, 1 descending, others shuffled
    FakeSchedule schedule = FakeSchedule::late;
    unsigned seed = 1;
    int processors = 1;
    std::size_t memory_bytes = std::size_t{4} << 30;
    int driver = 13000;  ///< CUDA version of the driver; 0 = there is none. The runtime's is 13.0.
    int devices = 1;
    int major = 9;  ///< of the compute capability
    /// The call, counted from 0, that fails with `error`. Only calls that can fail on a working GPU count.
    std::optional<long> failing_call{};
    int error = 999;
    /// The kernel or copy, counted from 0, that fails when it runs. All later calls fail as well.
    std::optional<long> failing_work{};
    /// Hides memory from a kernel until it calls wait_for_previous(), if it can. Constants of the model stay
    /// visible. Access to hidden memory ends the program.
    bool hides_memory = false;
};

/// What the program has done since set_fake_gpu(), and what it holds.
struct FakeGpuUse {
    long calls = 0;  ///< that can fail
    long work = 0;   ///< kernels and copies that ran, nodes of graphs included
    long launches = 0, graph_launches = 0, waits = 0;
    long marks = 0;                   ///< events recorded for their times
    long uploads = 0, downloads = 0;  ///< copies between host and device, outside captures
    long switches = 0;                ///< such copies that follow a kernel of their stream
    long early_launches = 0;          ///< kernels that may start before the previous one ends
    int allocations = 0, pinned = 0, streams = 0, events = 0, graphs = 0, executable_graphs = 0;
    std::string failed_call;         ///< name of the call that failed; "" = none yet
    bool failed_in_capture = false;  ///< it was made by a thread that captures
    /// Misuse that CUDA does not report: memory freed twice, handles used after their end.
    std::vector<std::string> faults;
};

/// Replaces the GPU. Nothing of the one before may be in use.
void set_fake_gpu(const FakeGpu& gpu);
FakeGpuUse fake_gpu_use();
/// Lets the call, or the kernel or copy, fail that comes after `later` others.
void fail_fake_gpu_call(long later);
void fail_fake_gpu_work(long later);

/// Opens the CUDA back end on the fake GPU.
Result<std::unique_ptr<kernels::Backend>> open_fake_cuda(const kernels::CudaOptions& options = {});
kernels::DeviceProbe probe_fake_cuda();
/// Runs the benchmark of kernels/cuda. Its reads and fills do little, and its times are those of the fake.
Result<kernels::DeviceBenchReport> bench_fake_cuda(const kernels::DeviceBenchOptions& options);

/// Loads the library that stands for cuBLASLt; returns false if the test program does not find it.
bool load_fake_cublaslt();

/// Sets a GPU with this order of threads and opens it without graphs, and with an allocation for each buffer.
/// Access past the end of a buffer ends the program.
std::unique_ptr<kernels::Backend> make_simt_backend(unsigned order);

}  // namespace draftscope::testing
