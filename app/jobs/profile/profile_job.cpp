#include "app/jobs/profile/profile_job.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "app/jobs/bench/bench_job.h"
#include "app/jobs/profile/other_load.h"
#include "app/jobs/profile/session_times.h"
#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/run/choose_tree.h"
#include "app/jobs/run/model_cache.h"
#include "base/clock.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "engine/draft/drafter_files.h"
#include "engine/draft/registry.h"
#include "engine/draft/tree_levels.h"
#include "engine/formats/synthetic_model.h"
#include "engine/heads/artefact.h"

namespace draftscope {
namespace {

// Our choice: verifications of 2 to 32 rows and levels of 1 to 8, on a device up to 64 and 10.
constexpr TreeShape all_trees[] = {{0, 1, 2},  {1, 1, 3},  {1, 2, 4},  {1, 2, 6}, {1, 3, 8},
                                   {1, 4, 12}, {1, 4, 16}, {1, 6, 24}, {1, 8, 32}};
constexpr TreeShape device_trees[] = {{1, 8, 48}, {1, 10, 64}};
constexpr TreeShape some_trees[] = {{1, 1, 3}, {1, 4, 12}, {1, 8, 32}};
constexpr TreeShape head_trees[] = {{1, 1, 3}, {1, 4, 8}, {1, 8, 16}};
constexpr TreeShape chains[] = {{0, 1, 2}, {2, 1, 4}, {6, 1, 8}};
// Sessions are measured in so many turns, so that their repetitions lie apart in time; our default.
constexpr int visits = 3;

/// Returns the terms that a part's points can tell apart. Contexts of sessions that began alike differ by a
/// few tokens, which say nothing of long ones.
std::vector<CostTerm> terms_of(const PartCost& cost) {
    using enum CostTerm;
    double shortest = std::numeric_limits<double>::infinity(), longest = 0;
    for (const CostPoint& point : cost.curve.points) {
        shortest = std::min(shortest, point.at.context);
        longest = std::max(longest, point.at.context);
    }
    switch (cost.part) {
        case CostPart::overhead:
            return {fixed, sequence, row};
        case CostPart::head:
            if (cost.size_parameter.empty()) return {fixed, first_level, row, row_over_4};
            return {fixed, first_level, row, row_over_4, size, size_first_level, size_row};
        default:
            if (longest < 2 * shortest) return {fixed, sequence, row, row_over_4, row_over_16};
            return {fixed, sequence, row, row_over_4, row_over_16, cached, row_context};
    }
}

/// Returns the current clock of the fastest CPU in MHz; 0 = unknown.
double cpu_clock_mhz() {
    std::ifstream file("/proc/cpuinfo");
    double fastest = 0;
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("cpu MHz"))
            fastest = std::max(fastest, std::strtod(line.c_str() + line.find(':') + 1, nullptr));
    return fastest;
}

Result<ResolvedRun> resolve_profiled(const ProfileConfig& config, const std::string& drafter,
                                     const std::string& head) {
    RunConfig run = config.run;
    run.drafter = drafter;
    run.head = head;
    run.tree = "chain=1";
    run.prompt = "-";
    run.raw = true;
    DS_ASSIGN(const HeadSpec spec, parse_head_spec(head));
    std::erase_if(run.artefacts, [&](const std::string& artefact) { return !uses_artefact(spec, artefact); });
    return resolve_run(run);
}

/// Fills empty lists and checks the options.
Status complete(ProfileConfig& config) {
    if (config.out.empty()) return bad_input("--out: name the file to write");
    if (config.rounds < 1) return bad_input("--rounds {}: must be at least 1", config.rounds);
    if (config.drafters.empty()) config.drafters = {RunConfig().drafter, "ngram"};
    if (config.contexts.empty()) config.contexts = {64, 256, 1024};
    if (config.batches.empty()) config.batches = {1, 2, 4, 8};
    for (const int context : config.contexts)
        if (context < 1) return bad_input("--contexts {}: must be at least 1", context);
    for (const int batch : config.batches)
        if (batch < 1 || batch > max_batch)
            return bad_input("--batches {}: must be 1 to {}", batch, max_batch);
    std::ranges::sort(config.contexts);
    std::ranges::sort(config.batches);
    if (config.heads.empty())
        for (const HeadInfo& info : head_registry())
            if (!info.replay_only) config.heads.emplace_back(info.id);
    std::vector<HeadSpec> specs;
    for (const std::string& head : config.heads) {
        const HeadInfo* info = find_head(head);
        if (info == nullptr) return bad_input("--heads {}: unknown head", head);
        if (info->replay_only) return bad_input("--heads {}: needs a recorded text; leave it out", head);
        specs.push_back({head, {}});
    }
    DS_TRY(check_given_artefacts(config.run.artefacts));
    DS_TRY(check_artefacts_used(config.run.artefacts, specs));
    for (const std::string& drafter : config.drafters) {
        DS_TRY(resolve_profiled(config, drafter, std::string(full_head_id)));
        if (!pair_prefix(drafter).empty())
            return bad_input("--drafters {}: a pair has the costs of its drafters; name them instead",
                             drafter);
        if (!find_drafter(drafter_id(drafter))->drafts)
            return bad_input("--drafters {}: drafts nothing; it is always measured, leave it out", drafter);
    }
    return {};
}

/// Describes a profile without costs.
MachineProfile describe(const ProfileConfig& config, const ResolvedRun& run, ModelCache& models) {
    const Machine machine = models.machine();
    const Target& target = models.target();
    const kernels::Backend& backend = models.backend();
    const bool half = !backend.is_host() && backend.dtype() == kernels::Float16Kind::f16;
    MachineProfile profile;
    profile.path = config.out;
    profile.source = config.source;
    profile.note = config.note;
    profile.date = utc_text(utc_ns()).text;
    profile.cpu = machine.cpu_name;
    profile.isa = machine.isa;
    if (!backend.is_host()) profile.gpu = backend.info().name;
    profile.machine = !config.name.empty() ? config.name : !profile.gpu.empty() ? profile.gpu : profile.cpu;
    profile.threads = backend.pool().threads();
    profile.clock_mhz = cpu_clock_mhz();
    profile.read_gb_per_s = machine.read_gb_per_s;
    profile.backend = run.config.backend;
    profile.precision = half ? "f16" : std::string(kernels::to_text(target.precision()));
    profile.model = target.config().name;
    profile.vocab = target.config().vocab;
    profile.hidden = target.config().hidden;
    profile.layers = target.config().layers;
    profile.synthetic = is_synthetic_model(run.config.model);
    profile.complete = false;
    return profile;
}

/// Takes over what the profile's file holds, if it describes the same measurement.
Status resume(MachineProfile& profile) {
    const std::string& out = profile.path;
    DS_ASSIGN(MachineProfile found, read_profile(out));
    if (found.kind != ProfileKind::measured)
        return bad_input("--out {}: is no measured profile; name another file", out);
    DS_TRY(check_profile(found, {profile.backend, profile.precision, profile.vocab}));
    const auto same = [&](std::string_view field, auto MachineProfile::*member) -> Status {
        if (found.*member == profile.*member) return {};
        return bad_input("--out {}: its {} is {}, this measurement's is {}; name another file", out, field,
                         found.*member, profile.*member);
    };
    DS_TRY(same("model", &MachineProfile::model));
    DS_TRY(same("hidden", &MachineProfile::hidden));
    DS_TRY(same("machine", &MachineProfile::machine));
    DS_TRY(same("isa", &MachineProfile::isa));
    DS_TRY(same("threads", &MachineProfile::threads));
    DS_TRY(same("source", &MachineProfile::source));
    if (found.controls.size() != found.sessions.size())
        return bad_input("--out {}: was measured without a control; name another file", out);
    profile.costs = std::move(found.costs);
    profile.other_load = found.other_load;
    profile.sessions = std::move(found.sessions);
    profile.controls = std::move(found.controls);
    if (profile.note.empty()) profile.note = found.note;
    return {};
}

/// Returns the trees whose parts are measured. The first sessions have more of them.
std::vector<TreeSpec> measured_trees(bool chains_only, bool first, bool device) {
    std::vector<TreeSpec> out;
    const auto add = [&](std::span<const TreeShape> list) {
        for (const TreeShape& tree : list) out.push_back(to_tree_spec(tree));
    };
    if (chains_only)
        add(chains);
    else if (!first)
        add(some_trees);
    else
        add(all_trees);
    if (!chains_only && first && device) add(device_trees);
    return out;
}

bool is_shared(CostPart part) {
    return part == CostPart::verify || part == CostPart::overhead;
}

/// Measures a profile, drafter by drafter.
class Profiler {
  public:
    Profiler(const ProfileConfig& config, const JobHooks& hooks) : config_(config), hooks_(hooks) {}

