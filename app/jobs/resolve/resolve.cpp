#include "app/jobs/resolve/resolve.h"

#include <cmath>
#include <filesystem>
#include <set>

#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/published_drafters.h"
#include "base/did_you_mean.h"
#include "base/join_and.h"
#include "base/parse.h"
#include "engine/draft/drafter_files.h"
#include "engine/draft/registry.h"
#include "engine/formats/gguf.h"
#include "engine/formats/gguf_model.h"
#include "engine/formats/synthetic_model.h"
#include "engine/heads/registry.h"
#include "kernels/backend.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

/// A tree that a CPU verifies profitably, given the cost of a verification by rows. Our default.
constexpr const char* cpu_tree = "depth=3,topk=4,nodes=12";
/// EAGLE-2's tree (arXiv 2406.16858, section 5).
constexpr const char* cuda_tree = "depth=5,topk=10,nodes=60";

bool same_file(const std::string& a, const std::string& b) {
    std::error_code error;
    return !a.empty() && !b.empty() && fs::equivalent(a, b, error) && !error;
}

Status resolve_model(ResolvedRun& run) {
    const std::string demo = find_demo_model();
    if (run.config.model.empty()) {
        if (demo.empty()) {
            const std::string script = model_fetcher();
            return bad_input(
                "the demo model is missing; fetch it with {} model, or name another target, "
                "a GGUF file or a model folder",
                script.empty() ? "tools/fetch_deps.sh" : script);
        }
        run.config.model = demo;
    }
    DS_ASSIGN(run.config.model, find_checkpoint("--model", run.config.model, run.notes));
    run.demo_model = same_file(run.config.model, demo);
    return {};
}

/// Checks the target's files first, so that their errors precede others.
Status check_model(const std::string& path) {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return {};
    DS_ASSIGN(const GgufFile file, GgufFile::open(path));
    DS_ASSIGN([[maybe_unused]] const auto known, gguf_architecture(file));
    return {};
}

/// Returns the drafters of a kind that are published for a target, as the end of an error's sentence.
std::string published_for(const std::string& model, const std::string& drafter) {
    const auto all = read_published_drafters();
    if (!all.ok()) return "";
    std::vector<std::string> places;
    for (const PublishedDrafter& one : drafters_for(model, *all))
        if (one.drafter == drafter) places.push_back(one.at);
    return places.empty() ? "" : fmt::format("; published: {}", join_and(places));
}

Status resolve_drafter(ResolvedRun& run) {
    choose_drafter(run.config);
    DS_TRY(check_pair(run.config.drafter));
    run.pair = pair_prefix(run.config.drafter);
    const std::string spec = run.config.drafter.substr(run.pair.size());
    const std::size_t colon = spec.find(':');
    run.drafter_id = spec.substr(0, colon);
    run.drafter_path = colon == std::string::npos ? std::string() : spec.substr(colon + 1);
    const DrafterInfo* info = find_drafter(run.drafter_id);
    if (info == nullptr) {
        std::vector<std::string_view> known;
        for (const DrafterInfo& row : drafter_registry()) known.push_back(row.id);
        return bad_input("--drafter {}: unknown drafter; known are {}{}", run.drafter_id,
                         fmt::join(known, ", "), did_you_mean(run.drafter_id, known));
    }
    if (run.config.drafter_is_automatic && !info->needs_weights)
        add_note(
            run.notes,
            "--drafter: {}, as no checkpoint comes with this target; draftscope drafters --for MODEL lists "
            "published ones",
            run.drafter_id);
    if (!info->needs_weights) return {};
    std::string usual;
    if (run.demo_model) usual = find_asset("drafters/" + run.drafter_id);
    if (usual.empty() && info->has_synthetic && is_synthetic_model(run.config.model))
        usual = run.config.model;
    run.drafter_path = with_default_path(run.drafter_path, usual);
    if (run.drafter_path.empty() || run.drafter_path.front() == ',') {
        DS_TRY(check_model(run.config.model));
        return bad_input(
            "--drafter {0}: needs a checkpoint for this target; give --drafter {0}:FOLDER, or use --drafter "
            "suffix, ngram or none{1}",
            run.drafter_id, published_for(run.config.model, run.drafter_id));
    }
    const std::string path = parse_drafter_path(run.drafter_path, info->options);
    DS_ASSIGN(const std::string found,
              find_checkpoint(fmt::format("--drafter {}:", run.drafter_id), path, run.notes));
    run.drafter_path.replace(0, path.size(), found);
    return {};
}

