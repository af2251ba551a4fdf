// Our static NVTX injection. The loader in the NVTX headers finds it by the symbol defined at the end and
// passes its function tables. Shared libraries have their own loaders, which reach this code through
// libdraftscope_nvtx.so (nvtx_library.cpp). This file includes NVTX's types only, because the
// implementation's weak definition of that symbol would clash.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/utf8.h"
#include "profiler/nvtx/nvtx_mirror.h"

namespace draftscope {

namespace {

// Limits the memory of open ranges, and of stored ranges that are not taken.
constexpr std::size_t max_stored_ranges = 1u << 20;

/// Names behind the handles that NVTX callers get. A deque keeps their addresses.
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
    std::uint64_t lost = 0;
};

/// Never destroyed, because other threads may still push at process exit.
template <typename T>
T& immortal() {
    static auto* const made = new T;
    return *made;
}

std::atomic<bool> attached{false};
std::atomic<bool> storing{false};

struct OpenRange {
    const void* domain = nullptr;  ///< null = NVTX's default domain
    const void* registered = nullptr;
    std::string text;  ///< for messages that are not registered
    std::uint64_t payload = 0;
    TimeNs start = 0;
};
thread_local std::vector<OpenRange> open_ranges;

/// Ranges that start and end by id, in any thread.
struct Started {
    std::mutex mutex;
    std::map<std::uint64_t, std::pair<OpenRange, std::uint32_t>> open;  ///< with the thread that started it
    std::uint64_t next = 1;
};

/// NVTX's wide strings are UTF-32 on Linux. Invalid code points become '?'.
std::string narrow(const wchar_t* text) {
    std::string out;
    for (; text != nullptr && *text != L'\0'; ++text) {
        const auto c = static_cast<char32_t>(*text);
        append_utf8(c < 0x110000 && (c < 0xD800 || c > 0xDFFF) ? c : U'?', out);
    }
    return out;
}

int depth_in(const void* domain) {
    return static_cast<int>(std::count_if(open_ranges.begin(), open_ranges.end(),
                                          [&](const OpenRange& range) { return range.domain == domain; }));
}

std::uint64_t to_payload(const nvtxEventAttributes_t& event) {
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

void store(OpenRange range, int depth, std::uint32_t thread, TimeNs end) {
    NvtxRange out;
    if (range.domain != nullptr) out.domain = *static_cast<const std::string*>(range.domain);
    out.name = range.registered != nullptr ? *static_cast<const std::string*>(range.registered)
                                           : std::move(range.text);
    out.thread_id = thread;
    out.start_ns = range.start;
    out.end_ns = end;
    out.payload = range.payload;
    out.depth = depth;
    Stored& to = immortal<Stored>();
    const std::lock_guard lock(to.mutex);
    if (to.ranges.size() < max_stored_ranges)
        to.ranges.push_back(std::move(out));
    else
        ++to.lost;
}

std::uint32_t this_thread() {
    return static_cast<std::uint32_t>(gettid());
}

int pop(const void* domain) {
    const auto found = std::find_if(open_ranges.rbegin(), open_ranges.rend(),
                                    [&](const OpenRange& range) { return range.domain == domain; });
    if (found == open_ranges.rend()) return -1;
    OpenRange range = std::move(*found);
    open_ranges.erase(std::next(found).base());
    const int depth = depth_in(domain);
    if (storing.load(std::memory_order_relaxed))
        store(std::move(range), depth, this_thread(), monotonic_ns());
    return depth;
}

OpenRange to_range(const nvtxEventAttributes_t* event) {
    OpenRange range;
    if (event == nullptr) return range;
    range.payload = to_payload(*event);
    if (event->messageType == NVTX_MESSAGE_TYPE_REGISTERED)
        range.registered = event->message.registered;
    else if (event->messageType == NVTX_MESSAGE_TYPE_ASCII && event->message.ascii != nullptr)
        range.text = event->message.ascii;
    else if (event->messageType == NVTX_MESSAGE_TYPE_UNICODE)
        range.text = narrow(event->message.unicode);
    return range;
}

OpenRange to_range(std::string text) {
    OpenRange range;
    range.text = std::move(text);
    return range;
}
OpenRange to_range(const char* text) {
    return to_range(std::string(text != nullptr ? text : ""));
}
OpenRange to_range(const wchar_t* text) {
    return to_range(narrow(text));
}

void mark(const void* domain, OpenRange range) {
    if (!storing.load(std::memory_order_relaxed)) return;
    range.domain = domain;
    range.start = monotonic_ns();
    const TimeNs at = range.start;
    store(std::move(range), depth_in(domain), this_thread(), at);
}

nvtxRangeId_t start(const void* domain, OpenRange range) {
    range.domain = domain;
    range.start = monotonic_ns();
    Started& all = immortal<Started>();
    const std::lock_guard lock(all.mutex);
    // Drops a range that was never ended.
    if (all.open.size() >= max_stored_ranges) all.open.erase(all.open.begin());
    all.open.emplace(all.next, std::pair(std::move(range), this_thread()));
    return all.next++;
}

void end(nvtxRangeId_t id) {
    std::pair<OpenRange, std::uint32_t> range;
    {
        Started& all = immortal<Started>();
        const std::lock_guard lock(all.mutex);
        const auto found = all.open.find(id);
        if (found == all.open.end()) return;
        range = std::move(found->second);
        all.open.erase(found);
    }
    if (storing.load(std::memory_order_relaxed))
        store(std::move(range.first), 0, range.second, monotonic_ns());
}

// The calls with a domain, and those of the default domain by what describes the range: attributes or a text.
void NVTX_API on_domain_mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
    mark(domain, to_range(event));
}
nvtxRangeId_t NVTX_API on_domain_start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
    return start(domain, to_range(event));
}
void NVTX_API on_domain_end(nvtxDomainHandle_t, nvtxRangeId_t id) {
    end(id);
}
int NVTX_API on_domain_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
    return push(domain, to_range(event));
}
int NVTX_API on_domain_pop(nvtxDomainHandle_t domain) {
    return pop(domain);
}
template <typename What>
void NVTX_API on_mark(What what) {
    mark(nullptr, to_range(what));
}
template <typename What>
nvtxRangeId_t NVTX_API on_start(What what) {
    return start(nullptr, to_range(what));
}
void NVTX_API on_end(nvtxRangeId_t id) {
    end(id);
}
template <typename What>
int NVTX_API on_push(What what) {
    return push(nullptr, to_range(what));
}
int NVTX_API on_pop() {
    return pop(nullptr);
}
nvtxDomainHandle_t NVTX_API on_create_domain(const char* name) {
    return reinterpret_cast<nvtxDomainHandle_t>(const_cast<std::string*>(immortal<Names>().keep(name)));
}
nvtxDomainHandle_t NVTX_API on_create_wide_domain(const wchar_t* name) {
    return on_create_domain(narrow(name).c_str());
}
nvtxStringHandle_t NVTX_API on_register_string(nvtxDomainHandle_t, const char* text) {
    return reinterpret_cast<nvtxStringHandle_t>(const_cast<std::string*>(immortal<Names>().keep(text)));
}
nvtxStringHandle_t NVTX_API on_register_wide_string(nvtxDomainHandle_t domain, const wchar_t* text) {
    return on_register_string(domain, narrow(text).c_str());
}

