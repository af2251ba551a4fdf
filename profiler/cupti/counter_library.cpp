// CUPTI's Range Profiler through dlopen: user ranges, user replay with a single pass.
#include <cupti_profiler_host.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "profiler/cupti/counter_api.h"
#include "profiler/cupti/cupti_open.h"

namespace draftscope {

namespace {

/// The entry points, with the types of their declarations. All exist since CUDA 12.6.
struct Entries {
    decltype(&cuptiGetResultString) result_string = nullptr;
    decltype(&cuptiProfilerInitialize) initialize = nullptr;
    decltype(&cuptiProfilerDeviceSupported) supported = nullptr;
    decltype(&cuptiDeviceGetChipName) chip_name = nullptr;
    decltype(&cuptiProfilerHostInitialize) host_initialize = nullptr;
    decltype(&cuptiProfilerHostDeinitialize) host_deinitialize = nullptr;
    decltype(&cuptiProfilerHostConfigAddMetrics) add_metrics = nullptr;
    decltype(&cuptiProfilerHostGetConfigImageSize) config_size = nullptr;
    decltype(&cuptiProfilerHostGetConfigImage) config_image = nullptr;
    decltype(&cuptiProfilerHostGetNumOfPasses) passes = nullptr;
    decltype(&cuptiProfilerHostEvaluateToGpuValues) evaluate = nullptr;
    decltype(&cuptiRangeProfilerEnable) enable = nullptr;
    decltype(&cuptiRangeProfilerDisable) disable = nullptr;
    decltype(&cuptiRangeProfilerSetConfig) set_config = nullptr;
    decltype(&cuptiRangeProfilerStart) start = nullptr;
    decltype(&cuptiRangeProfilerStop) stop = nullptr;
    decltype(&cuptiRangeProfilerPushRange) push = nullptr;
    decltype(&cuptiRangeProfilerPopRange) pop = nullptr;
    decltype(&cuptiRangeProfilerDecodeData) decode = nullptr;
    decltype(&cuptiRangeProfilerGetCounterDataSize) data_size = nullptr;
    decltype(&cuptiRangeProfilerCounterDataImageInitialize) data_initialize = nullptr;
    decltype(&cuptiRangeProfilerGetCounterDataInfo) data_info = nullptr;
    decltype(&cuptiRangeProfilerCounterDataGetRangeInfo) range_info = nullptr;
};

/// Entry points of the driver, declared by their ABI because cuda.h is not included.
struct Driver {
    int (*get_context)(CUcontext*) = nullptr;
    int (*get_device)(CUdevice*) = nullptr;
};

template <typename Params>
Params make_params(std::size_t size) {
    Params out{};
    out.structSize = size;
    return out;
}
#define DS_PARAMS(name) make_params<name>(name##_STRUCT_SIZE)

class CounterLibrary final : public CounterApi {
  public:
    explicit CounterLibrary(std::string wanted) : wanted_(std::move(wanted)) {}
    ~CounterLibrary() override { close(); }

    CuptiProbe probe() override;
    int passes(const std::string& chip, std::span<const char* const> names, std::string& why) override;
    CuptiProbe open(std::span<const char* const> names, std::size_t max_ranges) override;
    int start() override;
    int push(const char* name) override {
        auto params = DS_PARAMS(CUpti_RangeProfiler_PushRange_Params);
        params.pRangeProfilerObject = profiler_;
        params.pRangeName = name;
        return entries_.push(&params);
    }
    int pop() override {
        auto params = DS_PARAMS(CUpti_RangeProfiler_PopRange_Params);
        params.pRangeProfilerObject = profiler_;
        return entries_.pop(&params);
    }
    int stop(FunctionRef<void(std::string_view, std::span<const double>)> visit,
             std::uint64_t& dropped) override;
    void close() override;
    std::string message(int code) override { return cupti_message(entries_.result_string, code); }

  private:
    CuptiProbe load();
    CuptiProbe refused(int code, const char* what) {
        CuptiProbe out = cupti_refusal(code, message(code), "", what);
        out.library = found_.library;
        close();
        return out;
    }
    int schedule(const std::string& chip);
    int clear_data();
    int set_up();

