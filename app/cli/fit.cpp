#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/cli.h"
#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/tables.h"
#include "app/cli/version.h"
#include "app/jobs/fit/fit_job.h"
#include "engine/heads/registry.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct FitArguments {
    FitConfig config;
    JobOutput output;
};

/// Returns the kind of fit. A ranking belongs to no drafter.
const char* fit_kind(const FitReport& done) {
    if (done.drafter.empty()) return "ranking";
    return done.joint ? "joint" : "post-hoc";
}

json fit_json(const FitReport& done) {
    return {{"version", version},        {"head", done.head},         {"target", done.target},
            {"drafter", done.drafter},   {"trained", fit_kind(done)}, {"artefact", done.out},
            {"bytes", done.bytes},       {"seconds", done.seconds},   {"parameters", done.parameters},
            {"held_out", done.held_out}, {"fit", done.notes},         {"remark", done.remark},
            {"notes", done.file_notes}};
}

/// Returns which direction of a fit's figure is better; "" for counts.
const char* meaning_of(const std::string& name) {
    if (name.starts_with("kl") || name.starts_with("loss")) return " (lower is better)";
    for (const char* share : {"hits", "top1", "recall", "coverage"})
        if (name.starts_with(share)) return " (at most 1, higher is better)";
    return name == "active" ? " (lower is cheaper)" : "";
}

/// Returns a table of figures; "" without figures.
std::string figures_text(const char* title, const fit::Report& figures) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, value] : figures)
        rows.push_back({name + meaning_of(name), fmt::format("{:.6g}", value)});
    return rows.empty() ? std::string() : "\n" + format_table({title, ""}, rows);
}

void print_fit(const FitReport& done) {
    std::string parameters;
    for (const auto& [name, value] : done.parameters) parameters += "  " + name + " " + value;
    print("{}{}{}{}  {}  {:.1f} MB in {:.1f} s\n", done.head, parameters,
          done.drafter.empty() ? "" : "  drafter ", done.drafter, fit_kind(done),
          static_cast<double>(done.bytes) / 1e6, done.seconds);
    print("{}{}", figures_text("held out", done.held_out), figures_text("fit", done.notes));
    print("\n{}\n", done.out);
    if (!done.remark.empty()) print("{}\n", done.remark);
}

Result<int> do_fit(const FitArguments& options) {
    return run_job(
        options.output, [&](const JobHooks& hooks, DebugGate&) { return run_fit(options.config, hooks); },
        fit_json, print_fit);
}

/// An option, and the kinds of recipes that use it.
struct OptionUse {
    const char* option;
    unsigned used_by;
};

constexpr OptionUse option_uses[] = {
    {"--rank", FitRecipe::low_rank},
    {"--per-level", FitRecipe::low_rank},
    {"--start", FitRecipe::low_rank},
    {"--vocabulary", FitRecipe::trimmed_rows},
    {"--int8", FitRecipe::by_divergence},
    {"--eos", FitRecipe::any_trimmed_rows | FitRecipe::routers},
    {"--alpha", FitRecipe::alpha_rows},
    {"--clusters", FitRecipe::clusters},
    {"--router-width", FitRecipe::clusters},
    {"--groups", FitRecipe::groups},
    {"--neighbours", FitRecipe::affinity},
    {"--keep", FitRecipe::affinity},
    {"--text", FitRecipe::raw_text},
    {"--ranking", FitRecipe::any_trimmed_rows | FitRecipe::groups},
    {"--label-topk", FitRecipe::routers},
    {"--epochs", FitRecipe::by_divergence},
    {"--rate", FitRecipe::by_divergence},
    {"--batch", FitRecipe::by_divergence},
    {"--level-decay", FitRecipe::by_divergence},
    {"--drafted-share", FitRecipe::by_divergence},
    {"--teacher", FitRecipe::by_divergence},
    {"--negatives", FitRecipe::by_divergence},
    {"--lambda", FitRecipe::own_loss},
    {"--rounds", FitRecipe::by_divergence | FitRecipe::routers},
    {"--drafted-every", FitRecipe::by_divergence | FitRecipe::routers},
    {"--tree", FitRecipe::by_divergence | FitRecipe::routers},
    {"--seed", FitRecipe::by_divergence | FitRecipe::routers},
    {"--drafter", FitRecipe::weights},
    {"--precision", FitRecipe::weights},
    {"--recording", FitRecipe::generations | FitRecipe::weights},
    {"--prompts", FitRecipe::generations | FitRecipe::weights},
    {"--model", FitRecipe::raw_text | FitRecipe::weights},
};

/// Returns the heads of these kinds of recipes: "slimspec, specvocab".
std::string head_names(unsigned kinds) {
    return fmt::format("{}", fmt::join(heads_fitted_by(kinds), ", "));
}

