#include "profiler/nvtx_mirror.h"

#include <nvtx3/nvToolsExt.h>

#include <array>
#include <cstdlib>

#include "profiler/nvtx_state.h"

namespace draftscope {

namespace {

/// The domain and its strings live as long as the process: listeners keep the handles.
struct NvtxDomain {
    nvtxDomainHandle_t handle = nullptr;
    std::array<nvtxEventAttributes_t, phase_count> attributes{};

    NvtxDomain() {
        nvtxInitialize(nullptr);
        handle = nvtxDomainCreateA("draftscope");
        if (handle == nullptr) return;
        for (std::size_t i = 0; i < attributes.size(); ++i) {
            const PhaseInfo& phase = phase_table()[i];
            nvtxEventAttributes_t& to = attributes[i];
            to.version = NVTX_VERSION;
            to.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
            to.colorType = NVTX_COLOR_ARGB;
            to.color = 0xFF000000u | phase.rgb;
            to.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
            to.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
            to.message.registered = nvtxDomainRegisterStringA(handle, std::string(phase.name).c_str());
        }
    }
};

const NvtxDomain& domain() {
    static const NvtxDomain made;
    return made;
}

}  // namespace

struct NvtxMirror::Impl {
    std::array<nvtxEventAttributes_t, phase_count> attributes;
};

NvtxMirror::NvtxMirror() : impl_(std::make_unique<Impl>(Impl{domain().attributes})) {}
NvtxMirror::~NvtxMirror() = default;

bool NvtxMirror::attached() const {
    return domain().handle != nullptr;
}

void NvtxMirror::open(Phase phase, std::int32_t round, std::int16_t level) {
    if (!attached()) return;
    nvtxEventAttributes_t& event = impl_->attributes[static_cast<std::size_t>(phase)];
    event.payload.ullValue = nvtx_payload(round, level);
    nvtxDomainRangePushEx(domain().handle, &event);
}

void NvtxMirror::close(const SpanEvent&) {
    if (attached()) nvtxDomainRangePop(domain().handle);
}

std::string nvtx_listener_name() {
    const bool any = domain().handle != nullptr;
    if (nvtx_injection_attached()) return "our injection";
    // With the variable set the loader never tries a static injection, even when the library does not load.
    const char* path = std::getenv("NVTX_INJECTION64_PATH");
    if (path == nullptr || *path == '\0') return "none";
    return any ? "external tool (NVTX_INJECTION64_PATH)" : "none (NVTX_INJECTION64_PATH did not load)";
}

}  // namespace draftscope
