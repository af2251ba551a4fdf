#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "capture/capture.h"

/// Timelines of other profilers, shown read-only beside a run of ours.
namespace draftscope {

enum class TraceKind {
    none,      ///< not a foreign timeline
    nsys,      ///< SQLite made by `nsys export --type sqlite`
    nsys_rep,  ///< Nsight Systems' own binary report: has to be exported first
    kineto,    ///< Trace Event JSON as PyTorch's profiler writes it, plain or gzip
};
/// By content, not by name; reads a few bytes.
TraceKind trace_kind(const std::string& path);

/// One run of spans (ranges whose names are phases), GPU work, NVTX ranges and CUDA calls; times from the
/// first event on. GPU work takes the phase of the innermost phase range around its launch on the launching
/// thread, or, without a launch, of the GPU-side range around it. Nothing in the file, no such file, broken
/// content: bad_input. Events that lack what is needed are left out and counted as loss `import_skipped`.
Result<std::shared_ptr<const Snapshot>> import_trace(const std::string& path);

/// The phase that a range's name means: a phase's own name or a usual word for it ("lm_head",
/// "target_verify"), alone or as the last part of a path ("draft/head", "spec.verify"), numbers at the end
/// aside. Absent when it means none.
std::optional<int> phase_of_range_name(std::string_view name);
/// Is it a pass of a decode loop ("step", "ProfilerStep#3")?
bool is_step_range_name(std::string_view name);

namespace storage {

/// What the readers of the formats collect. Times in nanoseconds on the file's own clock.
struct ForeignTrace {
    struct Range {
        std::string domain, name;
        std::int64_t thread = 0;
        TimeNs start = 0, end = 0;
        std::int64_t payload = 0;
    };
    struct Call {
        std::string name;
        std::int64_t thread = 0;
        std::int64_t correlation = 0;  ///< unique over the file's processes
        TimeNs start = 0, end = 0;
    };
    struct Op {
        GpuOpRow row;  ///< name, stream, times, grid, block, bytes, graph node
        std::int64_t correlation = 0;
    };
    std::string kind, product, gpu;
    std::vector<Range> ranges;
    std::vector<Range> gpu_ranges;  ///< `thread` = stream
    std::vector<Call> calls;
    std::vector<Op> ops;
    std::int64_t skipped = 0;
    TimeNs utc_ns = 0;  ///< of the file's time zero; 0 = not known
};
Result<ForeignTrace> read_nsys(const std::string& path);
Result<ForeignTrace> read_kineto(const std::string& path);
Result<std::shared_ptr<const Snapshot>> make_snapshot(const std::string& path, ForeignTrace trace);

}  // namespace storage

}  // namespace draftscope