    Result<MachineProfile> run() {
        DS_TRY(complete(config_));
        for (drafter_ = 0; drafter_ < config_.drafters.size() && !hooks_.is_cancelled(); ++drafter_) {
            DS_TRY(load());
            if (plain_ == nullptr) DS_TRY(begin());
            const Status measured = measure_drafter();
            if (!measured.ok() && measured.error().kind != ErrorKind::cancelled) return measured.error();
        }
        if (plain_ == nullptr) return Error{ErrorKind::cancelled, "stopped before the first measurement"};
        profile_.complete = !hooks_.is_cancelled();
        DS_TRY(save());
        return std::move(profile_);
    }

  private:
    Status load() {
        DS_ASSIGN(run_, resolve_profiled(config_, config_.drafters[drafter_], std::string(full_head_id)));
        return models_.load(run_, hooks_);
    }

    /// Describes the profile, continues the file if it exists, and checks that it can be written.
    Status begin() {
        profile_ = describe(config_, run_, models_);
        DS_ASSIGN(ControlPass control, ControlPass::make(models_.target(), models_.backend()));
        control_.emplace(std::move(control));
        DS_ASSIGN(plain_, make_drafter(std::string(plain_drafter), "", models_.target(), models_.backend()));
        std::error_code error;
        if (std::filesystem::exists(config_.out, error)) DS_TRY(resume(profile_));
        fitted_ = profile_.sessions.size();
        return save();
    }

