// An external tool for NVTX_INJECTION64_PATH. It prints the ranges of domain "draftscope" with their extended
// payloads to stdout, and the registered categories and schema entries.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

std::vector<nvtxPayloadSchemaEntry_t> entries;

nvtxDomainHandle_t NVTX_API create(const char* name) {
    return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));
}
nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t, const char* text) {
    return reinterpret_cast<nvtxStringHandle_t>(new std::string(text));
}
void NVTX_API name_category(nvtxDomainHandle_t, uint32_t id, const char* name) {
    std::printf("category %u %s\n", id, name);
}
std::uint64_t NVTX_API register_schema(nvtxDomainHandle_t, const nvtxPayloadSchemaAttr_t* schema) {
    entries.assign(schema->entries, schema->entries + schema->numEntries);
    std::printf("schema %s of %zu bytes\n", schema->name, schema->payloadStaticSize);
    return 1234;
}
int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
    std::printf("push %s/%s category %u", reinterpret_cast<std::string*>(domain)->c_str(),
                reinterpret_cast<std::string*>(event->message.registered)->c_str(), event->category);
    if (event->payloadType == NVTX_PAYLOAD_TYPE_EXT && event->reserved0 == 1) {
        const auto* data = reinterpret_cast<const nvtxPayloadData_t*>(event->payload.ullValue);
        for (const nvtxPayloadSchemaEntry_t& entry : entries) {
            const char* at = static_cast<const char*>(data->payload) + entry.offset;
            std::int64_t value = 0;
            if (entry.type == NVTX_PAYLOAD_ENTRY_TYPE_INT32) {
                std::int32_t narrow = 0;
                std::memcpy(&narrow, at, sizeof narrow);
                value = narrow;
            } else {
                std::memcpy(&value, at, sizeof value);
            }
            std::printf(" %s=%" PRId64, entry.name, value);
        }
    }
    std::printf("\n");
    return 0;
}
int NVTX_API pop(nvtxDomainHandle_t) {
    std::printf("pop\n");
    return 0;
}

template <typename Function>
void put(NvtxFunctionTable table, unsigned int slot, Function function) {
    *table[slot] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t export_table) {
    const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable table = nullptr;
    unsigned int size = 0;
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) != 1) return 0;
    put(table, NVTX_CBID_CORE2_DomainCreateA, create);
    put(table, NVTX_CBID_CORE2_DomainRegisterStringA, register_string);
    put(table, NVTX_CBID_CORE2_DomainNameCategoryA, name_category);
    put(table, NVTX_CBID_CORE2_DomainRangePushEx, push);
    put(table, NVTX_CBID_CORE2_DomainRangePop, pop);
    return 1;
}

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(
    nvtxExtModuleInfo_t* module) {
    if (module->moduleId != NVTX_EXT_PAYLOAD_MODULEID) return 0;
    module->segments->functionSlots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] =
        reinterpret_cast<intptr_t>(register_schema);
    return 1;
}