template <typename Function>
void put(NvtxFunctionTable table, unsigned int size, unsigned int slot, Function function) {
    if (slot < size && table[slot] != nullptr) *table[slot] = reinterpret_cast<NvtxFunctionPointer>(function);
}

// Called once by each NVTX loader; every library has one. Returns 1 = attached.
int NVTX_API initialize(NvtxGetExportTableFunc_t export_table) {
    const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
    if (callbacks == nullptr || callbacks->struct_size < sizeof(NvtxExportTableCallbacks)) return 0;
    NvtxFunctionTable table = nullptr;
    unsigned int size = 0;
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) != 1) return 0;
    put(table, size, NVTX_CBID_CORE2_DomainRangePushEx, on_domain_push);
    put(table, size, NVTX_CBID_CORE2_DomainRangePop, on_domain_pop);
    put(table, size, NVTX_CBID_CORE2_DomainMarkEx, on_domain_mark);
    put(table, size, NVTX_CBID_CORE2_DomainRangeStartEx, on_domain_start);
    put(table, size, NVTX_CBID_CORE2_DomainRangeEnd, on_domain_end);
    put(table, size, NVTX_CBID_CORE2_DomainCreateA, on_create_domain);
    put(table, size, NVTX_CBID_CORE2_DomainCreateW, on_create_wide_domain);
    put(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, on_register_string);
    put(table, size, NVTX_CBID_CORE2_DomainRegisterStringW, on_register_wide_string);
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 1) {
        put(table, size, NVTX_CBID_CORE_RangePushEx, on_push<const nvtxEventAttributes_t*>);
        put(table, size, NVTX_CBID_CORE_RangePushA, on_push<const char*>);
        put(table, size, NVTX_CBID_CORE_RangePushW, on_push<const wchar_t*>);
        put(table, size, NVTX_CBID_CORE_RangePop, on_pop);
        put(table, size, NVTX_CBID_CORE_MarkEx, on_mark<const nvtxEventAttributes_t*>);
        put(table, size, NVTX_CBID_CORE_MarkA, on_mark<const char*>);
        put(table, size, NVTX_CBID_CORE_MarkW, on_mark<const wchar_t*>);
        put(table, size, NVTX_CBID_CORE_RangeStartEx, on_start<const nvtxEventAttributes_t*>);
        put(table, size, NVTX_CBID_CORE_RangeStartA, on_start<const char*>);
        put(table, size, NVTX_CBID_CORE_RangeStartW, on_start<const wchar_t*>);
        put(table, size, NVTX_CBID_CORE_RangeEnd, on_end);
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
    Stored& from = immortal<Stored>();
    const std::lock_guard lock(from.mutex);
    return std::exchange(from.ranges, {});
}

void nvtx_capture_stop() {
    storing.store(false, std::memory_order_relaxed);
}

bool nvtx_capturing() {
    return storing.load(std::memory_order_relaxed);
}

std::uint64_t nvtx_capture_lost() {
    Stored& from = immortal<Stored>();
    const std::lock_guard lock(from.mutex);
    return std::exchange(from.lost, 0);
}

}  // namespace draftscope

extern "C" {
extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = draftscope::initialize;

/// libdraftscope_nvtx.so finds this function by name and calls it for the libraries that load it.
int draftscope_nvtx_initialize(NvtxGetExportTableFunc_t export_table);
int draftscope_nvtx_initialize(NvtxGetExportTableFunc_t export_table) {
    return draftscope::initialize(export_table);
}
}
