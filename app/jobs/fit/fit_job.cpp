#include "app/jobs/fit/fit_job.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/jobs/fit/own_run.h"
#include "app/jobs/fit/ranking_fit.h"
#include "app/jobs/fit/torch.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/resolve/run_weights.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/did_you_mean.h"
#include "base/parse.h"
#include "engine/draft/drafter.h"
#include "engine/draft/drafter_files.h"
#include "engine/draft/registry.h"
#include "engine/fit/recording_texts.h"
#include "engine/formats/model_file.h"
#include "engine/heads/artefact.h"
#include "engine/heads/bcl.h"
#include "engine/heads/head_common.h"
#include "engine/heads/registry.h"
#include "engine/heads/static_vocab.h"
#include "engine/recording/recorded_target.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

/// Requires a head that check_config() accepted.
const FitRecipe& fit_recipe(const FitConfig& config) {
    return find_head_or_suffix(config.head)->fit;
}

/// A folder that is written under a temporary name and renamed when complete.
class StagedFolder {
  public:
    explicit StagedFolder(std::string path) : path_(std::move(path)), staged_(path_ + ".part") {}
    ~StagedFolder() {
        std::error_code ignored;
        fs::remove_all(staged_, ignored);
    }
    const std::string& staged() const { return staged_; }
    Status make() {
        std::error_code error;
        fs::remove_all(staged_, error);
        if (!fs::create_directories(staged_, error)) return failed("{}: cannot be created", staged_);
        return {};
    }
    Status commit() {
        std::error_code error;
        fs::remove_all(path_, error);
        fs::rename(staged_, path_, error);
        if (error) return failed("{}: {}", path_, error.message());
        return {};
    }

  private:
    std::string path_, staged_;
};

/// Data and models that a fit of weights needs.
struct FitData {
    fit::Recordings recordings;
    RecordedTarget described;  ///< the target, also if a draft model made the recording
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<Target> target;
    std::unique_ptr<Drafter> drafter;
    std::string drafter_path;
    TreeSpec tree;
    HeadWeights weights;
    fit::Ranking ranking;
    std::optional<HeadArtefact> start;

    const DecodeRecording& first() const { return *recordings.front(); }
};

/// Returns an error if the drafter's heads cannot be fitted. Those of a language model are not trained.
Status check_drafter(const FitConfig& config, const FitRecipe& recipe) {
    const std::string_view id = drafter_id(config.drafter);
    if (drafter_traits(id).trains_heads) {
        if (config.own_run.prompts_file.empty()) return {};
        return bad_input("--prompts: drafter {} cannot answer by itself; give --recording FOLDER", id);
    }
    const bool trains = recipe.has(FitRecipe::routers | FitRecipe::trimmed_rows) || config.joint ||
                        (config.must_train && config.options.kl.epochs > 0);
    if (!trains || recipe.has(FitRecipe::raw_text)) return {};
    return bad_input(
        "fit {}: trains, which this version does only for drafters of the target's hidden states, not for "
        "--drafter {}; fit slimspec, specvocab or a ranking without training options",
        config.head, id);
}

Status check_config(const FitConfig& config) {
    if (config.out.empty()) return bad_input("--out: name the file to write");
    std::error_code error;
    if (!config.overwrite && fs::exists(config.out, error))
        return bad_input("--out {}: already exists; remove it or add --overwrite", config.out);
    const fs::path folder = fs::path(config.out).parent_path();
    if (!folder.empty() && !fs::is_directory(folder, error))
        return bad_input("--out {}: folder {} does not exist; create it first", config.out, folder.string());
    const HeadInfo* head = find_head_or_suffix(config.head);
    if (head == nullptr || !head->fit.has(FitRecipe::any)) {
        const bool needs_none = head != nullptr;
        const auto known = heads_fitted_by(FitRecipe::any);
        return bad_input("fit {}: {}; heads that are fitted: {}{}", config.head,
                         needs_none ? "this head needs no weights file" : "unknown head",
                         fmt::join(known, ", "),
                         needs_none ? std::string() : did_you_mean(config.head, known));
    }
    if (head->fit.has(FitRecipe::raw_text)) {
        if (config.text.empty())
            return bad_input("fit {}: ranks the tokens of raw text; give --text FILE", config.head);
        if (!fs::is_regular_file(config.text, error))
            return bad_input("--text {}: no such file", config.text);
    } else if (config.recordings.empty() && config.own_run.prompts_file.empty()) {
        return bad_input("fit {}: give --recording FOLDER; draftscope record writes one", config.head);
    }
    DS_TRY(check_drafter(config, head->fit));
    if (config.joint && !head->fit.has(FitRecipe::by_divergence))
        return bad_input("fit {}: --joint trains only {}", config.head,
                         fmt::join(heads_fitted_by(FitRecipe::by_divergence), ", "));
    if (config.options.kl.epochs < 0 || config.options.kl.epochs > 1000)
        return bad_input("--epochs {}: must be 0 to 1000 (0 = the closed form)", config.options.kl.epochs);
    if (config.options.collect.anchors < 2)
        return bad_input("--rounds {}: must be at least 2", config.options.collect.anchors);
    return {};
}

