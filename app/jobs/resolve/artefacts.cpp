#include "app/jobs/resolve/artefacts.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "app/jobs/resolve/assets.h"
#include "base/did_you_mean.h"
#include "engine/draft/registry.h"
#include "engine/heads/artefact.h"
#include "engine/heads/registry.h"
#include "engine/heads/static_vocab.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

/// Returns why `path` cannot be the file of this head; `option` is what the user typed.
Status check_file(const HeadInfo& info, const std::string& path, const std::string& option) {
    if (info.required_file == RequiredFile::none)
        return bad_input("{}: head {} needs no file", option, info.id);
    if (!file_exists(path)) return bad_input("{}: no such file", option);
    return {};
}

std::string given_path(std::span<const std::string> given, std::string_view head) {
    std::string path;
    for (const std::string& one : given)
        if (one.substr(0, one.find('=')) == head) path = one.substr(one.find('=') + 1);
    return path;
}

/// Returns the shipped weights files of a drafter's heads, heads/DRAFTER/*.safetensors, sorted by name.
std::vector<std::string> list_shipped(const std::string& drafter_id) {
    return drafter_id.empty() ? std::vector<std::string>()
                              : list_assets("heads/" + drafter_id, ".safetensors");
}

/// Returns the first shipped file whose parameters agree. Post-hoc files precede joint ones, which need
/// another drafter. If none agrees, returns any file of this head, so that its error names the fitted
/// parameters.
std::string shipped_artefact(const HeadSpec& spec, std::string_view head, const std::string& drafter_id) {
    std::string joint, other;
    for (const std::string& path : list_shipped(drafter_id)) {
        const auto artefact = HeadArtefact::open(path, head);
        if (!artefact.ok()) continue;
        if (!artefact->check_parameters(spec).ok()) {
            other = path;
        } else if (artefact->info().joint) {
            joint = path;
        } else {
            return path;
        }
    }
    return joint.empty() ? other : joint;
}

struct ShippedArtefacts {
    bool any = false, joint = false;   ///< joint: the head has been trained with a drafter
    std::vector<std::string> lacking;  ///< the demo model's drafters without a file of this head
};
ShippedArtefacts find_shipped(std::string_view head) {
    ShippedArtefacts found;
    for (const DrafterInfo& drafter : drafter_registry()) {
        const std::string id(drafter.id);
        bool has_file = false;
        for (const std::string& path : list_shipped(id))
            if (const auto artefact = HeadArtefact::open(path, head); artefact.ok()) {
                has_file = true;
                found.joint = found.joint || artefact->info().joint;
            }
        found.any = found.any || has_file;
        if (!has_file && drafter.needs_weights && !find_asset("drafters/" + id).empty())
            found.lacking.push_back(id);
    }
    return found;
}

}  // namespace

bool file_exists(const std::string& path) {
    std::error_code error;
    return fs::exists(path, error);
}

Status check_given_artefacts(std::span<const std::string> given) {
    std::map<std::string, std::string> files;
    for (const std::string& artefact : given) {
        const std::size_t equals = artefact.find('=');
        if (equals == std::string::npos) return bad_input("--head-weights {}: expected HEAD=PATH", artefact);
        const std::string head = artefact.substr(0, equals), path = artefact.substr(equals + 1);
        const HeadInfo* info = find_head_or_suffix(head);
        if (info == nullptr) {
            std::vector<std::string_view> known = {rdk_suffix().id};
            for (const HeadInfo& row : head_registry()) known.push_back(row.id);
            return bad_input("--head-weights {}: unknown head '{}'{}", artefact, head,
                             did_you_mean(head, known));
        }
        DS_TRY(check_file(*info, path, "--head-weights " + artefact));
        const auto [first, is_first] = files.emplace(head, path);
        if (!is_first)
            return bad_input(
                "--head-weights: two files for head {}, {} and {}; name each in its head, as in {}:file={}",
                head, first->second, path, head, path);
    }
    return {};
}

