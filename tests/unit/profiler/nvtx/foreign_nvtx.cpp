// A third-party shared library with NVTX calls.
#include <nvtx3/nvToolsExt.h>

#include <cstdint>

extern "C" __attribute__((visibility("default"))) void foreign_work(int count) {
    static const nvtxDomainHandle_t domain = nvtxDomainCreateA("foreign library");
    static const nvtxStringHandle_t name = nvtxDomainRegisterStringA(domain, "gemm");
    for (int i = 0; i < count; ++i) {
        nvtxEventAttributes_t event{};
        event.version = NVTX_VERSION;
        event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
        event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
        event.message.registered = name;
        event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
        event.payload.ullValue = static_cast<std::uint64_t>(i);
        nvtxDomainRangePushEx(domain, &event);
        nvtxRangePushA("inner");
        nvtxRangePop();
        nvtxDomainRangePop(domain);
    }
    nvtxMarkA("a mark");
    nvtxRangeEnd(nvtxRangeStartW(L"gr\u00f6\u00dfer"));
}