Result<std::vector<int>> parse_ranks(const std::string& text) {
    if (text.empty()) return std::vector<int>();
    auto ranks = parse_numbers(text, '/', 1, std::numeric_limits<int>::max());
    if (!ranks) return bad_input("--rank {}: expected a whole number, or one per level as in 72/36", text);
    return std::move(*ranks);
}

/// Returns the run config whose defaults, files and checks this fit shares.
RunConfig make_run_config(const FitConfig& config, const DecodeRecording& recording) {
    RunConfig run;
    run.model = config.model;
    if (run.model.empty() && !recording.weights_path().empty()) run.model = recording.folder();
    run.drafter = config.drafter;
    run.tree = config.tree;
    run.precision = config.precision;
    run.threads = config.threads;
    run.prompt = "fit";
    return run;
}

/// Loads the ranking or counts it without the held-out texts, on which the report measures coverage.
Result<fit::Ranking> load_or_count(const FitConfig& config, const FitData& fit_data) {
    const int tokens = fit_data.described.tokens;
    if (config.ranking.empty())
        return count_recordings(fit_data.recordings, tokens, config.options.collect.hold_out)
            .learnt.ranking();
    fit::Ranking ranking;
    DS_ASSIGN(const auto ids, load_ranking(config.ranking, config.head));
    for (const TokenId id : ids) {
        if (id >= tokens)
            return bad_input("--ranking {}: names token {}, the target has {}", config.ranking, id, tokens);
        ranking.ids.push_back(id);
    }
    return ranking;
}

/// Sets the target that the weights file is for, if the recording lacks the tokenizer hash that runs check.
Status complete_target(const std::string& model, HeadWeights& weights) {
    if (weights.tokenizer != 0 || model.empty()) return {};
    DS_ASSIGN(const ModelFile file, open_model_file(model));
    if (file.tokenizer == nullptr) return {};
    weights.target = file.config.name;
    weights.tokenizer = file.tokenizer->fingerprint();
    return {};
}

/// Loads the target's embedding and LM head, the drafter, the ranking and the weights that prepare() needs.
Status load(const FitConfig& config, const JobHooks& hooks, FitData& fit_data, FitReport& report) {
    const RecordingInfo& info = fit_data.first().info();
    DS_ASSIGN(const ResolvedRun run, resolve_run(make_run_config(config, fit_data.first())));
    if (!run.pair.empty())
        return bad_input("--drafter {}: heads are fitted for one drafter; use --drafter {}",
                         run.drafter_name(), run.drafter_id);
    const kernels::Precision precision =
        run.precision ? *run.precision
                      : kernels::precision_from(info.precision).value_or(kernels::Precision::bf16);
    hooks.report(-1, "packing the LM head");
    const bool own_run = !config.own_run.prompts_file.empty();
    std::string model = fit_data.first().weights_path().empty() ? run.config.model : config.model;
    if (own_run) model = parse_drafter_path(run.drafter_path);
    DS_ASSIGN(fit_data.target, make_recorded_target(fit_data.first(), model, *fit_data.backend, precision));
    hooks.report(-1, "loading drafter " + run.drafter_id);
    DS_ASSIGN(fit_data.drafter, load_drafter(run, *fit_data.target, *fit_data.backend));
    report.file_notes = run.notes;
    append_notes(report.file_notes, fit_data.drafter->properties().notes);
    say_notes(report.file_notes);
    DS_TRY(check_tree(*fit_data.drafter, run.tree));
    if (!fit_data.drafter->uses_head())
        return bad_input("--drafter {}: has no LM head to fit", run.drafter_id);
    HeadWeights& weights = fit_data.weights;
    weights = with_ends(head_weights(run, *fit_data.drafter, *fit_data.target, fit_data.described),
                        config.eos == "yes");
    DS_TRY(complete_target(model, weights));
    DS_ASSIGN(weights.drafter_hash, checkpoint_hash(parse_drafter_path(run.drafter_path)));
    DS_ASSIGN(fit_data.ranking, load_or_count(config, fit_data));
    if (!config.start.empty()) {
        DS_ASSIGN(fit_data.start, HeadArtefact::open(config.start, config.head));
    }
    fit_data.tree = run.tree;
    // A state of a language model depends on its text alone, so deeper levels show no others.
    if (config.tree.empty() && !find_drafter(run.drafter_id)->trains_heads) fit_data.tree = {0, 4, 5};
    fit_data.drafter_path = run.drafter_path;
    report.target = weights.target;
    report.drafter = run.drafter_id;
    return {};
}