bool uses_artefact(const HeadSpec& head, const std::string& artefact) {
    const std::string name = artefact.substr(0, artefact.find('='));
    return (head.id == name && head.file.empty()) || (head.rdk && name == rdk_suffix().id);
}

Status check_artefacts_used(std::span<const std::string> given, std::span<const HeadSpec> heads) {
    for (const std::string& artefact : given) {
        const bool used = std::any_of(heads.begin(), heads.end(),
                                      [&](const HeadSpec& head) { return uses_artefact(head, artefact); });
        const std::string name = artefact.substr(0, artefact.find('='));
        if (!used)
            return bad_input("--head-weights {}: none of the heads is {}; leave it out", artefact,
                             name == rdk_suffix().id ? "one with +rdk" : name);
    }
    return {};
}

Status check_file_of(const HeadSpec& spec) {
    const HeadInfo* info = find_head(spec.id);
    if (spec.file.empty() || info == nullptr) return {};
    return check_file(*info, spec.file, "head " + to_text(spec));
}

HeadFiles find_artefacts(const HeadSpec& spec, const ArtefactSources& sources) {
    HeadFiles found;
    const HeadInfo* info = find_head(spec.id);
    if (info == nullptr) return found;
    const std::string given = spec.file.empty() ? given_path(sources.given, spec.id) : spec.file;
    const bool fitted = info->required_file == RequiredFile::fitted ||
                        (info->required_file == RequiredFile::either && is_head_artefact(given));
    (fitted ? found.artefact_path : found.ranking_path) = given;
    found.affinity_path = given_path(sources.given, rdk_suffix().id);
    if (!sources.synthetic.empty()) {
        std::string& path =
            info->required_file == RequiredFile::fitted ? found.artefact_path : found.ranking_path;
        const bool needed = info->required_file != RequiredFile::none && found.artefact_path.empty();
        if (needed && path.empty()) path = sources.synthetic;
    }
    if (!sources.demo_model) return found;
    if (info->required_file == RequiredFile::fitted && found.artefact_path.empty())
        found.artefact_path = shipped_artefact(spec, spec.id, sources.drafter_id);
    if (info->required_file != RequiredFile::fitted && found.ranking_path.empty())
        found.ranking_path =
            info->fit.has(FitRecipe::raw_text) ? demo_text_ranking_path() : demo_ranking_path();
    if (found.affinity_path.empty())
        found.affinity_path =
            shipped_artefact(HeadSpec{std::string(rdk_suffix().id), {}}, rdk_suffix().id, sources.drafter_id);
    if (found.affinity_path.empty()) found.affinity_path = find_asset("heads/rdk.safetensors");
    return found;
}

std::string demo_heads_command(std::string_view drafter) {
    return fmt::format("tools/make_head_artefacts.sh {}", drafter);
}

std::string demo_ranking_path() {
    return find_asset("heads/demo_ranking.safetensors");
}

std::string demo_text_ranking_path() {
    return find_asset("heads/demo_text_ranking.safetensors");
}

Result<std::string> find_trained_drafter(const HeadSpec& spec, const HeadFiles& artefacts) {
    if (artefacts.artefact_path.empty()) return std::string();
    DS_ASSIGN(const HeadArtefact artefact, HeadArtefact::open(artefacts.artefact_path, spec.id));
    const fs::path name = artefact.info().drafter_weights;
    if (name.empty()) return std::string();
    const std::string folder = (fs::path(artefacts.artefact_path).parent_path() / name).string();
    if (name != name.filename() || name == ".." || !file_exists(folder))
        return bad_input("{}: its drafter folder '{}' is missing; copy it into the same folder",
                         artefacts.artefact_path, name.string());
    return folder;
}