ArtefactSources artefact_sources(const ResolvedRun& run) {
    const bool synthetic = is_synthetic_model(run.config.model);
    return {run.config.artefacts, run.demo_model, run.drafter_id,
            synthetic ? run.config.model : std::string()};
}

/// --head auto: finds the heads available for this target and drafter. Heads trained with another drafter are
/// excluded.
Status find_head_candidates(ResolvedRun& run, bool replay) {
    if (replay) return bad_input("--head auto: is measured on a live run; name the heads");
    if (!run.auto_tree)
        return bad_input(
            "--head auto: is chosen together with the tree; use --tree auto, or compare heads under one tree "
            "with draftscope bench --heads");
    const ArtefactSources sources = artefact_sources(run);
    std::vector<HeadSpec> specs;
    for (const auto& [head, trees] : run.shipped) {
        DS_ASSIGN(HeadSpec spec, parse_head_spec(head));
        specs.push_back(std::move(spec));
    }
    for (const HeadInfo& info : head_registry())
        if (run.shipped.empty() && !info.replay_only) specs.push_back({std::string(info.id), {}});
    for (HeadSpec& spec : specs) {
        HeadCandidate one{std::move(spec), {}};
        one.artefacts = find_artefacts(one.spec, sources);
        if (!make_head(one.spec, one.artefacts).ok()) continue;
        if (!check_head(*find_drafter(run.drafter_id), *find_head(one.spec.id)).ok()) continue;
        const auto trained_drafter = find_trained_drafter(one.spec, one.artefacts);
        if (trained_drafter.ok() && trained_drafter->empty()) run.head_candidates.push_back(std::move(one));
    }
    return {};
}

/// --tree quick: loads the table of the drafter and checks that it covers the head.
Status find_shipped_acceptance(ResolvedRun& run) {
    if (run.config.tree != quick_tree) return {};
    const auto refuse = [](const std::string& what) {
        return bad_input(
            "--tree quick: has no recorded acceptance for {}; use --tree auto, which measures it, or name a "
            "tree",
            what);
    };
    if (!run.demo_model) return refuse(fmt::format("--model {}", run.config.model));
    if (run.config.drafter != run.drafter_id) return refuse(fmt::format("--drafter {}", run.config.drafter));
    DS_ASSIGN(run.shipped, load_shipped_acceptance(run.drafter_id));
    if (run.shipped.empty()) return refuse(fmt::format("--drafter {}", run.drafter_id));
    if (run.config.head == "auto") return {};
    DS_ASSIGN(const HeadSpec spec, parse_head_spec(run.config.head));
    if (!run.shipped.contains(to_text(spec))) return refuse(fmt::format("--head {}", run.config.head));
    return {};
}

Status resolve_head(ResolvedRun& run, bool replay) {
    const bool choose = run.config.head == "auto";
    DS_ASSIGN(HeadSpec spec, parse_head_spec(choose ? full_head_id : run.config.head));
    DS_TRY(check_given_artefacts(run.config.artefacts));
    DS_TRY(check_file_of(spec));
    const ArtefactSources sources = artefact_sources(run);
    if (choose) DS_TRY(find_head_candidates(run, replay));
    if (const HeadInfo* info = find_head(spec.id); info != nullptr)
        DS_TRY(check_head(*find_drafter(run.drafter_id), *info));
    run.artefacts = find_artefacts(spec, sources);
    if (run.demo_model && run.config.drafter == run.drafter_name() && !run.drafter_path.empty())
        run.artefacts.remedy = demo_heads_command(run.drafter_id);
    if (sources.synthetic.empty()) run.ranking_path = run.artefacts.ranking_path;
    // The papers compare dynamic shortlists with the static one of raw text (MicroSpec, figure 1b).
    if (run.ranking_path.empty() && run.demo_model) run.ranking_path = demo_text_ranking_path();
    DS_ASSIGN([[maybe_unused]] auto probe, make_head(spec, run.artefacts));
    if (const HeadInfo* info = find_head(spec.id); info->replay_only && !replay)
        return bad_input("--head {}: needs the recorded text; use it with draftscope replay", spec.id);
    if (spec.rdk && !run.verify->needs().sampled_drafts)
        return bad_input(
            "--head {}: +rdk changes the distribution that drafts are sampled from; use it with --verify pq",
            to_text(spec));
    // A jointly trained head selects its drafter, unless the user gives a drafter by path.
    DS_ASSIGN(const std::string trained_drafter, find_trained_drafter(spec, run.artefacts));
    if (!trained_drafter.empty() && run.config.drafter == run.drafter_name())
        run.drafter_path = trained_drafter;
    run.head = std::move(spec);
    return {};
}

