#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "profiler/phase.h"

namespace draftscope {

/// Mirrors phases to NVTX ranges in domain "draftscope": registered string and category per phase. To a tool
/// that takes extended payloads a range carries round, level, rows and bytes by name (schema "draftscope
/// phase"), to others a number, round << 16 | level. One per recording thread. Cheap when nobody listens;
/// `attached()` says whether a tool or our injection does.
class NvtxMirror : public RangeListener {
  public:
    NvtxMirror();
    ~NvtxMirror() override;
    bool attached() const;
    void open(const SpanEvent& opening) override;
    void close(const SpanEvent& ended) override;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// What a mirrored range carries: round ordinal (-1 outside rounds, as 32 bits) << 16 | draft level.
inline std::uint64_t nvtx_payload(std::int32_t round, std::int16_t level) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(round)) << 16 |
           static_cast<std::uint16_t>(level);
}

/// A range that our own injection saw, of any domain: in this executable, and, after
/// nvtx_listen_to_libraries(), in the shared libraries of this process. Marks are ranges without length;
/// ranges that start in one thread and end in another belong to the first.
struct NvtxRange {
    std::string domain;
    std::string name;
    std::uint32_t thread_id = 0;
    TimeNs start_ns = 0;  ///< CLOCK_MONOTONIC
    TimeNs end_ns = 0;
    std::uint64_t payload = 0;
    int depth = 0;
};
/// Starts keeping what the injection sees (off by default).
void nvtx_capture_start();
std::vector<NvtxRange> nvtx_capture_take();
void nvtx_capture_stop();
bool nvtx_capturing();
/// Ranges that found no room since the last call: nobody took the stored ones.
std::uint64_t nvtx_capture_lost();
/// Does a tool from outside listen (Nsight Systems)? Our own injection doesn't count: phases reach files
/// without it.
bool nvtx_tool_listens();
/// Points NVTX_INJECTION64_PATH to `library` (libdraftscope_nvtx.so), through which the NVTX calls of shared
/// libraries reach our injection too; before the first NVTX call of the process. Does nothing when the
/// variable is set (a tool has it) or the file is missing.
void nvtx_listen_to_libraries(const std::string& library);
/// "our injection", "external tool (NVTX_INJECTION64_PATH)", or "none" with the reason where there is one.
std::string nvtx_listener_name();

}  // namespace draftscope