    std::string wanted_;
    void* handle_ = nullptr;
    CuptiProbe found_;
    Entries entries_;
    Driver driver_;
    CUpti_Profiler_Host_Object* host_ = nullptr;
    CUpti_RangeProfiler_Object* profiler_ = nullptr;
    std::vector<const char*> names_;
    std::vector<std::uint8_t> config_, data_;
    std::size_t max_ranges_ = 0, passes_ = 0;
};

CuptiProbe CounterLibrary::load() {
    if (handle_ != nullptr) return found_;
    handle_ = open_cupti(wanted_, found_);
    if (handle_ == nullptr) return found_;
    bool whole = true;
    const auto need = [&](auto& entry, const char* name) {
        entry = reinterpret_cast<std::decay_t<decltype(entry)>>(dlsym(handle_, name));
        whole = whole && entry != nullptr;
    };
    need(entries_.result_string, "cuptiGetResultString");
    need(entries_.initialize, "cuptiProfilerInitialize");
    need(entries_.supported, "cuptiProfilerDeviceSupported");
    need(entries_.chip_name, "cuptiDeviceGetChipName");
    need(entries_.host_initialize, "cuptiProfilerHostInitialize");
    need(entries_.host_deinitialize, "cuptiProfilerHostDeinitialize");
    need(entries_.add_metrics, "cuptiProfilerHostConfigAddMetrics");
    need(entries_.config_size, "cuptiProfilerHostGetConfigImageSize");
    need(entries_.config_image, "cuptiProfilerHostGetConfigImage");
    need(entries_.passes, "cuptiProfilerHostGetNumOfPasses");
    need(entries_.evaluate, "cuptiProfilerHostEvaluateToGpuValues");
    need(entries_.enable, "cuptiRangeProfilerEnable");
    need(entries_.disable, "cuptiRangeProfilerDisable");
    need(entries_.set_config, "cuptiRangeProfilerSetConfig");
    need(entries_.start, "cuptiRangeProfilerStart");
    need(entries_.stop, "cuptiRangeProfilerStop");
    need(entries_.push, "cuptiRangeProfilerPushRange");
    need(entries_.pop, "cuptiRangeProfilerPopRange");
    need(entries_.decode, "cuptiRangeProfilerDecodeData");
    need(entries_.data_size, "cuptiRangeProfilerGetCounterDataSize");
    need(entries_.data_initialize, "cuptiRangeProfilerCounterDataImageInitialize");
    need(entries_.data_info, "cuptiRangeProfilerGetCounterDataInfo");
    need(entries_.range_info, "cuptiRangeProfilerCounterDataGetRangeInfo");
    found_.state = whole ? CuptiState::ready : CuptiState::too_old;
    found_.text = found_.library;
    if (!whole) {
        found_.text += ": older than CUDA 12.6, without the Range Profiler";
        found_.remedy = "set DRAFTSCOPE_CUPTI to a libcupti.so of CUDA 12.6 or newer";
    }
    return found_;
}

CuptiProbe CounterLibrary::probe() {
    return load();
}

/// Builds the config image of `names_` for `chip`. Returns 0 or the error code. Needs no driver.
int CounterLibrary::schedule(const std::string& chip) {
    auto host = DS_PARAMS(CUpti_Profiler_Host_Initialize_Params);
    host.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    host.pChipName = chip.c_str();
    if (const int code = entries_.host_initialize(&host); code != CUPTI_SUCCESS) return code;
    host_ = host.pHostObject;
    auto add = DS_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
    add.pHostObject = host_;
    add.ppMetricNames = names_.data();
    add.numMetrics = names_.size();
    if (const int code = entries_.add_metrics(&add); code != CUPTI_SUCCESS) return code;
    auto size = DS_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params);
    size.pHostObject = host_;
    if (const int code = entries_.config_size(&size); code != CUPTI_SUCCESS) return code;
    config_.assign(size.configImageSize, 0);
    auto image = DS_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params);
    image.pHostObject = host_;
    image.configImageSize = config_.size();
    image.pConfigImage = config_.data();
    if (const int code = entries_.config_image(&image); code != CUPTI_SUCCESS) return code;
    auto passes = DS_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params);
    passes.configImageSize = config_.size();
    passes.pConfigImage = config_.data();
    if (const int code = entries_.passes(&passes); code != CUPTI_SUCCESS) return code;
    passes_ = passes.numOfPasses;
    return 0;
}

