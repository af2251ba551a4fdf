#include "app/jobs/sweep/find_fastest.h"

#include <algorithm>
#include <filesystem>

#include "app/jobs/profile/profile_job.h"
#include "app/jobs/replay/record_job.h"
#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/sweep/saved_sweep.h"
#include "app/jobs/sweep/sweep_job.h"
#include "base/cpus.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/user_folders.h"
#include "capture/run_setting.h"
#include "engine/draft/registry.h"
#include "engine/heads/registry.h"
#include "profiler/machine/machine.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

// Our defaults: enough texts for intervals, and costs of the heads that have won so far.
constexpr int default_conversations = 12;
constexpr const char* default_heads[] = {"full", "vocabtrim", "slimspec", "specvocab", "microspec"};
constexpr const char* lookup_drafter = "ngram";
constexpr const char* source_name = "draftscope";
/// Shares of the time by step.
constexpr std::array step_shares = {0.1, 0.2, 0.4, 0.3};

/// Returns a file of the cache folder whose name is a hash of what it depends on; "" without a cache folder.
std::string cached(const char* folder, const std::string& key, const char* ending) {
    const fs::path cache = cache_folder();
    if (cache.empty()) return "";
    return (cache / folder / fmt::format("{:016x}{}", fnv1a(key), ending)).string();
}

/// Returns a path with its size and time, which tell whether the file is still the same.
std::string file_key(const std::string& path) {
    std::error_code error;
    const auto size = fs::file_size(path, error);
    const auto time = fs::last_write_time(path, error);
    return fmt::format("{}|{}|{}", path, error ? 0 : size, error ? 0 : time.time_since_epoch().count());
}

std::string model_key(const RunConfig& run) {
    return fmt::format("{}|{}|{}|{}", file_key(run.model.empty() ? find_demo_model() : run.model),
                       run.backend, run.precision, threads_or_default(run.threads));
}

/// Returns a sentence that compares the live run of the advised setting with its prediction.
std::string verdict(const Estimate& predicted, const Estimate& live) {
    const std::string measured =
        fmt::format("Run here, it was {} times as fast as plain decoding", estimate_text(live, 2));
    if (!predicted.interval) return measured + ".";
    return predicted.interval->contains(live.value)
               ? measured + ", as predicted."
               : fmt::format("{}, which is outside of the predicted interval: trust the run.", measured);
}

/// The four steps, and what they hand on.
class FindFastest {
  public:
    FindFastest(const FindFastestConfig& config, DebugGate& gate, const FindFastestHooks& hooks)
        : config_(config), gate_(gate), hooks_(hooks) {
        step_hooks_.cancelled = hooks.cancelled;
        step_hooks_.on_progress = [this](double fraction, const std::string& what) {
            double done = std::max(fraction, 0.0) * step_shares[static_cast<std::size_t>(step_)];
            for (int s = 0; s < static_cast<int>(step_); ++s)
                done += step_shares[static_cast<std::size_t>(s)];
            hooks_.report(done,
                          fmt::format("{} of {}, {}: {}", static_cast<int>(step_) + 1, step_shares.size(),
                                      find_step_names[static_cast<std::size_t>(step_)], what));
        };
    }

    Result<SweepReport> run() {
        DS_TRY(complete());
        if (config_.recording.empty()) DS_TRY(record());
        if (config_.profile.empty()) DS_TRY(measure_costs());
        DS_TRY(search());
        const Status live = run_best();
        if (!live.ok() && live.error().kind != ErrorKind::cancelled) return live.error();
        return std::move(report_);
    }

  private:
    void begin(FindStep step) {
        step_ = step;
        if (hooks_.on_step) hooks_.on_step(step);
        step_hooks_.report(0, "loading the model");
    }

    Status complete() {
        RunConfig& run = config_.run;
        run.prompt.clear();
        if (run.prompts_file.empty()) run.prompts_file = find_asset("prompts/spec_bench_half.jsonl");
        if (run.prompts_file.empty())
            return bad_input(
                "prompts: the shipped ones (assets/prompts) are missing; name a file with --prompts");
        if (run.limit == 0) run.balanced = true;
        if (run.limit == 0) run.limit = default_conversations;
        run.save.clear();
        run.shadow.clear();
        run.baseline = 0;
        run.batch = config_.batch;
        run.drafter_is_automatic = false;  // the methods name their drafters
        if (config_.drafters.empty()) {
            if (drafter_traits(run.drafter).drafts) config_.drafters.push_back(run.drafter);
            if (drafter_id(run.drafter) != lookup_drafter) config_.drafters.emplace_back(lookup_drafter);
        }
        // Files of heads that are not searched have no use here.
        const std::vector<std::string> heads = searched_heads();
        std::erase_if(run.artefacts, [&](const std::string& file) {
            return std::ranges::none_of(heads, [&](const std::string& head) {
                const auto spec = parse_head_spec(head);
                return spec.ok() && uses_artefact(*spec, file);
            });
        });
        return {};
    }