/// Number of rows from which products are bound by compute rather than memory. Our default, not measured.
constexpr int default_library_rows = 33;
constexpr int max_library_rows = 1 << 20;

/// Parses --numerics. "exact" gives 0; "fast" and "fast:ROWS" give the minimum rows of a product that a
/// library may compute on the device.
Result<int> parse_numerics(const std::string& text) {
    if (text == "exact") return 0;
    if (text == "fast") return default_library_rows;
    const std::string prefix = "fast:";
    if (text.starts_with(prefix)) {
        const auto rows = parse_number<int>(std::string_view(text).substr(prefix.size()));
        if (rows && *rows >= 1 && *rows <= max_library_rows) return *rows;
        return bad_input("--numerics {}: ROWS of fast:ROWS must be 1 to {}", text, max_library_rows);
    }
    return bad_input("--numerics {}: unknown; known are exact, fast, fast:ROWS", text);
}

Status resolve_backend(ResolvedRun& run) {
    RunConfig& config = run.config;
    DS_ASSIGN(run.library_rows, parse_numerics(config.numerics));
    const auto check_cpu = [&]() -> Status {
        for (const auto& [given, flag] :
             {std::pair(!config.gpu_graphs, "--no-gpu-graphs"), {config.l2_window, "--l2-window"}})
            if (given)
                return bad_input("{}: has no effect on the CPU; leave it out, or use --backend cuda", flag);
        if (run.library_rows == 0) return {};
        return bad_input(
            "--numerics {}: every kernel of the CPU back end is batch-invariant at no cost; use exact, or "
            "--backend cuda",
            config.numerics);
    };
    if (config.backend == "cpu") return check_cpu();
    if (config.backend != "cuda" && config.backend != "auto")
        return bad_input("--backend {}: unknown; known are cpu, cuda, auto", config.backend);
    const kernels::DeviceProbe found = kernels::probe_cuda();
    if (config.backend == "cuda" && !found.available) return bad_input("--backend cuda: {}", found.why_not);
    config.backend = found.available ? "cuda" : "cpu";
    run.gpu = config.backend == "cuda";
    return run.gpu ? Status() : check_cpu();
}

/// Call after resolve_head(): the simulated acceptance belongs to the driving head.
Status resolve_acceptance(ResolvedRun& run) {
    const RunConfig& config = run.config;
    const DrafterInfo& drafter = *find_drafter(run.drafter_id);
    const bool follows_head = config.acceptance.starts_with("trace:");
    if (follows_head && config.head == "auto" && config.acceptance.find('#') == std::string::npos)
        return bad_input(
            "--simulate-acceptance {}: --head auto chooses among heads; name one, or the head to follow as "
            "trace:FILE#HEAD",
            config.acceptance);
    // A drafter that drafts nothing needs no matching head in the file.
    if (follows_head && !drafter.drafts) {
        run.acceptance.emplace().rates = {0.0};
        return {};
    }
    DS_ASSIGN(run.acceptance,
              parse_acceptance(config.acceptance, drafter.uses_head ? to_text(*run.head) : ""));
    if (run.acceptance && !config.shadow.empty())
        return bad_input(
            "--shadow {}: shadow heads follow the text, which --simulate-acceptance {} replaces; leave one "
            "out",
            config.shadow, config.acceptance);
    return {};
}

/// Returns the chain with the depth of a tree.
TreeSpec to_chain(const TreeSpec& tree) {
    const int drafts = std::min(tree.levels(), tree.nodes - 1);
    TreeSpec chain;
    chain.adaptive = tree.adaptive;
    chain.depth = drafts - 1;
    chain.topk = 1;
    chain.nodes = drafts + 1;
    return chain;
}

