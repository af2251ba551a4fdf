// CUPTI through dlopen. CUPTI's structures only grow at their end, so the fields of a known prefix can be
// read in any version from the minimum.
#include <cupti.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "profiler/cupti/cupti_api.h"

namespace draftscope {

namespace {

static_assert(offsetof(CUpti_ActivityKernel10, start) == 16);
static_assert(offsetof(CUpti_ActivityKernel10, end) == 24);
static_assert(offsetof(CUpti_ActivityKernel10, correlationId) == 92);
static_assert(offsetof(CUpti_ActivityKernel10, name) == 104);
static_assert(offsetof(CUpti_ActivityKernel10, registersPerThread) == 6);
static_assert(offsetof(CUpti_ActivityKernel10, graphNodeId) == 144);
static_assert(offsetof(CUpti_ActivityKernel10, graphId) == 156);
static_assert(offsetof(CUpti_ActivityMemcpy6, graphNodeId) == offsetof(CUpti_ActivityMemcpy6, graphId) - 8);

/// CUDA 12.0: from this version, kernel records have their graph node and graphs their ids in the fields that
/// we read.
constexpr std::uint32_t min_version = 18;
/// Older libraries stamp the records of a context that existed before the subscription with the wall clock
/// (github.com/pytorch/pytorch/issues/190354).
constexpr std::uint32_t min_version_after_context = 130303;
constexpr const char* our_name = "draftscope";

std::string version_text(std::uint32_t version) {
    if (version >= 130000)
        return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
    return fmt::format("API {}", version);
}

/// The entry points, with the types of their declarations.
struct Entries {
    decltype(&cuptiGetVersion) get_version = nullptr;
    decltype(&cuptiGetResultString) result_string = nullptr;
    decltype(&cuptiSubscribe) subscribe = nullptr;
    decltype(&cuptiSubscribe_v2) subscribe_v2 = nullptr;  ///< since 13.0; it also reports who holds CUPTI
    decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
    decltype(&cuptiEnableCallback) enable_callback = nullptr;
    decltype(&cuptiSetThreadIdType) thread_ids = nullptr;
    decltype(&cuptiActivityRegisterTimestampCallback) register_clock = nullptr;
    decltype(&cuptiActivityRegisterCallbacks) register_buffers = nullptr;
    decltype(&cuptiActivityEnable) activity_enable = nullptr;
    decltype(&cuptiActivityFlushAll) flush_all = nullptr;
    decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
    decltype(&cuptiActivityGetNumDroppedRecords) dropped = nullptr;
    decltype(&cuptiGetGraphNodeId) graph_node_id = nullptr;
};

struct TracedCall {
    CUpti_CallbackDomain domain;
    CUpti_CallbackId id;
    const char* name;
};

#define DS_RUNTIME(name, suffix) \
    { CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_##name##_##suffix, #name }
#define DS_DRIVER(name, suffix) \
    { CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_##name##suffix, #name }
/// Calls that submit GPU work or wait for it. A launch gives its work a phase; a wait explains a gap.
constexpr TracedCall traced_calls[] = {
    DS_RUNTIME(cudaLaunchKernel, v7000),
    DS_RUNTIME(cudaLaunchKernel, ptsz_v7000),
    DS_RUNTIME(__cudaLaunchKernel, v13000),
    DS_RUNTIME(__cudaLaunchKernel, ptsz_v13000),
    DS_RUNTIME(cudaLaunchKernelExC, v11060),
    DS_RUNTIME(cudaLaunchKernelExC, ptsz_v11060),
    DS_RUNTIME(cudaLaunchCooperativeKernel, v9000),
    DS_RUNTIME(cudaGraphLaunch, v10000),
    DS_RUNTIME(cudaGraphLaunch, ptsz_v10000),
    DS_RUNTIME(cudaMemcpy, v3020),
    DS_RUNTIME(cudaMemcpyAsync, v3020),
    DS_RUNTIME(cudaMemcpyAsync, ptsz_v7000),
    DS_RUNTIME(cudaMemsetAsync, v3020),
    DS_RUNTIME(cudaMemsetAsync, ptsz_v7000),
    DS_RUNTIME(cudaStreamSynchronize, v3020),
    DS_RUNTIME(cudaStreamSynchronize, ptsz_v7000),
    DS_RUNTIME(cudaEventSynchronize, v3020),
    DS_RUNTIME(cudaDeviceSynchronize, v3020),
    DS_DRIVER(cuLaunchKernel, ),
    DS_DRIVER(cuLaunchKernel, _ptsz),
    DS_DRIVER(cuLaunchKernelEx, ),
    DS_DRIVER(cuLaunchKernelEx, _ptsz),
    DS_DRIVER(cuLaunchCooperativeKernel, ),
    DS_DRIVER(cuGraphLaunch, ),
    DS_DRIVER(cuGraphLaunch, _ptsz),
    DS_DRIVER(cuMemcpyAsync, ),
    DS_DRIVER(cuMemcpyAsync, _ptsz),
    DS_DRIVER(cuMemcpyHtoDAsync, _v2),
    DS_DRIVER(cuMemcpyHtoDAsync, _v2_ptsz),
    DS_DRIVER(cuMemcpyDtoHAsync, _v2),
    DS_DRIVER(cuMemcpyDtoHAsync, _v2_ptsz),
    DS_DRIVER(cuMemcpyDtoDAsync, _v2),
    DS_DRIVER(cuMemcpyDtoDAsync, _v2_ptsz),
    DS_DRIVER(cuMemsetD8Async, ),
    DS_DRIVER(cuMemsetD32Async, ),
    DS_DRIVER(cuStreamSynchronize, ),
    DS_DRIVER(cuEventSynchronize, ),
    DS_DRIVER(cuCtxSynchronize, ),
};
#undef DS_RUNTIME
#undef DS_DRIVER

const char* traced_name(CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    for (const TracedCall& call : traced_calls)
        if (call.domain == domain && call.id == id) return call.name;
    return nullptr;
}

// CUPTI's buffer callbacks carry no user data. A process has only one subscription.
CuptiListener* active_listener = nullptr;
std::uint64_t CUPTIAPI clock_now() {
    return static_cast<std::uint64_t>(monotonic_ns());
}

void CUPTIAPI on_buffer_wanted(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
    *max_records = 0;
    *buffer = active_listener->buffer_requested(*size);
}

void CUPTIAPI on_buffer_filled(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                               std::size_t valid) {
    active_listener->buffer_completed(buffer, valid);
}

/// Opens libcupti once and never closes it. Sets `found.library` to its name. If it is missing, returns null
/// and sets `found` to the names tried and a remedy. `wanted`: as in make_cupti_api().
void* open_cupti(const std::string& wanted, CuptiProbe& found) {
    const std::vector<std::string> names = cupti_candidates(wanted);
    for (const std::string& tried : names) {
        void* handle = dlopen(tried.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) continue;
        found.library = tried;
        return handle;
    }
    found.state = CuptiState::no_library;
    found.text = names.size() == 1 ? names[0] + " does not load" : std::string("libcupti was not found");
    found.remedy =
        "install CUPTI (part of the CUDA Toolkit; PyTorch includes one, too), or set DRAFTSCOPE_CUPTI to its "
        "path";
    return nullptr;
}

class CuptiLibrary final : public CuptiApi {
  public:
    explicit CuptiLibrary(std::string wanted) : wanted_(std::move(wanted)) {}

    CuptiProbe probe() override;
    CuptiProbe subscribe(CuptiListener& listener) override;
    void unsubscribe() override;
    int enable(CuptiActivity activity) override;
    int flush(bool all) override { return entries_.flush_all(all ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0); }
    std::uint64_t take_dropped() override {
        std::size_t count = 0;
        if (entries_.dropped(nullptr, 0, &count) != CUPTI_SUCCESS) return 0;
        return count;
    }
    void read(std::uint8_t* buffer, std::size_t valid, FunctionRef<void(const GpuActivity&)> visit) override;
    std::string message(int code) override {
        const char* text = nullptr;
        if (entries_.result_string != nullptr)  // older libraries lack it
            entries_.result_string(static_cast<CUptiResult>(code), &text);
        return text != nullptr ? text : "CUPTI error";
    }

  private:
    CuptiProbe load();
    CuptiProbe refused(int code, const char* what, const std::string& holder = {});
    int subscribe_by_name(std::string& holder);
    static void CUPTIAPI on_event(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                  const void* data);
    void resource_event(CUpti_CallbackId id, const CUpti_ResourceData& data);

    std::string wanted_;
    void* handle_ = nullptr;
    CuptiProbe found_;
    Entries entries_;
    CUpti_SubscriberHandle subscriber_ = nullptr;
    CuptiListener* listener_ = nullptr;
};

CuptiProbe CuptiLibrary::load() {
    if (handle_ != nullptr) return found_;
    handle_ = open_cupti(wanted_, found_);
    if (handle_ == nullptr) return found_;
    const auto need = [&](auto& entry, const char* name) {
        entry = reinterpret_cast<std::decay_t<decltype(entry)>>(dlsym(handle_, name));
        return entry != nullptr;
    };
    need(entries_.result_string, "cuptiGetResultString");
    need(entries_.subscribe_v2, "cuptiSubscribe_v2");
    std::uint32_t version = 0;
    if (need(entries_.get_version, "cuptiGetVersion")) entries_.get_version(&version);
    found_.version = version;
    const bool whole = need(entries_.subscribe, "cuptiSubscribe") &&
                       need(entries_.unsubscribe, "cuptiUnsubscribe") &&
                       need(entries_.enable_callback, "cuptiEnableCallback") &&
                       need(entries_.thread_ids, "cuptiSetThreadIdType") &&
                       need(entries_.register_clock, "cuptiActivityRegisterTimestampCallback") &&
                       need(entries_.register_buffers, "cuptiActivityRegisterCallbacks") &&
                       need(entries_.activity_enable, "cuptiActivityEnable") &&
                       need(entries_.flush_all, "cuptiActivityFlushAll") &&
                       need(entries_.next_record, "cuptiActivityGetNextRecord") &&
                       need(entries_.dropped, "cuptiActivityGetNumDroppedRecords") &&
                       need(entries_.graph_node_id, "cuptiGetGraphNodeId");
    found_.state = whole && version >= min_version ? CuptiState::ready : CuptiState::too_old;
    found_.text = found_.library + ", " + version_text(version);
    if (found_.state == CuptiState::too_old) {
        found_.text += ": older than CUDA 12.0, whose records have no graph nodes";
        found_.remedy = "set DRAFTSCOPE_CUPTI to a libcupti.so of CUDA 12 or 13";
    }
    return found_;
}

CuptiProbe CuptiLibrary::probe() {
    const CuptiProbe found = load();
    if (found.state != CuptiState::ready) return found;
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver != nullptr) {
        dlclose(driver);
        return found;
    }
    CuptiProbe out = found;
    out.state = CuptiState::no_driver;
    out.text += "; no NVIDIA driver (libcuda.so.1 does not load)";
    out.remedy = "install the NVIDIA driver for GPU runs; CPU runs need none";
    return out;
}

CuptiProbe CuptiLibrary::refused(int code, const char* what, const std::string& holder) {
    CuptiProbe out = cupti_refusal(code, message(code), holder, what);
    out.library = found_.library;
    out.version = found_.version;
    return out;
}

int CuptiLibrary::subscribe_by_name(std::string& holder) {
    if (entries_.subscribe_v2 == nullptr) return entries_.subscribe(&subscriber_, on_event, this);
    char previous[2 * CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = {};
    CUpti_SubscriberParams params{};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = our_name;
    params.oldSubscriberName = previous;
    params.oldSubscriberSize = sizeof previous;
    const int code = entries_.subscribe_v2(&subscriber_, on_event, this, &params);
    previous[sizeof previous - 1] = '\0';
    holder = previous;
    return code;
}

/// Whether this process has the first GPU's primary context.
bool context_exists() {
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver == nullptr) return false;
    using GetState = int (*)(int device, unsigned* flags, int* active);
    const auto get_state = reinterpret_cast<GetState>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
    unsigned flags = 0;
    int active = 0;
    const bool known = get_state != nullptr && get_state(0, &flags, &active) == 0;
    dlclose(driver);
    return known && active != 0;
}

CuptiProbe CuptiLibrary::subscribe(CuptiListener& listener) {
    const CuptiProbe found = probe();
    if (found.state != CuptiState::ready) return found;
    if (found.version < min_version_after_context && context_exists()) {
        CuptiProbe late = found;
        late.state = CuptiState::failed;
        late.text = "the GPU was used before tracing began, and " + found.text + " would record wrong times";
        late.remedy = "restart the program, with the traced run first";
        return late;
    }
    listener_ = active_listener = &listener;
    std::string holder;
    int code = subscribe_by_name(holder);
    if (code != CUPTI_SUCCESS) return refused(code, "subscribing", holder);
    const auto failed_at = [&](const char* what) {
        const CuptiProbe out = refused(code, what);
        unsubscribe();
        return out;
    };
    code = entries_.thread_ids(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
    if (code != CUPTI_SUCCESS) return failed_at("setting thread ids");
    code = entries_.register_clock(clock_now);
    if (code != CUPTI_SUCCESS) return failed_at("setting the clock");
    code = entries_.register_buffers(on_buffer_wanted, on_buffer_filled);
    if (code != CUPTI_SUCCESS) return failed_at("registering buffers");
    for (const CUpti_CallbackId id :
         {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
          CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING}) {
        code = entries_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id);
        if (code != CUPTI_SUCCESS) return failed_at("watching graph nodes");
    }
    code = entries_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR);
    if (code != CUPTI_SUCCESS) return failed_at("watching CUPTI's state");
    // Older libraries lack the newest calls. No data is lost without them.
    for (const TracedCall& call : traced_calls)
        entries_.enable_callback(1, subscriber_, call.domain, call.id);
    return found;
}

void CuptiLibrary::unsubscribe() {
    if (subscriber_ != nullptr) entries_.unsubscribe(subscriber_);
    subscriber_ = nullptr;
}

int CuptiLibrary::enable(CuptiActivity activity) {
    constexpr CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                            CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_GRAPH_TRACE};
    return entries_.activity_enable(kinds[static_cast<int>(activity)]);
}

void CuptiLibrary::resource_event(CUpti_CallbackId id, const CUpti_ResourceData& data) {
    const auto* graph = static_cast<const CUpti_GraphData*>(data.resourceDescriptor);
    std::uint64_t node = 0, original = 0;
    if (graph == nullptr || entries_.graph_node_id(graph->node, &node) != CUPTI_SUCCESS) return;
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
        listener_->node_created(node);
    } else if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING) {
        listener_->node_destroyed(node);
    } else if (entries_.graph_node_id(graph->originalNode, &original) == CUPTI_SUCCESS) {
        listener_->node_cloned(node, original);
    }
}