    Status save() {
        if (fitted_ != profile_.sessions.size())
            for (PartCost& cost : profile_.costs) cost.curve = fit_curve(terms_of(cost), cost.curve.points);
        fitted_ = profile_.sessions.size();
        return write_profile(profile_);
    }

    Status measure_drafter() {
        const bool uses_head = models_.drafter().uses_head();
        done_ = 0;
        planned_ = visits * (static_cast<double>(all_size()) + (uses_head ? head_sessions() : 0));
        for (visit_ = 0; visit_ < visits; ++visit_)
            for (const int context : config_.contexts)
                for (const int batch : config_.batches)
                    // Batches are measured at one context.
                    if (batch == config_.batches.front() || context == config_.contexts.front())
                        DS_TRY(measure_trees(context, batch));
        for (const std::string& head : config_.heads)
            if (uses_head && !is_full_head(head)) DS_TRY(measure_head(*find_head(head)));
        return {};
    }

    Status measure_trees(int context, int batch) {
        if (drafter_ == 0) DS_TRY(measure_plain(context, batch));
        // Prompt lookup seldom drafts for all sequences at once.
        const bool chains_only = find_drafter(run_.drafter_id)->chains_only;
        if (batch > 1 && chains_only) return {};
        const bool first = drafter_ == 0 && context == config_.contexts.front() && batch == 1;
        for (const TreeSpec& tree : measured_trees(chains_only, first, !models_.backend().is_host()))
            DS_TRY(measure({tree, context, batch, rounds()}, {}, {}));
        return {};
    }
    /// Returns the counted steps of a visit.
    int rounds() const { return (config_.rounds + visits - 1) / visits; }
    std::size_t all_size() const {
        return (config_.contexts.size() + config_.batches.size()) * std::size(all_trees);
    }
    double head_sessions() const {
        return static_cast<double>(config_.heads.size() * std::size(head_trees) *
                                   HeadSizeParam().values.size());
    }