/// Rejects options that have no effect for this head, before the fit takes minutes.
Status check_used(const CLI::App& command, const std::string& head) {
    const HeadInfo* info = find_head_or_suffix(head);
    if (info == nullptr || !info->fit.has(FitRecipe::any)) return {};  // run_fit() reports the unknown head
    // A ranking belongs to no drafter, but a draft model can write its text.
    const auto writes_text = [&](std::string_view option) {
        return (option == "--drafter" || option == "--model") && command.get_option("--prompts")->count() > 0;
    };
    for (const OptionUse& use : option_uses)
        if (command.get_option(use.option)->count() > 0 && !info->fit.has(use.used_by) &&
            !writes_text(use.option))
            return bad_input("fit {}: {} has no effect; it is for {}", head, use.option,
                             head_names(use.used_by));
    return {};
}

/// Options of training a head after its drafter. If a ranking suffices (bcl), weights are trained only if one
/// of them is given.
constexpr const char* training_options[] = {"--epochs",        "--rate",    "--batch",    "--level-decay",
                                            "--drafted-share", "--teacher", "--negatives"};

void add_router_options(CLI::App& command, fit::RouterOptions& options) {
    add_shown(command, "--router-width", options.width,
              head_names(FitRecipe::clusters) + ": hidden width r (our default)")
        ->check(CLI::Range(1, 1 << 14));
}

void add_affinity_options(CLI::App& command, fit::AffinityOptions& options) {
    add_shown(command, "--neighbours", options.width,
              head_names(FitRecipe::affinity) + ": neighbours per token (our default)");
    add_shown(command, "--keep", options.keep,
              head_names(FitRecipe::affinity) + ": share of probability that a token keeps (our default)");
}

void add_divergence_options(CLI::App& command, fit::KlOptions& options) {
    add_shown(command, "--epochs", options.epochs,
              fmt::format(
                  "epochs over the rows, 0 = stop at the closed form (our default); makes {} train its rows",
                  head_names(FitRecipe::alpha_rows)));
    add_shown(command, "--rate", options.rate, "peak learning rate (our default)");
    add_shown(command, "--batch", options.batch, "rows per step (our default)")
        ->check(CLI::Range(1, 1 << 16));
    add_shown(command, "--level-decay", options.level_decay,
              "weight of draft level l is this value to the power l (EAGLE-3)")
        ->check(CLI::Range(0.0, 1.0));
    add_shown(command, "--drafted-share", options.draft_share,
              "drafted rows per text row, labelled by the drafter's full head (our default)")
        ->check(CLI::Range(0.0, 100.0));
    add_shown(command, "--teacher", options.teacher,
              "who teaches text rows: the target (SlimSpec), or the drafter's full head, whose distribution "
              "takes fewer rows to learn")
        ->check(CLI::IsMember({"target", "drafter"}));
    add_shown(
        command, "--negatives", options.negatives,
        "tokens drawn in a step to stand for those that no teacher of the step favours: faster; 0 = the "
        "whole vocabulary")
        ->check(CLI::Range(0, 1 << 20));
    add_shown(command, "--seed", options.seed, "seed of shuffles and initial values");
}

void add_size_options(CLI::App& command, FitConfig& config) {
    fit::FitOptions& options = config.options;
    command.add_option(
        "--rank", config.rank,
        head_names(FitRecipe::low_rank) + ": rank, or one per draft level as in 72/36 (default: d/8)");
    command.add_flag(
        "--per-level", options.per_level,
        head_names(FitRecipe::low_rank) + ": one down-projection per draft level, i.e. per Medusa head");
    command
        .add_option("--start", config.start,
                    head_names(FitRecipe::low_rank) +
                        ": head weights to go on from instead of the closed form, of the same drafter")
        ->excludes("--rank")
        ->excludes("--per-level");
    command.add_option(
        "-v,--vocabulary", options.v,
        head_names(FitRecipe::trimmed_rows) + ": tokens kept (our default: a quarter of the vocabulary)");
    add_shown(command, "--alpha", options.alpha,
              head_names(FitRecipe::alpha_rows) +
                  ": weight of coverage against cost; not the overlap alpha of replay --overlap")
        ->check(CLI::Range(0.0, 1.0));
    command.add_flag("--int8", options.int8,
                     head_names(FitRecipe::by_divergence) +
                         ": store the large matrix in half the bytes, with one scale per 64 values; almost "
                         "no loss for a head that runs at int8");
    add_shown(command, "--eos", config.eos,
              head_names(FitRecipe::any_trimmed_rows | FitRecipe::routers) +
                  ": whether tokens that end the text are always in the vocabulary; no paper has this rule")
        ->check(CLI::IsMember({"no", "yes"}));
    add_shown(command, "--clusters", options.clusters,
              head_names(FitRecipe::clusters) + ": clusters (our default)");
    add_shown(command, "--groups", options.groups,
              head_names(FitRecipe::groups) + ": groups of equal size (our default)");
    add_router_options(command, options.router);
    add_affinity_options(command, options.affinity);
}