std::string to_json(const fit::Report& held_out, const fit::Report& notes) {
    nlohmann::json document = held_out;
    document["fit"] = notes;
    return document.dump();
}

/// Prompts of the recordings and of the weights that the fit went on from.
std::vector<std::string> prompts_seen(const FitData& fit_data) {
    std::vector<std::string> hashes;
    if (fit_data.start) hashes = fit_data.start->info().prompts;
    for (const auto& recording : fit_data.recordings)
        for (const RecordedPrompt& prompt : recording->prompts())
            if (!prompt.hash.empty()) hashes.push_back(prompt.hash);
    std::sort(hashes.begin(), hashes.end());
    hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
    return hashes;
}

Status write_artefact(const FitConfig& config, const FitData& fit_data, const fit::FittedHead& fitted,
                      const std::string& trained_drafter) {
    ArtefactInfo info;
    info.head = config.head;
    info.target = fit_data.weights.target;
    info.tokenizer = fit_data.weights.tokenizer;
    info.drafter = fit_data.weights.drafter;
    info.drafter_hash = fit_data.weights.drafter_hash;
    info.vocab = fit_data.weights.vocab;
    info.hidden = fit_data.weights.hidden;
    info.parameters = fitted.parameters;
    if (!trained_drafter.empty()) {
        info.joint = true;
        info.drafter_weights = fs::path(trained_drafter).filename().string();
        DS_ASSIGN(info.drafter_hash, checkpoint_hash(trained_drafter));
    }
    // An affinity between the target's LM head rows depends on neither drafter nor text.
    const bool target_only = fit_recipe(config).has(FitRecipe::affinity) && fit_data.weights.row_ids.empty();
    if (target_only) {
        info.drafter.clear();
        info.drafter_hash.clear();
    } else {
        info.prompts = prompts_seen(fit_data);
    }
    info.report = to_json(fitted.report, fitted.notes);
    return save_artefact(config.out, info, fit::views(fitted.tensors));
}

/// Returns BCL's exact size for this drafter. The paper counts two FLOPs per weight of the backbone and of a
/// kept row.
int compute_bcl_size(const FitData& fit_data, const fit::Ranking& ranking, double alpha) {
    const HeadWeights& weights = fit_data.weights;
    const double row_bytes = static_cast<double>(weights.lm_head->bytes()) / weights.lm_head->n();
    const double weight_bytes = row_bytes / weights.lm_head->k();
    const DraftPassCost cost{2 * weights.drafter_bytes / weight_bytes, 2.0 * weights.lm_head->k()};
    const std::vector<std::int64_t> counts(ranking.counts.begin(), ranking.counts.end());
    const int smallest = std::max<int>(1, static_cast<int>(weights.always_active.size()));
    return solve_bcl_size(counts, smallest, weights.vocab, cost, alpha);
}

std::string recording_names(const FitConfig& config) {
    std::string names;
    for (const std::string& recording : config.recordings)
        names += (names.empty() ? "" : ", ") + fs::path(recording).filename().string();
    return names;
}