    Status measure_plain(int context, int batch) {
        const ProfileSession session{to_tree_spec({0, 1, 1}), context, batch, rounds()};
        DS_ASSIGN(const auto times,
                  times_of(fmt::format("{} context={} batch={}", plain_drafter, context, batch),
                           {models_.target(), *plain_, nullptr, models_.backend(), *control_}, session));
        for (const PartPoint& one : times.points)
            if (is_shared(one.part)) add(one, "", {}, {});
        return times.points.empty() ? Status() : save();
    }

    /// Measures every size of a head, or that of its weights if they allow no other size.
    Status measure_head(const HeadInfo& info) {
        const ModelConfig& target = models_.target().config();
        const kernels::Matrix* own = models_.drafter().properties().lm_head;
        bool any = false;
        for (const SizedHead& head :
             sized_heads(info, target.vocab, own != nullptr ? own->k() : target.hidden)) {
            const Status measured = measure_sized(info, head);
            if (!measured.ok() && measured.error().kind != ErrorKind::bad_input) return measured;
            any = any || measured.ok();
        }
        if (any) return {};
        const HeadSpec spec{std::string(info.id), {}};
        const Status measured = measure_sized(info, {spec, size_of_weights(spec)});
        if (measured.ok() || measured.error().kind != ErrorKind::bad_input) return measured;
        skip(fmt::format("{}: {}", info.id, measured.error().message));
        return {};
    }
    void skip(std::string reason) {
        if (std::ranges::find(profile_.skipped, reason) == profile_.skipped.end())
            profile_.skipped.push_back(std::move(reason));
    }

    /// Returns the size that a head's weights were fitted for; 0 = unknown.
    double size_of_weights(const HeadSpec& spec) const {
        const auto resolved = resolve_profiled(config_, config_.drafters[drafter_], to_text(spec));
        return resolved.ok() ? std::strtod(fitted_size(spec, resolved->artefacts).c_str(), nullptr) : 0;
    }

    Status measure_sized(const HeadInfo& info, const SizedHead& head) {
        DS_ASSIGN(const ResolvedRun resolved,
                  resolve_profiled(config_, config_.drafters[drafter_], to_text(head.spec)));
        if (resolved.drafter_path != run_.drafter_path)
            return bad_input("its weights belong to another drafter, {}", resolved.drafter_path);
        DS_TRY(models_.load_heads(resolved));
        const bool reads_prompt = models_.head()->target_tokens().at_prompt > 0;
        const int context = reads_prompt ? largest_context() : config_.contexts.front();
        for (visit_ = 0; visit_ < visits; ++visit_)
            for (const TreeShape& tree : head_trees)
                DS_TRY(measure({to_tree_spec(tree), context, 1, rounds()}, head, info.size));
        return {};
    }
    int largest_context() const {
        int largest = config_.contexts.front();
        for (const int context : config_.contexts)
            if (fits({to_tree_spec(head_trees[2]), context, 1, rounds()})) largest = context;
        return largest;
    }
    bool fits(const ProfileSession& session) const {
        return positions_needed(session) <= models_.target().config().context;
    }