int CounterLibrary::passes(const std::string& chip, std::span<const char* const> names, std::string& why) {
    const CuptiProbe found = load();
    if (found.state != CuptiState::ready) {
        why = found.text;
        return 0;
    }
    names_.assign(names.begin(), names.end());
    const int code = schedule(chip);
    if (code != 0) why = message(code);
    close();
    return code == 0 ? static_cast<int>(passes_) : 0;
}

CuptiProbe CounterLibrary::open(std::span<const char* const> names, std::size_t max_ranges) {
    CuptiProbe found = load();
    if (found.state != CuptiState::ready) return found;
    close();
    names_.assign(names.begin(), names.end());
    max_ranges_ = max_ranges;
    CUcontext context = nullptr;
    CUdevice device = 0;
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver != nullptr) {
        driver_.get_context = reinterpret_cast<int (*)(CUcontext*)>(dlsym(driver, "cuCtxGetCurrent"));
        driver_.get_device = reinterpret_cast<int (*)(CUdevice*)>(dlsym(driver, "cuCtxGetDevice"));
    }
    const bool has_driver = driver_.get_context != nullptr && driver_.get_device != nullptr &&
                            driver_.get_context(&context) == 0 && context != nullptr &&
                            driver_.get_device(&device) == 0;
    if (!has_driver) {
        found.state = CuptiState::no_driver;
        found.text = "no CUDA context on this thread (driver or device missing)";
        found.remedy = "counters are for runs with --backend cuda";
        return found;
    }
    auto initialize = DS_PARAMS(CUpti_Profiler_Initialize_Params);
    if (const int code = entries_.initialize(&initialize); code != CUPTI_SUCCESS)
        return refused(code, "initialising the profiler");
    auto support = DS_PARAMS(CUpti_Profiler_DeviceSupported_Params);
    support.cuDevice = device;
    support.api = CUPTI_PROFILER_RANGE_PROFILING;
    if (const int code = entries_.supported(&support); code != CUPTI_SUCCESS)
        return refused(code, "checking for counters");
    if (support.isSupported != CUPTI_PROFILER_CONFIGURATION_SUPPORTED) {
        found.state = CuptiState::unsupported;
        found.text =
            "this device or its configuration has no counters to read (virtual, partitioned, confidential "
            "computing or too old)";
        found.remedy = "use a whole, directly attached GPU of compute capability 7.0 or higher";
        return found;
    }
    auto chip = DS_PARAMS(CUpti_Device_GetChipName_Params);
    chip.deviceIndex = device;
    if (const int code = entries_.chip_name(&chip); code != CUPTI_SUCCESS)
        return refused(code, "reading the chip's name");
    if (const int code = schedule(chip.pChipName); code != 0) return refused(code, "choosing counters");
    if (passes_ != 1) {
        found.state = CuptiState::unsupported;
        found.text = fmt::format("the counters need {} passes on {}, and a decode can't be repeated", passes_,
                                 chip.pChipName);
        found.remedy = "tier T2 shows every kernel without counters";
        close();
        return found;
    }
    auto enable = DS_PARAMS(CUpti_RangeProfiler_Enable_Params);
    enable.ctx = context;
    if (const int code = entries_.enable(&enable); code != CUPTI_SUCCESS)
        return refused(code, "enabling the range profiler");
    profiler_ = enable.pRangeProfilerObject;
    // Tried once, so that a refusal is reported before the run.
    if (const int code = clear_data(); code != CUPTI_SUCCESS) return refused(code, "allocating counter data");
    if (const int code = set_up(); code != CUPTI_SUCCESS)
        return refused(code, "setting up the range profiler");
    return found;
}

int CounterLibrary::set_up() {
    auto config = DS_PARAMS(CUpti_RangeProfiler_SetConfig_Params);
    config.pRangeProfilerObject = profiler_;
    config.configSize = config_.size();
    config.pConfig = config_.data();
    config.counterDataImageSize = data_.size();
    config.pCounterDataImage = data_.data();
    config.range = CUPTI_UserRange;
    config.replayMode = CUPTI_UserReplay;
    config.maxRangesPerPass = max_ranges_;
    config.numNestingLevels = 1;
    config.minNestingLevel = 1;
    config.passIndex = 0;
    config.targetNestingLevel = 1;
    return entries_.set_config(&config);
}

