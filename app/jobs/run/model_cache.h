#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/jobs/resolve/resolve.h"
#include "app/jobs/resolve/vocabulary.h"
#include "base/job_hooks.h"
#include "engine/draft/drafter.h"
#include "engine/transformer/target.h"
#include "profiler/machine/machine.h"

namespace draftscope {

/// The loaded models of a process: back end, target, vocabulary, drafter and heads. Each part is kept until a
/// run with other settings needs it.
class ModelCache {
  public:
    ModelCache();

    /// Loads every part that `run` needs. Reopens a device that failed in an earlier run.
    Status load(const ResolvedRun& run, const JobHooks& hooks);
    /// Parts of load(), for a run whose drafter or head was chosen after it.
    Status load_drafter(const ResolvedRun& run, const JobHooks& hooks);
    Status load_heads(const ResolvedRun& run);
    /// Releases the models and the back end.
    void clear();
    /// Says whether CUPTI traces the next runs. A GPU's kernels then start after the previous one ended,
    /// because the traced times of early ones overlap.
    void set_traced(bool traced) { traced_ = traced; }

    kernels::Backend& backend() const { return *backend_.value; }
    Target& target() const { return *target_.value; }
    Drafter& drafter() const { return *drafter_.value; }
    LmHead* head() const { return head_.value.get(); }      ///< null if the drafter uses no head
    LmHead* full_head() const { return full_head_.get(); }  ///< null if head() is the full head
    const Vocabulary& vocabulary() const { return vocabulary_; }
    std::span<const ShadowHead> shadows() const { return shadows_; }
    Notes notes() const;  ///< of the target's and the drafter's files
    /// Returns this machine, with the back end and the probed bandwidth of the loaded number of threads.
    Machine machine() const;

  private:
    /// A part with the settings it was loaded for.
    template <typename Key, typename T>
    struct Part {
        Key key;
        std::unique_ptr<T> value;
        bool holds(const Key& wanted) const { return value && key == wanted; }
    };
    struct ExecKey {
        std::string backend;
        int threads = 0;
        bool pin = false, gpu_graphs = false, l2_window = false, traced = false;
        bool operator==(const ExecKey&) const = default;
    };
    struct TargetKey {
        std::string model, precision, backend;
        int context = 0;
        bool operator==(const TargetKey&) const = default;
    };
    struct VocabularyKey {
        TargetKey target;
        std::string ranking_path;
        bool operator==(const VocabularyKey&) const = default;
    };
    struct DrafterKey {
        TargetKey target;
        std::string drafter, path;
        bool operator==(const DrafterKey&) const = default;
    };
    struct HeadKey {
        DrafterKey drafter;
        std::string head, ranking_path, artefact_path, affinity_path;
        bool operator==(const HeadKey&) const = default;
    };

    Status load_all(const ResolvedRun& run, const JobHooks& hooks);
    Status load_exec(const ResolvedRun& run);
    Status load_target(const ResolvedRun& run, const JobHooks& hooks);
    Status load_shadows(const ResolvedRun& run);
    void drop_target();
    bool drop_broken_device();
    void note_pinning(int threads, bool pin);
    void note_gpu(const kernels::DeviceInfo& info);
    void replace_capability(Capability capability);

    // In the order of their dependences: each part may refer to those before it.
    Machine machine_;
    Part<ExecKey, kernels::Backend> backend_;
    Part<TargetKey, Target> target_;
    Part<DrafterKey, Drafter> drafter_;
    Part<HeadKey, LmHead> head_;
    std::unique_ptr<LmHead> full_head_;
    std::vector<std::unique_ptr<LmHead>> shadow_heads_;
    std::vector<ShadowHead> shadows_;  ///< of the current run
    Vocabulary vocabulary_;
    VocabularyKey vocabulary_key_;
    RowId vocab_ids_ = 0;
    bool traced_ = false;
};

}  // namespace draftscope
