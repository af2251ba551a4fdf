#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/notes.h"
#include "base/result.h"
#include "capture/capture.h"

/// Imports timelines of other profilers, which are shown read-only together with a run.
namespace draftscope {

enum class TimelineFormat {
    none,      ///< not a known timeline format
    nsys,      ///< SQLite made by `nsys export --type sqlite`
    nsys_rep,  ///< Nsight Systems' binary report; it must be exported first
    kineto,    ///< Trace Event JSON of PyTorch's profiler, Chrome or traceconv, plain or gzip
    perfetto,  ///< Perfetto's binary trace; it must be converted first
    packed,    ///< compressed in another way than gzip; it must be unpacked first
};
/// Detects the format by content, not by name. Reads a few bytes.
TimelineFormat detect_timeline_format(const std::string& path);

/// Reads a timeline file as one run of spans (ranges named like phases), GPU work, NVTX ranges and CUDA
/// calls. Times count from the first event. The phase of GPU work is that of the innermost phase range around
/// its launch on the launching thread. Without a launch, it is that of the GPU-side range around the work.
/// Returns bad_input if the file is missing, empty or broken. Incomplete events are skipped and counted as
/// loss `import_skipped`.
Result<std::shared_ptr<const Snapshot>> import_timeline(const std::string& path);

/// Returns the phase that a range's name denotes; absent if none. A name denotes a phase by the phase's name
/// or a common synonym ("lm_head", "target_verify"). It may be the last part of a path ("draft/head",
/// "spec.verify"). Numbers at its end are ignored.
std::optional<int> phase_for_range_name(std::string_view name);
/// Returns whether the name denotes a pass of a decode loop ("step", "ProfilerStep#3").
bool is_step_range_name(std::string_view name);

namespace storage {

/// Contents of a timeline file, as the format readers return them. Times are nanoseconds on the file's clock.
struct ImportedTimeline {
    struct Range {
        std::string domain, name;
        std::int64_t thread = 0;
        TimeNs start = 0, end = 0;
        std::int64_t payload = 0;
    };
    struct Call {
        std::string name;
        std::int64_t thread = 0;
        std::int64_t correlation = 0;  ///< unique across the file's processes
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
    Notes notes;
    TimeNs utc_ns = 0;  ///< UTC of the file's time zero; 0 = unknown
};
Result<ImportedTimeline> read_nsys(const std::string& path);
Result<ImportedTimeline> read_kineto(const std::string& path);
Result<std::shared_ptr<const Snapshot>> make_snapshot(const std::string& path, ImportedTimeline trace);

}  // namespace storage

}  // namespace draftscope