/// VocabTrim and post-hoc BCL: ranks tokens by counts over the target's generations; for BCL also computes
/// the exact size.
Status fit_generation_ranking(const FitConfig& config, const JobHooks& hooks, FitData& fit_data,
                              FitReport& report) {
    const RecordedTarget& target = fit_data.described;
    const TextCounts counts =
        count_recordings(fit_data.recordings, target.tokens, config.options.collect.hold_out);
    const fit::Ranking ranking = counts.all.ranking();
    if (ranking.tokens == 0)
        return bad_input("{}: the recording contains no generated tokens", fit_data.first().folder());
    describe_ranking(ranking, counts, report);
    if (fit_recipe(config).has(FitRecipe::alpha_rows)) {
        DS_TRY(load(config, hooks, fit_data, report));
        const int size = compute_bcl_size(fit_data, ranking, config.options.alpha);
        report.notes["size"] = size;
        report.notes["coverage_at_size"] = fit::ranking_coverage(ranking, size, ranking);
        if (const fit::Ranking held_out = counts.held_out.ranking(); held_out.tokens > 0)
            report.held_out["coverage_at_size"] =
                fit::ranking_coverage(counts.learnt.ranking(), size, held_out);
    }
    report.target = target.name;
    const std::string source = config.own_run.prompts_file.empty()
                                   ? "generations of the target, trace " + recording_names(config)
                                   : "generations of the draft model for " +
                                         fs::path(config.own_run.prompts_file).filename().string();
    return write_ranking(config, ranking, target.name, target.tokenizer_hash, source);
}

/// Returns the folder of the jointly trained drafter: `out` without its ending, plus ".drafter".
std::string trained_drafter_path(const std::string& out) {
    return (fs::path(out).parent_path() / (fs::path(out).stem().string() + ".drafter")).string();
}

/// Fits a head and trains its drafter with it.
Result<fit::FittedHead> fit_with_drafter(const FitConfig& config, const fit::FitOptions& options,
                                         fit::FitInputs inputs, const JobHooks& hooks,
                                         const FitData& fit_data) {
    const std::string path = trained_drafter_path(config.out);
    std::error_code error;
    if (!config.overwrite && fs::exists(path, error))
        return bad_input("--out {}: its drafter's folder {} already exists; remove it or add --overwrite",
                         config.out, path);
    const std::string& id = fit_data.weights.drafter;
    DS_ASSIGN(EagleCheckpoint checkpoint,
              fit::open_joint_drafter(id, fit_data.drafter_path, *fit_data.target));
    StagedFolder folder(path);
    DS_TRY(folder.make());
    fit::JointFit joint{checkpoint, *fit_data.target, config.joint_options, {}, folder.staged(), {}};
    joint.options.steps = options.collect.text_levels;
    joint.options.seed = options.kl.seed;
    joint.options.lambda = fit_recipe(config).has(FitRecipe::own_loss) ? config.lambda : 0.0;
    for (const auto& recording : fit_data.recordings) joint.recordings.push_back(recording->folder());
    const std::string from = parse_drafter_path(fit_data.drafter_path);
    joint.reload = [&]() -> Result<std::unique_ptr<Drafter>> {
        fs::copy_file(fs::path(from) / "config.json", fs::path(folder.staged()) / "config.json", error);
        if (error) return failed("{}: {}", folder.staged(), error.message());
        return make_drafter(id + ":" + folder.staged() + fit_data.drafter_path.substr(from.size()), "",
                            *fit_data.target, *fit_data.backend);
    };
    inputs.joint = &joint;
    DS_ASSIGN(fit::FittedHead fitted, fit::fit_head(inputs, options, hooks));
    if (joint.options.lambda > 0) fitted.notes["lambda"] = joint.options.lambda;
    DS_TRY(hooks.check());
    DS_TRY(folder.commit());
    return fitted;
}

/// Finds PyTorch if the fit trains. Without it, a low-rank head whose training was not asked for stops at
/// the closed form.
Result<std::optional<Torch>> torch_for(const FitConfig& config, FitReport& report) {
    const FitRecipe& recipe = fit_recipe(config);
    const bool trains = recipe.has(FitRecipe::routers) || config.joint ||
                        (recipe.has(FitRecipe::by_divergence) && config.options.kl.epochs > 0 &&
                         (config.weights || !recipe.has(FitRecipe::alpha_rows)));
    if (!trains) return std::optional<Torch>();
    if (!drafter_traits(drafter_id(config.drafter)).trains_heads) {
        report.remark =
            fmt::format("this is the closed form: heads of a {} are not trained", drafter_id(config.drafter));
        return std::optional<Torch>();
    }
    auto torch = find_torch(config.python);
    if (torch.ok()) return std::optional<Torch>(*torch);
    const std::string& problem = torch.error().message;
    if (config.must_train || !recipe.has(FitRecipe::low_rank))
        return bad_input("fit {}: trains with PyTorch, but {}", config.head, problem);
    report.remark = fmt::format("this is the closed form, without training: {}", problem);
    return std::optional<Torch>();
}

