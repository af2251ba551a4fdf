#include "profiler/nvtx/nvtx_mirror.h"

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdlib>

namespace draftscope {

namespace {

/// Extended payload of a range; the schema below describes it to tools.
struct PhasePayload {
    std::int32_t round = -1;
    std::int32_t level = 0;
    std::int32_t rows = 0;
    std::int32_t unused = 0;
    std::uint64_t bytes = 0;
};

nvtxPayloadSchemaEntry_t entry(const char* name, const char* what, std::uint64_t type, std::size_t offset) {
    nvtxPayloadSchemaEntry_t out{};
    out.type = type;
    out.name = name;
    out.description = what;
    out.offset = offset;
    return out;
}

/// Returns the schema's id; 0 if no tool accepts extended payloads.
std::uint64_t register_schema(nvtxDomainHandle_t domain) {
    const std::array entries = {entry("round", "ordinal of the round, -1 outside rounds",
                                      NVTX_PAYLOAD_ENTRY_TYPE_INT32, offsetof(PhasePayload, round)),
                                entry("level", "draft level, catch-up = 0", NVTX_PAYLOAD_ENTRY_TYPE_INT32,
                                      offsetof(PhasePayload, level)),
                                entry("rows", "rows worked on, where known at the start",
                                      NVTX_PAYLOAD_ENTRY_TYPE_INT32, offsetof(PhasePayload, rows)),
                                entry("bytes", "bytes to move, where known at the start",
                                      NVTX_PAYLOAD_ENTRY_TYPE_UINT64, offsetof(PhasePayload, bytes))};
    nvtxPayloadSchemaAttr_t schema{};
    schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                       NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                       NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
    schema.name = "draftscope phase";
    schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
    schema.entries = entries.data();
    schema.numEntries = entries.size();
    schema.payloadStaticSize = sizeof(PhasePayload);
    return nvtxPayloadSchemaRegister(domain, &schema);
}

/// Domain and strings live as long as the process, because listeners keep the handles.
struct NvtxDomain {
    nvtxDomainHandle_t handle = nullptr;
    std::uint64_t schema = 0;
    std::array<nvtxEventAttributes_t, phase_count> attributes{};

    NvtxDomain() {
        nvtxInitialize(nullptr);
        handle = nvtxDomainCreateA("draftscope");
        if (handle == nullptr) return;
        schema = register_schema(handle);
        for (std::size_t i = 0; i < attributes.size(); ++i) {
            const PhaseRow& phase = phase_rows[i];
            const std::string name(phase.name);
            nvtxEventAttributes_t& to = attributes[i];
            to.version = NVTX_VERSION;
            to.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
            to.category = static_cast<std::uint32_t>(i);
            to.colorType = NVTX_COLOR_ARGB;
            to.color = 0xFF000000u | phase.rgb;
            to.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
            to.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
            to.message.registered = nvtxDomainRegisterStringA(handle, name.c_str());
            if (i > 0) nvtxDomainNameCategoryA(handle, to.category, name.c_str());
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
    PhasePayload payload;
    nvtxPayloadData_t data{};
};

NvtxMirror::NvtxMirror() : impl_(std::make_unique<Impl>(Impl{domain().attributes, {}, {}})) {
    impl_->data.schemaId = domain().schema;
    impl_->data.size = sizeof(PhasePayload);
    impl_->data.payload = &impl_->payload;
}
NvtxMirror::~NvtxMirror() = default;

bool NvtxMirror::attached() const {
    return domain().handle != nullptr;
}

void NvtxMirror::open(const SpanEvent& opening) {
    if (!attached()) return;
    nvtxEventAttributes_t& event = impl_->attributes[static_cast<std::size_t>(opening.phase)];
    if (domain().schema != 0) {
        impl_->payload = {opening.round, opening.level, opening.rows, 0, opening.bytes};
        event.payloadType = NVTX_PAYLOAD_TYPE_EXT;
        event.reserved0 = 1;  // number of attached payloads
        event.payload.ullValue = NVTX_POINTER_AS_PAYLOAD_ULLVALUE(&impl_->data);
    } else {
        event.payload.ullValue = nvtx_payload(opening.round, opening.level);
    }
    nvtxDomainRangePushEx(domain().handle, &event);
}

void NvtxMirror::close(const SpanEvent&) {
    if (attached()) nvtxDomainRangePop(domain().handle);
}

bool nvtx_tool_listens() {
    return domain().handle != nullptr && !nvtx_injection_attached();
}

void nvtx_listen_to_libraries(const std::string& library) {
    struct stat about {};
    if (library.empty() || stat(library.c_str(), &about) != 0) return;
    const char* path = std::getenv("NVTX_INJECTION64_PATH");
    if (path == nullptr || *path == '\0') setenv("NVTX_INJECTION64_PATH", library.c_str(), 1);
}

std::string nvtx_listener_name() {
    const bool any = domain().handle != nullptr;
    if (nvtx_injection_attached()) return "our injection";
    // If the variable is set, the loader never tries a static injection, even if the library fails to load.
    const char* path = std::getenv("NVTX_INJECTION64_PATH");
    if (path == nullptr || *path == '\0') return "none";
    return any ? "external tool (NVTX_INJECTION64_PATH)" : "none (NVTX_INJECTION64_PATH did not load)";
}

}  // namespace draftscope