void CUPTIAPI CuptiLibrary::on_event(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                     const void* data) {
    auto& library = *static_cast<CuptiLibrary*>(self);
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
        library.resource_event(id, *static_cast<const CUpti_ResourceData*>(data));
        return;
    }
    if (domain == CUPTI_CB_DOMAIN_STATE) {
        const auto* state = static_cast<const CUpti_StateData*>(data);
        library.listener_->on_fatal_error(state != nullptr ? state->notification.result
                                                           : CUPTI_ERROR_UNKNOWN);
        return;
    }
    const char* name = traced_name(domain, id);
    if (name == nullptr) return;
    const auto& call = *static_cast<const CUpti_CallbackData*>(data);
    if (call.callbackSite == CUPTI_API_ENTER)
        library.listener_->call_entered(call.correlationId, name);
    else
        library.listener_->call_left(call.correlationId);
}

/// Reads the fields that all kinds of records have in common.
template <typename Record>
GpuActivity read_common(const Record& record, GpuOpKind kind) {
    GpuActivity out;
    out.kind = kind;
    out.start_ns = static_cast<TimeNs>(record.start);
    out.end_ns = static_cast<TimeNs>(record.end);
    out.correlation = record.correlationId;
    out.device = record.deviceId;
    out.context = record.contextId;
    out.stream = record.streamId;
    out.graph_exec = record.graphId;
    if constexpr (requires { record.graphNodeId; }) out.graph_node = record.graphNodeId;
    if constexpr (requires { record.bytes; }) out.bytes = record.bytes;
    return out;
}

