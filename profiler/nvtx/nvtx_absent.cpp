// Replaces the mirror in builds without NVTX headers: the same interface, never attached.
#include "profiler/nvtx/nvtx_mirror.h"

namespace draftscope {

struct NvtxMirror::Impl {};

NvtxMirror::NvtxMirror() = default;
NvtxMirror::~NvtxMirror() = default;
bool NvtxMirror::attached() const {
    return false;
}
void NvtxMirror::open(const SpanEvent&) {}
void NvtxMirror::close(const SpanEvent&) {}

void nvtx_capture_start() {}
std::vector<NvtxRange> nvtx_capture_take() {
    return {};
}
void nvtx_capture_stop() {}
bool nvtx_capturing() {
    return false;
}
std::uint64_t nvtx_capture_lost() {
    return 0;
}
bool nvtx_tool_listens() {
    return false;
}
void nvtx_listen_to_libraries(const std::string&) {}
std::string nvtx_listener_name() {
    return "none (built without NVTX headers)";
}

}  // namespace draftscope
