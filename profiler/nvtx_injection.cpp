// Our static NVTX injection: the loader inside the NVTX headers finds it by the symbol defined at the end and
// hands over its function tables. It sees the NVTX calls of this executable only; shared libraries have
// loaders of their own. Types only here: with the implementation in this file the weak definition of that
// symbol would clash.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "profiler/nvtx_mirror.h"
#include "profiler/nvtx_state.h"

namespace draftscope {

namespace {

// A range that is still open when nobody takes the stored ones for long must not eat the memory.
constexpr std::size_t max_stored_ranges = 1u << 20;

/// Names behind the handles that we give to NVTX callers; a deque keeps their addresses.
struct Names {
    std::mutex mutex;
    std::deque<std::string> texts;

    const std::string* keep(const char* text) {
        const std::lock_guard lock(mutex);
        return &texts.emplace_back(text != nullptr ? text : "");
    }
};

struct Stored {
    std::mutex mutex;
    std::vector<NvtxRange> ranges;
};

// Never destroyed: other threads may still push while the process ends.
Names& names() {
    static auto* const made = new Names;
    return *made;
}
Stored& stored() {
    static auto* const made = new Stored;
    return *made;
}

std::atomic<bool> attached{false};
std::atomic<bool> storing{false};

struct OpenRange {
    const void* domain = nullptr;  ///< null = NVTX's default domain
    const void* registered = nullptr;
    std::string text;  ///< of messages that are not registered
    std::uint64_t payload = 0;
    TimeNs start = 0;
};
thread_local std::vector<OpenRange> open_ranges;

int depth_in(const void* domain) {
    return static_cast<int>(std::count_if(open_ranges.begin(), open_ranges.end(),
                                          [&](const OpenRange& range) { return range.domain == domain; }));
}

std::uint64_t payload_of(const nvtxEventAttributes_t& event) {
    switch (event.payloadType) {
        case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
            return event.payload.ullValue;
        case NVTX_PAYLOAD_TYPE_INT64:
            return static_cast<std::uint64_t>(event.payload.llValue);
        case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
            return event.payload.uiValue;
        case NVTX_PAYLOAD_TYPE_INT32:
            return static_cast<std::uint64_t>(static_cast<std::int64_t>(event.payload.iValue));
        default:
            return 0;
    }
}

int push(const void* domain, OpenRange range) {
    const int depth = depth_in(domain);
    range.domain = domain;
    range.start = monotonic_ns();
    open_ranges.push_back(std::move(range));
    return depth;
}

void store(OpenRange range, int depth) {
    NvtxRange out;
    if (range.domain != nullptr) out.domain = *static_cast<const std::string*>(range.domain);
    out.name = range.registered != nullptr ? *static_cast<const std::string*>(range.registered)
                                           : std::move(range.text);
    out.thread_id = static_cast<std::uint32_t>(gettid());
    out.start_ns = range.start;
    out.end_ns = monotonic_ns();
    out.payload = range.payload;
    out.depth = depth;
    Stored& to = stored();
    const std::lock_guard lock(to.mutex);
    if (to.ranges.size() < max_stored_ranges) to.ranges.push_back(std::move(out));
}

int pop(const void* domain) {
    const auto found = std::find_if(open_ranges.rbegin(), open_ranges.rend(),
                                    [&](const OpenRange& range) { return range.domain == domain; });
    if (found == open_ranges.rend()) return -1;
    OpenRange range = std::move(*found);
    open_ranges.erase(std::next(found).base());
    const int depth = depth_in(domain);
    if (storing.load(std::memory_order_relaxed)) store(std::move(range), depth);
    return depth;
}

OpenRange range_of(const nvtxEventAttributes_t* event) {
    OpenRange range;
    if (event == nullptr) return range;
    range.payload = payload_of(*event);
    if (event->messageType == NVTX_MESSAGE_TYPE_REGISTERED)
        range.registered = event->message.registered;
    else if (event->messageType == NVTX_MESSAGE_TYPE_ASCII && event->message.ascii != nullptr)
        range.text = event->message.ascii;
    return range;
}

int NVTX_API on_domain_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
    return push(domain, range_of(event));
}
int NVTX_API on_domain_pop(nvtxDomainHandle_t domain) {
    return pop(domain);
}
int NVTX_API on_push(const nvtxEventAttributes_t* event) {
    return push(nullptr, range_of(event));
}
int NVTX_API on_push_text(const char* text) {
    OpenRange range;
    if (text != nullptr) range.text = text;
    return push(nullptr, std::move(range));
}
int NVTX_API on_pop() {
    return pop(nullptr);
}
nvtxDomainHandle_t NVTX_API on_create_domain(const char* name) {
    return reinterpret_cast<nvtxDomainHandle_t>(const_cast<std::string*>(names().keep(name)));
}
nvtxStringHandle_t NVTX_API on_register_string(nvtxDomainHandle_t, const char* text) {
    return reinterpret_cast<nvtxStringHandle_t>(const_cast<std::string*>(names().keep(text)));
}

template <typename Function>
void put(NvtxFunctionTable table, unsigned int size, unsigned int slot, Function function) {
    if (slot < size && table[slot] != nullptr) *table[slot] = reinterpret_cast<NvtxFunctionPointer>(function);
}

// Called once per NVTX loader; 1 = attached.
int NVTX_API initialize(NvtxGetExportTableFunc_t export_table) {
    const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
    if (callbacks == nullptr || callbacks->struct_size < sizeof(NvtxExportTableCallbacks)) return 0;
    NvtxFunctionTable table = nullptr;
    unsigned int size = 0;
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) != 1) return 0;
    put(table, size, NVTX_CBID_CORE2_DomainRangePushEx, on_domain_push);
    put(table, size, NVTX_CBID_CORE2_DomainRangePop, on_domain_pop);
    put(table, size, NVTX_CBID_CORE2_DomainCreateA, on_create_domain);
    put(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, on_register_string);
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 1) {
        put(table, size, NVTX_CBID_CORE_RangePushEx, on_push);
        put(table, size, NVTX_CBID_CORE_RangePushA, on_push_text);
        put(table, size, NVTX_CBID_CORE_RangePop, on_pop);
    }
    attached.store(true, std::memory_order_relaxed);
    return 1;
}

}  // namespace

bool nvtx_injection_attached() {
    return attached.load(std::memory_order_relaxed);
}

void nvtx_capture_start() {
    storing.store(true, std::memory_order_relaxed);
}

std::vector<NvtxRange> nvtx_capture_take() {
    Stored& from = stored();
    const std::lock_guard lock(from.mutex);
    return std::exchange(from.ranges, {});
}

void nvtx_capture_stop() {
    storing.store(false, std::memory_order_relaxed);
}

}  // namespace draftscope

extern "C" {
extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = draftscope::initialize;
}