void add_training_options(CLI::App& command, FitConfig& config) {
    fit::FitOptions& options = config.options;
    add_shown(command, "--rounds", options.collect.anchors,
              "rounds drafted along the recording as training data (our default)");
    add_shown(command, "--drafted-every", options.collect.draft_every,
              "draft the full head's tree in every Nth round (our default)")
        ->check(CLI::Range(1, 1 << 20));
    add_shown(command, "--label-topk", options.collect.label_topk,
              head_names(FitRecipe::routers) +
                  ": top tokens of the full head that label a group as wanted (our default)")
        ->check(CLI::Range(1, 32));
    add_divergence_options(command, options.kl);
    command.add_option("--tree", config.tree, "tree of the drafted rows");
    command.add_flag("--joint", config.joint,
                     head_names(FitRecipe::by_divergence) +
                         ": also train the drafter (eagle2, eagle3), on from its weights; the papers train "
                         "both from scratch");
    add_shown(command, "--joint-epochs", config.joint_options.epochs, "epochs over the texts (our default)")
        ->check(CLI::Range(1, 1000));
    add_shown(command, "--joint-batch", config.joint_options.batch, "texts per step (our default)")
        ->check(CLI::Range(1, 1 << 16));
    add_shown(command, "--joint-warmup", config.joint_options.warmup,
              "steps of the warm-up, at most a quarter of all (our default)")
        ->check(CLI::Range(0, 1 << 20));
    add_shown(command, "--joint-rate", config.joint_options.rate, "peak learning rate (our default)");
    add_shown(command, "--lambda", config.lambda,
              head_names(FitRecipe::own_loss) + " --joint: weight of the speculator's loss");
}

}  // namespace

void add_fit(CLI::App& program, Action& action) {
    auto options = std::make_shared<FitArguments>();
    FitConfig& config = options->config;
    const std::string names = head_names(FitRecipe::any);
    CLI::App* command = program.add_subcommand("fit", "Fit the weights of a draft LM head on a recording");
    command->footer(
        "Example: draftscope fit slimspec --recording demo.recording --drafter eagle3 --rank 72 --out "
        "slimspec.safetensors");
    command->add_option("HEAD", config.head, "one of " + names)->required();
    command
        ->add_option("--recording,--trace", config.recordings,
                     "recording, a folder that draftscope record wrote (repeatable: recordings are "
                     "concatenated)")
        ->allow_extra_args(false);
    auto* prompts = command->add_option("--prompts", config.own_run.prompts_file,
                                        "prompts that a draft model answers itself, in place of a recording");
    prompts->excludes("--recording");
    command->add_option("--limit", config.own_run.limit, "conversations taken from the prompts (0 = all)")
        ->needs(prompts);
    add_shown(*command, "--max-new", config.own_run.max_new, "tokens of an answer to the prompts")
        ->needs(prompts);
    add_shown(*command, "--drafter,--drafters", config.drafter,
              "NAME[:PATH[,KEY=VALUE...]], the drafter whose hidden states the head reads");
    command->add_option("--out", config.out, "file to write")->required();
    command->add_option("--model", config.model,
                        "target: only its embedding, LM head and tokenizer are read");
    command->add_option("--text", config.text,
                        head_names(FitRecipe::raw_text) + ": raw text, ranked by token counts");
    command->add_option("--ranking", config.ranking,
                        head_names(FitRecipe::any_trimmed_rows | FitRecipe::groups) +
                            ": token ranking (default: counted on the recording)");
    add_size_options(*command, config);
    add_training_options(*command, config);
    add_shown(*command, "--precision", config.precision, "f32, bf16, int8, int4 or auto (as recorded)");
    command->add_option(
        "--python", config.python,
        "Python with PyTorch, for what is trained (default: that of tools/with_torch.sh, else python3)");
    add_shown(*command, "--device", config.device, "device of the training; auto: a GPU if there is one")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
    add_threads_option(*command, config.threads);
    command->add_flag("--overwrite", config.overwrite, "replace an existing file");
    add_output_options(*command, options->output);
    for (const char* option :
         {"--joint-epochs", "--joint-batch", "--joint-warmup", "--joint-rate", "--lambda"})
        command->get_option(option)->needs("--joint");
    for (const char* option : training_options) command->get_option(option)->excludes("--joint");
    command->callback([options, command, &action] {
        options->config.options.router.seed = options->config.options.kl.seed;
        action = [options, command]() -> Result<int> {
            DS_TRY(check_used(*command, options->config.head));
            FitConfig& requested = options->config;
            const HeadInfo* head = find_head_or_suffix(requested.head);
            for (const char* option : training_options)
                requested.must_train |= command->get_option(option)->count() > 0;
            requested.weights =
                requested.must_train && head != nullptr && head->fit.has(FitRecipe::alpha_rows);
            requested.must_train |= requested.joint;
            return do_fit(*options);
        };
    });
}

}  // namespace draftscope::cli