Status resolve_numbers(ResolvedRun& run) {
    RunConfig& config = run.config;
    DS_TRY(resolve_backend(run));
    std::string usual(drafter_traits(config.drafter).usual_tree);
    if (usual.empty()) usual = default_tree(config.backend);
    if (config.tree.empty()) config.tree = usual;
    run.auto_tree = config.tree == "auto" || config.tree == quick_tree;
    if (run.auto_tree && config.batch > 1)
        return bad_input("--tree {}: measures one sequence at a time; give a tree with --batch {}",
                         config.tree, config.batch);
    DS_ASSIGN(run.tree, parse_tree_spec(run.auto_tree ? usual : config.tree));
    DS_ASSIGN(run.verify, make_rule(config.verify));
    // To drop a sampled draft for its own probability would change the distribution of the text.
    if (run.tree.adaptive && run.tree.adaptive->limits().any() && run.verify->needs().sampled_drafts)
        return bad_input(
            "--tree {}: ends drafts by their probabilities; --verify {} samples drafts, so give "
            "chain=N or another policy",
            config.tree, config.verify);
    if (const RuleInfo& rule = run.verify->info();
        rule.own_threshold && (config.top_p < 1 || config.top_k > 0))
        return bad_input("--verify {}: has its own threshold; leave --top-p and --top-k out", rule.id);
    if (config.precision != "auto") {
        run.precision = kernels::precision_from(config.precision);
        if (!run.precision) {
            return bad_input("--precision {}: unknown; known are f32, bf16, int8, int4, auto",
                             config.precision);
        }
        if (config.backend == "cuda" && run.precision != kernels::Precision::bf16)
            return bad_input("--precision {}: the CUDA back end computes in bf16; use bf16 or auto",
                             config.precision);
    }
    if (config.max_new < 1) return bad_input("--max-new {}: must be at least 1", config.max_new);
    if (config.context < 0) return bad_input("--context {}: must be at least 1", config.context);
    if (config.batch < 1 || config.batch > max_batch)
        return bad_input("--batch {}: must be 1 to {}", config.batch, max_batch);
    if (config.threads < 0 || config.threads > 1024) {
        return bad_input("--threads {}: must be 1 to 1024 (0 = all cores)", config.threads);
    }
    if (!(config.temperature >= 0) || std::isinf(config.temperature))
        return bad_input("--temperature {}: must be a finite number of 0 or more", config.temperature);
    if (!(config.top_p > 0 && config.top_p <= 1))
        return bad_input("--top-p {}: must be in (0, 1]", config.top_p);
    if (config.top_k < 0) return bad_input("--top-k {}: must not be negative", config.top_k);
    if (config.limit < 0) return bad_input("--limit {}: must not be negative", config.limit);
    if (config.baseline < short_baseline)
        return bad_input("--baseline {}: must not be negative", config.baseline);
    if (config.calibration_rounds < 0) {
        return bad_input("--calibrate {}: must not be negative", config.calibration_rounds);
    }
    if (config.prompt.empty() && config.prompts_file.empty())
        return bad_input("nothing to decode: give --prompt TEXT or --prompts FILE.jsonl");
    if (!config.prompts_file.empty() && config.prompts_file != standard_input &&
        !file_exists(config.prompts_file)) {
        return bad_input("--prompts {}: no such file", config.prompts_file);
    }
    return {};
}

}  // namespace

void choose_drafter(RunConfig& config) {
    if (config.drafter != auto_drafter) return;
    const bool has_checkpoint = config.model.empty() || same_file(config.model, find_demo_model()) ||
                                is_synthetic_model(config.model);
    config.drafter = has_checkpoint ? RunConfig().drafter : "suffix";
    config.drafter_is_automatic = true;
}

std::string default_tree(std::string_view backend) {
    return backend == "cuda" ? cuda_tree : cpu_tree;
}

RulePtr ResolvedRun::rule() const {
    return rule_in_effect(acceptance ? make_simulated_rule(*acceptance, verify) : verify, config.temperature);
}

std::optional<kernels::Precision> ResolvedRun::load_precision() const {
    if (precision || gpu || !demo_model) return precision;
    return kernels::Precision::int8;
}