GpuActivity read_kernel(const CUpti_ActivityKernel10& record) {
    GpuActivity out = read_common(record, GpuOpKind::kernel);
    out.mangled = record.name;
    out.registers = record.registersPerThread;
    const std::int32_t grid[] = {record.gridX, record.gridY, record.gridZ};
    const std::int32_t block[] = {record.blockX, record.blockY, record.blockZ};
    std::memcpy(out.grid, grid, sizeof grid);
    std::memcpy(out.block, block, sizeof block);
    return out;
}

void CuptiLibrary::read(std::uint8_t* buffer, std::size_t valid,
                        FunctionRef<void(const GpuActivity&)> visit) {
    CUpti_Activity* record = nullptr;
    while (entries_.next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
        switch (record->kind) {
            case CUPTI_ACTIVITY_KIND_KERNEL:
            case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
                visit(read_kernel(*reinterpret_cast<const CUpti_ActivityKernel10*>(record)));
                break;
            case CUPTI_ACTIVITY_KIND_MEMCPY: {
                const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
                GpuActivity out = read_common(copy, GpuOpKind::memcpy);
                out.copy_kind = copy.copyKind;
                visit(out);
                break;
            }
            case CUPTI_ACTIVITY_KIND_MEMSET:
                visit(
                    read_common(*reinterpret_cast<const CUpti_ActivityMemset4*>(record), GpuOpKind::memset));
                break;
            case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
                visit(read_common(*reinterpret_cast<const CUpti_ActivityGraphTrace2*>(record),
                                  GpuOpKind::graph));
                break;
            default:
                break;
        }
    }
}

}  // namespace

std::unique_ptr<CuptiApi> make_cupti_api(const std::string& library) {
    return std::make_unique<CuptiLibrary>(library);
}

}  // namespace draftscope