    Status record() {
        begin(FindStep::record);
        RecordConfig record;
        record.run = config_.run;
        record.run.artefacts.clear();
        record.source = source_name;
        record.times = false;
        record.overwrite = true;
        record.out = cached("recordings",
                            fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", model_key(record.run),
                                        file_key(record.run.prompts_file), record.run.limit,
                                        record.run.balanced, record.run.max_new, record.run.temperature,
                                        record.run.top_p, record.run.seed, record.run.system),
                            "");
        if (record.out.empty())
            return failed("no folder for the recording: neither HOME nor XDG_CACHE_HOME is set");
        std::error_code error;
        fs::create_directories(fs::path(record.out).parent_path(), error);
        DS_ASSIGN(const RecordReport done, run_record(record, step_hooks_));
        if (step_hooks_.is_cancelled()) return Error{ErrorKind::cancelled, "stopped while recording"};
        say_notes(done.notes);
        config_.recording = record.out;
        return {};
    }

    Status measure_costs() {
        begin(FindStep::profile);
        ProfileConfig profile;
        profile.run = config_.run;
        profile.source = source_name;
        profile.out = kept_profile_path(config_);
        if (profile.out.empty())
            return failed("no folder for the costs: neither HOME nor XDG_CACHE_HOME is set");
        std::error_code error;
        fs::create_directories(fs::path(profile.out).parent_path(), error);
        profile.drafters = config_.drafters;
        profile.heads = {};
        for (const std::string& head : searched_heads())
            profile.heads.push_back(head.substr(0, head.find(':')));
        profile.contexts = {64, 512};  // of short and of long prompts
        profile.batches = {1};
        if (config_.batch > 1) profile.batches.push_back(config_.batch);
        DS_ASSIGN(const MachineProfile done, run_profile(profile, step_hooks_));
        if (step_hooks_.is_cancelled())
            return Error{ErrorKind::cancelled,
                         "stopped; the costs measured so far are kept in " + profile.out};
        config_.profile = done.path;
        return {};
    }

    /// Returns the given heads, or the default ones and the present one.
    std::vector<std::string> searched_heads() const {
        if (!config_.heads.empty()) return config_.heads;
        std::vector<std::string> heads(std::begin(default_heads), std::end(default_heads));
        const std::string present = config_.run.head.substr(0, config_.run.head.find(':'));
        if (find_head(present) != nullptr && std::ranges::find(heads, present) == heads.end())
            heads.push_back(config_.run.head);
        return heads;
    }

    Status search() {
        begin(FindStep::search);
        SweepConfig sweep;
        sweep.replay.recording = config_.recording;
        sweep.replay.model = config_.run.model;
        sweep.replay.artefacts = config_.run.artefacts;
        sweep.replay.precision = config_.run.precision;
        sweep.replay.threads = config_.run.threads;
        sweep.drafters = config_.drafters;
        sweep.heads = searched_heads();
        sweep.only_usable = config_.heads.empty();
        sweep.batches = {config_.batch};
        sweep.profile = config_.profile;
        sweep.save = config_.save;
        const auto show = [&](const SweepReport& found) {
            if (!hooks_.on_settings) return;
            SweepReport shown = found;
            shown.advice = advise(shown);
            prepare_for_window(shown);
            hooks_.on_settings(std::move(shown));
        };
        DS_ASSIGN(report_, run_search(sweep, step_hooks_, show));
        prepare_for_window(report_);
        return {};
    }

    /// Runs the advised and the present setting in turns with plain decoding of the recorded prompts.
    Status run_best() {
        begin(FindStep::live);
        const auto& chosen = report_.advice.choice.chosen;
        if (!chosen) return {};
        std::vector<std::string> methods = {setting_name(report_.settings[*chosen])};
        if (const std::string present = present_method(); !present.empty() && present != methods.front())
            methods.push_back(present);
        RunConfig run = report_.run;  // of the recorded prompts, as they were recorded
        run.backend = config_.run.backend;
        run.threads = config_.run.threads;
        run.batch = config_.batch;
        DS_ASSIGN(report_.confirmed, run_live(report_, run, std::move(methods), gate_, step_hooks_));
        report_.live_verdict = verdict(report_.advice.choice.speedup, report_.confirmed.front().speedup);
        if (!config_.save.empty()) DS_TRY(save_sweep(config_.save, report_));
        return {};
    }

    /// Returns the present setting as a method; "" if it drafts nothing. An automatic tree stands for the
    /// default.
    std::string present_method() const {
        const DrafterInfo drafter = drafter_traits(config_.run.drafter);
        if (!drafter.drafts) return "";
        SettingKey key;
        key.drafter = config_.run.drafter;
        if (drafter.uses_head) key.head = config_.run.head == "auto" ? "full" : config_.run.head;
        const bool automatic = config_.run.tree == "auto" || config_.run.tree == quick_tree;
        RunConfig run = config_.run;
        if (automatic) run.tree.clear();
        if (!key.head.empty()) run.head = key.head;
        const auto resolved = resolve_defaults(run);
        key.tree = resolved.ok() ? resolved->tree : std::string("chain=3");
        return setting_name(key);
    }

    FindFastestConfig config_;
    DebugGate& gate_;
    const FindFastestHooks& hooks_;
    JobHooks step_hooks_;
    FindStep step_ = FindStep::record;
    SweepReport report_;
};

}  // namespace

Result<SweepReport> find_fastest(const FindFastestConfig& config, DebugGate& gate,
                                 const FindFastestHooks& hooks) {
    return FindFastest(config, gate, hooks).run();
}

std::string kept_profile_path(const FindFastestConfig& config) {
    return cached("profiles",
                  fmt::format("{}|{}|{}", describe_machine().cpu_name, model_key(config.run),
                              file_key("/proc/self/exe")),  // another build has other costs
                  ".json");
}

}  // namespace draftscope