Result<ResolvedRun> resolve_run(const RunConfig& config, bool replay) {
    ResolvedRun run;
    run.config = config;
    DS_ASSIGN(run.tier, parse_tier(config.tier));
    DS_ASSIGN(run.config.template_switches, normalise_switches(config.template_switches));
    DS_TRY(resolve_numbers(run));
    if (run.auto_tree && replay)
        return bad_input("--tree {}: is measured on a live run; name a tree, e.g. --tree chain=3",
                         config.tree);
    DS_TRY(resolve_model(run));
    DS_TRY(resolve_drafter(run));
    if (run.auto_tree && !run.pair.empty())
        return bad_input("--tree {}: forecasts one drafter's rounds; name a tree with --drafter {}",
                         config.tree, run.drafter_name());
    DS_TRY(find_shipped_acceptance(run));
    DS_TRY(resolve_head(run, replay));
    DS_TRY(resolve_acceptance(run));
    if (find_drafter(run.drafter_id)->chains_only && !run.auto_tree) run.tree = to_chain(run.tree);
    return run;
}

std::vector<std::string> split_specs(const std::string& list) {
    std::vector<std::string> specs;
    for (std::size_t first = 0; first <= list.size();) {
        const std::size_t comma = std::min(list.find(',', first), list.size());
        const std::string piece = list.substr(first, comma - first);
        // "key=value", where the value may hold a colon; "head:key=value" is another head.
        const std::size_t equals = piece.find('=');
        const bool continues = !specs.empty() && equals != std::string::npos && equals < piece.find(':');
        if (continues)
            specs.back() += "," + piece;
        else
            specs.push_back(piece);
        first = comma + 1;
    }
    return specs;
}

Result<std::vector<ResolvedShadow>> resolve_shadows(const ResolvedRun& run) {
    constexpr std::string_view aligned = "aligned:";
    std::vector<ResolvedShadow> shadows;
    std::vector<HeadSpec> heads;
    if (run.head) heads.push_back(*run.head);
    for (const HeadCandidate& one : run.head_candidates) heads.push_back(one.spec);
    if (run.config.shadow.empty()) {
        DS_TRY(check_artefacts_used(run.config.artefacts, heads));
        return shadows;
    }
    if (run.rule()->info().losslessness != Losslessness::exact)
        return bad_input("--shadow {}: shadow heads require exact match; use --verify match",
                         run.config.shadow);
    if (!run.head)
        return bad_input("--shadow {}: drafter {} has no LM head that another head could replace",
                         run.config.shadow, run.drafter_id);
    std::set<std::pair<bool, std::string>> seen;
    for (const std::string& piece : split_specs(run.config.shadow)) {
        RunConfig config = run.config;
        ResolvedShadow shadow;
        shadow.aligned = piece.starts_with(aligned);
        config.head = shadow.aligned ? piece.substr(aligned.size()) : piece;
        config.shadow.clear();
        if (config.tree == quick_tree) config.tree.clear();
        if (config.head == "auto") return bad_input("--shadow {}: name the shadow heads", piece);
        auto resolved = resolve_run(config);
        if (!resolved.ok()) return bad_input("--shadow: {}", resolved.error().message);
        shadow.run = std::move(*resolved);
        if (shadow.run.drafter_path != run.drafter_path)
            return bad_input("--shadow {}: was trained with another drafter, {}; run it separately", piece,
                             shadow.run.drafter_path);
        if (!seen.emplace(shadow.aligned, to_text(*shadow.run.head)).second)
            return bad_input("--shadow: {} is named twice", piece);
        heads.push_back(*shadow.run.head);
        shadows.push_back(std::move(shadow));
    }
    DS_TRY(check_artefacts_used(run.config.artefacts, heads));
    return shadows;
}

Status validate(const RunConfig& config) {
    DS_ASSIGN(const ResolvedRun run, resolve_run(config));
    DS_ASSIGN([[maybe_unused]] const auto shadows, resolve_shadows(run));
    return {};
}

Result<RunConfig> resolve_defaults(RunConfig config) {
    DS_ASSIGN(ResolvedRun run, resolve_run(config));
    return std::move(run.config);
}

}  // namespace draftscope
