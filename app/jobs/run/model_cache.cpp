#include "app/jobs/run/model_cache.h"

#include <algorithm>
#include <mutex>

#include "app/jobs/machine/capabilities.h"
#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/run_weights.h"
#include "base/cpus.h"
#include "base/log.h"
#include "capture/head_traits.h"
#include "engine/draft/registry.h"
#include "engine/heads/registry.h"
#include "kernels/backend.h"

namespace draftscope {

ModelCache::ModelCache() : machine_(describe_capabilities()) {}

void ModelCache::drop_target() {
    shadows_.clear();
    shadow_heads_.clear();
    head_.value.reset();
    full_head_.reset();
    drafter_.value.reset();
    target_.value.reset();
}

void ModelCache::clear() {
    drop_target();
    backend_.value.reset();
}

Machine ModelCache::machine() const {
    Machine machine = machine_;
    const ReadBandwidth probed = load_probe(machine.cpu_name, backend().pool().threads());
    machine.read_gb_per_s = probed.stream;
    machine.scattered_read_gb_per_s = probed.scattered;
    return machine;
}

void ModelCache::replace_capability(Capability capability) {
    std::erase_if(machine_.capabilities, [&](const Capability& one) { return one.name == capability.name; });
    machine_.capabilities.push_back(std::move(capability));
}

Notes ModelCache::notes() const {
    Notes out = target().notes();
    append_notes(out, drafter().properties().notes);
    return out;
}

/// Reports the pinning of this run next to the machine's capability.
void ModelCache::note_pinning(int threads, bool pin) {
    const int workers = threads - 1, pinned = backend().pool().pinned();
    Capability pinning = *std::find_if(machine_.capabilities.begin(), machine_.capabilities.end(),
                                       [](const Capability& one) { return one.name == "thread pinning"; });
    pinning.brief = pinned > 0 ? "on" : "off";
    pinning.state = fmt::format("{} of {} workers pinned to one CPU each", pinned, workers);
    if (pinning.available)
        pinning.remedy =
            pin && pinned < workers
                ? fmt::format("--threads at most {}, the CPUs that this process may use", usable_cores())
                : "";
    replace_capability(std::move(pinning));
}

void ModelCache::note_gpu(const kernels::DeviceInfo& info) {
    Capability gpu;
    gpu.name = "GPU";
    gpu.available = true;
    gpu.state = fmt::format("{}, {}", info.name, info.architecture);
    replace_capability(std::move(gpu));
}

/// Creates the back end. Models on a device are released before the device.
Status ModelCache::load_exec(const ResolvedRun& run) {
    const RunConfig& config = run.config;
    const bool cuda = config.backend == "cuda";
    const ExecKey key{config.backend,
                      threads_or_default(config.threads),
                      config.pin,
                      cuda && config.gpu_graphs,
                      cuda && config.l2_window,
                      cuda && traced_};
    if (backend_.holds(key)) return {};
    if (cuda || backend_.key.backend == "cuda") drop_target();
    if (!cuda) {
        // A target that stays keeps the backend that its weights belong to.
        auto pool = kernels::make_thread_pool(key.threads, kernels::best_isa(), key.pin);
        if (backend_.value != nullptr)
            backend_.value->set_pool(std::move(pool));
        else
            backend_.value = kernels::make_cpu_backend(std::move(pool));
        backend_.key = key;
        note_pinning(key.threads, key.pin);
        return {};
    }
    backend_.value.reset();
    kernels::CudaOptions options;
    options.threads = key.threads;
    options.graphs = key.gpu_graphs;
    options.cache_windows = key.l2_window;
    options.overlap = !key.traced;
    DS_ASSIGN(auto device, kernels::open_cuda(options));
    note_gpu(device->info());
    backend_ = {key, std::move(device)};
    return {};
}

Status ModelCache::load_target(const ResolvedRun& run, const JobHooks& hooks) {
    DS_TRY(load_exec(run));
    if (!backend().is_host()) DS_TRY(backend().use_cublaslt(run.library_rows));
    const TargetKey key{run.config.model, run.config.precision, run.config.backend, run.config.context};
    if (!target_.holds(key)) {
        drop_target();
        DS_ASSIGN(const WeightCacheOptions cache, weight_cache_options());
        DS_ASSIGN(auto loaded, Target::load(run.config.model, backend(), run.load_precision(),
                                            hooks.on_progress, cache, run.config.context));
        if (loaded->tokenizer() == nullptr)
            return bad_input("--model {}: has no tokenizer", run.config.model);
        target_ = {key, std::move(loaded)};
    }
    const int context = target().config().context;
    if (run.tree.nodes > context) {
        return bad_input("--tree {}: {} nodes do not fit the context of {} tokens of {}; use fewer nodes",
                         to_text(run.tree), run.tree.nodes, context, run.config.model);
    }
    const VocabularyKey wanted{key, run.ranking_path};
    if (!vocabulary_.vocab || vocabulary_key_ != wanted) {
        DS_ASSIGN(vocabulary_, make_vocabulary(*target().tokenizer(), run.ranking_path, ++vocab_ids_));
        vocabulary_key_ = wanted;
    }
    return {};
}

Status ModelCache::load_drafter(const ResolvedRun& run, const JobHooks& hooks) {
    const DrafterKey key{target_.key, run.drafter_name(), run.drafter_path};
    if (drafter_.holds(key)) return {};
    hooks.report(-1, "loading drafter " + run.drafter_name());
    head_.value.reset();
    full_head_.reset();
    drafter_.value.reset();
    DS_ASSIGN(auto loaded, draftscope::load_drafter(run, target(), backend()));
    drafter_ = {key, std::move(loaded)};
    return {};
}

Status ModelCache::load_heads(const ResolvedRun& run) {
    if (!drafter().uses_head()) {
        const bool has_own = find_drafter(run.drafter_id)->uses_head;
        if (has_own && run.head && !is_full_head(to_text(*run.head))) {
            return bad_input("--head {}: drafter {} has its own LM head for each level; use --head full",
                             to_text(*run.head), run.drafter_id);
        }
        head_.value.reset();
        full_head_.reset();
        return {};
    }
    const HeadFiles& files = run.artefacts;
    const HeadKey key{drafter_.key, to_text(*run.head), files.ranking_path, files.artefact_path,
                      files.affinity_path};
    if (head_.holds(key)) return {};
    const HeadWeights weights = head_weights(run, drafter(), target());
    full_head_.reset();
    head_.key = {};  // matches no run if prepare() fails
    DS_ASSIGN(head_.value, make_head(*run.head, run.artefacts));
    DS_TRY(head_.value->prepare(backend(), weights));
    if (!is_full_head(to_text(*run.head))) {
        DS_ASSIGN(full_head_, make_head(HeadSpec{std::string(full_head_id), {}}, {}));
        DS_TRY(full_head_->prepare(backend(), weights));
    }
    head_.key = key;
    return {};
}

/// Prepares the shadow heads for each run; only shared weights are kept.
Status ModelCache::load_shadows(const ResolvedRun& run) {
    shadows_.clear();
    shadow_heads_.clear();
    DS_ASSIGN(const std::vector<ResolvedShadow> resolved, resolve_shadows(run));
    if (!resolved.empty() && !drafter().uses_head())
        return bad_input("--shadow {}: drafter {} has no LM head that another head could replace",
                         run.config.shadow, run.drafter_id);
    for (const ResolvedShadow& shadow : resolved) {
        const HeadSpec& spec = *shadow.run.head;
        DS_ASSIGN(auto made, make_head(spec, shadow.run.artefacts));
        DS_TRY(made->prepare(backend(), head_weights(shadow.run, drafter(), target())));
        shadows_.push_back({to_text(spec), made.get(), shadow.aligned});
        shadow_heads_.push_back(std::move(made));
    }
    return {};
}

/// Drops a device that has failed, or that had no memory for data outliving a session: it would reject all
/// further work, and its contents are lost. Clears an out-of-memory error that affected only an earlier run.
bool ModelCache::drop_broken_device() {
    kernels::Backend* device = backend_.value.get();
    if (device == nullptr || device->is_host()) return false;
    {
        const std::lock_guard lock(device->submit_mutex());
        device->clear_out_of_memory();
        if (device->synchronize().ok()) return false;
    }
    clear();
    return true;
}

Status ModelCache::load(const ResolvedRun& run, const JobHooks& hooks) {
    if (drop_broken_device()) log_warning("the GPU failed in the previous run; it is reopened");
    const Status loaded = load_all(run, hooks);
    if (loaded.ok() || !drop_broken_device()) return loaded;
    return Error{loaded.error().kind,
                 fmt::format("{}; the next run reopens the GPU: choose a smaller model, or --backend cpu",
                             loaded.error().message)};
}

Status ModelCache::load_all(const ResolvedRun& run, const JobHooks& hooks) {
    DS_TRY(load_target(run, hooks));
    DS_TRY(load_drafter(run, hooks));
    DS_TRY(check_tree(drafter(), run.tree));
    DS_TRY(load_heads(run));
    return load_shadows(run);
}

}  // namespace draftscope