    /// Measures a session with the loaded head. `head` without an id is the full head.
    Status measure(const ProfileSession& session, const SizedHead& head, const HeadSizeParam& param) {
        const bool full = head.spec.id.empty();
        const std::string text = full ? std::string(full_head_id) : to_text(head.spec);
        const std::string drafter = cost_name(config_.drafters[drafter_]);
        const std::string key =
            fmt::format("{} {} {} context={} batch={}", drafter, models_.head() != nullptr ? text : "-",
                        to_text(session.tree), session.context, session.batch);
        DS_ASSIGN(
            const auto times,
            times_of(key, {models_.target(), models_.drafter(), models_.head(), models_.backend(), *control_},
                     session));
        const std::string id = full ? text : head.spec.id;
        for (PartPoint one : times.points) {
            const bool of_head = one.part == CostPart::head;
            if (is_shared(one.part) ? drafter_ > 0 || !full : !full && !of_head) continue;
            if (of_head)
                one.point.at.size = param.max_rows ? std::min(head.size, times.active_rows) : head.size;
            add(one, is_shared(one.part) ? "" : drafter, of_head ? id : "",
                of_head && head.size > 0 ? param.name : "");
            // The catch-up of a language model is such a pass, of a row or two.
            if (one.part != CostPart::level || find_drafter(run_.drafter_id)->trains_heads) continue;
            one.part = CostPart::catch_up;
            add(one, drafter, "", "");
        }
        return times.points.empty() ? Status() : save();
    }

    void add(const PartPoint& one, std::string_view drafter, std::string_view head, std::string_view size) {
        PartCost* cost = nullptr;
        for (PartCost& known : profile_.costs)
            if (known.part == one.part && known.drafter == drafter && known.head == head) cost = &known;
        if (cost == nullptr) {
            profile_.costs.push_back(
                {one.part, std::string(drafter), std::string(head), std::string(size), {}});
            cost = &profile_.costs.back();
        }
        cost->curve.points.push_back(one.point);
        cost->curve.points.back().ms *= profile_.control_ms();
    }

    /// Times a session that the file lacks. No points if the file has it or it does not fit the context.
    Result<SessionTimes> times_of(const std::string& key, const ProfileModels& models,
                                  const ProfileSession& session) {
        const double share = 1.0 / static_cast<double>(config_.drafters.size());
        const double part = std::min(1.0, ++done_ / planned_);
        hooks_.report((static_cast<double>(drafter_) + part) * share, key);
        const auto& known = profile_.sessions;
        if (hooks_.is_cancelled()) return Error{ErrorKind::cancelled, "stopped while measuring"};
        const std::string visit = fmt::format("{} visit={}", key, visit_ + 1);
        if (std::find(known.begin(), known.end(), visit) != known.end()) return SessionTimes();
        if (!fits(session)) {
            skip(fmt::format("{}: needs {} positions of the context, which has {}", key,
                             positions_needed(session), models.target.config().context));
            return SessionTimes();
        }
        const OtherLoad load;
        DS_ASSIGN(SessionTimes times, time_session(models, session, hooks_));
        if (times.points.empty()) {
            skip(fmt::format("{}: too few rounds drafted the whole tree", key));
            return times;
        }
        profile_.sessions.push_back(visit);
        const auto sessions = static_cast<double>(known.size());
        profile_.other_load += (load.cpus() - profile_.other_load) / sessions;
        add_control(times.control_ms);
        return times;
    }

    /// Adds the control of a session, and scales the points so far to the new median.
    void add_control(double ms) {
        const double former = profile_.control_ms();
        profile_.controls.push_back(ms);
        const double scale = profile_.control_ms() / former;  // without a former control there are no points
        for (PartCost& cost : profile_.costs)
            for (CostPoint& point : cost.curve.points) point.ms *= scale;
    }

