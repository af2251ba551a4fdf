// The mirror of a build without NVTX headers: the same interface, never attached.
#include "profiler/nvtx_mirror.h"

namespace draftscope {

struct NvtxMirror::Impl {};

NvtxMirror::NvtxMirror() = default;
NvtxMirror::~NvtxMirror() = default;
bool NvtxMirror::attached() const {
    return false;
}
void NvtxMirror::open(Phase, std::int32_t, std::int16_t) {}
void NvtxMirror::close(const SpanEvent&) {}

void nvtx_capture_start() {}
std::vector<NvtxRange> nvtx_capture_take() {
    return {};
}
void nvtx_capture_stop() {}
std::string nvtx_listener_name() {
    return "none (built without NVTX headers)";
}

}  // namespace draftscope