std::string overlap_warning(const HeadSpec& spec, const HeadFiles& artefacts,
                            std::span<const std::string> prompts, std::string_view prompt_source) {
    if (artefacts.artefact_path.empty()) return {};
    const auto artefact = HeadArtefact::open(artefacts.artefact_path, spec.id);
    if (!artefact.ok()) return {};  // an unusable file was rejected when the head was made
    const std::set<std::string> seen(artefact->info().prompts.begin(), artefact->info().prompts.end());
    const auto known = std::count_if(prompts.begin(), prompts.end(), [&](const std::string& prompt) {
        return !prompt.empty() && seen.contains(prompt);
    });
    if (known == 0) return {};
    return fmt::format(
        "head {}: its weights were fitted on {} of {}'s {} prompts, so its acceptance is too high",
        to_text(spec), known, prompt_source, prompts.size());
}

std::optional<HeadFileReport> head_file_report(const HeadSpec& spec, const HeadFiles& artefacts) {
    HeadFileReport report;
    if (!artefacts.artefact_path.empty()) {
        const auto artefact = HeadArtefact::open(artefacts.artefact_path, spec.id);
        if (!artefact.ok()) return std::nullopt;
        report.path = artefacts.artefact_path;
        report.parameters = artefact->info().parameters;
        report.trained = artefact->info().joint ? "joint" : "post-hoc";
        const auto fit = nlohmann::json::parse(artefact->info().report, nullptr, false);
        if (const nlohmann::json::json_pointer lambda("/fit/lambda");
            fit.is_object() && fit.contains(lambda) && fit[lambda].is_number())
            report.lambda = fit[lambda].get<double>();
        for (const auto& [name, value] : fit.items())
            if (value.is_number()) report.held_out[name] = value.get<double>();
        return report;
    }
    const HeadInfo* info = find_head(spec.id);
    if (artefacts.ranking_path.empty() || info == nullptr || !info->accepts_ranking()) return std::nullopt;
    const auto ranking = open_ranking(artefacts.ranking_path);
    if (!ranking.ok()) return std::nullopt;
    report.path = artefacts.ranking_path;
    report.source = (*ranking)->metadata("source");
    return report;
}

double default_size(const HeadInfo& info) {
    for (const HeadParam& param : info.params)
        if (param.name == info.size.name) return param.default_value;
    return 0;
}

std::string fitted_size(const HeadSpec& spec, const HeadFiles& artefacts) {
    const HeadInfo* info = find_head(spec.id);
    if (info == nullptr || info->size.name.empty() || artefacts.artefact_path.empty()) return {};
    const auto artefact = HeadArtefact::open(artefacts.artefact_path, spec.id);
    if (!artefact.ok()) return {};
    const auto found = artefact->info().parameters.find(info->size.name);
    return found == artefact->info().parameters.end() ? std::string() : found->second;
}

std::vector<HeadChoice> head_choices() {
    const bool ranking = !demo_ranking_path().empty() && !demo_text_ranking_path().empty();
    std::vector<HeadChoice> choices;
    for (const HeadInfo& info : head_registry()) {
        HeadChoice choice;
        choice.spec = std::string(info.id);
        choice.name = std::string(info.name);
        choice.paper = std::string(info.paper);
        choice.rgb = info.rgb;
        const bool trained = info.accepts_artefact();
        const ShippedArtefacts artefacts = trained ? find_shipped(info.id) : ShippedArtefacts{};
        // The papers train these heads jointly with the drafter; the name marks post-hoc weights.
        if (trained && !artefacts.joint) choice.name += " (post-hoc)";
        if (info.replay_only) {
            choice.why_not = "needs the recorded text, which only a replay has";
        } else if (info.required_file == RequiredFile::fitted && !artefacts.any) {
            choice.why_not = fmt::format("no weights file: run draftscope fit {}", info.id);
        } else if (info.required_file == RequiredFile::fitted) {
            for (const std::string& drafter : artefacts.lacking)
                choice.lacking.emplace(drafter, fmt::format("no weights file for {}: run {}", drafter,
                                                            demo_heads_command(drafter)));
        } else if (info.accepts_ranking() && !ranking) {
            choice.why_not = fmt::format("needs {}", info.artefact);
        }
        choice.usable = choice.why_not.empty();
        choices.push_back(std::move(choice));
    }
    return choices;
}

}  // namespace draftscope