    ProfileConfig config_;
    const JobHooks& hooks_;
    ModelCache models_;
    ResolvedRun run_;  ///< of the drafter in turn, with the full head
    std::unique_ptr<Drafter> plain_;
    std::optional<ControlPass> control_;
    MachineProfile profile_;
    std::size_t drafter_ = 0;
    int visit_ = 0;
    std::size_t fitted_ = 0;         ///< sessions that the curves are fitted to
    double done_ = 0, planned_ = 1;  ///< sessions of the drafter in turn
};

}  // namespace

Result<MachineProfile> run_profile(const ProfileConfig& config, const JobHooks& hooks) {
    return Profiler(config, hooks).run();
}

std::vector<SizedHead> sized_heads(const HeadInfo& info, int vocab, int hidden) {
    std::vector<SizedHead> heads;
    const HeadSizeParam& param = info.size;
    const double unit = param.unit == HeadSizeParam::Unit::vocab    ? vocab
                        : param.unit == HeadSizeParam::Unit::hidden ? hidden
                                                                    : 1;
    for (const double value : param.values) {
        const int size = static_cast<int>(value * unit);
        if (param.name.empty() || size < 1) continue;
        HeadSpec spec{std::string(info.id), {}};
        spec.params[std::string(param.name)] = std::to_string(size);
        heads.push_back({std::move(spec), static_cast<double>(size)});
    }
    return heads;
}

std::string cost_name(std::string_view drafter) {
    const std::string_view id = drafter_id(drafter);
    const DrafterInfo info = drafter_traits(id);
    if (info.trains_heads || id.size() == drafter.size()) return std::string(id);
    const std::string text(drafter.substr(id.size() + 1));
    const std::string path = parse_drafter_path(text, info.options);
    const std::string name = std::filesystem::path(path).lexically_normal().filename().string();
    const std::string options = text.substr(path.size());
    return fmt::format("{}:{}{}", id, name.empty() ? path : name,
                       options == ",precision=auto" ? "" : options);
}

Result<StepSetting> to_step_setting(const std::string& method, double committed, double context, int batch) {
    DS_ASSIGN(const BenchMethod parsed, parse_bench_method(method, RunConfig()));
    StepSetting setting;
    setting.drafter = cost_name(parsed.drafter);
    setting.committed = committed;
    setting.context = context;
    setting.batch = batch;
    DS_ASSIGN(const HeadSpec head, parse_head_spec(parsed.head));
    setting.head = head.id;
    if (const HeadInfo* info = find_head(head.id); info != nullptr && !info->size.name.empty()) {
        setting.head_size = default_size(*info);
        if (const auto given = head.params.find(info->size.name); given != head.params.end())
            setting.head_size = std::strtod(given->second.c_str(), nullptr);
    }
    const DrafterInfo drafter = drafter_traits(parsed.drafter);
    if (!drafter.drafts) return setting;
    if (parsed.tree.empty()) return bad_input("{}: names no tree; add \" @ TREE\"", method);
    DS_ASSIGN(const TreeSpec tree, parse_tree_spec(parsed.tree));
    if (tree.adaptive)
        return bad_input("{}: the cost of an adaptive length depends on the text; give chain=N", method);
    for (int level = 0; level < tree.levels(); ++level) setting.level_rows.push_back(width_at(tree, level));
    setting.nodes = tree.nodes;
    if (drafter.chains_only) {
        setting.level_rows.assign(tree.levels(), 1);
        setting.nodes = std::min(tree.levels(), tree.nodes - 1) + 1;
    }
    // The cache of a language model keeps accepted drafts: a root, and the last level's node if all were
    // accepted.
    if (!drafter.trains_heads)
        setting.catch_up =
            1 + std::min(1.0, (committed - 1) / static_cast<double>(setting.level_rows.size()));
    return setting;
}

Result<StepCost> predict_method(const MachineProfile& profile, const std::string& method, double committed,
                                double context, int batch) {
    DS_ASSIGN(const StepSetting setting, to_step_setting(method, committed, context, batch));
    return step_cost(profile, setting);
}

}  // namespace draftscope
