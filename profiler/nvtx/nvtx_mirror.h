#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/phase.h"
#include "base/units.h"

namespace draftscope {

/// Mirrors phases to NVTX ranges in domain "draftscope", with a registered string and a category per phase.
/// For tools with extended payloads, a range carries round, level, rows and bytes (schema "draftscope
/// phase"). For others it carries round << 16 | level. One per recording thread. Cheap without a listener;
/// `attached()` returns whether a tool or our injection listens.
class NvtxMirror : public RangeSink {
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

/// Payload of a mirrored range: round ordinal (-1 outside rounds, as 32 bits) << 16 | draft level.
inline std::uint64_t nvtx_payload(std::int32_t round, std::int16_t level) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(round)) << 16 |
           static_cast<std::uint16_t>(level);
}

/// A range of any domain that our injection received. It covers this executable and, after
/// nvtx_listen_to_libraries(), the shared libraries of this process. Marks are ranges of length 0. A range
/// that ends in another thread belongs to the thread that started it.
struct NvtxRange {
    std::string domain;
    std::string name;
    std::uint32_t thread_id = 0;
    TimeNs start_ns = 0;  ///< CLOCK_MONOTONIC
    TimeNs end_ns = 0;
    std::uint64_t payload = 0;
    int depth = 0;
};
/// Starts to store the ranges that the injection receives (off by default).
void nvtx_capture_start();
std::vector<NvtxRange> nvtx_capture_take();
void nvtx_capture_stop();
bool nvtx_capturing();
/// Number of ranges dropped since the last call because the stored ones were not taken.
std::uint64_t nvtx_capture_lost();
/// Returns whether an external tool (Nsight Systems) listens. Our injection doesn't count, since phases reach
/// files without it.
bool nvtx_tool_listens();
/// Sets NVTX_INJECTION64_PATH to `library` (libdraftscope_nvtx.so), which forwards the NVTX calls of shared
/// libraries to our injection. Call it before the first NVTX call of the process. Does nothing if the
/// variable is set (by a tool) or the file is missing.
void nvtx_listen_to_libraries(const std::string& library);
/// Returns "our injection", "external tool (NVTX_INJECTION64_PATH)", or "none" with the reason if known.
std::string nvtx_listener_name();

/// Returns whether the NVTX loader of this executable attached our static injection. The mirror's call also
/// keeps the injection's object file in the link; the linker drops archive members without references.
bool nvtx_injection_attached();

}  // namespace draftscope