/// Clears the data image. Its address must not change, since the profiler got it once.
int CounterLibrary::clear_data() {
    if (data_.empty()) {
        auto size = DS_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params);
        size.pRangeProfilerObject = profiler_;
        size.pMetricNames = names_.data();
        size.numMetrics = names_.size();
        size.maxNumOfRanges = max_ranges_;
        size.maxNumRangeTreeNodes = static_cast<std::uint32_t>(max_ranges_);
        if (const int code = entries_.data_size(&size); code != CUPTI_SUCCESS) return code;
        data_.assign(size.counterDataSize, 0);
    }
    auto initialize = DS_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
    initialize.pRangeProfilerObject = profiler_;
    initialize.counterDataSize = data_.size();
    initialize.pCounterData = data_.data();
    return entries_.data_initialize(&initialize);
}

int CounterLibrary::start() {
    if (const int code = clear_data(); code != CUPTI_SUCCESS) return code;
    if (const int code = set_up(); code != CUPTI_SUCCESS) return code;
    auto params = DS_PARAMS(CUpti_RangeProfiler_Start_Params);
    params.pRangeProfilerObject = profiler_;
    return entries_.start(&params);
}

int CounterLibrary::stop(FunctionRef<void(std::string_view, std::span<const double>)> visit,
                         std::uint64_t& dropped) {
    auto stop = DS_PARAMS(CUpti_RangeProfiler_Stop_Params);
    stop.pRangeProfilerObject = profiler_;
    if (const int code = entries_.stop(&stop); code != CUPTI_SUCCESS) return code;
    auto decode = DS_PARAMS(CUpti_RangeProfiler_DecodeData_Params);
    decode.pRangeProfilerObject = profiler_;
    if (const int code = entries_.decode(&decode); code != CUPTI_SUCCESS) return code;
    dropped += decode.numOfRangeDropped;
    auto info = DS_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params);
    info.pCounterDataImage = data_.data();
    info.counterDataImageSize = data_.size();
    if (const int code = entries_.data_info(&info); code != CUPTI_SUCCESS) return code;
    std::vector<double> values(names_.size());
    for (std::size_t i = 0; i < info.numTotalRanges; ++i) {
        auto range = DS_PARAMS(CUpti_RangeProfiler_CounterData_GetRangeInfo_Params);
        range.pCounterDataImage = data_.data();
        range.counterDataImageSize = data_.size();
        range.rangeIndex = i;
        range.rangeDelimiter = "/";
        if (const int code = entries_.range_info(&range); code != CUPTI_SUCCESS) return code;
        auto evaluate = DS_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
        evaluate.pHostObject = host_;
        evaluate.pCounterDataImage = data_.data();
        evaluate.counterDataImageSize = data_.size();
        evaluate.rangeIndex = i;
        evaluate.ppMetricNames = names_.data();
        evaluate.numMetrics = names_.size();
        evaluate.pMetricValues = values.data();
        if (const int code = entries_.evaluate(&evaluate); code != CUPTI_SUCCESS) return code;
        visit(range.rangeName != nullptr ? range.rangeName : "", values);
    }
    return 0;
}

void CounterLibrary::close() {
    if (profiler_ != nullptr) {
        auto disable = DS_PARAMS(CUpti_RangeProfiler_Disable_Params);
        disable.pRangeProfilerObject = profiler_;
        entries_.disable(&disable);
        profiler_ = nullptr;
    }
    if (host_ != nullptr) {
        auto host = DS_PARAMS(CUpti_Profiler_Host_Deinitialize_Params);
        host.pHostObject = host_;
        entries_.host_deinitialize(&host);
        host_ = nullptr;
    }
    data_.clear();
    config_.clear();
}

}  // namespace

std::unique_ptr<CounterApi> make_counter_api(const std::string& library) {
    return std::make_unique<CounterLibrary>(library);
}

}  // namespace draftscope