Status fit_weights(const FitConfig& config, const std::optional<Torch>& torch, const JobHooks& hooks,
                   FitData& fit_data, FitReport& report) {
    fit::FitOptions options = config.options;
    options.head = config.head;
    DS_ASSIGN(options.ranks, parse_ranks(config.rank));
    DS_TRY(load(config, hooks, fit_data, report));
    options.collect.tree = fit_data.tree;
    options.collect.text_levels = fit_data.tree.levels();
    options.train = torch.has_value();
    if (fit_recipe(config).has(FitRecipe::alpha_rows)) {
        const TextCounts counts =
            count_recordings(fit_data.recordings, fit_data.described.tokens, options.collect.hold_out);
        options.v = compute_bcl_size(fit_data, counts.all.ranking(), options.alpha);
    }
    DS_ASSIGN(const auto texts,
              fit::make_recording_texts(fit_data.recordings, fit_data.drafter->aux_layers()));
    const int positions = fit_data.drafter->properties().positions;
    const int context = fit_data.first().info().target.context;
    fit::FitInputs inputs{*fit_data.backend,
                          fit_data.drafter.get(),
                          fit_data.weights,
                          fit_data.target->lm_head(),
                          positions > 0 ? std::min(positions, context) : context,
                          texts.get(),
                          {},
                          {}};
    inputs.ranking.assign(fit_data.ranking.ids.begin(), fit_data.ranking.ids.end());
    inputs.start = fit_data.start ? &*fit_data.start : nullptr;
    if (torch)
        inputs.train = [&](const fit::TrainingData& data) {
            return train_with_torch(*torch, {config.out + ".training", config.device, config.threads}, data,
                                    hooks);
        };
    DS_ASSIGN(const fit::FittedHead fitted, config.joint
                                                ? fit_with_drafter(config, options, inputs, hooks, fit_data)
                                                : fit::fit_head(inputs, options, hooks));
    DS_TRY(hooks.check());
    report.joint = config.joint;
    report.parameters = fitted.parameters;
    report.held_out = fitted.report;
    report.notes = fitted.notes;
    if (const auto rows = fitted.notes.find("text_rows");
        !torch && rows != fitted.notes.end() && rows->second < fit_data.weights.hidden) {
        add_note(report.file_notes,
                 "fit {}: {} rows of text span less than the head's width of {}; give more text", config.head,
                 rows->second, fit_data.weights.hidden);
        say_notes(report.file_notes);
    }
    return write_artefact(config, fit_data, fitted, config.joint ? trained_drafter_path(config.out) : "");
}

}  // namespace

Result<FitReport> run_fit(const FitConfig& config, const JobHooks& hooks) {
    DS_TRY(check_config(config));
    const TimeNs start = monotonic_ns();
    FitReport report;
    report.head = config.head;
    report.out = config.out;
    const FitRecipe& recipe = fit_recipe(config);
    if (recipe.has(FitRecipe::raw_text)) {
        DS_TRY(fit_text_ranking(config, hooks, report));
    } else {
        FitData fit_data;
        say_notes(thread_limit_notes(config.threads));
        fit_data.backend = kernels::make_cpu_backend(threads_or_default(config.threads));
        StagedFolder own_run(config.out + ".recording");
        std::vector<std::string> folders = config.recordings;
        if (!config.own_run.prompts_file.empty()) {
            folders = {own_run.staged()};
            DS_ASSIGN(fit_data.described, record_own_run(config, own_run.staged(), hooks));
        }
        DS_ASSIGN(fit_data.recordings, fit::open_recordings(folders));
        if (!config.recordings.empty()) fit_data.described = fit_data.first().info().target;
        const bool ranking = recipe.has(FitRecipe::generations) && !config.joint && !config.weights;
        DS_ASSIGN(const std::optional<Torch> torch, torch_for(config, report));
        DS_TRY(ranking ? fit_generation_ranking(config, hooks, fit_data, report)
                       : fit_weights(config, torch, hooks, fit_data, report));
    }
    std::error_code ignored;
    report.bytes = fs::file_size(config.out, ignored);
    report.seconds = seconds(monotonic_ns() - start);
    return report;
}

}  // namespace draftscope
